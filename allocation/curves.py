"""The second chain: sequences cut at points, and what of the evidence each shows (DESIGN.md, "Curves").

``measure`` is done a batch of questions at a time; ``over_groups`` and the instruments are queries over its rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from allocation import block_sets, contexts, gold, queries, tokens
from allocation.points import Point
from allocation.tables import Metrics, Parts, Points, conform
from allocation.text import WHITE_SPACE, Corpus

_OF_NOTHING = contexts.hashes(pl.Series([""]))[0]


@dataclass(frozen=True)
class Batch:
    """Some questions with their sequences and all that is counted in them."""

    questions: pl.DataFrame  # Questions
    windows: pl.DataFrame  # Windows of these questions
    evidence: pl.DataFrame  # Evidence of these questions
    records: pl.DataFrame  # Records the windows name
    blocks: pl.DataFrame  # StoredBlocks of these records
    sequences: dict[str, pl.DataFrame]  # Sequences of these questions by name
    parts: pl.DataFrame = field(default_factory=Parts.create_empty)  # Parts; what only the question browser shows


def measure(batch: Batch, points: Sequence[Point]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What every question shows at every point, and what of its evidence: Points and Metrics."""
    answers = gold.short(batch.questions)
    counted, found, taken = [], [], []
    for name in dict.fromkeys(point.sequence for point in points):
        sequence, own = batch.sequences[name], [point for point in points if point.sequence == name]
        shown = contexts.shown(contexts.spans(sequence, batch.records), own)
        joined = contexts.join(shown)
        context = joined["context"]
        sizes = joined.select("point", "question_id", contexts.hashes(context)).hstack(tokens.count(context))
        counts = contexts.counts(sequence, own, batch.windows, batch.questions)
        counted.append(counts.join(sizes, on=("question_id", "point"), how="left"))
        found.append(gold.shown(joined, answers))
        taken.append(
            shown.select("question_id", "point", "item_position", "claim_position", "record_ref", "start", "end")
        )
    cuts = pl.DataFrame(
        [(place, p.name, p.sequence, p.budget, p.count) for place, p in enumerate(points)],
        schema={"place": pl.Int64, "point": pl.String, "sequence": pl.String, "budget": pl.Int64, "count": pl.Int64},
        orient="row",
    )
    rows = (
        pl.concat(counted)
        .join(cuts, on="point")
        .with_columns(pl.col(tokens.ENCODINGS).fill_null(0), pl.col("sha256").fill_null(_OF_NOTHING))
        .sort("question_id", "place")
    )
    shown_points = conform(rows, Points, "points")
    metrics = queries.run(
        "metrics",
        points=shown_points,
        shown=pl.concat(taken),
        evidence=batch.evidence,
        windows=batch.windows,
        repeats=_repeats(batch.records, batch.blocks),
        gold=pl.concat(found),
    )
    return shown_points, conform(metrics, Metrics, "metrics")


def _repeats(records: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    """The blocks whose text, without white space around it, other blocks have too: with an id of that text."""
    blocks = block_sets.build(records, stored)
    corpus = Corpus(records["text"])
    base = pl.Series(corpus.base[blocks["record"].to_numpy()])
    text = corpus.cut((base + blocks["start"]).to_numpy(), (base + blocks["end"]).to_numpy())
    return (
        blocks.select("record_ref", "start", "end", text=text.str.strip_chars(WHITE_SPACE))
        .filter((pl.col("text") != "") & pl.col("text").is_duplicated())
        .select("record_ref", "start", "end", text_id=pl.col("text").rank("dense"))
    )


def over_groups(points: pl.DataFrame, metrics: pl.DataFrame, questions: pl.DataFrame) -> pl.DataFrame:
    """Curves of ``points`` and ``metrics``: over all questions, each question type and each split."""
    measures = queries.run("measures", points=points, metrics=metrics)
    return queries.run("curves", points=points, metrics=metrics, questions=questions, measures=measures)
