"""Development questions, drawn once (DESIGN.md, "Development and test")."""

import hashlib

import polars as pl

from allocation.errors import InputError

DEV, TEST = "dev", "test"


def draw(questions: pl.DataFrame, count: int, seed: int, *, stratified: bool) -> list[str]:
    """The question_ids of ``count`` development questions, sorted.

    The questions with the lowest SHA-256 of seed and question_id, so that the draw depends on no library's random
    numbers and not on the order of rows. Stratified: each question type gives its share of ``count``, rounded down,
    and what is left goes to the largest remainders, of equals to the type that sorts first.

    Args:
        questions: Questions.
        count: How many.
        seed: Any whole number.
        stratified: Draw from each question_type its share.

    Raises:
        InputError: not fewer questions are asked for than there are.
    """
    if not 0 < count < len(questions):
        raise InputError(
            f"{count} development questions of {len(questions)}: draw at least one and leave one to test on"
        )
    drawn = {
        question_id: (type_ or "", hashlib.sha256(f"{seed}\0{question_id}".encode()).hexdigest())
        for question_id, type_ in questions.select("question_id", "question_type").iter_rows()
    }
    in_order = sorted(drawn, key=lambda question_id: (drawn[question_id][1], question_id))
    if not stratified:
        return sorted(in_order[:count])
    types = sorted({type_ for type_, _ in drawn.values()})
    strata = {type_: [q for q in in_order if drawn[q][0] == type_] for type_ in types}
    shares = {type_: divmod(count * len(strata[type_]), len(questions)) for type_ in types}
    left = count - sum(whole for whole, _ in shares.values())
    first = sorted(types, key=lambda type_: (-shares[type_][1], type_))[:left]
    return sorted(q for type_ in types for q in strata[type_][: shares[type_][0] + (type_ in first)])


def mark(questions: pl.DataFrame, development: list[str], source: str) -> pl.DataFrame:
    """Questions with split ``dev`` where drawn and ``test`` elsewhere, whatever it was.

    Raises:
        InputError: a development question is not among the questions.
    """
    unknown = sorted(set(development) - set(questions["question_id"]))
    if unknown:
        raise InputError(f"{source}: {len(unknown)} development questions are unknown, {unknown[0]} first; draw again")
    drawn = pl.col("question_id").is_in(pl.Series(development, dtype=pl.String).implode())
    return questions.with_columns(split=pl.when(drawn).then(pl.lit(DEV)).otherwise(pl.lit(TEST)))


def only(questions: pl.DataFrame, split: str, source: str) -> pl.DataFrame:
    """The questions of one split.

    Raises:
        InputError: there are none.
    """
    own = questions.filter(pl.col("split") == split)
    if own.is_empty():
        raise InputError(f"{source}: no question has split {split}; draw development questions and build with --dev")
    return own
