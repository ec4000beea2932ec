"""Read a store, SQLite or Parquet, without ever writing to it or beside it (DESIGN.md, "Inputs")."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import quote

import adbc_driver_manager
import adbc_driver_sqlite.dbapi
import dataframely as dy
import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pyarrow.parquet as pq

from allocation.errors import InputError
from allocation.tables import Entities, Records, StoredBlocks, StoredNodes, conform
from jobs import tabular

KNOWN_SCHEMAS = range(13, 20)

# Table -> the columns that must be there, and the first schema that has it. What a sequence can do without (times,
# node vectors, entities) is read where it is there.
_TABLES = {
    "memories": (("id", "agent_id", "content"), 13),
    "episodes": (("id", "agent_id", "summary"), 13),
    "record_nodes": (("parent_kind", "parent_id", "end_char"), 14),
    "record_blocks": (
        ("parent_kind", "parent_id", "block_index", "start_char", "end_char", "embedding_model"),
        16,
    ),
    "record_block_vectors": (("parent_kind", "parent_id", "block_index", "embedding_i8"), 17),
}
_NODE_VECTORS = {"node_index", "start_char", "embedding", "embedding_model"}
_ENTITIES = {"entities": {"id", "agent_id", "name"}, "entity_aliases": {"entity_id", "alias"}}
_TEXTS = {"mem": ("memories", "content", "timestamp"), "ep": ("episodes", "summary", "start_time")}
_REF = re.compile(r"(mem|ep):(0|[1-9][0-9]{0,17})", re.ASCII)

_PROBLEM = {"record_ref": pl.String, "agent_id": pl.String, "problem": pl.String, "length": pl.Int64}
_OWNERS = {"record_ref": pl.String, "agent_id": pl.String}
_MODELS = {"embedding_model": pl.String, "width": pl.Int64}
_LENGTH = pl.col("text").str.len_chars().cast(pl.Int64).alias("length")
_BATCH = 2000  # records read at a time where only their state matters
_HEADER = 100  # bytes of an SQLite file's header
_PATIENCE = 10_000  # milliseconds to wait for a server that is committing


class Store(Protocol):
    """A store opened for reading; all reads see one state of it."""

    facts: dict[str, Any]
    # NOTE: an SQLite store's own file. Closing any other handle on it would drop SQLite's locks (POSIX).
    content: BufferedReader | None

    def owners(self) -> pl.DataFrame:
        """record_ref and agent_id of every record, by record_ref; an agent_id that is no text is empty."""

    def models(self) -> pl.DataFrame:
        """embedding_model and width of the stored block vectors, each pair once; no label is an empty one."""

    def problems(self, refs: pl.Series) -> pl.DataFrame:
        """record_ref, agent_id, problem (null: usable) and length of those of ``refs`` that the store holds."""

    def records(self, refs: pl.Series) -> pl.DataFrame:
        """Records of ``refs``."""

    def blocks(self, refs: pl.Series) -> pl.DataFrame:
        """StoredBlocks of ``refs``."""

    def nodes(self, refs: pl.Series) -> pl.DataFrame:
        """StoredNodes of ``refs``."""

    def entities(self, agents: pl.Series) -> pl.DataFrame:
        """Entities of ``agents``."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_store(path: Path) -> Store:
    """The store at ``path``: an SQLite file, or a folder with records.parquet and blocks.parquet.

    Raises:
        InputError: it is neither, damaged, of an unknown schema, or lacks a table or column.
    """
    if path.is_dir():
        return ParquetStore(path)
    if not path.is_file():
        raise InputError(f"{path}: no such store; give an SQLite file or a folder with records.parquet")
    return SqliteStore(path)


class SqliteStore:
    """The memory server's own file, read in one transaction, also while the server writes to it."""

    def __init__(self, path: Path) -> None:
        """Open ``path``; raises InputError as ``open_store`` says."""
        self._path = path
        self._cleanup = ExitStack()
        self.facts: dict[str, Any] = {"kind": "sqlite"}
        try:
            self._cursor = self._connect()
            schema = self.facts["schema"] = self._schema_version()
            self._tables = self._usable_tables(schema)
        except BaseException:
            self._cleanup.close()
            raise

    def __enter__(self) -> Self:
        """Itself, open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the transaction and close."""
        self._cleanup.close()

    def _connect(self) -> adbc_driver_sqlite.dbapi.Cursor:
        path, mode = self._path.resolve(), "mode=ro"  # SQLite's own files stand beside what a link points to
        content = self._cleanup.enter_context(path.open("rb"))
        self.content: BufferedReader | None = content
        header = content.read(_HEADER)
        if header[:16] != b"SQLite format 3\0":
            raise InputError(f"{path}: not an SQLite file; give the memory server's database")
        if len(header) < _HEADER:
            raise InputError(f"{path}: truncated; restore it from a backup")
        if int.from_bytes(header[56:60], "big") > 1:
            raise InputError(f"{path}: its texts are UTF-16; give a database in UTF-8, as the memory server makes it")
        log, index = (path.with_name(path.name + ending) for ending in ("-wal", "-shm"))
        if header[18] == 2 and not (index.exists() and log.exists()):
            # NOTE: a write-ahead store that nobody has open. Opened as usual, SQLite would make files beside it.
            if log.exists() and log.stat().st_size:
                folder = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory()))
                before = path.stat()
                for file_path in (path, log):
                    shutil.copyfile(file_path, folder / file_path.name)
                _refuse_if_changed(path, before)
                path = folder / path.name
            else:
                mode = "mode=ro&immutable=1"
                self._cleanup.callback(_refuse_if_changed, path, path.stat())
        try:
            connection = adbc_driver_sqlite.dbapi.connect(f"file:{quote(str(path))}?{mode}")
            self._cleanup.callback(connection.close)
            cursor = connection.cursor()
            self._cleanup.callback(cursor.close)
            cursor.execute("PRAGMA trusted_schema = OFF")
            cursor.execute(f"PRAGMA busy_timeout = {_PATIENCE}")
            cursor.fetchall()
            cursor.execute("SELECT count(*) FROM sqlite_schema")  # starts the read transaction
            cursor.fetchall()
        except adbc_driver_manager.Error as error:
            raise self._unreadable(error) from error
        if not (header[18] == 2 and log.exists() and log.stat().st_size):
            self._refuse_truncated(content)
        return cursor

    def _refuse_truncated(self, content: BufferedReader) -> None:
        """SQLite notices a lost end only when it reads a page there, so compare sizes, in the transaction."""
        header = os.pread(content.fileno(), _HEADER, 0)
        page = int.from_bytes(header[16:18], "big")
        expected = int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)
        size = os.fstat(content.fileno()).st_size
        if header[24:28] == header[92:96] and size < expected:  # else an old SQLite wrote it, and no size counts
            raise InputError(f"{self._path}: truncated, {size} of {expected} bytes; restore it from a backup")

    def _unreadable(self, error: Exception) -> InputError:
        return InputError(
            f"{self._path}: cannot be read ({_one_line(error)}); check it with `sqlite3 FILE 'PRAGMA quick_check'`"
        )

    def _select(self, sql: str, *parameters: object) -> pl.DataFrame:
        try:
            self._cursor.execute(sql, parameters or None)
            table = self._cursor.fetch_arrow_table()
        except (adbc_driver_manager.Error, pa.ArrowException) as error:
            raise self._unreadable(error) from error
        return pl.DataFrame(pl.from_arrow(table))

    def _schema_version(self) -> int:
        has_table = self._select("SELECT name FROM sqlite_schema WHERE name = 'schema_version' AND rootpage > 0")
        # The server keeps a flag in user_version, so it only counts where there is no table.
        version = (
            self._select("SELECT coalesce(max(CAST(version AS INTEGER)), 0) FROM schema_version").item()
            if len(has_table)
            else self._select("SELECT user_version FROM pragma_user_version").item()
        )
        if version not in KNOWN_SCHEMAS:
            raise InputError(
                f"{self._path}: schema {version} is unknown; "
                f"schemas {KNOWN_SCHEMAS[0]} to {KNOWN_SCHEMAS[-1]} can be read"
            )
        return int(version)

    def _usable_tables(self, schema: int) -> dict[str, set[str]]:
        found = self._select(
            "SELECT s.name AS name, c.name AS column_name FROM sqlite_schema s, pragma_table_info(s.name) c "
            "WHERE s.type = 'table' AND s.rootpage > 0 AND s.name IN (SELECT value FROM json_each(?))",
            json.dumps([*_TABLES, *_ENTITIES]),
        )
        columns = dict(found.group_by("name").agg("column_name").iter_rows())
        for table, (wanted, since) in _TABLES.items():
            missing = sorted(set(wanted) - set(columns.get(table, ())))
            if table not in columns and schema >= since:
                raise InputError(f"{self._path}: schema {schema} should have the table {table}, which is missing")
            if table in columns and missing:
                raise InputError(f"{self._path}: table {table} lacks the column {', '.join(missing)}")
        return {table: set(names) for table, names in columns.items()}

    def _texts(self, refs: pl.Series) -> pl.DataFrame:
        """record_ref, agent_id, problem, text (null: not valid) and recorded_at of those of ``refs`` that exist."""
        columns = dict.fromkeys(("record_ref", "agent_id", "problem", "text", "recorded_at"), pl.String)
        frames = [pl.DataFrame(schema=columns)]
        for kind, ids in _ids(refs):
            table, column, time = _TEXTS[kind]
            time = f"coalesce(CAST({time} AS BLOB), x'')" if time in self._tables[table] else "x''"
            # Blobs, so that text that is not UTF-8 is found here and does not reach the frames.
            found = self._select(
                f"SELECT '{kind}:' || id AS record_ref, coalesce(CAST(agent_id AS BLOB), x'') AS agent_id, "  # noqa: S608
                f"coalesce(CAST({column} AS BLOB), x'') AS text, typeof({column}) = 'text' AS is_text, "
                f"{time} AS recorded_at "
                f"FROM {table} WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
                ids,
            )
            if len(found):
                problem = (
                    pl.when(pl.col("is_text") == 0)
                    .then(pl.lit("its record holds no text"))
                    .when(pl.col("text") == "")
                    .then(pl.lit("its record's text is empty"))
                    .when(pl.col("text").is_null())
                    .then(pl.lit("its record's text is not valid UTF-8"))
                )
                names = ("agent_id", "text", "recorded_at")
                decoded = found.with_columns(_utf8(found[name]) for name in names)
                agent, time_text = pl.col("agent_id").fill_null(""), pl.col("recorded_at")
                frames.append(decoded.select("record_ref", agent, problem.alias("problem"), "text", time_text))
        return pl.concat(frames)

    def owners(self) -> pl.DataFrame:
        """See Store."""
        frames = [pl.DataFrame(schema=_OWNERS)]
        for kind, (table, *_) in _TEXTS.items():
            if table in self._tables:
                found = self._select(
                    f"SELECT '{kind}:' || id AS record_ref, coalesce(CAST(agent_id AS BLOB), x'') AS agent_id "  # noqa: S608
                    f"FROM {table}"
                )
                if len(found):
                    frames.append(found.select("record_ref", _utf8(found["agent_id"]).fill_null("")))
        return pl.concat(frames).sort("record_ref")

    def models(self) -> pl.DataFrame:
        """See Store."""
        found = pl.DataFrame(schema=_MODELS)
        if "record_block_vectors" in self._tables:
            rows = self._select(
                "SELECT DISTINCT coalesce(CAST(b.embedding_model AS BLOB), x'') AS embedding_model, "
                "length(CAST(v.embedding_i8 AS BLOB)) AS width "
                "FROM record_blocks b JOIN record_block_vectors v USING (parent_kind, parent_id, block_index)"
            )
            if len(rows):
                found = rows.select(_utf8(rows["embedding_model"]).fill_null(""), pl.col("width").cast(pl.Int64))
        return found.unique().sort("embedding_model", "width")

    def problems(self, refs: pl.Series) -> pl.DataFrame:
        """See Store."""
        batches = [
            self._texts(refs[i : i + _BATCH]).select("record_ref", "agent_id", "problem", _LENGTH)
            for i in range(0, len(refs), _BATCH)
        ]
        return pl.concat([pl.DataFrame(schema=_PROBLEM), *batches])

    def records(self, refs: pl.Series) -> pl.DataFrame:
        """See Store."""
        nodes = self._children(
            refs, "record_nodes", "coalesce(CAST(end_char AS INTEGER), -1) AS node_ends", "node_ends"
        )
        ends = nodes.group_by("record_ref").agg(pl.col("node_ends").sort())
        records = self._texts(refs).join(ends, on="record_ref", how="left").sort("record_ref")
        return _records(records, self._path)

    def blocks(self, refs: pl.Series) -> pl.DataFrame:
        """See Store."""
        vector = "x''"
        join = ""
        if "record_block_vectors" in self._tables:
            vector = "coalesce(CAST(v.embedding_i8 AS BLOB), x'')"
            join = "LEFT JOIN record_block_vectors v USING (parent_kind, parent_id, block_index)"
        return self._embedded(refs, f"record_blocks {join}", StoredBlocks, vector)

    def nodes(self, refs: pl.Series) -> pl.DataFrame:
        """See Store."""
        if not self._tables.get("record_nodes", set()) >= _NODE_VECTORS:
            return StoredNodes.create_empty()
        return self._embedded(refs, "record_nodes", StoredNodes, "coalesce(CAST(embedding AS BLOB), x'')")

    def entities(self, agents: pl.Series) -> pl.DataFrame:
        """See Store."""
        if not all(columns <= self._tables.get(table, set()) for table, columns in _ENTITIES.items()):
            return Entities.create_empty()
        found = self._select(
            "SELECT CAST(agent_id AS BLOB) AS agent_id, coalesce(CAST(name AS BLOB), x'') AS name FROM ("
            "SELECT agent_id, name FROM entities UNION "
            "SELECT e.agent_id, a.alias FROM entity_aliases a JOIN entities e ON e.id = a.entity_id"
            ") WHERE agent_id IN (SELECT value FROM json_each(?)) ORDER BY 1, 2",
            json.dumps(agents.to_list()),
        )
        if found.is_empty():
            return Entities.create_empty()
        names = found.select(_utf8(found["agent_id"]), _utf8(found["name"])).drop_nulls()
        return conform(names, Entities, str(self._path))

    def _embedded(self, refs: pl.Series, table: str, kind: type[dy.Schema], vector: str) -> pl.DataFrame:
        """Spans of records with a vector: StoredBlocks or StoredNodes, of ``table`` and the SQL of their vector."""
        _, index, *_, vector_name = kind.column_names()
        found = self._children(
            refs,
            table,
            f"CAST({index} AS INTEGER) AS {index}, coalesce(CAST(start_char AS INTEGER), -1) AS start, "
            'coalesce(CAST(end_char AS INTEGER), -1) AS "end", '
            f"coalesce(CAST(embedding_model AS BLOB), x'') AS embedding_model, {vector} AS {vector_name}",
            index,
        )
        if found.is_empty():
            return kind.create_empty()
        # A label that is not UTF-8 becomes null, and so its block set not current.
        rows = conform(found.with_columns(_utf8(found["embedding_model"])), kind, str(self._path))
        return rows.sort("record_ref", index)

    def _children(self, refs: pl.Series, table: str, columns: str, order: str) -> pl.DataFrame:
        """Rows of a table that hangs on records: record_ref and ``columns``, in order."""
        frames = []
        if table.split()[0] in self._tables:
            for kind, ids in _ids(refs):
                found = self._select(
                    f"SELECT '{kind}:' || parent_id AS record_ref, {columns} FROM {table} "  # noqa: S608
                    f"WHERE parent_kind = '{kind}' AND parent_id IN (SELECT value FROM json_each(?)) "
                    f"ORDER BY parent_id, {order}",
                    ids,
                )
                if len(found):
                    frames.append(found)
        empty = pl.DataFrame(schema={"record_ref": pl.String, "node_ends": pl.Int64})
        return pl.concat(frames) if frames else empty


def _utf8(values: pl.Series) -> pl.Series:
    """Bytes as text; null where they are not UTF-8."""

    def decoded(value: bytes) -> str | None:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None

    try:
        return values.cast(pl.String)
    except pl.exceptions.ComputeError:  # NOTE: polars 2.1 fails so even with strict=False
        return pl.Series(values.name, map(decoded, values), dtype=pl.String)


def _ids(refs: pl.Series) -> Iterable[tuple[str, str]]:
    """The ids of each kind of record among ``refs``, as a JSON array; names that are no reference are left out."""
    parsed = [match.groups() for match in map(_REF.fullmatch, refs.to_list()) if match]
    for kind in _TEXTS:
        ids = [int(number) for own, number in parsed if own == kind]
        if ids:
            yield kind, json.dumps(ids)


def _records(rows: pl.DataFrame, path: Path) -> pl.DataFrame:
    records = conform(rows, Records, str(path))
    twice = records.filter(pl.col("record_ref").is_duplicated())["record_ref"]
    if len(twice):
        raise InputError(f"{path}: record {twice.sort().item(0)} occurs twice; a store holds a record once")
    return records


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _refuse_if_changed(path: Path, before: Any) -> None:
    after = path.stat()
    if (before.st_mtime_ns, before.st_size, before.st_ino) != (
        after.st_mtime_ns,
        after.st_size,
        after.st_ino,
    ):
        raise InputError(f"{path}: was changed while it was read; run again")


class ParquetStore:
    """An exported store: records.parquet and blocks.parquet in one folder."""

    def __init__(self, folder: Path) -> None:
        """Open the files and index their rows; raises InputError as ``open_store`` says."""
        self.facts = {"kind": "parquet"}
        self.content: BufferedReader | None = None
        self._records = _IndexedFile(folder / "records.parquet", Records)
        self._blocks = _IndexedFile(folder / "blocks.parquet", StoredBlocks)
        nodes = folder / "nodes.parquet"
        self._nodes = _IndexedFile(nodes, StoredNodes) if nodes.is_file() else None
        entities = folder / "entities.parquet"
        self._entities = tabular.read(entities, Entities) if entities.is_file() else Entities.create_empty()

    def __enter__(self) -> Self:
        """Itself, open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        for file in (self._records, self._blocks, self._nodes):
            if file is not None:
                file.close()

    def owners(self) -> pl.DataFrame:
        """See Store."""
        own = (pl.col(name).cast(pl.String) for name in ("record_ref", "agent_id"))
        found = pl.concat(
            [pl.DataFrame(schema=_OWNERS), *self._records.groups(["record_ref", "agent_id"])], how="vertical_relaxed"
        )
        return found.select(own).fill_null("").sort("record_ref")

    def models(self) -> pl.DataFrame:
        """See Store."""
        width = pl.col("vector").bin.size().cast(pl.Int64)
        found = [
            group.filter(width > 0)
            .select(pl.col("embedding_model").cast(pl.String).fill_null(""), width=width)
            .unique()
            for group in self._blocks.groups(["embedding_model", "vector"])
        ]
        return pl.concat([pl.DataFrame(schema=_MODELS), *found]).unique().sort("embedding_model", "width")

    def problems(self, refs: pl.Series) -> pl.DataFrame:
        """See Store."""
        empty = pl.when((pl.col("text") == "") | pl.col("text").is_null()).then(pl.lit("its record's text is empty"))
        batches = [
            self.records(refs[i : i + _BATCH]).select("record_ref", "agent_id", empty.alias("problem"), _LENGTH)
            for i in range(0, len(refs), _BATCH)
        ]
        return pl.concat([pl.DataFrame(schema=_PROBLEM), *batches])

    def records(self, refs: pl.Series) -> pl.DataFrame:
        """See Store."""
        return _records(self._records.rows(refs), self._records.path).sort("record_ref")

    def blocks(self, refs: pl.Series) -> pl.DataFrame:
        """See Store."""
        return conform(self._blocks.rows(refs), StoredBlocks, str(self._blocks.path)).sort("record_ref", "block_index")

    def nodes(self, refs: pl.Series) -> pl.DataFrame:
        """See Store."""
        if self._nodes is None:
            return StoredNodes.create_empty()
        rows = conform(self._nodes.rows(refs), StoredNodes, str(self._nodes.path))
        return rows.sort("record_ref", "node_index")

    def entities(self, agents: pl.Series) -> pl.DataFrame:
        """See Store."""
        return self._entities.filter(pl.col("agent_id").is_in(agents.implode())).sort("agent_id", "name")


class _IndexedFile:
    """A Parquet file of which only the row groups that hold the wanted records are read."""

    def __init__(self, path: Path, table: type[dy.Schema]) -> None:
        self.path = path
        if not path.is_file():
            raise InputError(f"{path}: no such file; a Parquet store has records.parquet and blocks.parquet")
        with self._readable():
            self._file = pq.ParquetFile(path)
            columns = pl.DataFrame(pl.from_arrow(self._file.schema_arrow.empty_table()))
        conform(columns, table, str(path))
        self._columns = [name for name in table.column_names() if name in columns.columns]
        groups = [
            self._read([i], ["record_ref"]).unique().with_columns(group=i) for i in range(self._file.num_row_groups)
        ]
        self._groups = pl.concat([pl.DataFrame(schema={"record_ref": pl.String, "group": pl.Int32}), *groups])

    def rows(self, refs: pl.Series) -> pl.DataFrame:
        groups = self._groups.filter(pl.col("record_ref").is_in(refs.implode()))["group"].unique().sort()
        return self._read(groups.to_list(), self._columns).filter(pl.col("record_ref").is_in(refs.implode()))

    def groups(self, names: list[str]) -> Iterator[pl.DataFrame]:
        """The columns, a row group at a time."""
        for group in range(self._file.num_row_groups):
            yield self._read([group], names)

    def _read(self, groups: list[int], columns: list[str]) -> pl.DataFrame:
        with self._readable():
            table = self._file.read_row_groups(groups, columns=columns)
            table.validate(full=True)  # polars takes an Arrow text for UTF-8 without looking
        return pl.DataFrame(pl.from_arrow(table)).with_columns(
            cs.by_name("record_ref", require_all=False).cast(pl.String)
        )

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{self.path}: cannot be read as Parquet ({_one_line(error)}); export the store again"
            ) from error

    def close(self) -> None:
        self._file.close()
