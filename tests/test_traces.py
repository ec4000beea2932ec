"""A memory server's answers as windows and parts."""

import json

import polars as pl
import pytest
from typer.testing import CliRunner

from allocation import traces
from allocation.errors import InputError
from jobs import import_windows, record_windows
from tests.workspace import QUESTIONS, leftovers

ANSWER = {
    "items": [
        {"head_ref": "mem:2", "claims": [{"ref": "mem:3"}, {"ref": "mem:2"}, {"ref": "ep:1"}], "ranges": [[0, 3]]},
        {"head_ref": "profile", "claims": []},
        {"head_ref": "mem:1", "claims": [{"ref": "mem:1"}, {"ref": "mem:3"}, {"ref": "mem:9"}]},
    ],
    "reconstruction": {"excluded_without_provenance": 1},
    "trace": {
        "candidate_refs": ["mem:3", "ep:1", "mem:1", "mem:2"],
        "coverage": {"parts": [{"span": [6, 9], "kind": "ascii"}, {"span": [13, 16], "kind": "ascii"}]},
    },
}


def rows(found):
    return [
        (row["item_position"], row["claim_position"], row["record_ref"], row["recall_rank"])
        for row in found
        if row["question_id"] == "q1"
    ]


def test_a_reconstruction():
    # Ranks count from the end of the candidates, after what recall excluded; mem:9 was reached through a relation.
    expected = [(0, 0, "mem:2", 1), (0, 1, "ep:1", 3), (0, 2, "mem:3", 4), (1, 0, "mem:1", 2), (1, 1, "mem:9", 5)]
    assert rows(traces.window("q1", ANSWER)) == expected
    assert traces.parts("Which KEY is ＲＥＤ?", ANSWER) == ["key", "red"]
    assert traces.parts("Which key?", ANSWER | {"trace": {"candidate_refs": []}}) is None


def test_a_recall():
    messages = [{"ref": "mem:1"}, {"ref": "profile"}, {"ref": "ep:1"}]
    assert rows(traces.window("q1", {"messages": messages})) == [(0, 0, "ep:1", 0), (1, 0, "mem:1", 2)]
    assert traces.window("q1", {"messages": []}) == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"items": []}, "without its trace; ask again with trace=true"),
        (ANSWER | {"trace": {"clusters": []}}, "without its trace"),
        (ANSWER | {"items": [{}]}, "has an entry without head_ref"),
        (ANSWER | {"items": [{"head_ref": "mem:1", "claims": [{}]}]}, "has an entry without ref"),
        ({"messages": [1]}, "has an entry without ref"),
        ({"error": "no such agent"}, "the server answered: no such agent"),
        ({"trace": {}}, "is no answer of reconstruct or recall"),
    ],
)
def test_what_is_no_answer(answer, message):
    with pytest.raises(InputError, match=message):
        traces.window("q1", answer)


@pytest.mark.parametrize(
    "wrapped",
    [
        ANSWER,
        {"question_id": "q1", **ANSWER},
        {"response": ANSWER},
        {"content": [{"type": "text", "text": json.dumps(ANSWER)}], "isError": False},
        {"jsonrpc": "2.0", "id": 3, "result": {"content": [{"type": "text", "text": json.dumps(ANSWER)}]}},
        {"structuredContent": ANSWER, "content": []},
    ],
)
def test_envelopes(wrapped):
    found = traces.unwrapped(wrapped)
    assert {name: found[name] for name in ANSWER} == ANSWER


@pytest.mark.parametrize("wrapped", [None, 3, [], {}, {"content": []}, {"response": "x"}, {"text": "Not allowed."}])
def test_empty_envelopes(wrapped):
    with pytest.raises(InputError, match=r"no answer of|the server answered: Not allowed\."):
        traces.unwrapped(wrapped)


def imported(work, *answers, name="answers.jsonl"):
    file = work.folder / name
    lines = "".join(answer if isinstance(answer, str) else json.dumps(answer) + "\n" for answer in answers)
    file.write_text(lines, encoding="utf-8")
    out = work.folder / "imported"
    arguments = [str(file), "--questions", str(work.questions), "--out", str(out)]
    return CliRunner().invoke(import_windows.app, arguments), out, file


def test_from_saved_answers_to_sequences(work):
    second = {"messages": [{"ref": "mem:2"}, {"ref": "ep:1"}]}
    kept = [
        {"question_id": "q2", "error": "a bad day"},
        {"question_id": "q1", "response": ANSWER | {"items": ANSWER["items"][:1]}},
        {"question_id": "q2", "asked": {"query": "Another text"}, "response": second},
        {"question_id": "q2", "asked": {"query": QUESTIONS[1]["question"]}, "response": second},
        {"question_id": "q2", "response": {"messages": []}},
        {"question_id": "q7", "response": ANSWER},
    ]
    result, out, file = imported(work, *kept)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{out}: 5 window rows of 2 questions, recorded parts of 1\n"
    assert result.stderr == f"warning: 2 answers could not be used; see {out / 'rejects.parquet'}\n"
    reasons = pl.read_parquet(out / "rejects.parquet").select("source", "row", "reason").rows()
    assert reasons == [
        (str(file), 5, "the question was answered before; the first answer is used"),
        (str(file), 6, "question_id is unknown"),
    ]
    questions = pl.read_parquet(out / "questions.parquet")
    assert questions["parts"].to_list() == [["key", "red"], None]
    work.questions, work.windows = out / "questions.parquet", out / "windows.parquet"
    work.build("--sequences", "evidence,coverage")
    found = work.rows("evidence").select("question_id", "record_ref").unique().sort("question_id", "record_ref")
    assert found.rows() == [("q1", "ep:1"), ("q1", "mem:2"), ("q1", "mem:3"), ("q2", "ep:1"), ("q2", "mem:2")]


def test_one_json_object_by_question_and_a_list(work):
    result, out, _ = imported(work, {"q1": ANSWER}, name="answers.json")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == "warning: 1 questions have no answer and so no window\n"
    first = pl.read_parquet(out / "windows.parquet")
    result, out, _ = imported(work, [{"question_id": "q1", "response": ANSWER}], name="answers.json")
    assert result.exit_code == 0, result.stderr
    assert pl.read_parquet(out / "windows.parquet").equals(first)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"question_id": "q1", "resp', "row 1: is no whole JSON"),
        ("a.json", '[{"question_id": "q1"},', "is no whole JSON"),
        ("a.jsonl", '{"items": []}\n', "row 1: has no question_id"),
        ("a.jsonl", '{"question_id": "q1", "items": []}\n', "row 1: was answered without its trace"),
        ("a.jsonl", "", "row 0: it holds no answer"),
        ("a.txt", "", "unknown kind of file"),
    ],
)
def test_files_that_are_refused(work, name, content, message):
    result, out, _ = imported(work, content, name=name)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert message in result.stderr
    assert not out.exists()
    assert not leftovers(out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "by --server URL or by --command"),
        (["--server", "http://127.0.0.1:9/mcp", "--command", "x"], "by --server URL or by --command"),
        (["--server", "http://127.0.0.1:9/mcp"], "the server cannot be asked (ConnectError"),
        (["--command", "no-such-program-here"], "the server cannot be asked (FileNotFoundError"),
        (["--command", "false"], "the server cannot be asked ("),
    ],
)
def test_a_server_that_cannot_be_asked(work, arguments, message):
    pytest.importorskip("mcp")
    out = work.folder / "answers.jsonl"
    result = CliRunner().invoke(record_windows.app, [str(work.questions), "--out", str(out), *arguments])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert message in result.stderr
    assert not out.exists() or not out.read_bytes()


def test_another_file_is_not_gone_on_with(work):
    out = work.folder / "notes.jsonl"
    out.write_text('{"mine": 1}\n')
    result = CliRunner().invoke(record_windows.app, [str(work.questions), "--out", str(out), "--command", "false"])
    assert result.exit_code == 2
    assert "holds something else than answers of record-windows" in result.stderr
    assert out.read_text() == '{"mine": 1}\n'
