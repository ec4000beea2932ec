"""Governing ranges to passages, those that overlap united (DESIGN.md, "Passages")."""

import numpy as np
import polars as pl

from allocation.text import Corpus


def merge(blocks: pl.DataFrame, corpus: Corpus, passage_limit: int) -> pl.DataFrame:
    """Unite the overlapping governing ranges of each record, whatever the question.

    Args:
        blocks: Blocks with range_start and range_end.
        corpus: The records' texts.
        passage_limit: Characters a united passage never grows past. A range that would push it over starts
            the next passage, where the last one ends; a single range is never cut.

    Returns:
        ``blocks`` with passage_start and passage_end, the passage each block belongs to; ordered by record,
        range_start, range_end. Passages of a record share no character.
    """
    ordered = blocks.sort("record", "range_start", "range_end", "block_index")
    base = corpus.base[ordered["record"].to_numpy()]
    start, end = base + ordered["range_start"].to_numpy(), base + ordered["range_end"].to_numpy()
    reach = np.maximum.accumulate(end)  # offsets rise from record to record, so no reach crosses one
    # Touching is not overlapping. A group is a run of overlapping ranges; most are one passage.
    group = np.flatnonzero(np.append(True, start[1:] >= reach[:-1])[: len(start)])
    group_end = np.append(group[1:], len(start))
    passage_first, passage_start = group, start[group]
    first, opening, stop = group, start[group], group_end
    while len(first):
        # The first range that would push the passage over; the one it opened with never does.
        pushes = np.searchsorted(reach, np.maximum(opening + passage_limit, reach[first]), side="right")
        over = pushes < stop
        first, stop = pushes[over], stop[over]
        opening = reach[first - 1]
        passage_first, passage_start = np.append(passage_first, first), np.append(passage_start, opening)
    by_place = np.argsort(passage_first, kind="stable")
    passage_first, passage_start = passage_first[by_place], passage_start[by_place]
    passage_end = reach[np.append(passage_first[1:], len(start))[: len(passage_first)] - 1]
    of_range = np.searchsorted(passage_first, np.arange(len(start)), side="right") - 1
    return ordered.with_columns(passage_start=passage_start[of_range] - base, passage_end=passage_end[of_range] - base)
