"""The algorithm: one function, one step a line (DESIGN.md, "The chain")."""

from collections.abc import Callable

import polars as pl

from allocation import block_sets, costs, fusion, passages, ranges, ranks, server, similarity
from allocation.settings import Settings
from allocation.tables import Sequence
from allocation.text import Corpus

Watch = Callable[[str, pl.DataFrame], pl.DataFrame]


def _unwatched(_step: str, frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def evidence(
    questions: pl.DataFrame,
    windows: pl.DataFrame,
    records: pl.DataFrame,
    stored_blocks: pl.DataFrame,
    settings: Settings,
    watch: Watch = _unwatched,
) -> pl.DataFrame:
    """The evidence sequence of every question.

    Args:
        questions: Questions.
        windows: Windows of these questions; every record_ref is one of ``records``.
        records: Records the windows name.
        stored_blocks: StoredBlocks of these records.
        settings: How passages are made and ordered.
        watch: Called with the name and the table of each step; returns the table.

    Returns:
        Sequence: all passages of each question, ordered by question_id, position.
    """
    own = settings.passages == "server"
    questions, records = questions.sort("question_id"), _by_scope(records)
    corpus = Corpus(records["text"])

    blocks = watch("blocks", block_sets.build(records, stored_blocks))
    blocks = watch("ranges", ranges.governing(blocks, corpus))
    if not own:
        blocks = watch("passages", passages.merge(blocks, corpus, settings.passage_limit)).sort(
            "record", "block_index"
        )
    window = _numbered(server.heads(windows) if own else windows, questions, records)
    pairs = _pairs(window, blocks)
    pairs = watch("similarity", similarity.add(pairs, questions, blocks, corpus))
    if own:
        pairs = watch("server_cosines", server.add_cosines(pairs, questions, blocks))
    pairs = watch("block_places", ranks.block_places(pairs))
    folded = server.passages(pairs, questions, blocks, corpus.lengths) if own else ranks.fold(pairs)
    ranked = watch("ranks", ranks.add(folded.join(window, on="window_row")))
    ordered = watch("fused_order", fusion.order(ranked, settings.rrf_k))
    return watch("costs", costs.add(ordered)).pipe(_as_sequence)


def _by_scope(records: pl.DataFrame) -> pl.DataFrame:
    """Records of one scope stand together, so that its blocks are one slice."""
    return records.sort("agent_id", "record_ref")


def _numbered(windows: pl.DataFrame, questions: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """Window rows with window_row, question and record: row numbers, quicker to group by than names."""
    return (
        windows.sort("question_id", "item_position", "claim_position")
        .join(
            questions.select("question_id").with_row_index("question"),
            on="question_id",
            maintain_order="left",
        )
        .join(records.select("record_ref").with_row_index("record"), on="record_ref", maintain_order="left")
        .with_row_index("window_row")
        .with_columns(pl.col("window_row", "question", "record").cast(pl.Int64))
    )


def _pairs(window: pl.DataFrame, blocks: pl.DataFrame) -> pl.DataFrame:
    """A row for each question and block of its window, ordered by window_row, block_index."""
    numbered = blocks.drop("record_ref", "start", "end", "vector", "width").with_columns(
        block=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    return window.select("window_row", "question", "record").join(
        numbered, on="record", maintain_order="left_right"
    )


def _as_sequence(ordered: pl.DataFrame) -> pl.DataFrame:
    no_parts = pl.lit(None, dtype=pl.List(pl.Int32))
    columns = Sequence.columns()
    return (
        ordered.rename({"passage_start": "start", "passage_end": "end"})
        .with_columns(parts=no_parts, new_parts=no_parts)
        .select(pl.col(name).cast(column.dtype) for name, column in columns.items())
    )
