"""Rows of questions, windows and evidence that can be used, and why the others cannot (DESIGN.md, "Inputs")."""

import polars as pl

from allocation.errors import InputError
from allocation.tables import Rejects

Checked = tuple[pl.DataFrame, pl.DataFrame]  # usable rows, sorted by key; Rejects

_ROW = "__row"


def numbered(frame: pl.DataFrame) -> pl.DataFrame:
    """``frame`` with the number of each row, from 1, so that a reject can name it."""
    return frame.with_row_index(_ROW, offset=1)


def questions(frame: pl.DataFrame, source: str) -> Checked:
    """Questions that can be used, by question_id."""
    vector = pl.col("query_vector")
    finite = vector.list.eval(pl.element().is_finite().fill_null(value=False)).list.all()
    judged = _judged(
        numbered(frame),
        [
            (_blank("question_id"), "question_id is empty"),
            (~pl.col("question_id").is_first_distinct(), "question_id occurs before"),
            (_blank("agent_id"), "agent_id is empty"),
            (_blank("question"), "question is empty"),
            (~finite, "query_vector holds a value that is missing, NaN or infinite"),
            (
                vector.list.len().gt(0) & (vector.list.eval(pl.element() == 0).list.all()),
                "query_vector is zero",
            ),
        ],
    )
    return _split(judged, source, ("question_id",))


def windows(frame: pl.DataFrame, source: str, questions: pl.DataFrame, problems: pl.DataFrame) -> Checked:
    """Window rows that can be used, by question_id, item_position, claim_position.

    Args:
        frame: Windows as read.
        source: What to call them in a reject.
        questions: Usable Questions.
        problems: record_ref, problem (null: usable) of every record the windows name and the store holds.
    """
    item = ("question_id", "item_position")
    place = (*item, "claim_position")
    numbers = ("item_position", "claim_position", "recall_rank")
    known = numbered(frame).join(problems, on="record_ref", how="left", maintain_order="left")
    items = pl.col("item_position").filter(pl.col("item_position") >= 0)
    gap = (items.max() + 1 != items.n_unique()).over("question_id")
    head = pl.col("claim_position") == 0
    headless = ~head.any().over(item)
    judged = _judged(
        known,
        [
            *((pl.col(name).is_null(), f"{name} is missing or not a whole number") for name in numbers),
            *((pl.col(name) < 0, f"{name} is negative") for name in numbers),
            (
                ~pl.col("question_id").is_in(questions["question_id"].implode(), nulls_equal=True),
                "question_id is unknown",
            ),
            (
                ~pl.col("record_ref").is_in(problems["record_ref"].implode(), nulls_equal=True),
                "the store has no such record_ref",
            ),
            (pl.col("problem").is_not_null(), pl.col("problem")),
            (~pl.struct(place).is_first_distinct() & head, "its item has a head already (claim_position 0)"),
            (~pl.struct(place).is_first_distinct(), "its item has a claim at this claim_position already"),
            (
                ~pl.struct("question_id", "record_ref").is_first_distinct(),
                "its window names this record before",
            ),
            (gap, "the item positions of its question have a gap; they must be 0, 1, 2 …"),
            (headless, "its item has no head (claim_position 0)"),
        ],
    )
    # A claim whose head was rejected has no item to stand in.
    orphaned = ~(head & pl.col("reason").is_null()).any().over(item)
    judged = judged.with_columns(
        reason=pl.coalesce("reason", pl.when(orphaned).then(pl.lit("the head of its item was rejected")))
    )
    usable, rejects = _split(judged, source, (*place, "record_ref"))
    return usable.sort(place).drop("problem"), rejects


def evidence(frame: pl.DataFrame, source: str, questions: pl.DataFrame, lengths: pl.DataFrame) -> Checked:
    """Evidence labels that can be used, in the order of all columns.

    Args:
        frame: Evidence as read.
        source: What to call it in a reject.
        questions: Usable Questions.
        lengths: record_ref, length (code points) of every record the labels name and the store holds. A label may
            name another one: an answer that was never stored cannot be shown, and counts so.
    """
    start, end = pl.col("start"), pl.col("end")
    judged = _judged(
        numbered(frame).join(lengths, on="record_ref", how="left", maintain_order="left"),
        [
            (
                ~pl.col("question_id").is_in(questions["question_id"].implode(), nulls_equal=True),
                "question_id is unknown",
            ),
            (_blank("record_ref"), "record_ref is empty"),
            (start.is_null() != end.is_null(), "a span needs both start and end"),
            ((start < 0) | (end <= start), "the span is empty, negative or not of whole numbers"),
            (
                end > pl.col("length"),
                pl.format("the span lies outside its record, which has {} characters", "length"),
            ),
        ],
    )
    usable, rejects = _split(judged, source, ("question_id", "record_ref"))
    return usable.drop("length").sort("question_id", "record_ref", "start", "end"), rejects


def refuse(rejects: pl.DataFrame) -> None:
    """Refuse the run if there is a reject.

    Raises:
        InputError: names the first row, and counts the others.
    """
    if rejects.is_empty():
        return
    source, row, key, reason = rejects.row(0)
    others = len(rejects) - 1
    more = f" ({others} more bad row{'s' if others > 1 else ''})" if others else ""
    raise InputError(
        f"{source}: row {row} ({key}): {reason}{more}; mend it, or pass --on-bad-row skip to go on without"
    )


def _blank(column: str) -> pl.Expr:
    return pl.col(column).is_null() | (pl.col(column).str.strip_chars() == "")


def _judged(frame: pl.DataFrame, reasons: list[tuple[pl.Expr, str | pl.Expr]]) -> pl.DataFrame:
    """``frame`` with reason: the first that applies to the row, null where none does."""
    return frame.with_columns(
        reason=pl.coalesce(
            pl.when(applies).then(pl.lit(reason) if isinstance(reason, str) else reason) for applies, reason in reasons
        )
    )


def _split(judged: pl.DataFrame, source: str, key: tuple[str, ...]) -> Checked:
    """Rows without a reason, sorted by ``key``, and the others."""
    names = [
        pl.format("{}={}", pl.lit(name), pl.col(name).cast(pl.String).fill_null("?").str.slice(0, 80)) for name in key
    ]
    rejects = judged.filter(pl.col("reason").is_not_null()).select(
        source=pl.lit(source),
        row=pl.col(_ROW).cast(pl.Int64),
        key=pl.concat_str(names, separator=", "),
        reason="reason",
    )
    usable = judged.filter(pl.col("reason").is_null()).drop("reason", _ROW).sort(key)
    return usable, Rejects.validate(rejects)
