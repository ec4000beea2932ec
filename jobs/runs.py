"""Read a finished run (DESIGN.md, "Outputs")."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dataframely as dy
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from allocation import curves, run_records
from allocation.errors import InputError
from allocation.points import Point
from allocation.tables import Evidence, Parts, Points, Questions, RunRecords, Sequences, Windows, conform
from jobs.outputs import LAYOUT, QUESTIONS_A_FILE, sequence_folder
from jobs.store import Store, open_store

_TABLES: dict[str, type[dy.Schema]] = {
    "questions": Questions,
    "windows": Windows,
    "evidence": Evidence,
    "parts": Parts,
    "records": RunRecords,
}


class Run:
    """The folder of a finished run."""

    def __init__(self, folder: Path) -> None:
        """Look it over.

        Raises:
            InputError: ``folder`` is not the folder of a run, is of another layout, or lacks a file.
        """
        self.folder = folder
        try:
            description = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{folder}: is not the output of a run; build it with build-sequences") from error
        layout = description.get("layout", 1) if isinstance(description, dict) else None
        if layout != LAYOUT:
            raise InputError(f"{folder}: is of layout {layout}, this version reads {LAYOUT}; build the run again")
        self.description: dict[str, Any] = description
        for name in _TABLES:
            self._refuse_if_missing(folder / f"{name}.parquet")
        for name, steps in description["steps"].items():
            files = self._refuse_if_missing(sequence_folder(folder, name))
            with _readable(files):
                found = sum(pq.read_metadata(file).num_rows for file in files.glob("*.parquet"))
            if found != steps:
                raise InputError(
                    f"{folder}: incomplete, sequence {name} has {found} of {steps} steps; build the run again"
                )

    def _refuse_if_missing(self, path: Path) -> Path:
        if not path.exists():
            name = path.relative_to(self.folder)
            raise InputError(f"{self.folder}: incomplete, {name} is missing; build the run again")
        return path

    def table(self, name: str, where: pl.Expr | None = None) -> pl.DataFrame:
        """Rows of ``name``.parquet."""
        return _rows(self.folder / f"{name}.parquet", _TABLES[name], where)

    def sequence(self, name: str, where: pl.Expr | None = None) -> pl.DataFrame:
        """Sequences of the sequence ``name``, ordered by question_id, position.

        Raises:
            InputError: the run does not have it.
        """
        if name not in self.description["steps"]:
            raise InputError(f"{self.folder}: has no sequence {name}; it has {', '.join(self.description['steps'])}")
        return _rows(sequence_folder(self.folder, name), Sequences, where).sort("question_id", "position")

    def points(self, name: str) -> pl.DataFrame:
        """Points of one point, by question_id.

        Raises:
            InputError: the run did not draw it.
        """
        if name not in self.description.get("curves", {}).get("points", []):
            raise InputError(f"{self.folder}: did not draw {name}; draw it with just curves --point {name}")
        return _rows(self.folder / "points.parquet", Points, pl.col("point") == name).sort("question_id")

    def store(self, elsewhere: Path | None = None) -> Store:
        """The store the run was built from, opened; where it was then, or ``elsewhere``."""
        return open_store(elsewhere or Path(self.description["inputs"]["store"]["path"]))

    def records(self, store: Store, refs: pl.Series) -> pl.DataFrame:
        """Records of ``refs`` as the run's own store has them.

        Raises:
            InputError: one of them has changed since the run was built.
        """
        records = store.records(refs)
        expected = self.table("records", pl.col("record_ref").is_in(refs.implode()))
        run_records.refuse_if_changed(expected, records, str(self.description["inputs"]["store"]["path"]))
        return records

    def batches(self, store: Store, points: Sequence[Point]) -> Iterator[curves.Batch]:
        """As many questions at a time as a file of a sequence holds, by question_id."""
        names = dict.fromkeys(point.sequence for point in points)
        for asked in self.table("questions").iter_slices(QUESTIONS_A_FILE):
            first, last = pl.lit(asked["question_id"][0]), pl.lit(asked["question_id"][-1])
            own = pl.col("question_id").is_between(first, last)
            windows = self.table("windows", own)
            refs = windows["record_ref"].unique().sort()
            yield curves.Batch(
                asked,
                windows,
                self.table("evidence", own),
                self.records(store, refs),
                store.blocks(refs),
                {name: self.sequence(name, own) for name in names},
                self.table("parts", own),
            )


def _rows(path: Path, table: type[dy.Schema], where: pl.Expr | None) -> pl.DataFrame:
    with _readable(path):
        rows = pl.scan_parquet(path, hive_partitioning=False, glob=False)
        return conform((rows if where is None else rows.filter(where)).collect(), table, str(path))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (pl.exceptions.PolarsError, pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read ({str(error).splitlines()[0]}); build the run again") from error
