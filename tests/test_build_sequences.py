"""The command end to end: what it refuses, what it takes, and that the same inputs give the same bytes."""

import hashlib
import json
import math
import os
import random
import sqlite3
import struct
from contextlib import closing
from dataclasses import asdict

import duckdb
import polars as pl
import pytest
from typer.testing import CliRunner

from allocation.settings import Settings
from jobs.build_sequences import app
from tests.workspace import QUESTIONS, SAMPLE, TEXTS, WINDOWS, Workspace, export, sequence_files, window_rows


def questions(**changes):
    """The small question set with the first question changed."""
    return [QUESTIONS[0] | changes, *QUESTIONS[1:]]


# --- Refusals: arguments


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--sequences", "nonsense"], "sequence 'nonsense' is unknown; choose from items, evidence, whole"),
        (["--sequences", "items@0/4"], "sequence 'items@0/4' is unknown"),
        (["--sequences", ""], "no sequence named"),
        (["--sequences", "oracle"], "the sequence oracle needs evidence labels; give --evidence"),
        (["--set", "rrf_k"], "--set rrf_k: write it as KEY=VALUE"),
        (["--set", "colour=red"], "setting 'colour' does not exist; the settings are passages, rrf_k"),
        (["--set", "rrf_k=-1"], "give a whole number from 0"),
        (["--set", "rrf_k=" + "9" * 5000], "give a whole number from 0"),
        (["--set", "record_weight=-1"], "setting record_weight=-1: give a number from 0 to 1000"),
        (["--set", "cosine_weight=nan"], "setting cosine_weight=nan: give a number from 0 to 1000"),
        (["--rrf-k", "-1"], "setting rrf_k=-1: give a whole number from 0"),
        (["--set", "passages=all"], "setting passages='all': choose one of merge, server"),
        (["--set", "passage_limit=0"], "give a whole number from 1"),
    ],
)
def test_arguments_that_are_refused(work, arguments, told):
    message = work.refused(*arguments)
    assert told in message


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"rrf_k = \n", "cannot be read as TOML"),
        (b"rrf_k = 60.5\n", "give a whole number"),
        (b"rrf_k = true\n", "give a whole number"),
        (b"k = 60\n", "setting 'k' does not exist"),
        (b"[evidence]\nrrf_k = 60\n", "setting 'evidence' does not exist"),
        (b'passages = "\xff"\n', "cannot be read as TOML"),
        (None, "cannot be read as TOML"),
    ],
)
def test_a_settings_file_that_is_refused(work, content, told):
    file = work.folder / "settings.toml"
    if content is not None:
        file.write_bytes(content)
    assert told in work.refused("--settings", str(file))


def test_a_flag_overrides_set_and_set_overrides_the_settings_file(work):
    file = work.folder / "settings.toml"
    file.write_text("rrf_k = 5\npassage_limit = 20\n")
    work.build("--settings", str(file), "--set", "rrf_k=7", "--set", "passages=server", "--passages", "merge")
    assert work.json()["settings"] == asdict(Settings(rrf_k=7, passage_limit=20))


@pytest.mark.parametrize("arguments", [["--shard-size", "0"], ["--jobs", "0"], ["--no-such"], ["--rrf-k", "x"]])
def test_usage_errors_have_status_2(work, arguments):
    result = work.run(*arguments)
    assert result.exit_code == 2
    assert not work.out.exists()


# --- Refusals: files


@pytest.mark.parametrize("name", ["store", "questions", "windows", "evidence"])
@pytest.mark.parametrize("what", ["missing", "folder", "empty", "noise"])
def test_an_input_that_is_no_such_file(work, name, what):
    path = work.folder / f"other.{'db' if name == 'store' else 'parquet'}"
    if what == "folder":
        path.mkdir()
    elif what != "missing":
        path.write_bytes(random.Random(1).randbytes(5000) if what == "noise" else b"")
    message = work.refused(f"--{name}", str(path))
    assert str(path) in message


def test_an_earlier_run_stays_byte_for_byte_when_a_run_is_refused(work):
    work.build()
    earlier = work.files()
    work.ask(questions(question=" "))
    work.refused()  # compares the folder before and after
    assert work.files() == earlier


@pytest.mark.parametrize("share", [0.001, 0.02, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_a_truncated_store(tmp_path, share):
    work = Workspace(tmp_path / "work")
    whole = (SAMPLE / "store.db").read_bytes()
    work.store.write_bytes(whole[: int(len(whole) * share)])
    work.questions, work.windows = SAMPLE / "questions.parquet", SAMPLE / "windows.parquet"
    message = work.refused()
    assert message.startswith(str(work.store))
    assert "; " in message


def test_a_store_with_noise_in_its_middle(work):
    content = bytearray((SAMPLE / "store.db").read_bytes())
    third = len(content) // 3
    content[third : 2 * third] = random.Random(1).randbytes(third)
    work.store.write_bytes(content)
    work.questions, work.windows = SAMPLE / "questions.parquet", SAMPLE / "windows.parquet"
    message = work.refused()
    assert "quick_check" in message


@pytest.mark.parametrize("size", [4, 50, 2000, -1])
def test_a_truncated_table(work, size):
    work.questions.write_bytes(work.questions.read_bytes()[:size])
    assert "cannot be read as parquet" in work.refused()


@pytest.mark.parametrize("name", ["questions.txt", "questions", "questions.PARQUET"])
def test_a_table_of_an_unknown_kind(work, name):
    other = work.folder / name
    other.write_bytes(work.questions.read_bytes())
    assert "the name must end in .parquet, .csv, .jsonl, .ndjson" in work.refused("--questions", str(other))


# --- Refusals: schemas


@pytest.mark.parametrize("version", [12, 20, 0, -1])
def test_an_unknown_schema(work, version):
    work.sql("UPDATE schema_version SET version = ?", version)
    assert "schemas 13 to 19 can be read" in work.refused()


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("DROP TABLE schema_version", "schema 0 is unknown"),
        ("DELETE FROM schema_version", "schema 0 is unknown"),
        ("DROP TABLE memories", "should have the table memories, which is missing"),
        ("DROP TABLE record_blocks", "should have the table record_blocks"),
        ("DROP TABLE record_block_vectors", "should have the table record_block_vectors"),
        ("ALTER TABLE memories RENAME content TO body", "table memories lacks the column content"),
        ("ALTER TABLE record_blocks RENAME start_char TO a", "table record_blocks lacks the column start_char"),
        (
            "ALTER TABLE memories RENAME TO m; CREATE VIEW memories AS SELECT * FROM m",
            "should have the table memories, which is missing",
        ),
        (
            "DROP TABLE episodes; CREATE VIRTUAL TABLE episodes USING fts5(id, agent_id, summary)",
            "should have the table episodes, which is missing",
        ),
        (
            "ALTER TABLE schema_version RENAME TO s; CREATE VIEW schema_version AS SELECT * FROM s",
            "schema 0 is unknown",
        ),
        (
            "DROP TABLE memories; CREATE TABLE memories (id INTEGER PRIMARY KEY, agent_id TEXT, raw TEXT,"
            " content TEXT GENERATED ALWAYS AS (raw))",
            "table memories lacks the column content",
        ),
    ],
)
def test_a_store_that_lacks_something(work, sql, told):
    work.sql(sql)
    message = work.refused()
    assert message.startswith(str(work.store))
    assert told in message


def test_a_utf_16_store(work):
    work.store.unlink()
    with closing(sqlite3.connect(work.store)) as store:
        store.execute("PRAGMA encoding = 'UTF-16'")
        store.executescript((SAMPLE / "source" / "schema.sql").read_text(encoding="utf-8"))
    assert "UTF-16" in work.refused()


# --- Refusals: rows


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"question": ""}, "question is empty"),
        ({"question": " \n\t　"}, "question is empty"),
        ({"question": None}, "question is empty"),
        ({"question_id": None}, "question_id is empty"),
        ({"agent_id": ""}, "agent_id is empty"),
        ({"question_id": "q2"}, "question_id occurs before"),
        ({"query_vector": [0.0, 0.0, 0.0, 0.0]}, "query_vector is zero"),
        ({"query_vector": [1.0, float("nan"), 0.0, 0.0]}, "missing, NaN or infinite"),
        ({"query_vector": [1.0, float("-inf"), 0.0, 0.0]}, "missing, NaN or infinite"),
        ({"query_vector": [1.0, None, 0.0, 0.0]}, "missing, NaN or infinite"),
    ],
)
def test_a_question_that_is_refused(work, changes, told):
    work.ask(questions(**changes))
    message = work.refused()
    assert message.startswith(f"{work.questions}: row ")
    assert told in message
    assert "--on-bad-row skip" in message


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (("q9", 0, 0, "mem:1"), "question_id is unknown"),
        (("q1", 2, 0, "mem:99"), "the store has no such record_ref"),
        (("q1", 2, 0, "mem:01"), "the store has no such record_ref"),
        (("q1", 2, 0, "mem:1'; DROP TABLE memories; --"), "the store has no such record_ref"),
        (("q1", 2, 0, "MEM:1"), "the store has no such record_ref"),
        (("q1", 2, 0, "mem:99999999999999999999"), "the store has no such record_ref"),
        (("q1", 0, 0, "ep:1"), "has a head already"),
        (("q1", -1, 0, "ep:1"), "item_position is negative"),
        (("q1", 0, -1, "ep:1"), "claim_position is negative"),
        (("q1", 3, 0, "ep:1"), "have a gap"),
        (("q1", 2, 1, "ep:1"), "its item has no head"),
        (("q1", 2, 0, "mem:1"), "names this record before"),
        (("q1", 1, 1, "ep:1"), "has a claim at this claim_position already"),
        ((None, 0, 0, "ep:1"), "question_id is unknown"),
        (("q1", 2, 0, None), "the store has no such record_ref"),
        (("q1", None, 0, "ep:1"), "item_position is missing"),
    ],
)
def test_a_window_row_that_is_refused(work, row, told):
    work.show(window_rows(*WINDOWS, row))
    message = work.refused()
    assert message.startswith(f"{work.windows}: row ")
    assert told in message
    with closing(sqlite3.connect(work.store)) as store:
        assert store.execute("SELECT count(*) FROM memories").fetchone() == (3,)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("''", "text is empty"),
        ("CAST(x'EDA080' AS TEXT)", "not valid UTF-8"),
        ("CAST(x'61FF62' AS TEXT)", "not valid UTF-8"),
        ("x'616263'", "holds no text"),
        ("NULL", "holds no text"),
        ("7", "holds no text"),
    ],
)
def test_a_record_whose_text_cannot_be_used(work, value, told):
    # The sample's own DDL gives content TEXT NOT NULL, under which 7 would become text.
    work.sql(
        "DROP TABLE memories; CREATE TABLE memories (id INTEGER PRIMARY KEY, agent_id TEXT, content);"
        f"INSERT INTO memories VALUES (1, 'a', 'good'), (2, 'a', {value}), (3, 'a', 'good')"
    )
    message = work.refused()
    assert "record_ref=mem:2" in message
    assert told in message


@pytest.mark.parametrize(
    ("name", "rows", "told"),
    [
        ("questions", [{"question_id": "q1", "agent_id": "a"}], "columns missing: question"),
        ("questions", [{"question_id": 1, "agent_id": "a", "question": "x"}], "column question_id is Int64"),
        (
            "questions",
            [{"question_id": "q1", "agent_id": "a", "question": "x", "query_vector": "0.1"}],
            "column query_vector is String",
        ),
        (
            "questions",
            [{"question_id": "q1", "agent_id": "a", "question": "x", "query_vector": ["a"]}],
            "column query_vector is List(String)",
        ),
        ("windows", [{"question_id": "q1"}], "columns missing"),
        ("windows", [{**window_rows(WINDOWS[0])[0], "recall_rank": 0.5}], "column recall_rank is Float64"),
        ("windows", [{**window_rows(WINDOWS[0])[0], "item_position": "0"}], "column item_position is String"),
        ("windows", [{**window_rows(WINDOWS[0])[0], "item_position": 1 << 40}], "does not fit"),
    ],
)
@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_table_with_other_columns(work, name, rows, told, kind):
    path = work.folder / f"other.{kind}"
    frame = pl.DataFrame(rows)
    frame.write_parquet(path) if kind == "parquet" else frame.write_ndjson(path)
    message = work.refused(f"--{name}", str(path))
    assert message.startswith(str(path))
    assert told in message


def test_a_csv_with_a_missing_column_or_cell(work):
    path = work.folder / "windows.csv"
    path.write_text("question_id,item_position,claim_position,record_ref\nq1,0,0,mem:1\n")
    assert "columns missing: recall_rank" in work.refused("--windows", str(path))
    path.write_text("question_id,item_position,claim_position,record_ref,recall_rank\nq1,first,0,mem:1,0\n")
    assert "item_position is missing or not a whole number" in work.refused("--windows", str(path))


def test_a_csv_cannot_hold_vectors(work):
    path = work.folder / "questions.csv"
    path.write_text("question_id,agent_id,question,query_vector\nq1,a,x,0.5\n")
    assert "use Parquet or JSON lines" in work.refused("--questions", str(path))


def test_lone_surrogate_escapes_in_json_lines(work):
    path = work.folder / "questions.jsonl"
    path.write_text('{"question_id": "q1", "agent_id": "a", "question": "\\ud800 key"}\n')
    assert f"{path}: line 1: " in work.refused("--questions", str(path))
    path.write_text('{"question_id": "q1", "agent_id": "a", "question": "key \\udc00"}\n')
    assert str(path) in work.refused("--questions", str(path))


def test_whole_surrogate_pairs_and_escaped_backslashes_in_json_lines(work):
    path = work.folder / "questions.jsonl"
    texts = ["\\ud83d\\ude00 key", "\\\\ud800 key"]  # as they stand in the file
    lines = [f'{{"question_id": "q{i}", "agent_id": "a", "question": "{text}"}}' for i, text in enumerate(texts, 1)]
    path.write_text("\n".join(lines))
    work.questions = path
    work.build()


# --- Other failures


def test_an_output_that_cannot_be_made_has_status_1(work):
    blocked = work.folder / "file"
    blocked.write_text("mine")
    work.out = blocked / "run"
    message = work.refused(status=1)
    assert str(blocked) in message
    assert blocked.read_text() == "mine"


def test_the_command_in_a_process_of_its_own(work):
    run = work.start("--set", "rrf_k")
    output, errors = run.communicate(timeout=60)
    assert (run.returncode, output) == (2, "")
    assert errors == "error: --set rrf_k: write it as KEY=VALUE\n"
    run = work.start()
    output, errors = run.communicate(timeout=60)
    assert (run.returncode, errors) == (0, "")  # no progress bar where stderr is a pipe
    assert "SELECT * FROM" in output


# --- What must work


def test_the_sample_without_arguments_but_out(tmp_path, monkeypatch):
    monkeypatch.chdir(SAMPLE.parents[1])
    result = CliRunner().invoke(app, ["--out", str(tmp_path / "out")])
    assert (result.exit_code, result.stderr) == (0, "")
    run = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    # data/sample/README.md: 3 stale sets, and records that were never divided
    assert run["counts"]["questions"] == 60
    assert run["counts"]["records_without_current_blocks"] == 17
    assert run["store"] == {"kind": "sqlite", "schema": 19}


def test_rows_agree_with_the_texts(work):
    rows = work.build()
    assert rows["question_id"].unique(maintain_order=True).to_list() == ["q1", "q2"]
    shown = rows.group_by("question_id", "record_ref").agg(pl.col("end").max() - pl.col("start").min())
    for _, ref, length in shown.iter_rows():
        assert length == len(TEXTS[ref][0])  # all of each record is offered
    run = work.json()
    # ep:1, mem:1, mem:2 have two stored blocks each, mem:3 divides into its two sentences
    assert run["counts"] == {
        "questions": 2,
        "records": 4,
        "records_without_current_blocks": 1,
        "blocks": 8,
        "rejected_rows": 0,
    }
    names = ["items", "evidence", "whole", "coverage", "items@500/250", "items@320/160"]
    assert run["sequences"] == names
    escaped = [name.replace("/", "%2F") for name in names]
    assert run["steps"] == {name: len(work.rows(own)) for name, own in zip(names, escaped, strict=True)}
    assert run["inputs"]["store"]["bytes"] == work.store.stat().st_size


def test_nul_characters(work):
    text = "The key\0 is red.\0 The door is green."
    work.sql("UPDATE memories SET content = ? WHERE id = 3", text)
    work.ask(questions(question="Which\0 key is red?"))
    rows = work.build().filter(pl.col("record_ref") == "mem:3")
    assert rows["end"].max() == len(text)


@pytest.mark.parametrize("unit", ["word ", "A line with words.\n", "x", "「", "```\n"])
def test_a_record_of_a_million_characters(work, unit):
    text = (unit * (1_000_000 // len(unit) + 1))[:1_000_000]
    work.sql("UPDATE memories SET content = ? WHERE id = 3", text)
    rows = work.build().filter(pl.col("record_ref") == "mem:3")
    assert rows["end"].max() == 1_000_000
    assert (rows["end"] - rows["start"]).max() <= 1478


def test_a_query_vector_of_another_width(work):
    work.ask(questions(query_vector=None))
    by_words = work.build()
    told = "questions have a query_vector of another width than their records' vectors; words alone rank their passages"
    work.ask(questions(query_vector=[1.0, 2.0]))
    result = work.run()
    assert (result.exit_code, result.stderr) == (0, f"warning: 1 {told}\n")
    assert work.json()["warnings"] == [f"1 {told}"]
    assert work.rows().equals(by_words)


def test_records_without_vectors_are_no_other_width(work):
    work.show(window_rows(("q1", 0, 0, "mem:3"), WINDOWS[3]))
    assert work.run().stderr == ""


def test_a_vector_that_fits_one_record_is_no_other_width(work):
    work.sql("UPDATE record_block_vectors SET embedding_i8 = x'0102' WHERE parent_id = 2")
    assert work.run().stderr == ""


def test_the_count_of_other_widths_does_not_depend_on_shards(work):
    work.ask([{**row, "query_vector": [1.0, 2.0]} for row in QUESTIONS])
    for size in ("1", "64"):
        assert work.run("--shard-size", size).stderr.startswith("warning: 2 questions have a query_vector")


def test_no_query_vector_column(work):
    work.ask([{**row, "query_vector": None} for row in QUESTIONS])
    work.build()
    with_column = work.files()
    pl.read_parquet(work.questions).drop("query_vector").write_parquet(work.questions)
    work.build()
    assert work.files() == with_column
    assert work.rows()["cosine_rank"].null_count() == len(work.rows())


@pytest.mark.parametrize("version", [13, 14, 15])
def test_a_store_older_than_blocks(work, version):
    drop = "DROP TABLE record_blocks; DROP TABLE record_block_vectors;"
    work.sql(drop + ("DROP TABLE record_nodes;" if version == 13 else ""))
    work.sql("UPDATE schema_version SET version = ?", version)
    work.build()
    assert work.json()["counts"]["records_without_current_blocks"] == 4


def test_a_store_with_blocks_but_no_vectors(work):
    work.sql("DROP TABLE record_block_vectors")
    work.sql("UPDATE schema_version SET version = ?", 16)
    work.build()
    assert work.json()["counts"]["records_without_current_blocks"] == 4


def test_the_version_in_the_file_counts_where_there_is_no_table(work):
    work.sql("DROP TABLE schema_version; PRAGMA user_version = 19")
    work.build()
    assert work.json()["store"]["schema"] == 19


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE record_blocks SET end_char = 14 WHERE parent_kind = 'mem' AND parent_id = 1 AND block_index = 0",
        "DELETE FROM record_block_vectors WHERE parent_kind = 'mem' AND parent_id = 1 AND block_index = 1",
        "DELETE FROM record_blocks WHERE parent_kind = 'mem' AND parent_id = 1 AND block_index = 0",
        "UPDATE record_blocks SET embedding_model = 'n' WHERE parent_id = 1 AND block_index = 1",
        "UPDATE record_blocks SET embedding_model = CAST(x'FF' AS TEXT) WHERE parent_id = 1",
        "UPDATE record_blocks SET start_char = 'x' WHERE parent_kind = 'mem' AND parent_id = 1",
        "INSERT INTO record_nodes VALUES ('mem', 1, 0, 0, 5, 1, 1, NULL, '')",
    ],
)
def test_a_block_set_that_is_not_current_is_divided_and_counted(work, spoil):
    work.build()
    before = work.json()["counts"]["records_without_current_blocks"]
    work.sql(spoil)
    rows = work.build().filter(pl.col("record_ref") == "mem:1")
    assert work.json()["counts"]["records_without_current_blocks"] > before
    assert sorted(rows.select("start", "end").rows()) == [(0, 15), (15, 34)]  # its two sentences


@pytest.mark.parametrize("values", [(math.nan, 1.0), (math.inf, 1.0), (math.inf, -math.inf)])
def test_a_node_vector_that_is_not_finite_counts_as_one_of_another_width(work, values):
    work.show(window_rows(("q1", 0, 0, "mem:1"), ("q1", 0, 1, "mem:3"), WINDOWS[3]))
    work.sql("UPDATE memories SET content = ? WHERE id = 3", "A key. A key is red. No.")  # it has no blocks
    # By words the second node is best; by words and cosine the first, tied and earlier.
    for index, (start, end) in enumerate([(0, 7), (7, 20), (20, 24)]):
        vector = struct.pack("<4f", *(float(place == 2 * index) for place in range(4)))
        work.sql("INSERT INTO record_nodes VALUES ('mem', 3, ?, ?, ?, 1, 1, ?, 'm')", index, start, end, vector)
    starts = []
    for vector in (bytes(16), bytes(4), struct.pack("<4f", *values, 1.0, 1.0)):
        work.sql("UPDATE record_nodes SET embedding = ? WHERE node_index = 2", vector)
        work.build()
        starts += work.rows("items").filter(pl.col("basis") == "node")["start"].to_list()
    assert starts == [0, 7, 7]


def test_a_question_without_a_window(work):
    work.show(window_rows(*WINDOWS[:3]))
    result = work.run()
    assert (result.exit_code, result.stderr) == (0, "warning: 1 questions have no window and so no sequence\n")
    assert work.rows()["question_id"].unique().to_list() == ["q1"]


def test_no_questions(work):
    work.ask([])
    work.show([])
    rows = work.build()
    assert rows.is_empty()
    assert work.json()["counts"]["questions"] == 0


def test_a_record_of_another_agent_is_used_and_counted(work):
    work.sql("UPDATE memories SET agent_id = 'b' WHERE id = 2")
    result = work.run()
    assert result.stderr == "warning: 2 window rows name a record of another agent_id; they are used\n"
    assert "mem:2" in work.rows()["record_ref"]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_windows_in_other_kinds_give_the_same_bytes(work, kind):
    work.build()
    expected = work.files()
    path = work.folder / f"windows.{kind}"
    frame = pl.read_parquet(work.windows)
    frame.write_csv(path) if kind == "csv" else frame.write_ndjson(path)
    work.windows = path
    work.build()
    assert work.files() == expected


def test_questions_in_json_lines_give_the_same_bytes(work):
    work.build()
    expected = work.files()
    path = work.folder / "questions.jsonl"
    pl.read_parquet(work.questions).write_ndjson(path)
    work.questions = path
    work.build()
    assert work.files() == expected


# --- Rows that are skipped


def test_bad_rows_are_skipped_and_listed(work):
    work.sql("UPDATE memories SET content = '' WHERE id = 3")
    bad = {"question_id": "q0", "agent_id": "a", "question": ""}
    work.ask([bad, *QUESTIONS, QUESTIONS[0]])
    rows = [("q0", 0, 0, "mem:1"), *WINDOWS, ("q2", 1, 0, "ep:1"), ("q2", 2, 0, "mem:7"), ("q2", 2, 1, "mem:1")]
    work.show(window_rows(*rows))
    result = work.run("--on-bad-row", "skip")
    assert (result.exit_code, result.stderr) == (
        0,
        "warning: 7 input rows could not be used; see rejects.parquet\n",
    )
    questions_file, windows_file = str(work.questions), str(work.windows)
    assert pl.read_parquet(work.out / "rejects.parquet").rows() == [
        (questions_file, 1, "question_id=q0", "question is empty"),
        (questions_file, 4, "question_id=q1", "question_id occurs before"),
        (windows_file, 1, _key("q0", 0, 0, "mem:1"), "question_id is unknown"),
        (windows_file, 4, _key("q1", 1, 1, "mem:3"), "its record's text is empty"),
        (windows_file, 7, _key("q2", 1, 0, "ep:1"), "its item has a head already (claim_position 0)"),
        (windows_file, 8, _key("q2", 2, 0, "mem:7"), "the store has no such record_ref"),
        (windows_file, 9, _key("q2", 2, 1, "mem:1"), "the head of its item was rejected"),
    ]
    skipped = work.files()

    work.ask(QUESTIONS)
    work.show(window_rows(*(row for row in WINDOWS if row[3] != "mem:3")))
    work.build()
    assert work.files() == skipped
    assert not (work.out / "rejects.parquet").exists()


def _key(question_id, item, claim, ref):
    return f"question_id={question_id}, item_position={item}, claim_position={claim}, record_ref={ref}"


def test_evidence_is_checked_and_changes_nothing(work):
    work.build("--sequences", "evidence,coverage")
    expected = work.files()
    path = work.folder / "evidence.csv"
    path.write_text("question_id,record_ref,start,end\nq1,mem:1,0,15\nq1,mem:2,,\nq1,mem:2,9,3\nq1,mem:1,9,35\n")
    told = work.refused("--evidence", str(path))
    assert "row 3 (question_id=q1, record_ref=mem:2): the span is empty, negative or not of whole numbers" in told
    work.build("--evidence", str(path), "--on-bad-row", "skip", "--sequences", "evidence,coverage")
    assert work.files() == expected
    rejects = pl.read_parquet(work.out / "rejects.parquet")
    assert rejects["row"].to_list() == [3, 4]
    assert rejects["reason"][1] == "the span lies outside its record, which has 34 characters"
    assert pl.read_parquet(work.out / "evidence.parquet").rows() == [
        ("q1", "mem:1", 0, 15),
        ("q1", "mem:2", None, None),
    ]
    work.build("--evidence", str(path), "--on-bad-row", "skip")
    assert work.json()["sequences"][-1] == "oracle"  # with labels there is an oracle to draw


def test_evidence_in_a_record_that_was_never_stored(work):
    path = work.folder / "evidence.csv"
    path.write_text("question_id,record_ref\nq1,mem:1\nq1,mem:77\n")
    work.build("--evidence", str(path))
    assert (
        "1 evidence labels name a record the store does not have; it counts as never shown" in work.json()["warnings"]
    )


def test_the_tables_of_a_run(work):
    """What the run was built from goes with it, so that it can be looked at without the inputs."""
    work.build()
    kept = pl.read_parquet(work.out / "questions.parquet")
    assert kept.select("question_id", "agent_id", "question").rows() == [
        (row["question_id"], "a", row["question"]) for row in QUESTIONS
    ]
    assert pl.read_parquet(work.out / "windows.parquet").rows() == [(*row, row[1]) for row in WINDOWS]
    assert pl.read_parquet(work.out / "evidence.parquet").is_empty()
    records = pl.read_parquet(work.out / "records.parquet")
    assert records.drop("sha256").rows() == [
        (ref, len(text), len(blocks or "12"), blocks is None) for ref, (text, blocks) in sorted(TEXTS.items())
    ]
    expected = hashlib.sha256(b"\0" + TEXTS["mem:1"][0].encode()).hexdigest()
    assert records.filter(pl.col("record_ref") == "mem:1")["sha256"].item() == expected


# --- The same bytes


@pytest.fixture(scope="module")
def sample_bytes(tmp_path_factory):
    """The sample's sequence files."""
    return _sample(tmp_path_factory.mktemp("sample"))


def _sample(
    folder, *more, store=SAMPLE / "store.db", asked=SAMPLE / "questions.parquet", shown=SAMPLE / "windows.parquet"
):
    inputs = [
        "--store",
        str(store),
        "--questions",
        str(asked),
        "--windows",
        str(shown),
        "--out",
        str(folder / "out"),
    ]
    result = CliRunner().invoke(app, [*inputs, *more])
    assert result.exit_code == 0, result.output
    return sequence_files(folder / "out")


@pytest.mark.parametrize(("size", "jobs"), [(1, 2), (7, 1), (7, 2), (64, 2), (1000, 1)])
def test_shards_and_threads_do_not_change_a_byte(tmp_path, sample_bytes, size, jobs):
    assert _sample(tmp_path, "--shard-size", str(size), "--jobs", str(jobs)) == sample_bytes


@pytest.mark.parametrize("policy", ["merge", "server"])
def test_shards_do_not_change_a_byte_of_either_policy(tmp_path, policy):
    first = _sample(tmp_path, "--passages", policy)
    assert _sample(tmp_path, "--passages", policy, "--shard-size", "7", "--jobs", "2") == first


def test_polars_threads_do_not_change_a_byte(tmp_path, sample_bytes):
    runs = []
    for threads in ("1", "2"):
        work = Workspace(tmp_path / threads)
        work.store, work.questions, work.windows = (
            SAMPLE / name for name in ("store.db", "questions.parquet", "windows.parquet")
        )
        runs.append((work, work.start(POLARS_MAX_THREADS=threads)))
    for work, run in runs:
        _, errors = run.communicate(timeout=60)
        assert (run.returncode, errors) == (0, "")
        assert work.files() == sample_bytes


def test_the_order_of_input_rows_does_not_change_a_byte(tmp_path, sample_bytes):
    paths = {}
    for seed, name in enumerate(("questions.parquet", "windows.parquet")):
        paths[name] = tmp_path / name
        frame = pl.read_parquet(SAMPLE / name)
        frame.sample(fraction=1, shuffle=True, seed=seed).write_parquet(paths[name], row_group_size=5)
    found = _sample(tmp_path, asked=paths["questions.parquet"], shown=paths["windows.parquet"])
    assert found == sample_bytes


@pytest.mark.parametrize("row_group_size", [None, 3])
def test_a_parquet_store_gives_the_same_bytes(tmp_path, sample_bytes, row_group_size):
    refs = pl.read_parquet(SAMPLE / "windows.parquet")["record_ref"].unique().to_list()
    export(SAMPLE / "store.db", tmp_path / "store", refs, row_group_size)
    assert _sample(tmp_path, store=tmp_path / "store") == sample_bytes


def test_many_questions_are_cut_into_files_by_count_alone(work):
    many = [{**QUESTIONS[1], "question_id": f"q{number:04}"} for number in range(600)]
    work.ask(many)
    work.show(window_rows(*((row["question_id"], 0, 0, "ep:1") for row in many)))
    work.build()
    expected = work.files()
    assert len(expected) == 6 * 3 + 1  # six sequences of 256 + 256 + 88 questions, and the parts
    work.build("--shard-size", "100")
    assert work.files() == expected


# --- Hostile stores and awkward names


def test_nothing_a_store_defines_is_run(work):
    work.build()
    expected = work.files()
    work.sql(
        "CREATE TABLE log (t); CREATE TRIGGER t AFTER INSERT ON memories BEGIN INSERT INTO log VALUES (1); END;"
        "CREATE VIEW entities_view AS SELECT load_extension('/nowhere') FROM memories;"
        "CREATE INDEX e ON memories (length(content)) WHERE agent_id = 'z'"
    )
    before = work.store.read_bytes()
    work.build()
    assert work.files() == expected
    assert work.store.read_bytes() == before


@pytest.mark.parametrize("name", ["a?mode=memory", "a#b", "a%41", 'it\'s здесь "x" [1]*', "a&b=c;d"])
def test_awkward_names(tmp_path, name):
    work = Workspace(tmp_path / name)
    work.store = work.store.rename(work.folder / f"{name}.db")
    work.out = work.folder / f"{name}-out"
    result = work.run()
    assert result.exit_code == 0, result.output
    assert work.rows()["record_ref"].unique().sort().to_list() == ["ep:1", "mem:1", "mem:2", "mem:3"]
    assert work.json()["inputs"]["store"]["path"] == str(work.store)
    missing = work.refused("--store", str(work.folder / f"{name}.none"))
    assert "no such store" in missing


def test_a_name_that_is_not_utf_8(work):
    work.out = work.folder / os.fsdecode(b"\xff")
    assert "not valid UTF-8" in work.refused()


# --- Other sequences


def test_a_sequence_of_another_quote_size_is_read_back_by_its_name(work):
    labels = [{"question_id": "q1", "record_ref": "mem:1", "start": 0, "end": 15}]
    evidence = work.folder / "evidence.parquet"
    pl.DataFrame(labels).write_parquet(evidence)
    work.build("--sequences", "evidence,items@320/160,oracle", "--evidence", str(evidence))
    assert sorted(path.name for path in (work.out / "sequences").iterdir()) == [
        "sequence=evidence",
        "sequence=items@320%2F160",
        "sequence=oracle",
    ]
    expected = ["evidence", "items@320/160", "oracle"]
    files = str(work.out / "sequences" / "*" / "*.parquet")
    found = duckdb.sql("SELECT DISTINCT sequence FROM read_parquet($files) ORDER BY 1", params={"files": files})
    assert [name for (name,) in found.fetchall()] == expected
    read = pl.read_parquet(work.out / "sequences", hive_partitioning=True)
    assert read["sequence"].unique().sort().to_list() == expected
    # The label is the first sentence of mem:1.
    assert work.rows("oracle").filter(question_id="q1").row(0, named=True)["record_ref"] == "mem:1"


def test_entities_of_the_store_are_parts_and_their_passages_rise(work):
    work.sql(
        "INSERT INTO entities VALUES (1, 'a', '', '', 'the shed', 'the shed', 'x', '');"
        "INSERT INTO entity_aliases VALUES (1, 'Green Door', 'green door')"
    )
    work.ask([QUESTIONS[0] | {"question": "What hangs beside the green door?"}])
    work.show(window_rows(*WINDOWS[:3]))
    work.build("--sequences", "coverage,evidence")
    parts = pl.read_parquet(work.out / "parts.parquet").filter(kind="entity")
    assert parts.select("text", "records_holding").rows() == [("green door", 0)]  # no record says it in these words
    work.ask([QUESTIONS[0] | {"question": "What hangs in The Shed?"}])
    work.build("--sequences", "coverage,evidence")
    parts = pl.read_parquet(work.out / "parts.parquet").filter(kind="entity")
    assert parts.select("text", "records_holding").rows() == [("the shed", 1)]


def test_parts_a_server_recorded_are_used_as_they_are(work):
    work.ask([QUESTIONS[0] | {"parts": ["SHED", "nowhere"]}])
    work.show(window_rows(*WINDOWS[:3]))
    work.build("--sequences", "coverage,evidence")
    parts = pl.read_parquet(work.out / "parts.parquet")
    assert parts.drop("question_id", "part").rows() == [("shed", "recorded", 1), ("nowhere", "recorded", 0)]
    holding = work.rows("coverage").filter(pl.col("parts").list.len() > 0)
    assert holding.select("record_ref", "parts", "new_parts").rows() == [("mem:3", [0], [0])]


def test_some_inputs_without_the_others_are_refused(work):
    result = CliRunner().invoke(app, ["--store", str(work.store), "--out", str(work.out)])
    assert result.exit_code == 2
    assert result.stderr == "error: --questions missing; give --store and --questions together\n"


@pytest.mark.parametrize("windows", [[], ["--windows", "recall"]])
def test_without_windows_records_are_recalled_from_the_store(work, windows):
    arguments = ["--store", str(work.store), "--questions", str(work.questions), "--out", str(work.out)]
    result = CliRunner().invoke(app, [*arguments, "--count", "2", "--sequences", "evidence", *windows])
    assert result.exit_code == 0, result.stderr
    found = pl.read_parquet(work.out / "windows.parquet")
    assert found.filter(item_position=0).select("question_id", "record_ref").rows() == [("q1", "mem:1"), ("q2", "ep:1")]
    assert found.group_by("question_id").len().sort("question_id")["len"].to_list() == [2, 2]
    assert json.loads((work.out / "run.json").read_text())["recall"] == {"count": 2}


def test_a_count_beside_recorded_windows_is_refused(work):
    result = work.run("--count", "3")
    assert result.exit_code == 2
    assert result.stderr == "error: --count is for recall from the store; leave out --windows, or --count\n"
