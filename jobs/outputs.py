"""Write a run: whole under its name, or not at all (DESIGN.md, "Outputs")."""

import fcntl
import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dataframely as dy
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from allocation.errors import InputError
from allocation.tables import Sequences

# Files are cut at this many questions, so that their bytes depend neither on shards nor on threads.
QUESTIONS_A_FILE = 256
_ROW_GROUP = 1 << 18

LAYOUT = 2  # of a run's folder


@contextmanager
def run_folder(out: Path) -> Iterator[Path]:
    """The folder of a run, as ``whole_folder`` makes it."""
    with whole_folder(out, "run.json", "the output of a run") as folder:
        yield folder


@contextmanager
def whole_folder(out: Path, mark: str, kind: str) -> Iterator[Path]:
    """A folder to fill, renamed to ``out`` when the block ends without an error, and removed otherwise.

    Leftovers of commands that were killed are removed. What this made at ``out`` before is replaced.

    Args:
        out: What to make.
        mark: Name of a file that tells a folder of this kind.
        kind: What to call it.

    Raises:
        InputError: ``out`` exists and is something else.
    """
    out = Path(os.path.realpath(out))  # a link stays, what it points to is replaced
    out.parent.mkdir(parents=True, exist_ok=True)
    with _alone_in(out.parent):
        _clear_leftovers(out)
        if out.exists() and not (out / mark).is_file() and (not out.is_dir() or any(out.iterdir())):
            raise InputError(f"{out}: exists and is not {kind}; choose another --out")
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.part-", dir=out.parent))
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        folder.chmod(0o777 & ~_umask())
        yield folder
        _flush(folder)
        earlier = folder.with_name(f".{out.name}.old-{folder.name[-8:]}")
        with _alone_in(out.parent):
            if out.exists():
                out.rename(earlier)
            folder.rename(out)
        shutil.rmtree(earlier, ignore_errors=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(lock)


@contextmanager
def added_to(run: Path, names: Sequence[str]) -> Iterator[Path]:
    """A copy of the run's folder to add ``names`` to, which takes the run's place as ``run_folder`` says.

    What the run has of these names already is not copied; the other files are the same files.

    Raises:
        InputError: the run was replaced meanwhile.
    """
    before = (run / "run.json").read_bytes()
    with run_folder(run) as folder:
        shutil.copytree(run, folder, dirs_exist_ok=True, copy_function=_link, ignore=shutil.ignore_patterns(*names))
        yield folder
        if not (run / "run.json").is_file() or (run / "run.json").read_bytes() != before:
            raise InputError(f"{run}: was replaced while its curves were drawn; run again")


def _link(source: str, target: str) -> None:
    """A second name for a file, which is never written again; a copy where the file system has no such names."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@contextmanager
def _alone_in(parent: Path) -> Iterator[None]:
    """Hold off other runs that begin or end in this folder, so that none meets another between two steps."""
    handle = os.open(parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _clear_leftovers(out: Path) -> None:
    name = glob.escape(out.name)
    for earlier in out.parent.glob(f".{name}.old-*"):
        if out.exists():
            shutil.rmtree(earlier, ignore_errors=True)
        else:  # killed between the two renames: what was there before comes back
            earlier.rename(out)
    for folder in out.parent.glob(f".{name}.part-*"):
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held as long as its run lives
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _flush(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sequence_folder(run: Path, name: str) -> Path:
    """Where a run keeps a sequence; the name is escaped as hive partitions are, so that readers give it back."""
    return run / "sequences" / f"sequence={quote(name, safe='@')}"


def write(rows: pl.DataFrame, path: Path) -> None:
    """``rows`` as Parquet.

    Raises:
        OSError: the system refuses, for want of space for instance.
    """
    try:
        rows.write_parquet(path, compression="zstd", row_group_size=_ROW_GROUP, statistics=True)
    except pl.exceptions.PolarsError as error:
        raise OSError(f"{path}: cannot be written ({' '.join(str(error).split())})") from error


class SequenceFiles:
    """One sequence's Parquet files, filled shard by shard in the order of question_id."""

    def __init__(self, folder: Path, name: str) -> None:
        """Make the partition of sequence ``name`` under ``folder``."""
        self._folder = sequence_folder(folder, name)
        self._folder.mkdir(parents=True)
        self._waiting: list[pl.DataFrame] = [Sequences.create_empty()]
        self._questions = 0
        self._files = 0

    def add(self, shard: pl.DataFrame) -> None:
        """Take the Sequences of the next questions."""
        for question in Sequences.validate(shard).partition_by("question_id", maintain_order=True):
            self._waiting.append(question)
            self._questions += 1
            if self._questions == QUESTIONS_A_FILE:
                self._write()

    def close(self) -> None:
        """Write what is left; a sequence without rows still has one file, with the columns."""
        if self._questions or not self._files:
            self._write()

    def _write(self) -> None:
        rows = pl.concat(self._waiting, rechunk=True)
        path = self._folder / f"part-{self._files:05d}.parquet"
        write(rows, path)
        self._waiting = [Sequences.create_empty()]
        self._questions = 0
        self._files += 1


class Rows:
    """A Parquet file, filled by the batch."""

    def __init__(self, path: Path, table: type[dy.Schema]) -> None:
        """Make the file, for rows of ``table``."""
        self._table = table
        self._writer = pq.ParquetWriter(path, _plain(table.create_empty()).schema, compression="zstd")

    def add(self, rows: pl.DataFrame) -> None:
        """Take the next rows."""
        self._writer.write_table(_plain(self._table.validate(rows)))

    def close(self) -> None:
        """End the file."""
        self._writer.close()


def _plain(rows: pl.DataFrame) -> pa.Table:
    return rows.to_arrow(compat_level=pl.CompatLevel.oldest())


def write_json(path: Path, value: dict[str, Any]) -> None:
    """``value`` as JSON a person can read."""
    with whole_file(path) as part:
        part.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold off others that read and then replace ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone_in(path.parent):
        yield


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to write, which takes the name ``path`` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        yield part
        _sync(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
