"""A store as Parquet."""

import sqlite3
from contextlib import closing

import polars as pl
import pytest
from typer.testing import CliRunner

from jobs import export_store, store_files
from jobs.store import open_store
from tests.workspace import SAMPLE, TEXTS, Workspace, contents, leftovers, sequence_files


def export(store, out):
    return CliRunner().invoke(export_store.app, [str(store), "--out", str(out)])


def refused(store, out):
    result = export(store, out)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert not leftovers(out)
    return result.stderr


def test_sequences_of_an_export_are_the_stores(tmp_path):
    result = export(SAMPLE / "store.db", tmp_path / "store")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{tmp_path / 'store'}: 167 records, 3,997 blocks, 4 nodes, 15 entities\n"
    found = []
    for number, store in enumerate((SAMPLE / "store.db", tmp_path / "store")):
        work = Workspace(tmp_path / str(number))
        work.store, work.questions, work.windows = store, SAMPLE / "questions.parquet", SAMPLE / "windows.parquet"
        assert work.run().exit_code == 0
        found.append(sequence_files(work.out))
    assert found[0] == found[1]


def test_batches_do_not_change_what_is_read(tmp_path, monkeypatch):
    export(SAMPLE / "store.db", tmp_path / "whole")
    monkeypatch.setattr(store_files, "RECORDS", 7)
    export(SAMPLE / "store.db", tmp_path / "batches")
    for name in ("records", "blocks", "nodes", "entities"):
        one, other = (pl.read_parquet(tmp_path / folder / f"{name}.parquet") for folder in ("whole", "batches"))
        assert one.equals(other)


def test_an_export_replaces_an_earlier_one_and_nothing_else(work, tmp_path):
    out = tmp_path / "it's [a] *"
    assert export(work.store, out).exit_code == 0
    work.sql("DELETE FROM memories WHERE id = 2")
    assert export(work.store, out).exit_code == 0
    with open_store(out) as store:
        assert store.owners()["record_ref"].to_list() == ["ep:1", "mem:1", "mem:3"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious.txt").write_text("x")
    assert "exists and is not an exported store; choose another --out" in refused(work.store, other)
    assert contents(other) == {"precious.txt": b"x"}


def test_records_that_cannot_be_used(work, tmp_path):
    with closing(sqlite3.connect(work.store)) as store:
        store.execute("UPDATE memories SET content = CAST(x'ff' AS TEXT) WHERE id = 1")
        store.execute("UPDATE memories SET content = '' WHERE id = 2")
        store.commit()
    result = export(work.store, tmp_path / "store")
    assert result.exit_code == 0
    assert result.stderr == f"warning: 2 records could not be used; see {tmp_path / 'store' / 'rejects.parquet'}\n"
    rejects = pl.read_parquet(tmp_path / "store" / "rejects.parquet")
    assert rejects.select("row", "key", "reason").rows() == [
        (1, "record_ref=mem:1", "its record's text is not valid UTF-8"),
        (2, "record_ref=mem:2", "its record's text is empty"),
    ]
    assert pl.read_parquet(tmp_path / "store" / "records.parquet")["record_ref"].to_list() == ["ep:1", "mem:3"]


@pytest.mark.parametrize("kind", ["missing", "folder", "text"])
def test_what_is_no_store(tmp_path, kind):
    path = tmp_path / "store.db"
    if kind == "folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("x")
    told = {"missing": "no such file", "folder": "is a folder", "text": "not an SQLite file"}
    assert told[kind] in refused(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_empty_store(work, tmp_path):
    work.sql("DELETE FROM memories; DELETE FROM episodes")
    assert export(work.store, tmp_path / "store").exit_code == 0
    with open_store(tmp_path / "store") as store:
        assert store.owners().is_empty()


def test_owners(work):
    work.sql("UPDATE memories SET agent_id = CAST(x'ff' AS TEXT) WHERE id = 1")
    with open_store(work.store) as store:
        assert store.owners().rows() == [(ref, "" if ref == "mem:1" else "a") for ref in sorted(TEXTS)]
