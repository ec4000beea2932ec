"""Graded answers that can be used, each tied to the bytes of its context (DESIGN.md, "Answers")."""

from typing import NamedTuple

import polars as pl

from allocation.errors import InputError
from allocation.tables import Answers


class Taken(NamedTuple):
    """What came of a file of answers."""

    new: pl.DataFrame  # Answers
    known: int  # their context was answered at another point: the first answer stays


def take(
    graded: pl.DataFrame, shown: pl.DataFrame, questions: pl.DataFrame, earlier: pl.DataFrame, source: str, digest: str
) -> Taken:
    """Answers given at one point.

    Args:
        graded: row, question_id, question, point, correct, prompt_tokens, as read.
        shown: Points of this point.
        questions: Questions of the run.
        earlier: Answers that are there already.
        source: Name of the file.
        digest: SHA-256 of the file.

    Raises:
        InputError: names the first row that cannot be used: an unknown question, one graded twice or not at all, an
            answer of another point, or of this point once more.
    """
    point = shown["point"][0]
    by_text = questions.filter(pl.col("question").is_unique()).select("question", by_text="question_id")
    known = graded.join(by_text, on="question", how="left", maintain_order="left").with_columns(
        question_id=pl.when(pl.col("question_id").is_in(questions["question_id"].implode()))
        .then("question_id")
        .otherwise(pl.coalesce("by_text", "question_id"))
    )
    rows = known.join(
        shown.select("question_id", context_sha256="sha256"), on="question_id", how="left", maintain_order="left"
    )
    again = earlier.filter(pl.col("point") == point)["question_id"]
    reason = pl.coalesce(
        pl.when(applies).then(pl.lit(text))
        for applies, text in [
            (pl.col("context_sha256").is_null(), "the question is unknown to the run"),
            (pl.col("correct").is_null(), "correct is neither true nor false"),
            (
                pl.col("point").ne_missing(pl.lit(point)) & pl.col("point").is_not_null(),
                f"the answer is not of {point}",
            ),
            (~pl.col("question_id").is_first_distinct(), "the question is graded twice"),
            (pl.col("prompt_tokens") < 0, "prompt_tokens is negative"),
            (pl.col("question_id").is_in(again.implode()), f"an answer at {point} was imported before"),
        ]
    )
    bad = rows.with_columns(reason=reason).filter(pl.col("reason").is_not_null())
    if len(bad):
        row, question_id, why = bad.select("row", "question_id", "reason").row(0)
        more = f" ({len(bad) - 1} more such rows)" if len(bad) > 1 else ""
        raise InputError(
            f"{source}: row {row} (question_id={question_id}): {why}{more}; mend the file and import again"
        )
    new = rows.join(earlier, on=("question_id", "context_sha256"), how="anti").select(
        "question_id",
        "context_sha256",
        point=pl.lit(point),
        correct="correct",
        prompt_tokens="prompt_tokens",
        source=pl.lit(source),
        source_sha256=pl.lit(digest),
    )
    return Taken(Answers.validate(new.sort("question_id", "context_sha256")), len(rows) - len(new))


def at(shown: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    """The answers to the contexts of one point, whatever point they were imported for.

    Args:
        shown: Points of this point.
        answers: Answers.

    Returns:
        question_id, rendered_tokens, correct, prompt_tokens; a row a question, the last two null without an answer.
    """
    given = answers.select("question_id", "correct", "prompt_tokens", sha256="context_sha256")
    return shown.select("question_id", "sha256", rendered_tokens="cl100k_base").join(
        given, on=("question_id", "sha256"), how="left", maintain_order="left"
    )
