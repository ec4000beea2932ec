"""``just curves``: what it adds to a run, and what it refuses."""

import json
import shutil

import polars as pl
import pytest
from typer.testing import CliRunner

from allocation.tables import Curves, Metrics, Points
from jobs import curves, outputs
from tests.workspace import SAMPLE, TEXTS, Workspace, contents, export, leftovers

ADDED = {"points.parquet", "metrics.parquet", "curves.parquet", "analysis.sql", "report.html", "run.json"}


def draw(out, *arguments):
    return CliRunner().invoke(curves.app, [str(out), *arguments])


def refused(out, *arguments):
    """Draw, which must fail in one line and change nothing."""
    before = contents(out)
    result = draw(out, *arguments)
    assert result.exit_code == 2, result.output
    lines = result.stderr.splitlines()
    assert lines[-1].startswith("error: ")
    assert all(line.startswith("warning: ") for line in lines[:-1])
    assert contents(out) == before
    assert not leftovers(out)
    return lines[-1].removeprefix("error: ")


@pytest.fixture
def labelled(work):
    """A run with evidence."""
    path = work.folder / "evidence.csv"
    path.write_text("question_id,record_ref,start,end\nq1,mem:2,0,23\nq2,ep:1,,\n")
    work.build("--evidence", str(path))
    return work


def test_what_is_added(labelled):
    before = contents(labelled.out)
    result = draw(labelled.out)
    assert (result.exit_code, result.stderr) == (0, "")
    after = contents(labelled.out)
    added = {name for name in after if after[name] != before.get(name)}
    assert {name for name in added if not name.startswith("charts/")} == ADDED
    assert {"charts/budget_curve.svg", "charts/budget_curve.png", "charts/losses.svg"} <= added
    assert set(before) <= set(after)
    points, metrics = (pl.read_parquet(labelled.out / f"{name}.parquet") for name in ("points", "metrics"))
    Points.validate(points)
    Metrics.validate(metrics)
    assert points.select("question_id", "point").rows() == metrics.select("question_id", "point").rows()
    assert points["point"].n_unique() == 7 * 9 + 8 + 3  # budgets, item counts, all items of three quote sizes
    every = pl.read_parquet(labelled.out / "curves.parquet")
    assert set(Curves.column_names()) < set(every.columns)
    assert (
        every.filter(pl.col("breakdown") == "all")["point"].to_list()
        == json.loads(after["run.json"])["curves"]["points"]
    )
    row = every.filter(pl.col("point") == "items:all", pl.col("breakdown") == "all").row(0, named=True)
    assert (row["questions"], row["labelled"], row["sessions_shown"], row["turns_touched"]) == (2, 2, 1, 1)


def test_drawing_again_gives_the_same_bytes_and_leaves_the_run_alone(labelled, no_pictures):
    assert draw(labelled.out).exit_code == 0
    first = contents(labelled.out)
    files = {path: path.stat().st_ino for path in (labelled.out / "sequences").rglob("*.parquet")}
    assert draw(labelled.out).exit_code == 0
    again = contents(labelled.out)
    assert {name for name in first if first[name] != again[name]} <= {"run.json"}  # it tells the time
    assert files == {path: path.stat().st_ino for path in files}


def test_other_budgets_replace_the_earlier_ones(labelled, no_pictures):
    assert draw(labelled.out).exit_code == 0
    assert draw(labelled.out, "--budgets", "30,20", "--point", "evidence:top1", "--point", "evidence:30").exit_code == 0
    points = pl.read_parquet(labelled.out / "points.parquet")["point"].unique().to_list()
    assert {name for name in points if name.startswith("evidence")} == {"evidence:20", "evidence:30", "evidence:top1"}


def test_a_copy_where_files_cannot_be_linked(labelled, no_pictures, monkeypatch):
    def no_links(*_):
        raise OSError("no such thing here")

    monkeypatch.setattr(outputs.os, "link", no_links)
    before = contents(labelled.out)
    assert draw(labelled.out).exit_code == 0
    after = contents(labelled.out)
    assert {name: after[name] for name in before if name not in ADDED} == {
        name: content for name, content in before.items() if name not in ADDED
    }


def test_questions_without_evidence_or_window_are_told(labelled, no_pictures):
    more = [{"question_id": f"q{n}", "agent_id": "a", "question": "Who?", "query_vector": None} for n in (1, 2, 3, 4)]
    labelled.ask(more)
    labelled.build("--evidence", str(labelled.folder / "evidence.csv"))
    result = draw(labelled.out)
    assert result.stderr == (
        "warning: 2 of 4 questions have no evidence (q3, q4); the evidence metrics leave them out\n"
    )
    points = pl.read_parquet(labelled.out / "points.parquet").filter(pl.col("question_id") == "q3")
    assert points.select(pl.col("characters", "items", "omitted", "cl100k_base").sum()).row(0) == (0, 0, 0, 0)


def test_what_is_refused(labelled):
    out = labelled.out
    assert "the budget 'abc' is not a whole number" in refused(out, "--budgets", "500,abc")
    assert "the budget '28oo' is not a whole number" in refused(out, "--point", "evidence:28oo")
    assert "names no sequence or no cut" in refused(out, "--point", "evidence")
    assert f"{out}: has no sequence recall; it has items, evidence" in refused(out, "--point", "recall:100")
    assert "nowhere.db: no such store" in refused(out, "--store", "nowhere.db")


def test_a_run_without_evidence(work):
    work.build()
    assert refused(work.out) == f"{work.out}: has no evidence labels; build the run with --evidence"


def test_what_is_no_run(tmp_path):
    result = draw(tmp_path)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "is not the output of a run" in result.stderr


@pytest.mark.parametrize("name", ["questions.parquet", "windows.parquet", "records.parquet", "parts.parquet"])
def test_a_run_that_lost_a_file(labelled, name):
    (labelled.out / name).unlink()
    assert refused(labelled.out) == f"{labelled.out}: incomplete, {name} is missing; build the run again"


def test_a_run_that_lost_a_sequence(labelled):
    shutil.rmtree(labelled.out / "sequences" / "sequence=whole")
    assert "incomplete, sequences/sequence=whole is missing" in refused(labelled.out)


def test_a_run_that_lost_some_steps(labelled):
    path = labelled.out / "sequences" / "sequence=whole" / "part-00000.parquet"
    rows = pl.read_parquet(path)
    rows[1:].write_parquet(path)
    assert f"sequence whole has {len(rows) - 1} of {len(rows)} steps" in refused(labelled.out)


def test_a_damaged_file(labelled):
    (labelled.out / "windows.parquet").write_bytes(b"PAR1")
    assert "windows.parquet: cannot be read" in refused(labelled.out)


def test_a_run_of_an_older_layout(labelled):
    path = labelled.out / "run.json"
    run = json.loads(path.read_text())
    del run["layout"]
    path.write_text(json.dumps(run))
    assert refused(labelled.out) == f"{labelled.out}: is of layout 1, this version reads 2; build the run again"


def test_a_store_with_other_texts(labelled):
    labelled.sql("UPDATE memories SET content = replace(content, 'red', 'dry') WHERE id = 1")
    told = "mem:1 has another text or time than when the run was built; build the run again"
    assert refused(labelled.out) == f"{labelled.store}: {told}"


def test_a_run_that_is_replaced_meanwhile(labelled, no_pictures, monkeypatch):
    measure = curves.curves.measure

    def slow(*arguments):
        labelled.build("--evidence", str(labelled.folder / "evidence.csv"), "--rrf-k", "1")
        return measure(*arguments)

    monkeypatch.setattr("jobs.curves.curves.measure", slow)
    result = draw(labelled.out)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "was replaced while its curves were drawn; run again" in result.stderr
    assert labelled.json()["settings"]["rrf_k"] == 1
    assert "curves" not in labelled.json()
    assert not leftovers(labelled.out)


def test_a_parquet_store(labelled, no_pictures, tmp_path):
    export(labelled.store, tmp_path / "store", list(TEXTS))
    labelled.build("--store", str(tmp_path / "store"), "--evidence", str(labelled.folder / "evidence.csv"))
    assert draw(labelled.out).exit_code == 0


def test_the_sample(tmp_path):
    """The whole of it, pictures too."""
    work = Workspace(tmp_path / "work")
    for name in ("store", "questions", "windows"):
        setattr(work, name, SAMPLE / ("store.db" if name == "store" else f"{name}.parquet"))
    work.build("--evidence", str(SAMPLE / "evidence.parquet"))
    assert draw(work.out).exit_code == 0
    charts = {path.name for path in (work.out / "charts").iterdir()}
    names = ("budget_curve", "count_and_quote_curves", "losses", "evidence_rank", "by_type")
    assert charts == {f"{name}.{kind}" for name in names for kind in ("svg", "png")}
    assert "q045" in (work.out / "report.html").read_text(encoding="utf-8")
