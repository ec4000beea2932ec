"""A store is read in one state, whoever writes to it, and nothing is changed in or beside it."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from allocation.errors import InputError
from jobs import build_sequences
from jobs.store import ParquetStore, open_store
from tests.workspace import TEXTS, export, make_store

REFS = pl.Series("record_ref", sorted(TEXTS))

# Sets both texts in one transaction per line of its input ("loop": again and again), and says so.
WRITER = """
import sqlite3, sys, time
store = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=float(sys.argv[2]))
store.execute("PRAGMA wal_autocheckpoint = 5")
number = 0
def write():
    global number
    number += 1
    store.execute("BEGIN IMMEDIATE")
    for record in (1, 2):
        store.execute("UPDATE memories SET content = ? WHERE id = ?", (f"state {number}", record))
    store.execute("COMMIT")
write()
print("ready", flush=True)
for line in sys.stdin:
    if line == "loop\\n":
        print("looping", flush=True)
        while True:
            write()
            time.sleep(0.002)
    try:
        write()
        print("written", flush=True)
    except sqlite3.OperationalError as error:
        store.execute("ROLLBACK")
        print(error, flush=True)
"""


@contextmanager
def writer(path, timeout=0.1):
    """Another process that has the store open; calling it with a line writes and gives the answer."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(timeout)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def tell(line):
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    assert process.stdout.readline().strip() == "ready"
    try:
        yield tell
    finally:
        process.kill()
        process.communicate()


def pair(store):
    """The two texts the writer keeps equal."""
    return store.records(pl.Series(["mem:1", "mem:2"]))["text"].to_list()


def beside(path):
    """Names and sizes in the store's folder, and the store's own time of change."""
    return {file.name: file.stat().st_size for file in path.parent.iterdir()}, path.stat().st_mtime_ns


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "folder" / "store.db"
    path.parent.mkdir()
    make_store(path)
    return path


@pytest.fixture
def wal(path):
    with closing(sqlite3.connect(path)) as store:
        store.execute("PRAGMA journal_mode = wal")
        store.execute("UPDATE memories SET content = 'state 0' WHERE id IN (1, 2)")
        store.commit()
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]
    return path


def test_contents(path):
    with open_store(path) as store:
        records, blocks, problems = store.records(REFS), store.blocks(REFS), store.problems(REFS)
    assert records.rows() == [(ref, "a", TEXTS[ref][0], "", None) for ref in sorted(TEXTS)]
    assert blocks.rows() == [
        (ref, index, *span, "m", vector)
        for ref in sorted(TEXTS)
        for index, (*span, vector) in enumerate(TEXTS[ref][1] or [])
    ]
    assert sorted(problems.rows()) == [(ref, "a", None, len(TEXTS[ref][0])) for ref in sorted(TEXTS)]


def test_times_are_read_and_a_missing_or_damaged_one_is_no_problem(path):
    with closing(sqlite3.connect(path)) as store:
        store.execute("UPDATE episodes SET start_time = '2025-05-01'")
        store.execute("UPDATE memories SET timestamp = '2025-05-02' WHERE id = 1")
        store.execute("UPDATE memories SET timestamp = CAST(x'FF' AS TEXT) WHERE id = 2")
        store.commit()
    with open_store(path) as store:
        times = dict(store.records(REFS).select("record_ref", "recorded_at").rows())
        assert store.problems(REFS)["problem"].null_count() == len(REFS)
    assert times == {"ep:1": "2025-05-01", "mem:1": "2025-05-02", "mem:2": None, "mem:3": ""}


def test_node_ends_are_in_order(path):
    with closing(sqlite3.connect(path)) as store:
        rows = [("mem", 1, 0, 0, 34), ("mem", 1, 1, 0, 16), ("ep", 1, 0, 0, 23)]
        store.executemany("INSERT INTO record_nodes VALUES (?, ?, ?, ?, ?, 1, 1, NULL, '')", rows)
        store.commit()
    with open_store(path) as store:
        records = store.records(REFS)
    assert dict(records.select("record_ref", "node_ends").rows()) == {
        "ep:1": [23],
        "mem:1": [16, 34],
        "mem:2": None,
        "mem:3": None,
    }


@pytest.mark.parametrize(
    "name", ["mem:01", "mem:1'; DROP TABLE memories; --", "mem:-1", "mem:１", "x:1", "mem:1\n", ""]
)
def test_names_that_are_no_reference_are_not_found(path, name):
    with open_store(path) as store:
        refs = pl.Series([name])
        assert store.problems(refs).is_empty()
        assert store.records(refs).is_empty()
        assert store.blocks(refs).is_empty()


def test_more_records_than_one_batch(path):
    with closing(sqlite3.connect(path)) as store:
        rows = [(number, f"text {number}") for number in range(10, 5010)]
        store.executemany("INSERT INTO memories (id, agent_id, content, timestamp) VALUES (?, 'a', ?, '')", rows)
        store.commit()
    refs = pl.Series([f"mem:{number}" for number, _ in rows])
    with open_store(path) as store:
        assert store.problems(refs)["record_ref"].n_unique() == 5000
        assert dict(store.records(refs).select("record_ref", "text").rows()) == {f"mem:{i}": text for i, text in rows}


# --- One state, and nothing beside it


def test_a_live_wal_store_shows_one_state(wal):
    with writer(wal) as tell:
        with open_store(wal) as store:
            before = pair(store)
            assert before == ["state 1"] * 2
            assert [tell("write") for _ in range(3)] == ["written"] * 3
            assert pair(store) == before
            assert store.problems(pl.Series(["mem:1"]))["problem"].to_list() == [None]
        with open_store(wal) as store:
            assert pair(store) == ["state 4"] * 2


def test_reads_are_consistent_while_a_server_writes_without_rest(wal):
    with writer(wal, timeout=30) as tell:
        assert tell("loop") == "looping"
        states = set()
        for _ in range(30):
            with open_store(wal) as store:
                first, second = pair(store), pair(store)
            assert len({*first, *second}) == 1
            states.update(first)
        assert len(states) > 1  # it did write meanwhile


def test_a_live_wal_store_gains_no_files(wal):
    with writer(wal):
        before = beside(wal)
        with open_store(wal) as store:
            assert pair(store) == ["state 1"] * 2
            assert beside(wal) == before
        assert beside(wal) == before
    assert set(before[0]) == {"store.db", "store.db-wal", "store.db-shm"}


def test_a_wal_store_that_nobody_has_open_gains_no_files(wal):
    before = beside(wal)
    with open_store(wal) as store:
        assert pair(store) == ["state 0"] * 2
        assert beside(wal) == before
    assert beside(wal) == before


def test_a_copied_wal_store_is_read_with_its_log(wal, tmp_path):
    copy = tmp_path / "copy" / "store.db"
    copy.parent.mkdir()
    with writer(wal):
        for ending in ("", "-wal"):
            shutil.copyfile(f"{wal}{ending}", f"{copy}{ending}")
    before = beside(copy)
    assert set(before[0]) == {"store.db", "store.db-wal"}
    with open_store(copy) as store:
        assert pair(store) == ["state 1"] * 2
        assert beside(copy) == before
    assert beside(copy) == before


def test_files_left_by_a_killed_server_are_used_and_stay(wal):
    with writer(wal):
        pass  # killed: the log and its index stay
    before = beside(wal)
    assert set(before[0]) == {"store.db", "store.db-wal", "store.db-shm"}
    with open_store(wal) as store:
        assert pair(store) == ["state 1"] * 2
    assert beside(wal) == before


def test_an_index_without_its_log(wal):
    with writer(wal):
        shutil.copyfile(f"{wal}-shm", wal.parent / "kept")
    os.unlink(f"{wal}-wal")
    before = beside(wal)
    with open_store(wal) as store:
        assert len(set(pair(store))) == 1
    assert beside(wal) == before


def test_a_link_to_a_live_wal_store(wal, tmp_path):
    link = tmp_path / "link.db"
    link.symlink_to(wal)
    with writer(wal) as tell:
        assert tell("write") == "written"
        with open_store(link) as store:
            assert pair(store) == ["state 2"] * 2
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder", "link.db"]


def test_a_store_with_a_rollback_journal_is_locked_against_writers_while_it_is_read(path):
    before = beside(path)
    with open_store(path) as store:
        first = store.records(REFS)
        assert beside(path) == before
    with writer(path) as tell, open_store(path) as store:
        first = pair(store)
        # The digest in run.json must not drop the lock: closing any handle on the file would.
        assert build_sequences.describe(path, store.content)["bytes"] == path.stat().st_size
        assert tell("write") == "database is locked"
        assert pair(store) == first


def test_a_busy_store_with_a_rollback_journal_is_waited_for(path):
    with writer(path, timeout=30) as tell:
        assert tell("loop") == "looping"
        for _ in range(5):
            with open_store(path) as store:
                assert len(set(pair(store))) == 1


def test_a_wal_store_that_changes_while_it_is_read_is_refused(wal):
    store = open_store(wal)
    pair(store)
    with closing(sqlite3.connect(wal)) as other:
        other.execute("UPDATE memories SET content = 'other'")
        other.commit()
    with pytest.raises(InputError, match="changed while it was read; run again"):
        store.__exit__()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_store_in_a_folder_that_cannot_be_written_to(path, mode):
    with closing(sqlite3.connect(path)) as store:
        store.execute(f"PRAGMA journal_mode = {mode}")
    path.parent.chmod(0o555)
    try:
        with open_store(path) as store:
            assert len(store.records(REFS)) == 4
    finally:
        path.parent.chmod(0o755)


def test_a_duplicate_record_is_refused(path):
    with closing(sqlite3.connect(path)) as store:
        store.executescript(
            "DROP TABLE memories; CREATE TABLE memories (id INTEGER, agent_id TEXT, content TEXT);"
            "INSERT INTO memories VALUES (1, 'a', 'x'), (1, 'a', 'y')"
        )
    with open_store(path) as store, pytest.raises(InputError, match="record mem:1 occurs twice"):
        store.records(REFS)


# --- Parquet


@pytest.fixture
def folder(path, tmp_path):
    export(path, tmp_path / "exported", list(TEXTS), row_group_size=1)
    return tmp_path / "exported"


def test_a_parquet_store_gives_what_the_sqlite_store_gives(path, folder):
    for refs in (REFS, pl.Series(["mem:2", "mem:9", "ep:1"]), pl.Series([], dtype=pl.String)):
        with open_store(path) as one, open_store(folder) as other:
            assert isinstance(other, ParquetStore)
            assert one.records(refs).equals(other.records(refs))
            assert one.blocks(refs).equals(other.blocks(refs))
            assert sorted(one.problems(refs).rows()) == sorted(other.problems(refs).rows())


def test_only_the_row_groups_of_the_wanted_records_are_read(folder, monkeypatch):
    with open_store(folder) as store:
        read = []
        file = store._records._file
        whole = file.read_row_groups
        monkeypatch.setattr(
            file, "read_row_groups", lambda groups, **more: read.append(list(groups)) or whole(groups, **more)
        )
        assert store.records(pl.Series(["mem:1"]))["record_ref"].to_list() == ["mem:1"]
    assert read == [[1]]  # ep:1, mem:1, mem:2, mem:3 in groups of one


def test_an_empty_parquet_store(folder):
    for name in ("records", "blocks"):
        file = folder / f"{name}.parquet"
        pl.read_parquet(file).clear().write_parquet(file)
    with open_store(folder) as store:
        assert store.problems(REFS).is_empty()
        assert store.records(REFS).is_empty()
        assert store.blocks(REFS).is_empty()


def change(file, column):
    pl.read_parquet(file).with_columns(column).write_parquet(file)


def test_parquet_texts_that_cannot_be_used_are_problems(folder):
    texts = pl.when(pl.col("record_ref") == "mem:1").then(pl.lit("")).when(pl.col("record_ref") != "mem:2").then("text")
    change(folder / "records.parquet", texts.alias("text"))
    with open_store(folder) as store:
        problems = dict(store.problems(REFS).select("record_ref", "problem").rows())
    told = "its record's text is empty"
    assert problems == {"ep:1": None, "mem:1": told, "mem:2": told, "mem:3": None}


@pytest.mark.parametrize(
    ("name", "column", "told"),
    [
        ("records", pl.lit(1).alias("record_ref"), "column record_ref is Int32"),
        ("records", pl.lit(1).alias("text"), "column text is Int32"),
        ("blocks", pl.lit("x").alias("start"), "column start is String"),
        ("blocks", pl.lit("x").alias("vector"), "column vector is String"),
    ],
)
def test_parquet_columns_of_another_type(folder, name, column, told):
    change(folder / f"{name}.parquet", column)
    with pytest.raises(InputError, match=told):
        open_store(folder)


@pytest.mark.parametrize(("name", "column"), [("records", "record_ref"), ("records", "text"), ("blocks", "vector")])
def test_parquet_columns_that_are_missing(folder, name, column):
    file = folder / f"{name}.parquet"
    pl.read_parquet(file).drop(column).write_parquet(file)
    with pytest.raises(InputError, match=f"columns missing: {column}"):
        open_store(folder)


def test_optional_and_further_parquet_columns(folder):
    file = folder / "records.parquet"
    pl.read_parquet(file).drop("node_ends").with_columns(more=1).write_parquet(file)
    with open_store(folder) as store:
        assert store.records(REFS).columns == ["record_ref", "agent_id", "text", "recorded_at", "node_ends"]


def test_a_parquet_store_of_dictionary_encoded_names(folder):
    for name in ("records", "blocks"):
        file = folder / f"{name}.parquet"
        table = pq.read_table(file)
        names = table["record_ref"].combine_chunks().cast(pa.string()).dictionary_encode()
        pq.write_table(table.set_column(0, "record_ref", names), file)
    with open_store(folder) as store:
        assert store.records(REFS)["record_ref"].to_list() == sorted(TEXTS)
        assert len(store.blocks(REFS)) == 6


def test_a_parquet_text_that_is_not_utf_8_is_refused(folder):
    file = folder / "records.parquet"
    table = pq.read_table(file)
    text = pa.array([b"\xed\xa0\x80"] * len(table)).view(pa.string())
    pq.write_table(table.set_column(table.schema.get_field_index("text"), "text", text), file)
    with (
        open_store(folder) as store,
        pytest.raises(InputError, match=r"records\.parquet: cannot be read as Parquet"),
    ):
        store.records(REFS)


def test_a_parquet_record_that_occurs_twice_is_refused(folder):
    file = folder / "records.parquet"
    frame = pl.read_parquet(file)
    pl.concat([frame, frame]).write_parquet(file)
    with open_store(folder) as store, pytest.raises(InputError, match="record ep:1 occurs twice"):
        store.problems(REFS)


@pytest.mark.parametrize("name", ["records", "blocks"])
@pytest.mark.parametrize("damage", ["missing", "empty", "half", "noise"])
def test_a_damaged_parquet_store_is_refused(folder, name, damage):
    file = folder / f"{name}.parquet"
    content = file.read_bytes()
    file.unlink()
    if damage != "missing":
        spoilt = {
            "empty": b"",
            "half": content[: len(content) // 2],
            "noise": content[:4] + b"\x5a" * 400 + content[404:],
        }
        file.write_bytes(spoilt[damage])
    with pytest.raises(InputError, match=rf"{name}\.parquet: ") as error:  # noqa: PT012, SIM117
        with open_store(folder) as store:
            store.records(REFS)
            store.blocks(REFS)
    assert len(str(error.value).splitlines()) == 1


# --- Nodes and entities


def test_nodes_and_entities(path, tmp_path):
    with closing(sqlite3.connect(path)) as store:
        store.execute("INSERT INTO record_nodes VALUES ('mem', 1, 0, 0, 34, 9, 9, x'0000803f', 'm')")
        store.execute("INSERT INTO entities VALUES (1, 'a', '', '', 'Shed', 'shed', 'x', '')")
        store.execute("INSERT INTO entities VALUES (2, 'b', '', '', 'Barn', 'barn', 'x', '')")
        store.execute("INSERT INTO entity_aliases VALUES (1, 'The Hut', 'the hut')")
        store.commit()
    agents = pl.Series(["a"])
    with open_store(path) as store:
        nodes, entities = store.nodes(REFS), store.entities(agents)
        assert store.records(pl.Series(["mem:1"]))["node_ends"].to_list() == [[34]]
    assert nodes.rows() == [("mem:1", 0, 0, 34, "m", b"\0\0\x80\x3f")]
    assert entities.rows() == [("a", "Shed"), ("a", "The Hut")]

    folder = tmp_path / "exported"
    export(path, folder, REFS.to_list())
    with open_store(folder) as store:
        assert store.nodes(REFS).equals(nodes)
        assert store.entities(agents).equals(entities)
    for name in ("nodes", "entities"):
        (folder / f"{name}.parquet").unlink()
    with open_store(folder) as store:
        assert store.nodes(REFS).is_empty()
        assert store.entities(agents).is_empty()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE memories DROP COLUMN timestamp",
        "ALTER TABLE record_nodes DROP COLUMN embedding",
        "DROP TABLE entity_aliases",
    ],
)
def test_what_a_sequence_can_do_without_may_be_missing(path, change):
    with closing(sqlite3.connect(path)) as store:
        store.execute(change)
        store.commit()
    with open_store(path) as store:
        assert len(store.records(REFS)) == len(TEXTS)
        assert store.nodes(REFS).is_empty()
        assert store.entities(pl.Series(["a"])).is_empty()
