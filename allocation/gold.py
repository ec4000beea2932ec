"""Whether a context shows the gold answer (DESIGN.md, "Answer in context")."""

import polars as pl

from allocation.contexts import QUOTE_BREAK
from allocation.text import normalize

LONGEST = 40  # characters of a normalized answer that is still a short span

_SPOKEN = ("", "yes", "no")  # answers that a text can show without giving them
# Scripts without spaces: each character is a word of its own; and so is the end of a quote.
_UNSPACED = rf"([\p{{Han}}\p{{Hiragana}}\p{{Katakana}}{QUOTE_BREAK}])"
_NO_WORD = rf"[^\p{{L}}\p{{N}}{QUOTE_BREAK}]+"


def words(texts: pl.Series) -> pl.Series:
    """Texts after NFKC and lower case as words with one space around each; punctuation and marks are left out."""
    apart = pl.col("text").str.replace_all(_UNSPACED, " $1 ").str.replace_all(_NO_WORD, " ")
    spaced = normalize(texts).to_frame("text").select(apart)
    return spaced.select(pl.format(" {} ", pl.col("text").str.strip_chars(" ")))["text"]


def short(questions: pl.DataFrame) -> pl.DataFrame:
    """The questions whose gold answer is a short span, and that answer as ``words``: question_id, gold."""
    answered = questions.filter(pl.col("answer").is_not_null()).select("question_id", "answer")
    gold = words(answered["answer"])
    return answered.select("question_id", gold=gold).filter(
        (pl.col("gold").str.len_chars() <= LONGEST + 2) & ~pl.col("gold").str.strip_chars(" ").is_in(_SPOKEN)
    )


def shown(contexts: pl.DataFrame, short_answers: pl.DataFrame) -> pl.DataFrame:
    """Whether each context holds its question's answer: question_id, point, answer_in_context.

    Args:
        contexts: question_id, point, quoted (``contexts.join``).
        short_answers: ``short`` of the questions; the contexts of others are left out.
    """
    asked = contexts.join(short_answers, on="question_id", maintain_order="left")
    distinct = asked.select("quoted").unique()
    normal = distinct.with_columns(words=words(distinct["quoted"]))
    return asked.join(normal, on="quoted", how="left").select(
        "question_id", "point", answer_in_context=pl.col("words").str.contains(pl.col("gold"), literal=True)
    )
