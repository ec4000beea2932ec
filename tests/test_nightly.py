"""The nightly run: what is carried over, what is made anew, and what is left when something goes wrong."""

import fcntl
import json
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import polars as pl
import pytest
from typer.testing import CliRunner

from jobs import carry, nightly
from tests.workspace import QUESTIONS, WINDOWS, contents, window_rows


@pytest.fixture
def night(work):
    """Runs the nightly on the workspace; gives its result and the summary's line of the store."""
    work.show(window_rows(*WINDOWS))

    def run(*more, out="nights", stores="*.db"):
        arguments = ["--stores", str(work.folder / stores), "--questions", str(work.questions)]
        arguments += ["--windows", str(work.windows), "--out", str(work.folder / out), *more]
        result = CliRunner().invoke(nightly.app, arguments)
        path = work.folder / out / "summary.json"
        lines = json.loads(path.read_text())["stores"] if path.exists() else []
        return result, lines[0] if lines else {}

    return run


def counts(line):
    return line["recomputed"], line["carried_over"]


def tables(folder):
    """The Parquet files of the last run in a folder of nights, by name."""
    (latest,) = folder.glob("*/latest")
    return {name: data for name, data in contents(latest.resolve()).items() if name.endswith(".parquet")}


def test_a_second_night_carries_everything_over(work, night):
    result, line = night()
    assert (result.exit_code, counts(line)) == (0, (2, 0)), result.output
    result, line = night()
    assert (result.exit_code, counts(line), line["moved"]) == (0, (0, 2), 0), result.output
    assert result.stdout.endswith("0 recomputed, 2 carried over\n")
    assert sorted(path.name for path in (work.folder / "nights").glob("*/0*")) == [
        f"00000{number}_{datetime.now(UTC):%Y-%m-%d}" for number in (1, 2)
    ]


CHANGES = {
    "the text of a record": ("UPDATE memories SET content = 'The key is blue. The door is green.' WHERE id = 1", 1),
    "the time of a record": ("UPDATE memories SET timestamp = '2025-01-01' WHERE id = 3", 1),
    "a record both recall": ("UPDATE memories SET content = content || ' It was red.' WHERE id = 2", 2),
    "a vector": (
        "UPDATE record_block_vectors SET embedding_i8 = x'01020304'"
        " WHERE parent_kind = 'mem' AND parent_id = 1 AND block_index = 0",
        1,
    ),
    "a block": ("DELETE FROM record_blocks WHERE parent_kind = 'ep' AND block_index = 1", 1),
    "a model": ("UPDATE record_blocks SET embedding_model = 'n' WHERE parent_kind = 'ep'", 1),
    "a node": (
        "INSERT INTO record_nodes (parent_kind, parent_id, node_index, start_char, end_char, token_count, window)"
        " VALUES ('mem', 3, 0, 0, 43, 9, 9)",
        1,
    ),
    "a name": ("INSERT INTO entities VALUES (1, 'a', '', '', 'key', 'key', 'a', '')", 2),
    "a record nobody recalls": (
        "INSERT INTO memories (id, agent_id, content, timestamp) VALUES (9, 'a', 'New.', '')",
        0,
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changed_is_made_anew_and_the_run_is_that_of_a_full_recomputation(work, night, what):
    night("--sequences", "items,evidence,coverage")
    sql, changed = CHANGES[what]
    work.sql(sql)
    result, line = night("--sequences", "items,evidence,coverage")
    assert result.exit_code == 0, result.output
    assert counts(line) == (changed, 2 - changed)
    night("--sequences", "items,evidence,coverage", out="full")
    assert tables(work.folder / "nights") == tables(work.folder / "full")


def test_questions_windows_and_evidence_count_too(work, night):
    night()
    work.ask([QUESTIONS[0], QUESTIONS[1] | {"question": "Who painted the old door?"}])
    assert counts(night()[1]) == (1, 1)
    work.show(window_rows(*WINDOWS[:4]))
    assert counts(night()[1]) == (1, 1)
    work.ask([QUESTIONS[0] | {"query_vector": [1.0, 0.5, 0.0, 0.5]}, QUESTIONS[1]])
    line = night()[1]
    assert counts(line) == (2, 0)
    assert line["moved"] >= 1
    work.ask([*QUESTIONS, QUESTIONS[0] | {"question_id": "q3"}])
    assert counts(night()[1])[1] == 1
    work.ask(QUESTIONS[:1])
    work.show(window_rows(*WINDOWS[:3]))
    assert counts(night()[1]) == (0, 1)
    night(out="full")
    assert tables(work.folder / "nights") == tables(work.folder / "full")


def test_other_sequences_and_other_code_make_everything_anew(work, night, monkeypatch):
    night()
    assert counts(night("--sequences", "items")[1]) == (2, 0)
    monkeypatch.setattr(carry, "code", lambda: "another")
    assert counts(night("--sequences", "items")[1]) == (2, 0)


def test_recall_notices_a_new_record(work, night):
    night("--windows", "recall")
    work.sql("INSERT INTO memories (id, agent_id, content, timestamp) VALUES (9, 'a', 'Ann painted the door.', '')")
    result, line = night("--windows", "recall")
    assert result.exit_code == 0, result.output
    assert line["recomputed"] >= 1


def test_a_new_store_is_found_and_a_damaged_one_does_not_stop_the_others(work, night):
    night()
    (work.folder / "a broken one.db").write_bytes(b"SQLite format 3\0" + bytes(10))
    with closing(sqlite3.connect(work.folder / "strangers.db")) as other:
        with closing(sqlite3.connect(work.store)) as store:
            store.backup(other)
        other.executescript("UPDATE memories SET agent_id = 'b'; UPDATE episodes SET agent_id = 'b'")
    result, _ = night()
    assert result.exit_code == 1
    lines = json.loads((work.folder / "nights" / "summary.json").read_text())["stores"]
    assert "truncated; restore it from a backup" in lines[0]["error"]
    assert counts(lines[1]) == (0, 2)
    assert lines[2]["skipped"] == "no question is for an agent of this store"
    assert result.stdout.endswith("0 recomputed, 2 carried over\n")


def test_each_store_has_its_own_questions(work, night):
    with closing(sqlite3.connect(work.folder / "z.db")) as other:
        with closing(sqlite3.connect(work.store)) as store:
            store.backup(other)
        other.executescript("UPDATE memories SET agent_id = 'b'; UPDATE episodes SET agent_id = 'b'")
    work.ask([*QUESTIONS, {"question_id": "q9", "agent_id": "b", "question": "Which key?", "query_vector": None}])
    work.show([*window_rows(*WINDOWS), *window_rows(("q9", 0, 0, "mem:1"))])
    night()
    lines = json.loads((work.folder / "nights" / "summary.json").read_text())["stores"]
    assert [line["questions"] for line in lines] == [2, 1]


def test_old_runs_are_pruned_and_the_clock_may_jump_back(work, night, monkeypatch):
    for day in (5, 6, 2, 3):
        monkeypatch.setattr(nightly, "_now", lambda day=day: datetime(2026, 12, day, tzinfo=UTC))
        result, _ = night("--keep", "2")
        assert result.exit_code == 0
    (folder,) = (work.folder / "nights").glob("store-*")
    assert sorted(path.name for path in folder.iterdir()) == ["000003_2026-12-02", "000004_2026-12-03", "latest"]
    assert (folder / "latest").readlink().name == "000004_2026-12-03"


def test_a_night_killed_before_its_end_is_repaired_by_the_next(work, night):
    night()
    (folder,) = (work.folder / "nights").glob("store-*")
    first = contents(next(folder.glob("000001*")))
    # Killed: once with a whole run the link does not name yet, once while writing, once while pruning.
    (folder / "000002_2026-01-01").mkdir()
    (folder / "..making.part-x").mkdir()
    shutil.copytree(next(folder.glob("000001*")), folder / ".making")
    (folder / ".pruned-000000_2026-01-01").mkdir()
    (folder / ".latest.part").symlink_to("nowhere")
    result, line = night()
    assert (result.exit_code, counts(line)) == (0, (0, 2)), result.output
    assert contents(next(folder.glob("000001*"))) == first
    assert (folder / "latest").readlink().name.startswith("000003_")
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("name", ["run.json", "fingerprints.parquet", "parts.parquet"])
@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_damaged_run_is_not_gone_on_from(work, night, name, how):
    night()
    (latest,) = (work.folder / "nights").glob("*/latest")
    if how == "gone":
        (latest / name).unlink()
    else:
        (latest / name).write_bytes((latest / name).read_bytes()[:-9])
    result, line = night()
    assert (result.exit_code, counts(line)) == (0, (2, 0)), result.output
    assert "made anew" in line["note"]
    assert counts(night()[1]) == (0, 2)


def test_a_second_nightly_leaves_with_one_line(work, night):
    out = work.folder / "nights"
    out.mkdir()
    with (out / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result, _ = night()
    assert result.exit_code == 2
    assert result.stderr == f"error: {out}: another nightly is at work here; run again when it has ended\n"


def test_a_pattern_that_finds_nothing(work, night):
    result, _ = night(stores="*.nothing")
    assert result.exit_code == 2
    assert "finds nothing; put the pattern in quotes" in result.stderr


def test_a_fall_is_told_with_its_interval_and_exits_with_3(work, night):
    labels = work.folder / "evidence.jsonl"
    rows = [
        {"question_id": "q1", "record_ref": "mem:1", "start": 0, "end": 15},
        {"question_id": "q2", "record_ref": "ep:1"},
    ]
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, line = night("--evidence", str(labels))
    assert (first.exit_code, "alerts" in line) == (0, False), first.output
    same, line = night("--evidence", str(labels))
    assert (same.exit_code, line["metrics"], line["alerts"]) == (0, [], [])
    work.show(window_rows(("q1", 0, 0, "mem:2"), *WINDOWS[3:]))
    fell, line = night("--evidence", str(labels))
    assert fell.exit_code == nightly.ALERTED, fell.output
    assert "coverage:2800 sessions_shown" in line["alerts"]
    assert "  coverage:2800 sessions_shown: 1.0000 -> 0.5000 (-0.5000, 95% -1.0000 to +0.0000) ALERT\n" in fell.stdout
    rose, line = night("--evidence", str(labels), "--alert", "1")
    assert rose.exit_code == 0
    assert pl.read_parquet(next((work.folder / "nights").glob("*/latest")) / "curves.parquet")["point"].len()
