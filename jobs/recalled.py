"""Recall from a store: windows for questions that come without a recorded recall."""

import sys
from collections.abc import Iterator

import polars as pl
from rich.console import Console
from rich.progress import track

from allocation import recall
from allocation.tables import Windows
from jobs.store import Store

SOURCE = "recall"  # what --windows calls it
COUNT = 10  # items of a window
_RECORDS = 2000  # read at a time


def windows(store: Store, questions: pl.DataFrame, count: int) -> pl.DataFrame:
    """Windows of ``count`` items for every question, from the records of its agent; those without a text are passed."""
    refs = dict(store.owners().group_by("agent_id").agg(pl.col("record_ref").sort()).iter_rows())
    found: list[pl.DataFrame] = [Windows.create_empty()]
    agents = questions.sort("question_id").partition_by("agent_id", maintain_order=True)
    for own in track(
        agents, "recalling", console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ):
        known = pl.Series(refs.get(own["agent_id"][0], []), dtype=pl.String)
        found.append(recall.build(own, _batches(store, known), count))
    return pl.concat(found).sort("question_id", "item_position")


def _batches(store: Store, refs: pl.Series) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    for low in range(0, len(refs), _RECORDS):
        problems = store.problems(refs[low : low + _RECORDS])
        usable = problems.filter(pl.col("problem").is_null())["record_ref"].sort()
        yield store.records(usable), store.blocks(usable)
