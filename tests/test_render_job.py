"""The command that shows one question's context."""

import json

import pytest
from typer.testing import CliRunner

from jobs.render import app


def render(work, *arguments):
    return CliRunner().invoke(app, [*arguments, "--run", str(work.out)])


@pytest.fixture
def built(work):
    work.build()
    return work


def test_text(built):
    result = render(built, "q1", "--sequence", "items", "--budget", "40")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "q1: Which key is red?",
        "items at 40 characters, 34 used",
        "",
        "[1] mem:1: The key is red. The door is green.",
        "",
        "left out: 1 items, 1 excerpts, 82 characters",
    ]


def test_json(built):
    result = render(built, "q1", "--budget", "5000", "--json")
    shown = json.loads(result.stdout)
    assert (shown["question_id"], shown["sequence"], shown["budget"]) == ("q1", "coverage", 5000)
    assert shown["omitted"] == {"items": 0, "excerpts": 0, "characters": 0}
    first, second = shown["items"]
    assert (first["content"], first["ranges"]) == ("The key is red. The door is green.", [[0, 34]])
    assert [step["basis"] for step in first["steps"]] == ["passage"] * 2
    assert second["excerpts"][0]["record_ref"] == "mem:3"
    assert {"part": 0, "text": "which", "kind": "word", "records_holding": 0} in shown["parts"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["q9"], "has no question q9 with a window"),
        (["q1", "--sequence", "nonsense"], "sequence 'nonsense' is unknown"),
        (["q1", "--sequence", "oracle"], "has no sequence oracle; it has items, evidence, whole, coverage"),
        (["q1", "--store", "nowhere.db"], "nowhere.db: no such store"),
    ],
)
def test_refusals(built, arguments, told):
    result = render(built, *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert told in result.stderr


def test_a_run_that_is_not_there(work):
    result = render(work, "q1")
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {work.out}: is not the output of a run; build it with build-sequences\n",
    )


def test_a_run_of_another_layout(built):
    (built.out / "run.json").write_text("[]")
    assert "is of layout None, this version reads 2; build the run again" in render(built, "q1").stderr


def test_a_run_that_lost_its_parts(built):
    (built.out / "parts.parquet").unlink()
    result = render(built, "q1")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


def test_a_run_whose_sequence_is_damaged(built):
    (built.out / "sequences" / "sequence=coverage" / "part-00000.parquet").write_bytes(b"PAR1")
    result = render(built, "q1")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize("change", ["UPDATE memories SET content = 'short'", "DELETE FROM memories"])
def test_a_store_that_changed_since_the_run(built, change):
    built.sql(change)
    result = render(built, "q1", "--budget", "0")
    assert result.exit_code == 2
    assert "mem:1 has another text" in result.stderr or "mem:1 is gone from the store" in result.stderr


def test_only_the_store_is_read_again(built):
    built.questions.unlink()
    built.windows.unlink()
    assert render(built, "q1").exit_code == 0
    built.store.unlink()
    result = render(built, "q1")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "store.db: no such store" in result.stderr
