"""What an earlier run made already: its rows of questions that nothing has changed for."""

import hashlib
from importlib.metadata import version
from pathlib import Path

import polars as pl

import allocation
from allocation.chain import Shard
from allocation.errors import InputError
from jobs.runs import Run

FILE = "fingerprints.parquet"  # of a run
_SCHEMA = {"question_id": pl.String, "sha256": pl.String, "other_width": pl.Boolean}
_PACKAGES = ("polars", "numpy")


def code() -> str:
    """A hash of what makes sequences: the modules of the chain, and the libraries they compute with."""
    digest = hashlib.sha256()
    for module in sorted(Path(allocation.__file__).parent.glob("*.py")):
        digest.update(module.name.encode() + b"\0" + module.read_bytes() + b"\0")
    digest.update(repr([version(name) for name in _PACKAGES]).encode())
    return digest.hexdigest()


class Earlier:
    """A finished run with fingerprints."""

    def __init__(self, folder: Path) -> None:
        """Open it.

        Raises:
            InputError: it is no whole run of this layout, or has no fingerprints.
        """
        self.run = Run(folder)
        try:
            self._marks = pl.read_parquet(folder / FILE, glob=False).select(
                pl.col(n).cast(t) for n, t in _SCHEMA.items()
            )
        except (OSError, pl.exceptions.PolarsError) as error:
            raise InputError(f"{folder / FILE}: cannot be read; the run is not gone on from") from error

    def same(self, marks: pl.DataFrame) -> pl.DataFrame:
        """question_id and other_width of the questions whose fingerprint is as it was; by question_id."""
        return self._marks.join(marks, on=["question_id", "sha256"], how="semi").sort("question_id").drop("sha256")

    def sequence(self, name: str, questions: pl.Series) -> pl.DataFrame:
        """Sequences of these questions, by question_id and position."""
        return self.run.sequence(name, _own(questions))

    def parts(self, questions: pl.Series) -> pl.DataFrame:
        """Parts of these questions."""
        return self.run.table("parts", _own(questions))

    def records(self, refs: pl.Series) -> pl.DataFrame:
        """RunRecords of ``refs``."""
        return self.run.table("records", pl.col("record_ref").is_in(refs.implode()))


def without(shard: Shard, questions: pl.Series) -> Shard:
    """A shard without some of its questions, and without the records that only these named."""

    def rest(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.filter(~pl.col("question_id").is_in(questions.implode()))

    windows = rest(shard.windows)
    refs = windows["record_ref"].unique().implode()
    records, blocks, nodes = (
        table.filter(pl.col("record_ref").is_in(refs)) for table in (shard.records, shard.blocks, shard.nodes)
    )
    evidence = None if shard.evidence is None else rest(shard.evidence)
    return Shard(rest(shard.questions), windows, records, blocks, nodes, shard.entities, evidence)


def _own(questions: pl.Series) -> pl.Expr:
    between = pl.col("question_id").is_between(pl.lit(questions.min()), pl.lit(questions.max()))  # skips row groups
    return between & pl.col("question_id").is_in(questions.implode())
