"""Ranked passages to the orders that are compared (DESIGN.md, "Sequences").

Each function takes the passages of all questions in fused order and returns steps with a new position; what a
step costs is added after that.
"""

import numpy as np
import polars as pl

from allocation import coverage, fusion
from allocation.runs import runs

QUOTE_LIMIT = 800  # characters of one quote

_SAME_IN_A_RECORD = (
    "question",
    "question_id",
    "record",
    "item_position",
    "claim_position",
    "record_ref",
    "record_rank",
)


def whole(ranked: pl.DataFrame) -> pl.DataFrame:
    """The length floor: every head record no longer than a quote first, whole, in item order; then the rest.

    A record of the floor is one step; its cosine rank is its best passage's.

    Args:
        ranked: Passages in fused order, with the ``length`` of their record.
    """
    short = (pl.col("claim_position") == 0) & (pl.col("length") <= QUOTE_LIMIT)
    floor = (
        ranked.filter(short)
        .group_by("window_row", *_SAME_IN_A_RECORD, "length")
        .agg(
            pl.col("cosine_rank").min(),
            inside_rank=pl.lit(0, dtype=pl.Int64),
            passage_start=pl.lit(0, dtype=pl.Int64),
        )
        .with_columns(passage_end="length", position="item_position", behind=pl.lit(value=False))
    )
    rest = ranked.filter(~short).with_columns(behind=pl.lit(value=True))
    both = pl.concat([floor.select(rest.columns), rest], how="vertical_relaxed")
    return both.sort("question", "behind", "position").drop("behind").pipe(fusion.numbered)


def recall(ranked: pl.DataFrame) -> pl.DataFrame:
    """Records whole in recall order, two of one rank by their place in the window; passages in text order."""
    keys = ("question", "record_rank", "item_position", "claim_position", "passage_start")
    return ranked.sort(keys).pipe(fusion.numbered)


def oracle(ranked: pl.DataFrame, evidence: pl.DataFrame) -> pl.DataFrame:
    """Evidence first, densest first: what no order can know, and the yardstick for what they do.

    Passages by the share of their characters inside evidence spans, then the other passages of records that
    hold evidence, then the rest; equals in fused order.

    Args:
        ranked: Passages in fused order.
        evidence: question_id, record_ref, start, end (null: the whole record is the label).
    """
    keys = ("question_id", "record_ref")
    # Where labels overlap, a character counts once: each span starts where those before it have ended.
    earlier = pl.col("end").cum_max().shift(1).over(keys)
    labels = evidence.drop_nulls().sort(*keys, "start", "end").with_columns(start=pl.max_horizontal("start", earlier))
    spans = ranked.select(*keys, "passage_start", "passage_end").join(labels, on=keys, maintain_order="left")
    inside = pl.min_horizontal("end", "passage_end") - pl.max_horizontal("start", "passage_start")
    shown = spans.group_by(*keys, "passage_start").agg(shown=inside.clip(lower_bound=0).sum())
    holds = evidence.select(keys).unique().with_columns(labelled=pl.lit(value=True))
    density = pl.col("shown").fill_null(0) / (pl.col("passage_end") - pl.col("passage_start"))
    return (
        ranked.join(shown, on=[*keys, "passage_start"], how="left", maintain_order="left")
        .join(holds, on=keys, how="left", maintain_order="left")
        .sort("question", -density, pl.col("labelled").is_null(), "position")
        .drop("shown", "labelled")
        .pipe(fusion.numbered)
    )


def covered(ordered: pl.DataFrame, step_up: int, step_down: int, keep_records: int) -> pl.DataFrame:
    """The greedy coverage pass over an order.

    Args:
        ordered: Steps in the order to start from, with ``mask``, the parts each holds.
        step_up: Places a passage with a new part moves up.
        step_down: Places a passage whose parts are all held moves down.
        keep_records: Passages of the records with the first ranks are never moved down.

    Returns:
        The steps in their new order, with ``new_mask``, the parts each was the first to hold.
    """
    masks = ordered["mask"].to_numpy()
    movable = (ordered["record_rank"] >= keep_records).to_numpy()
    question = ordered["question"].to_numpy()
    places, firsts = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for low, high in runs(question):
        place, first = coverage.order(masks[low:high], movable[low:high], step_up, step_down)
        places.append(low + place)
        firsts.append(first)
    taken = ordered[pl.Series(np.concatenate(places))]
    return taken.with_columns(new_mask=pl.Series(np.concatenate(firsts))).pipe(fusion.numbered)
