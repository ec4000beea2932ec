"""Ranks: a block's place in its record, and a passage's three ranks (DESIGN.md, "Ranks")."""

from typing import Literal

import polars as pl

from allocation.fusion import score

RankMethod = Literal["dense", "ordinal"]

Rank = tuple[RankMethod, list[str | pl.Expr]]

BLOCK_ORDER_K = 60  # the memory server's; the setting rrf_k moves the fused order alone

_AFTER_ALL_KEYS = 2**62


def within(frame: pl.DataFrame, /, group: str, **ranks: Rank) -> pl.DataFrame:
    """Add ranks inside each ``group``, lowest first, from 0.

    One rank over the whole table less the group's first, which costs the same however many groups there are.

    Args:
        frame: The table; row order is kept.
        group: Column of the group.
        ranks: For each new column, how ties rank and the keys in order.
    """
    overall = {name: pl.struct(group, *keys).rank(method).cast(pl.Int64) for name, (method, keys) in ranks.items()}
    return frame.with_columns(**overall).with_columns(pl.col(name) - pl.col(name).min().over(group) for name in ranks)


def block_places(pairs: pl.DataFrame) -> pl.DataFrame:
    """Add place, a block's place in its record's block order for the question (0 = best).

    Reciprocal-rank fusion of two dense ranks, shared trigrams and cosine key, both best first; the cosine list
    is left out where it is null. Ties go to the earlier block.

    Args:
        pairs: window_row (one value a question and record), block_index, shared, cosine_key.
    """
    by_shared: Rank = ("dense", [-pl.col("shared")])
    by_cosine: Rank = ("dense", [-pl.col("cosine_key")])
    return (
        pairs.pipe(within, "window_row", shared_rank=by_shared, cosine_rank=by_cosine)
        .with_columns(cosine_rank=pl.when(pl.col("cosine_key").is_not_null()).then("cosine_rank"))
        .with_columns(score=score({"shared_rank": 1, "cosine_rank": 1}, BLOCK_ORDER_K))
        .pipe(within, "window_row", place=("ordinal", [-pl.col("score"), "block_index"]))
        .drop("shared_rank", "cosine_rank", "score")
    )


def fold(pairs: pl.DataFrame) -> pl.DataFrame:
    """Blocks to passages: the best place and the highest cosine key of each passage's blocks.

    Args:
        pairs: window_row, passage_start, passage_end, place, cosine_key.

    Returns:
        window_row, passage_start, passage_end, place, cosine_key; in no order.
    """
    return pairs.group_by("window_row", "passage_start", "passage_end").agg(
        pl.col("place").min(), pl.col("cosine_key").max()
    )


def of_records(window: pl.DataFrame, by: str) -> pl.DataFrame:
    """Add record_rank: the dense rank of column ``by`` among the question's window rows, 0 = best."""
    return within(window, "question", record_rank=("dense", [by]))


def add(passages: pl.DataFrame) -> pl.DataFrame:
    """Add inside_rank and cosine_rank.

    Args:
        passages: question, window_row, place, cosine_key.

    Returns:
        ``passages`` with the ranks, 0 = best: *inside* the passage's place among its record's passages, *cosine*
        the dense rank of its key among the question's passages; those without a key share the rank after them,
        and with none at all it is null.
    """
    by_cosine = pl.col("cosine_key").neg().fill_null(_AFTER_ALL_KEYS)
    return (
        passages.pipe(
            within,
            "question",
            cosine_rank=("dense", [by_cosine]),
        )
        .pipe(within, "window_row", inside_rank=("ordinal", ["place"]))
        .with_columns(
            cosine_rank=pl.when(pl.col("cosine_key").is_not_null().any().over("question")).then("cosine_rank")
        )
    )
