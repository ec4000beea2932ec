"""Development questions: the draw, its independence of everything but the seed, and its file."""

import hashlib
import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from allocation import splits
from allocation.errors import InputError
from allocation.tables import Questions
from jobs import dev_questions, draw_dev
from tests.frames import table
from tests.workspace import SAMPLE


def asked(*types):
    rows = [{"question_id": f"q{n:03}", "question_type": type_} for n, type_ in enumerate(types)]
    return table(Questions, [row | {"agent_id": "a", "question": "?"} for row in rows])


def test_the_lowest_hashes_are_drawn():
    questions = asked(*["x"] * 9)
    by_hash = sorted(questions["question_id"], key=lambda q: hashlib.sha256(f"7\0{q}".encode()).hexdigest())
    assert splits.draw(questions, 3, 7, stratified=False) == sorted(by_hash[:3])


def test_each_type_gives_its_share():
    """Of 10 questions 6, 3 and 1 of a type: 4 draws are 2.4, 1.2 and 0.4, so 2 and 1, and the last is of a before c."""
    questions = asked(*"aaaaaabbbc")
    drawn = pl.DataFrame({"question_id": splits.draw(questions, 4, 1, stratified=True)})
    counts = dict(drawn.join(questions, on="question_id").group_by("question_type").len().iter_rows())
    assert counts == {"a": 3, "b": 1}


@given(
    types=st.lists(st.sampled_from(["x", "y", None, "z"]), min_size=2, max_size=40),
    seed=st.integers(0, 10**9),
    share=st.floats(0, 1),
    stratified=st.booleans(),
)
def test_as_many_as_asked_for_whatever_the_order_of_rows(types, seed, share, stratified):
    questions = asked(*types)
    count = 1 + int(share * (len(types) - 2))
    drawn = splits.draw(questions, count, seed, stratified=stratified)
    assert len(set(drawn)) == count
    assert drawn == splits.draw(questions.reverse(), count, seed, stratified=stratified)
    if stratified:
        of_type = questions.filter(pl.col("question_id").is_in(drawn)).group_by("question_type").len("own")
        sizes = (
            questions.group_by("question_type").len().join(of_type, on="question_type", how="left", nulls_equal=True)
        )
        for _, size, own in sizes.iter_rows():
            assert abs((own or 0) - count * size / len(types)) < 1


@pytest.mark.parametrize("count", [0, 5, 6])
def test_one_is_left_to_test_on(count):
    with pytest.raises(InputError, match=f"{count} development questions of 5"):
        splits.draw(asked(*"aaaaa"), count, 1, stratified=False)


def test_mark_and_only():
    questions = asked("a", "a", "b").with_columns(split=pl.lit("dev"))
    marked = splits.mark(questions, ["q001"], "dev.json")
    assert marked["split"].to_list() == ["test", "dev", "test"]
    assert splits.only(marked, "dev", "run")["question_id"].to_list() == ["q001"]
    with pytest.raises(InputError, match=r"^dev\.json: 2 development questions are unknown, q7 first; draw again$"):
        splits.mark(questions, ["q9", "q001", "q7"], "dev.json")
    with pytest.raises(InputError, match=r"^run: no question has split dev"):
        splits.only(marked.filter(pl.col("split") == "test"), "dev", "run")


def draw(*arguments):
    return CliRunner().invoke(draw_dev.app, [str(argument) for argument in arguments])


def test_the_file_is_drawn_once(tmp_path):
    out = tmp_path / "dev" / "questions.json"
    result = draw("--n", 20, "--out", out, "--questions", SAMPLE / "questions.parquet")
    assert (result.exit_code, result.stderr) == (0, "")
    content = json.loads(out.read_text())
    assert (content["seed"], content["drawn_from"], len(content["question_ids"])) == (20261003, 60, 20)
    assert dev_questions.read(out) == content["question_ids"]
    # Fixed: the draw must not move with a library.
    assert content["question_ids"][:6] == ["q002", "q006", "q008", "q009", "q012", "q014"]
    before = out.read_bytes()
    again = draw("--n", 30, "--out", out, "--questions", SAMPLE / "questions.parquet")
    assert (again.exit_code, len(again.stderr.splitlines())) == (2, 1)
    assert "development questions are drawn once" in again.stderr
    assert out.read_bytes() == before


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"question_ids": "q1"}', '{"question_ids": [1]}', "\udcff"])
def test_what_is_no_such_file(tmp_path, text):
    path = tmp_path / "dev.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=r"dev\.json: "):
        dev_questions.read(path)
    with pytest.raises(InputError, match="no file of development questions"):
        dev_questions.read(tmp_path / "none.json")


def test_a_run_is_built_with_them(work):
    path = work.folder / "dev.json"
    path.write_text(json.dumps({"question_ids": ["q2"]}))
    work.build("--dev", str(path))
    assert pl.read_parquet(work.out / "questions.parquet")["split"].to_list() == ["test", "dev"]
    assert work.json()["inputs"]["dev"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_text(json.dumps({"question_ids": ["q3"]}))
    assert "1 development questions are unknown, q3 first" in work.refused("--dev", str(path))
