"""What each step of an order adds to its record's quote (DESIGN.md, "Costs")."""

import polars as pl

SEPARATOR = " … "  # between two ranges of a quote that do not touch


def joins(start: str, end: str, place: str) -> tuple[pl.Expr, pl.Expr]:
    """Whether a range touches the one before it, and the one after it, and that one has an earlier place.

    For rows ordered by window_row, start; ranges of a record share no character.
    """

    def touches(step: int, ours: str, theirs: str) -> pl.Expr:
        same_record = pl.col("window_row").shift(step) == pl.col("window_row")
        earlier = pl.col(place).shift(step) < pl.col(place)
        return (same_record & earlier & (pl.col(theirs).shift(step) == pl.col(ours))).fill_null(value=False)

    return touches(1, start, end), touches(-1, end, start)


def add(ordered: pl.DataFrame) -> pl.DataFrame:
    """Add cost, in characters.

    A step costs its passage's length, and a separator unless it is its record's first; each neighbour in the
    text that it touches and that was taken before saves one.

    Args:
        ordered: question, window_row, position, passage_start, passage_end; passages of a record share no
            character.

    Returns:
        The same rows with cost, ordered by question, position.
    """
    left, right = joins("passage_start", "passage_end", "position")
    first = pl.col("position") == pl.col("position").min().over("window_row")
    length = pl.col("passage_end") - pl.col("passage_start")
    separators = 1 - first.cast(pl.Int64) - left - right
    return (
        ordered.sort("window_row", "passage_start")
        .with_columns(cost=length + len(SEPARATOR) * separators)
        .sort("question", "position")
    )
