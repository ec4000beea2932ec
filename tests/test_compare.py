"""Two runs side by side."""

import pytest
from typer.testing import CliRunner

from jobs import compare, curves
from tests.workspace import Workspace, window_rows


def draw(work, *arguments):
    result = CliRunner().invoke(curves.app, [str(work.out), *arguments])
    assert result.exit_code == 0, result.output


def run(*arguments):
    return CliRunner().invoke(compare.app, list(map(str, arguments)))


@pytest.fixture(autouse=True)
def without_pictures(no_pictures):
    """What is compared are numbers."""


@pytest.fixture
def two(tmp_path):
    """Two runs of two questions; in the second, q1's answer record comes first."""
    works = [Workspace(tmp_path / name) for name in ("one", "two")]
    works[1].show(
        window_rows(("q1", 0, 0, "mem:2"), ("q1", 1, 0, "mem:1"), ("q2", 0, 0, "ep:1"), ("q2", 1, 0, "mem:2"))
    )
    for work in works:
        labels = work.folder / "evidence.csv"
        labels.write_text("question_id,record_ref,start,end\nq1,mem:2,0,23\nq2,ep:1,0,23\n")
        work.build("--evidence", str(labels), "--sequences", "items,evidence")
    return works


def rows(output, point):
    """The table of one point: its cells by metric."""
    own = output.split(f"\n{point}: ")[1].partition("low, high")[0]
    lines = [line.split() for line in own.splitlines()[4:]]
    return {line[0]: line[1:] for line in lines if line}


def test_each_metric_with_its_interval(two):
    for work in two:
        draw(work, "--budgets", "10")
    result = run(two[0].out, two[1].out, "--point", "items:10")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "paired: 2 questions" in result.stdout
    shown = rows(result.stdout, "items:10")
    # q1 shows its answer record only in B, so 1/2 and 2/2; resamples of q1 or of q2 alone give 1 and 0.
    assert shown["sessions_shown"] == ["50.0", "%", "100.0", "%", "+50.0", "+0.0", "+100.0"]
    assert "turns_not_recalled" not in shown  # the same on every question


def test_runs_that_are_the_same(two):
    draw(two[0])
    result = run(two[0].out, two[0].out)
    assert result.exit_code == 0
    assert "items:2800: 21 of 21 metrics are the same on every question" in result.stdout
    assert "items:500" not in result.stdout


def test_only_common_questions_are_paired(two):
    two[1].ask([{"question_id": "q2", "agent_id": "a", "question": "Who painted the door?", "query_vector": None}])
    two[1].show(window_rows(("q2", 0, 0, "mem:2")))
    labels = two[1].folder / "evidence.csv"
    labels.write_text("question_id,record_ref,start,end\nq2,ep:1,0,20\n")
    two[1].build("--evidence", str(labels), "--sequences", "items,evidence")
    for work in two:
        draw(work)
    result = run(two[0].out, two[1].out)
    assert "paired: 1 questions" in result.stdout
    assert result.stderr == "warning: the runs have other evidence labels for the same questions\n"


def test_what_cannot_be_compared(two, tmp_path):
    one, other = (work.out for work in two)
    draw(two[0])
    cases = [
        ((one, other), f"{other}: has no curves yet; draw them with just curves"),
        (
            (one, one, "--point", "items:123"),
            f"{one}: did not draw items:123; draw it with just curves --point items:123",
        ),
        ((one, one, "--point", "items"), "point 'items' names no sequence or no cut"),
        ((one, tmp_path), f"{tmp_path}: is not the output of a run"),
    ]
    for arguments, told in cases:
        result = run(*arguments)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert told in result.stderr
    draw(two[1], "--budgets", "100")
    assert "have no point at 2800 in common; name one with --point" in run(one, other).stderr
    two[1].ask([{"question_id": "q9", "agent_id": "a", "question": "Who?", "query_vector": None}])
    two[1].show(window_rows(("q9", 0, 0, "mem:2")))
    labels = two[1].folder / "evidence.csv"
    labels.write_text("question_id,record_ref\nq9,ep:1\n")
    two[1].build("--evidence", str(labels), "--sequences", "items,evidence")
    draw(two[1])
    assert "have no question in common" in run(one, other).stderr


def test_a_run_without_its_points(two):
    draw(two[0])
    (two[0].out / "points.parquet").unlink()
    result = run(two[0].out, two[0].out)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
