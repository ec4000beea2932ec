"""Records to blocks: the current block set where there is one, else the text divided (DESIGN.md, "Block sets")."""

import polars as pl

from allocation.divide import divide


def build(records: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    """Every record's blocks.

    Args:
        records: Records, in order; row ``i`` is record ``i`` below.
        stored: StoredBlocks of these records; sets that are not current are passed over.

    Returns:
        record, record_ref, block_index, start, end, vector (null for a record divided here), width (the
        dimensions all vectors of the record share, else null); ordered by record, block_index. The blocks of a
        record partition its text.
    """
    numbered = _numbered(records)
    found = current(records, stored)
    missing = numbered.join(found, on="record", how="anti")
    return (
        pl.concat([found, _divided(missing)])
        .with_columns(block_index=pl.int_range(pl.len(), dtype=pl.Int64).over("record", order_by="block_index"))
        .join(numbered.select("record", "record_ref"), on="record")
        .sort("record", "block_index")
    )


def current(records: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    """The stored block sets that are current; ``build`` without what it divides, and without record_ref."""
    texts = _numbered(records)
    candidates = (
        stored.join(texts.select("record_ref", "record", "length"), on="record_ref")
        .sort("record", "block_index")
        .select("record", "length", "block_index", "start", "end", "embedding_model", "vector")
    )
    return candidates.join(_current(candidates, texts), on="record", how="semi", maintain_order="left").pipe(_measured)


def _numbered(records: pl.DataFrame) -> pl.DataFrame:
    return records.select(
        "record_ref",
        "text",
        "node_ends",
        record=pl.int_range(pl.len(), dtype=pl.Int64),
        length=pl.col("text").str.len_chars().cast(pl.Int64),
    )


def _current(candidates: pl.DataFrame, texts: pl.DataFrame) -> pl.DataFrame:
    """The records whose block set is current: one column, record."""
    before = pl.col("end").shift(1, fill_value=0).over("record", order_by="block_index")
    vector_bytes = pl.col("vector").bin.size().fill_null(0)
    whole = (
        candidates.with_columns(before=before)
        .group_by("record")
        .agg(
            current=(
                (pl.col("start") == pl.col("before"))  # from 0, no gap, no overlap
                & (pl.col("end") > pl.col("start"))
                & (vector_bytes > 0)
            ).all()
            & pl.col("start").is_not_null().all()
            & pl.col("end").is_not_null().all()
            & (pl.col("end").max() == pl.col("length").first())
            & pl.col("embedding_model").is_not_null().all()
            & (pl.col("embedding_model").n_unique() == 1)
            & pl.col("block_index").is_not_null().all()
            & pl.col("block_index").is_unique().all()
        )
        .filter("current")
    )
    # No block may cross a node end: every node end inside the text is also the end of a block.
    crossed = (
        texts.select("record", "length", end="node_ends")
        .explode("end", empty_as_null=True)
        .filter(pl.col("end").is_between(0, pl.col("length"), closed="none"))
        .join(candidates, on=["record", "end"], how="anti")
    )
    return whole.join(crossed, on="record", how="anti").select("record")


def _measured(current: pl.DataFrame) -> pl.DataFrame:
    width = pl.col("vector").bin.size().cast(pl.Int64)
    uniform = width.min().over("record") == width.max().over("record")
    return current.select("record", "block_index", "start", "end", "vector", width=pl.when(uniform).then(width))


def _divided(texts: pl.DataFrame) -> pl.DataFrame:
    spans = [
        (record, index, start, end)
        for record, text in texts.select("record", "text").iter_rows()
        for index, (start, end) in enumerate(divide(text))
    ]
    columns = dict.fromkeys(("record", "block_index", "start", "end"), pl.Int64)
    return pl.DataFrame(spans, schema=columns, orient="row").with_columns(
        vector=pl.lit(None, dtype=pl.Binary), width=pl.lit(None, dtype=pl.Int64)
    )
