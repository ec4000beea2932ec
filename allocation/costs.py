"""What each step of an order adds to its record's quote (DESIGN.md, "Costs")."""

import polars as pl

SEPARATOR = " … "  # between two ranges of a quote that do not touch


def add(ordered: pl.DataFrame) -> pl.DataFrame:
    """Add cost and used, in characters; ``used`` is the running sum over the question.

    A step costs its passage's length, and a separator unless it is its record's first; each neighbour in the
    text that it touches and that was taken before saves one.

    Args:
        ordered: question, window_row, position, passage_start, passage_end; passages of a record share no
            character. Row order is kept.
    """

    def in_text(expression: pl.Expr) -> pl.Expr:
        return expression.over("window_row", order_by="passage_start").fill_null(value=False)

    earlier_left = (pl.col("passage_end").shift(1) == pl.col("passage_start")) & (
        pl.col("position").shift(1) < pl.col("position")
    )
    earlier_right = (pl.col("passage_start").shift(-1) == pl.col("passage_end")) & (
        pl.col("position").shift(-1) < pl.col("position")
    )
    first = pl.col("position") == pl.col("position").min().over("window_row")
    joins = first.cast(pl.Int64) + in_text(earlier_left) + in_text(earlier_right)
    return ordered.with_columns(
        cost=pl.col("passage_end") - pl.col("passage_start") + len(SEPARATOR) * (1 - joins)
    ).with_columns(used=pl.col("cost").cum_sum().over("question", order_by="position"))
