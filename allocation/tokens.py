"""How many tokens a text is (DESIGN.md, "Points")."""

import polars as pl
import toktok

ENCODINGS = ("cl100k_base", "o200k_base")


def count(texts: pl.Series) -> pl.DataFrame:
    """Tokens of each text, a column an encoding; equal texts are encoded once, the others on all cores.

    Text that looks like a special token is counted as the text it is.
    """
    distinct = texts.unique()
    counted = distinct.to_frame("text").with_columns(
        pl.Series(name, toktok.batch_count(distinct.to_list(), name), dtype=pl.Int64) for name in ENCODINGS
    )
    return texts.to_frame("text").join(counted, on="text", how="left", maintain_order="left").drop("text")
