"""Three ranks to one order: reciprocal-rank fusion (DESIGN.md, "Fused order")."""

from collections.abc import Mapping

import polars as pl

# Terms are summed as whole multiples of 2^-96, which every double w/n with n < 2^43 w is.
_SCALE_BITS = 96

LISTS = {"record_rank": 1.0, "inside_rank": 1.0, "cosine_rank": 1.0}  # with the weights of the design


def score(lists: Mapping[str, float], k: int) -> pl.Expr:
    """The sum of weight/(k + 1 + rank) over the columns of ranks (0 = best; null: the list is left out).

    Float64, equal to ``math.fsum`` of the terms: each term is a double, the terms are added as integers, and
    the one conversion at the end rounds correctly. Plain addition moves about one place in seventy.
    """

    def term(rank: str, weight: float) -> pl.Expr:
        return pl.col(rank).map_batches(lambda ranks: _terms(ranks, k, weight), return_dtype=pl.Int128)

    terms = [term(rank, weight) for rank, weight in lists.items()]
    return pl.sum_horizontal(terms).cast(pl.Float64) * 2.0**-_SCALE_BITS


def _terms(ranks: pl.Series, k: int, weight: float) -> pl.Series:
    highest = ranks.max()
    table = [_scaled(weight / (k + 1 + rank)) for rank in range(0 if highest is None else int(highest) + 1)]  # type: ignore[arg-type]
    return pl.Series(table, dtype=pl.Int128).gather(ranks).fill_null(0)


def _scaled(term: float) -> int:
    numerator, denominator = term.as_integer_ratio()
    return (numerator << _SCALE_BITS) // denominator


def order(passages: pl.DataFrame, k: int, lists: Mapping[str, float] = LISTS) -> pl.DataFrame:
    """Sort into the fused order and number it.

    Args:
        passages: question, item_position, claim_position, passage_start and the three ranks.
        k: The k of reciprocal-rank fusion.
        lists: The ranks that are fused, and the weight of each.

    Returns:
        ``passages`` with position, ordered by question, position: higher scores first, ties by record rank,
        then by start; two records of one recall rank by their place in the window. No score is kept.
    """
    keys = ("question", -pl.col("score"), "record_rank", "passage_start", "item_position", "claim_position")
    return passages.with_columns(score=score(lists, k)).sort(keys).drop("score").pipe(numbered)


def numbered(ordered: pl.DataFrame) -> pl.DataFrame:
    """Add position: the place of each row in its question, as the rows stand."""
    return ordered.with_columns(position=pl.int_range(pl.len(), dtype=pl.Int64).over("question"))
