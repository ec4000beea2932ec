"""Sequences cut at points to the contexts an answering model would read (DESIGN.md, "Rendering")."""

import hashlib
from collections.abc import Sequence

import polars as pl

from allocation import render
from allocation.costs import SEPARATOR
from allocation.points import Point
from allocation.quotes import EPISODE_LABEL
from allocation.text import Corpus

QUOTE_BREAK = "\ue000"  # between two quotes of ``quoted``; a private-use character, so that no answer spans it

_QUOTE = ("question_id", "item_position", "claim_position")
_ITEM = ("question_id", "item_position")


def spans(sequence: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """The ranges of every step, in the order in which a context shows them, ready to be cut at points.

    Args:
        sequence: Sequences of some questions, whole.
        records: Records of their windows.

    Returns:
        A row a range, ordered by question_id, item_position, claim_position, start: these, end, position,
        record_ref, ``needed`` and the texts that a context may show of it: item, quote, text.
    """
    texts = records.select("record_ref", "recorded_at", record=pl.int_range(pl.len(), dtype=pl.Int64))
    corpus = Corpus(records["text"])
    heads = sequence.filter(pl.col("claim_position") == 0).select(*_ITEM, head="record_ref").unique()
    times = texts.select(head="record_ref", head_time="recorded_at")
    ranged = (
        ranges(sequence.with_columns(needed=render.needed()))
        .join(texts, on="record_ref", how="left")
        .join(heads, on=_ITEM, how="left")
        .join(times, on="head", how="left")
        .sort(*_QUOTE, "start")
    )
    base = pl.Series(corpus.base[ranged["record"].to_numpy()])
    excerpt = pl.col("claim_position") > 0
    labelled = excerpt & (pl.col("basis") == "start") & pl.col("record_ref").str.starts_with("ep:")
    titled = pl.col("record_ref") + _in_brackets("recorded_at")
    return ranged.with_columns(
        text=corpus.cut((base + ranged["start"]).to_numpy(), (base + ranged["end"]).to_numpy()),
        item=pl.format("[{}] {}{}", pl.col("item_position") + 1, "head", _in_brackets("head_time")),
        quote=pl.when(excerpt)
        .then(pl.format("\n  > {}: {}", titled, pl.when(labelled).then(pl.lit(EPISODE_LABEL)).otherwise(pl.lit(""))))
        .otherwise(pl.lit(": ")),
        time=pl.col("recorded_at").fill_null(""),
    ).drop("record", "recorded_at", "head", "head_time", "basis")


def ranges(sequence: pl.DataFrame) -> pl.DataFrame:
    """A row for each range of each step of Sequences with ``needed``, in no order."""
    return (
        sequence.select(*_QUOTE, "position", "record_ref", "basis", "needed", range="ranges")
        .explode("range", empty_as_null=True)
        .unnest("range")
    )


def _in_brackets(time: str) -> pl.Expr:
    return pl.when(pl.col(time) != "").then(pl.format(" ({})", time)).otherwise(pl.lit(""))


def shown(ranged: pl.DataFrame, points: Sequence[Point]) -> pl.DataFrame:
    """The ranges each point takes: ``spans`` with ``point``, by point and else in the same order."""
    kept = [ranged.filter(point.taken()).with_columns(point=pl.lit(point.name)) for point in points]
    return pl.concat([ranged.clear().with_columns(point=pl.lit("")), *kept])


def join(taken: pl.DataFrame) -> pl.DataFrame:
    """The contexts that ranges make up.

    Items stand in recall order, each with its head record's reference and time, the ranges taken in text order,
    joined as a quote is, and under it its excerpts. An item of which only an excerpt was taken shows its
    reference alone.

    Args:
        taken: ``shown`` of one sequence.

    Returns:
        point, question_id, context; and quoted, its quotes and their times alone, each ended by QUOTE_BREAK.
    """
    key = ("point", "question_id")

    def same(names: Sequence[str]) -> pl.Expr:
        return pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in names).fill_null(value=False)

    in_context, in_item, in_quote = same(key), same((*key, "item_position")), same((*key, *_QUOTE[1:]))
    touching = pl.col("start") == pl.col("end").shift(1)
    gap = pl.when(touching).then(pl.lit("")).otherwise(pl.lit(SEPARATOR))
    new_item = pl.when(in_context).then(pl.lit("\n\n")).otherwise(pl.lit("")) + pl.col("item")
    title = pl.when(in_item).then(pl.lit("")).otherwise(new_item) + pl.col("quote")
    before = pl.when(in_quote).then(gap).otherwise(title)
    mark = pl.when(in_quote).then(gap).otherwise(pl.format("{}{} ", pl.lit(QUOTE_BREAK), "time"))
    return (
        taken.select(*key, piece=before + pl.col("text"), quoted=mark + pl.col("text"))
        .group_by(key, maintain_order=True)
        .agg(pl.col("piece", "quoted").str.join(""))
        .select(*key, context=pl.col("piece").str.strip_chars_end("\n") + "\n", quoted="quoted")
    )


def hashes(contexts: pl.Series) -> pl.Series:
    """The SHA-256 of each context's bytes, as hexadecimal digits."""
    digests = [hashlib.sha256(context.encode()).hexdigest() for context in contexts]
    return pl.Series("sha256", digests, dtype=pl.String)


def counts(
    sequence: pl.DataFrame, points: Sequence[Point], windows: pl.DataFrame, questions: pl.DataFrame
) -> pl.DataFrame:
    """What each point takes of each question, in numbers.

    Args:
        sequence: Sequences of some questions, whole.
        points: Points of this sequence.
        windows: Windows of the questions.
        questions: Questions; one without a window shows nothing.

    Returns:
        question_id, point, characters, items, passages, omitted.
    """
    steps = sequence.with_columns(needed=render.needed(), passages=pl.col("ranges").list.len())
    items = windows.group_by("question_id").agg(window=pl.col("item_position").n_unique())
    asked = questions.select("question_id").join(items, on="question_id", how="left")
    found = []
    for point in points:
        taken = (
            steps.filter(point.taken())
            .group_by("question_id")
            .agg(
                pl.col("cost").sum().alias("characters"),
                pl.col("passages").sum(),
                items=pl.col("item_position").n_unique(),
            )
        )
        found.append(asked.join(taken, on="question_id", how="left").with_columns(point=pl.lit(point.name)))
    numbers = ("characters", "items", "passages")
    return (
        pl.concat(found)
        .with_columns(pl.col(*numbers, "window").fill_null(0).cast(pl.Int64))
        .select("question_id", "point", *numbers, omitted=pl.col("window") - pl.col("items"))
    )
