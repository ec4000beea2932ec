"""The records a run was made from, so that nobody reads another text for theirs (DESIGN.md, "Outputs")."""

import hashlib

import polars as pl

from allocation.errors import InputError
from allocation.tables import RunRecords


def build(records: pl.DataFrame, blocks: pl.DataFrame) -> pl.DataFrame:
    """RunRecords of Records and their blocks (``block_sets.build``)."""
    divided = pl.col("vector").is_null().any()
    sets = blocks.group_by("record_ref").agg(blocks=pl.len().cast(pl.Int64), divided=divided)
    rows = _identified(records).join(sets, on="record_ref").sort("record_ref")
    return RunRecords.validate(rows.select(RunRecords.column_names()))


def refuse_if_changed(expected: pl.DataFrame, records: pl.DataFrame, store: str) -> None:
    """Compare records as the store has them now with what a run was made from.

    Args:
        expected: RunRecords of the records that are needed.
        records: Records as read.
        store: What to call the store.

    Raises:
        InputError: a record is gone, or its text or time is another one.
    """
    now = _identified(records).select("record_ref", now="sha256")
    changed = expected.join(now, on="record_ref", how="left").filter(pl.col("now").ne_missing(pl.col("sha256")))
    if len(changed):
        ref, state = changed.sort("record_ref").select("record_ref", pl.col("now").is_null()).row(0)
        others = f" ({len(changed) - 1} more)" if len(changed) > 1 else ""
        happened = "is gone from the store" if state else "has another text or time than when the run was built"
        raise InputError(f"{store}: {ref} {happened}{others}; build the run again")


def _identified(records: pl.DataFrame) -> pl.DataFrame:
    """record_ref, length and sha256 of each record's time and text."""
    hashes = [
        hashlib.sha256(f"{time or ''}\0{text}".encode()).hexdigest()
        for time, text in records.select("recorded_at", "text").iter_rows()
    ]
    length = pl.col("text").str.len_chars().cast(pl.Int64)
    return records.select("record_ref", length.alias("length"), pl.Series("sha256", hashes, dtype=pl.String))
