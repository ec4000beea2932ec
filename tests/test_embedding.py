"""Query vectors and stores' vectors from an endpoint, good and bad."""

import json
import math

import numpy as np
import polars as pl
import pytest
from tenacity import wait_none
from typer.testing import CliRunner

from allocation.similarity import packed
from jobs import embed_questions, embed_store, embedding
from jobs.build_sequences import app as build_app
from jobs.curves import app as curves_app
from jobs.import_dataset import app as import_app
from jobs.store import open_store
from tests.endpoint import Endpoint
from tests.server import embedding as hashed
from tests.test_import_dataset import TALK
from tests.workspace import leftovers

TEXTS = [f"What about number {number}?" for number in range(5)]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(embedding, "_WAIT", wait_none())
    monkeypatch.setattr(embedding, "BATCH", 2)
    monkeypatch.delenv(embedding.KEY, raising=False)


@pytest.fixture
def endpoint():
    served = Endpoint()
    yield served
    served.close()


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    rows = [{"question_id": f"q{i}", "agent_id": "a", "question": text} for i, text in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def run(questions, url, *more):
    out = questions.with_name("embedded.parquet")
    arguments = [str(questions), "--url", url, "--out", str(out), "--cache", str(questions.with_name("cache.db"))]
    return CliRunner().invoke(embed_questions.app, [*arguments, *more]), out


def refused(questions, url, *more):
    result, out = run(questions, url, *more)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert not out.exists()
    assert not leftovers(out)
    return result.stderr


@pytest.mark.parametrize(
    ("route", "more"), [("/embed", ()), ("/embed/", ()), ("/v1/embeddings?version=2", ("--model", "m"))]
)
def test_every_question_gets_its_vector(endpoint, questions, route, more):
    result, out = run(questions, endpoint.address + route, *more)
    assert result.exit_code == 0, result.stderr
    found = pl.read_parquet(out)
    assert found["question"].to_list() == TEXTS
    assert found["query_vector"].to_list() == [hashed.vector(text).tolist() for text in TEXTS]
    assert [len(texts) for texts in endpoint.asked] == [2, 2, 1]
    assert "5 vectors" in result.stdout


def test_a_rerun_sends_nothing_and_repeated_texts_go_once(endpoint, questions):
    with questions.open("a") as file:
        file.write(json.dumps({"question_id": "again", "agent_id": "b", "question": TEXTS[0]}) + "\n")
    first, out = run(questions, endpoint.address + "/embed")
    before = out.read_bytes()
    assert endpoint.texts() == TEXTS
    second, _ = run(questions, endpoint.address + "/embed")
    assert (first.exit_code, second.exit_code, out.read_bytes()) == (0, 0, before)
    assert endpoint.texts() == TEXTS
    assert "6 vectors" in second.stdout
    assert "0 of them fetched now" in second.stdout


def test_vectors_that_are_there_are_kept(endpoint, questions):
    rows = pl.read_ndjson(questions).with_columns(query_vector=pl.Series([[1.0], None, [], None, None]))
    rows.write_ndjson(questions)
    result, out = run(questions, endpoint.address + "/embed")
    assert result.exit_code == 0, result.stderr
    assert pl.read_parquet(out)["query_vector"].list.len().to_list() == [1, 64, 64, 64, 64]
    assert endpoint.texts() == TEXTS[1:]


def test_another_model_is_not_served_from_the_cache(endpoint, questions):
    run(questions, endpoint.address + "/v1/embeddings", "--model", "one")
    run(questions, endpoint.address + "/v1/embeddings", "--model", "other")
    assert len(endpoint.texts()) == 2 * len(TEXTS)


def test_failures_that_pass_are_tried_again(endpoint, questions):
    endpoint.next = [503, 429, 500, None, 503]
    result, out = run(questions, endpoint.address + "/embed")
    assert result.exit_code == 0, result.stderr
    assert pl.read_parquet(out)["query_vector"].to_list() == [hashed.vector(text).tolist() for text in TEXTS]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ([503] * 5, "answered 503 Service Unavailable, 5 times"),
        ([400], "answered 400 Bad Request: {"),
        ([401], "the key is read from EMBEDDING_API_KEY"),
        ([{"embeddings": [[1.0]]}], "gave 1 vectors for 2 texts"),
        ([{"embeddings": [[1.0] * 64, [1.0]]}], "vectors of several widths"),
        ([{"embeddings": [[1.0], [1.0]]}], "gave a vector of width 1 where"),
        ([{"embeddings": [[], []]}], "vectors of several widths, or none"),
        ([{"embeddings": [[math.nan] * 64] * 2}], "NaN or infinity"),
        ([{"embeddings": [[1e300] * 64] * 2}], "NaN or infinity"),
        ([{"embeddings": [["a"] * 64] * 2}], "not of numbers"),
        ([{"embeddings": [[None] * 64] * 2}], "NaN or infinity"),
        ([{"embeddings": "no"}], "answered without"),
        ([["no"]], "answered without"),
        ([b"<html>"], "something else than JSON"),
    ],
)
def test_a_bad_answer_is_one_line_and_what_came_before_is_kept(endpoint, questions, told, message):
    endpoint.next = [None, *told]  # the first batch is answered well
    assert message in refused(questions, endpoint.address + "/embed")
    endpoint.asked.clear()
    result, _ = run(questions, endpoint.address + "/embed")
    assert result.exit_code == 0, result.stderr
    assert endpoint.texts() == TEXTS[2:]


def test_an_endpoint_that_is_down_or_slow_is_one_line(endpoint, questions):
    endpoint.next = [0.5] * 5
    slow = refused(questions, endpoint.address + "/embed", "--timeout", "0.1")
    assert "no answer within 0.1 seconds, 5 times" in slow
    endpoint.close()
    assert "cannot be reached (ConnectError), 5 times" in refused(questions, endpoint.address + "/embed")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8401/embed", "give a whole URL"),
        ("http://127.0.0.1:1/", "ends in neither /embed nor /v1/embeddings"),
        ("http://127.0.0.1:1/v1/embeddings", "needs --model"),
        ("http://me:secret@127.0.0.1:1/embed", "put the key in the variable EMBEDDING_API_KEY"),
    ],
)
def test_a_url_of_another_form_is_refused(questions, url, message):
    stderr = refused(questions, url)
    assert message in stderr
    assert "secret" not in stderr


def test_the_key_comes_from_the_environment_and_is_written_nowhere(endpoint, questions, monkeypatch):
    monkeypatch.setenv(embedding.KEY, "s3cr3t-key")
    result, _ = run(questions, endpoint.address + "/embed?api=s3cr3t-key")
    assert result.exit_code == 0
    assert {headers["Authorization"] for headers in endpoint.headers} == {"Bearer s3cr3t-key"}
    assert "s3cr3t" not in result.output
    assert not [path for path in questions.parent.rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()]


def test_a_store_of_another_model_is_a_warning_with_both_names(work, questions):
    served = Endpoint("hashed")
    try:
        result, _ = run(questions, served.address + "/embed", "--store", str(work.store))
    finally:
        served.close()
    assert result.exit_code == 0
    assert result.stderr == (
        "warning: the store's vectors are of 'm', the questions' of '1:hashed'; cosines between them mean nothing\n"
        "warning: the store's vectors have 4 dimensions, the questions' 64\n"
    )


def test_a_cache_that_is_something_else_and_an_empty_question_are_refused(endpoint, questions):
    cache = questions.with_name("cache.db")
    cache.write_text("something else entirely, and long enough to be read as a header of a database" * 3)
    assert "is no cache of vectors" in refused(questions, endpoint.address + "/embed")
    cache.unlink()
    with questions.open("a") as file:
        file.write(json.dumps({"question_id": "q9", "agent_id": "b", "question": " "}) + "\n")
    assert "row 6 (q9): question is empty" in refused(questions, endpoint.address + "/embed")


def test_packed_vectors_are_the_memory_servers():
    pytest.importorskip("cpersona")
    from cpersona import blocks

    vectors = np.random.default_rng(5).normal(size=(500, 24)).astype(np.float32)
    assert packed(vectors).to_list() == [blocks._int8_of(vector) for vector in vectors]
    assert packed(np.zeros((1, 3), dtype=np.float32)).to_list() == [b"\0\0\0"]


def test_a_store_gets_vectors_and_keeps_those_of_the_model(work, tmp_path, endpoint):
    out, cache = tmp_path / "embedded", tmp_path / "cache.db"
    arguments = [str(work.store), "--url", endpoint.address + "/embed", "--out", str(out), "--cache", str(cache)]
    result = CliRunner().invoke(embed_store.app, [*arguments, "--model", "m"])
    assert result.exit_code == 0, result.stderr
    refs = pl.Series(["ep:1", "mem:1", "mem:2", "mem:3"])
    with open_store(work.store) as before, open_store(out) as after:
        assert after.records(refs).equals(before.records(refs))
        stored = before.blocks(refs)
        found = after.blocks(refs)
    assert found.filter(pl.col("record_ref") != "mem:3").equals(stored)
    texts = ["The spare key hangs in the shed.", " It is old."]
    assert endpoint.texts() == texts
    fresh = found.filter(record_ref="mem:3")
    assert fresh.select("start", "end", "embedding_model").rows() == [(0, 32, "m"), (32, 43, "m")]
    assert fresh["vector"].to_list() == packed(np.stack([hashed.vector(text) for text in texts])).to_list()
    endpoint.asked.clear()
    result = CliRunner().invoke(embed_store.app, [*arguments, "--model", "new"])
    assert result.exit_code == 0, result.stderr
    assert len(endpoint.texts()) == 8


def test_from_a_datasets_file_to_curves(tmp_path, endpoint):
    """The path of a person who has LoCoMo's file and an endpoint."""
    data, cache = tmp_path / "data", str(tmp_path / "cache.db")
    file = tmp_path / "locomo.json"
    file.write_text(json.dumps([TALK]), encoding="utf-8")
    url = ["--url", endpoint.address + "/embed", "--cache", cache]
    steps = [
        (import_app, ["locomo", str(file), "--out", str(data)]),
        (embed_store.app, [str(data / "store"), "--out", str(tmp_path / "store"), *url]),
        (embed_questions.app, [str(data / "questions.parquet"), "--out", str(tmp_path / "q.parquet"), *url]),
        (
            build_app,
            [
                *("--store", str(tmp_path / "store"), "--questions", str(tmp_path / "q.parquet")),
                *("--evidence", str(data / "evidence.parquet"), "--out", str(tmp_path / "run")),
            ],
        ),
        (curves_app, [str(tmp_path / "run")]),
    ]
    for command, arguments in steps:
        result = CliRunner().invoke(command, arguments)
        assert result.exit_code == 0, result.output
    sequence = pl.read_parquet(tmp_path / "run" / "sequences" / "sequence=evidence" / "*.parquet")
    assert sequence["cosine_rank"].null_count() == 0
    curves = pl.read_parquet(tmp_path / "run" / "curves.parquet").filter(point="items:all", breakdown="all")
    assert curves.select("sessions_shown", "turns_touched").row(0) == (1, 1)
