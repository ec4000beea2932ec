"""A run is whole under its name, or not there: whatever stops it, and whoever runs beside it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import duckdb
import polars as pl
import pytest

from allocation.errors import InputError
from allocation.tables import Sequences
from jobs import build_sequences, outputs
from tests.frames import table
from tests.workspace import QUESTIONS, ROOT, SAMPLE, Workspace, contents, leftovers, window_rows


def finish(out, text="new"):
    with outputs.run_folder(out) as folder:
        (folder / "run.json").write_text(text)


def test_a_run_appears_at_its_end(tmp_path):
    out = tmp_path / "deep" / "er" / "run"
    with outputs.run_folder(out) as folder:
        assert folder.parent == out.parent
        (folder / "run.json").write_text("new")
        assert not out.exists()
    assert contents(out) == {"run.json": b"new"}
    assert not leftovers(out)


def test_an_earlier_run_is_replaced_whole(tmp_path):
    out = tmp_path / "run"
    finish(out, "old")
    (out / "rejects.parquet").write_text("of the old run")
    with outputs.run_folder(out) as folder:
        (folder / "run.json").write_text("new")
        assert (out / "run.json").read_text() == "old"
    assert contents(out) == {"run.json": b"new"}
    assert not leftovers(out)


@pytest.mark.parametrize("error", [InputError("bad"), KeyboardInterrupt(), OSError("full")])
def test_an_earlier_run_stays_when_a_run_fails(tmp_path, error):
    out = tmp_path / "run"
    finish(out, "old")
    with pytest.raises(type(error)), outputs.run_folder(out) as folder:  # noqa: PT012
        (folder / "run.json").write_text("new")
        raise error
    assert contents(out) == {"run.json": b"old"}
    assert not leftovers(out)


def test_an_earlier_run_comes_back_when_the_last_step_fails(tmp_path):
    out = tmp_path / "run"
    finish(out, "old")
    with pytest.raises(FileNotFoundError), outputs.run_folder(out) as folder:
        shutil.rmtree(folder)
    assert contents(out) == {"run.json": b"old"}
    assert not leftovers(out)


def test_what_is_no_run_is_refused_and_stays(tmp_path):
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("mine")
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    for out in (file, folder):
        before = contents(out)
        with pytest.raises(InputError, match="is not the output of a run; choose another --out"):
            finish(out)
        assert contents(out) == before
        assert not leftovers(out)


def test_an_empty_folder_is_taken(tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    finish(out)
    assert contents(out) == {"run.json": b"new"}


@pytest.mark.parametrize("state", ["run", "empty", "dangling"])
def test_a_link_stays_and_its_target_is_replaced(tmp_path, state):
    target, link = tmp_path / "disk" / "target", tmp_path / "link"
    target.parent.mkdir()
    if state == "run":
        finish(target, "old")
    elif state == "empty":
        target.mkdir()
    link.symlink_to(target)
    finish(link)
    assert link.is_symlink()
    assert contents(target) == {"run.json": b"new"}
    assert not leftovers(target)
    assert not leftovers(link)


def test_leftovers_are_removed_but_not_those_of_other_names(tmp_path):
    out = tmp_path / "run"
    for name in (".run.part-aaaaaaaa", ".run.old-bbbbbbbb", ".run2.part-cccccccc", ".run2.old-dddddddd"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("left")
    finish(out, "old")  # the one called .old came back as the earlier run, and was replaced
    assert leftovers(out) == [".run2.old-dddddddd", ".run2.part-cccccccc"]


@pytest.mark.parametrize("name", ["run[1]", "*", "r?n", "it's здесь"])
def test_leftovers_of_names_with_glob_characters(tmp_path, name):
    other = tmp_path / ".run1.part-aaaaaaaa"
    own = tmp_path / f".{name}.part-bbbbbbbb"
    other.mkdir()
    own.mkdir()
    finish(tmp_path / name)
    assert other.exists()
    assert not own.exists()


def test_a_run_killed_between_its_two_last_steps_is_undone(tmp_path):
    out = tmp_path / "run"
    finish(out, "old")
    out.rename(tmp_path / ".run.old-aaaaaaaa")
    with pytest.raises(InputError), outputs.run_folder(out):  # noqa: PT012
        assert (out / "run.json").read_text() == "old"
        raise InputError("stop")
    assert contents(out) == {"run.json": b"old"}
    assert not leftovers(out)


def test_two_runs_at_once_both_end_whole(tmp_path):
    out = tmp_path / "run"
    with outputs.run_folder(out) as one:
        (one / "run.json").write_text("one")
        with outputs.run_folder(out) as two:
            (two / "run.json").write_text("two")
            assert one.exists()  # a living run's folder is left alone
        assert contents(out) == {"run.json": b"two"}
    assert contents(out) == {"run.json": b"one"}
    assert not leftovers(out)


def test_files_of_a_run_have_the_usual_permissions(tmp_path):
    mask = os.umask(0o027)
    try:
        finish(tmp_path / "run")
    finally:
        os.umask(mask)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o750


# --- Sequence files


def rows(*names):
    columns = ("item_position", "claim_position", "start", "end", "cost", "used", "record_rank", "inside_rank")
    rest = dict.fromkeys(columns, 0) | {"record_ref": "mem:1", "position": 0, "basis": "passage", "ranges": []}
    return table(Sequences, [{"question_id": name, **rest} for name in names])


@pytest.mark.parametrize("sizes", [[600], [1] * 600, [255, 2, 343], [256, 0, 256, 88]])
def test_files_are_cut_at_256_questions_however_they_come(tmp_path, sizes):
    names = [f"q{number:04}" for number in range(600)]
    files = outputs.SequenceFiles(tmp_path, "evidence")
    low = 0
    for size in sizes:
        files.add(rows(*names[low : low + size]))
        low += size
    files.close()
    written = sorted((tmp_path / "sequences" / "sequence=evidence").iterdir())
    assert [path.name for path in written] == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert [len(pl.read_parquet(path)) for path in written] == [256, 256, 88]
    assert pl.concat(map(pl.read_parquet, written))["question_id"].to_list() == names


def test_no_rows_make_one_file_with_the_columns(tmp_path):
    files = outputs.SequenceFiles(tmp_path, "evidence")
    files.add(rows())
    files.close()
    (file,) = (tmp_path / "sequences" / "sequence=evidence").iterdir()
    frame = pl.read_parquet(file, hive_partitioning=False)
    assert frame.schema == rows().schema


def test_whole_files_leave_no_empty_one_behind(tmp_path):
    files = outputs.SequenceFiles(tmp_path, "evidence")
    files.add(rows(*(f"q{number:04}" for number in range(256))))
    files.close()
    assert len(list((tmp_path / "sequences" / "sequence=evidence").iterdir())) == 1


# --- The command


def sample_work(tmp_path):
    """The sample, with an output of its own."""
    work = Workspace(tmp_path / "work")
    work.store, work.questions, work.windows = (
        SAMPLE / name for name in ("store.db", "questions.parquet", "windows.parquet")
    )
    return work


# Runs the command in forks, one after another: what takes long is the import.
STARTER = """
import json, os, sys
from jobs.build_sequences import app
for line in sys.stdin:
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        app(json.loads(line))
    print(child, flush=True)
    sys.stdin.readline()  # until then a child that ended keeps its number
    print(os.waitpid(child, 0)[1], flush=True)
"""


def test_a_killed_run_leaves_the_earlier_run_or_nothing(tmp_path):
    work = sample_work(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:

        def run(seconds=None):
            """Start the command and kill it so many seconds after it began to write; how long it wrote."""
            starter.stdin.write(json.dumps(work.arguments("--shard-size", "20")) + "\n")
            starter.stdin.flush()
            child = int(starter.stdout.readline())
            while not leftovers(work.out):
                time.sleep(0.001)
            began = time.monotonic()
            if seconds is not None:
                time.sleep(seconds)
                os.kill(child, signal.SIGKILL)
            starter.stdin.write("\n")
            starter.stdin.flush()
            status = int(starter.stdout.readline())
            assert status in ((0,) if seconds is None else (0, signal.SIGKILL))
            return time.monotonic() - began

        whole = run()
        expected = work.files()
        assert len(expected) == 6 + 1
        killed = 0
        for number in range(10):
            if number % 2:
                shutil.rmtree(work.out, ignore_errors=True)
            before = contents(work.out)
            run(whole * (number + 0.5) / 10)
            if leftovers(work.out):
                killed += 1
                assert contents(work.out) == before  # the earlier run whole, or nothing where there was none
            else:
                assert work.files() == expected
        assert killed >= 3  # it was in the middle of its work, several times
        run()
        assert work.files() == expected
        assert not leftovers(work.out)
        starter.stdin.close()


def test_a_living_run_in_another_process_keeps_its_folder(tmp_path):
    work = sample_work(tmp_path)
    process = work.start("--shard-size", "4")
    while not leftovers(work.out) and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGSTOP)
    (living,) = leftovers(work.out)
    try:
        work.build()
        assert leftovers(work.out) == [living]
    finally:
        process.send_signal(signal.SIGCONT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert not leftovers(work.out)


def test_a_store_that_changes_in_the_run_leaves_the_earlier_run(work, monkeypatch):
    work.sql("PRAGMA journal_mode = wal")  # closed again: nobody has the store open
    work.build()
    real = build_sequences._sequences

    def changed(*arguments):
        work.sql("UPDATE memories SET content = 'other'")
        return real(*arguments)

    monkeypatch.setattr(build_sequences, "_sequences", changed)
    assert "was changed while it was read; run again" in work.refused()


@pytest.mark.parametrize("name", ["out", "it's здесь", 'a "b" c', "$HOME `x`"])
def test_the_line_for_duckdb_works_as_it_is_printed(tmp_path, name):
    work = Workspace(tmp_path / "work")
    work.out = tmp_path / name / "run"
    result = work.run()
    assert result.exit_code == 0, result.output
    (line,) = re.findall(r"^  (SELECT .*)$", result.stdout, re.MULTILINE)
    with duckdb.connect() as database:
        found = database.execute(line).fetchall()
        names = [column[0] for column in database.description]
    # The first rows of the first sequence, in order.
    shown = work.rows("items")["record_ref"].to_list()[:10]
    assert [dict(zip(names, row, strict=True))["record_ref"] for row in found] == shown
    assert "sequence" in names


def test_run_json(work):
    work.ask([*QUESTIONS, QUESTIONS[0] | {"question_id": "q3"}])
    work.show(window_rows(("q1", 0, 0, "mem:1")))
    work.run()
    run = work.json()
    assert list(run) == [
        "layout",
        "inputs",
        "store",
        "sequences",
        "settings",
        "counts",
        "steps",
        "warnings",
        "versions",
        "finished_at",
        "seconds",
    ]
    assert run["warnings"] == ["2 questions have no window and so no sequence"]
    assert run["inputs"]["windows"]["bytes"] == work.windows.stat().st_size
