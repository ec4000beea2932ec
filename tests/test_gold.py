"""Whether a context shows the gold answer."""

import polars as pl
import pytest

from allocation import gold
from allocation.contexts import QUOTE_BREAK
from tests import curve_oracles


def shown(answer: str, *quotes: str) -> bool:
    contexts = pl.DataFrame(
        {"question_id": "q", "point": "p", "quoted": "".join(QUOTE_BREAK + quote for quote in quotes)}
    )
    short = gold.short(pl.DataFrame({"question_id": ["q"], "answer": [answer]}))
    found = gold.shown(contexts, short)["answer_in_context"].item()
    assert found == curve_oracles.answer_shown(answer, list(quotes))
    return bool(found)


@pytest.mark.parametrize(
    ("answer", "quotes", "there"),
    [
        ("16", ["He counted 16 steps."], True),
        ("16", ["It cost 160 or 1.6, not 216."], False),
        ("16", ["At 2025-02-16T10:20:00."], False),  # 16t10 is one word
        ("2025", ["2025-02-16 In spring."], True),
        ("the blue Tin", ["In THE BLUE  tin, on the shelf."], True),
        ("blue tin", ["A blue", "tin."], False),  # of two quotes
        ("blue tin", ["A blue-tin, see?"], True),
        ("１２", ["There are 12."], True),
        ("café", ["A CAFE\u0301!"], True),
        ("棚の上", ["鍵は棚の上にある。"], True),
        ("棚の下", ["鍵は棚の上にある。"], False),
        ("ﾃｽﾄ", ["このテストは短い。"], True),
        ("7 May", ["On 7 May, not 17 May."], True),
        ("7 May", ["On 17 May."], False),
        ("a.b", ["a b"], True),
    ],
)
def test_answers(answer: str, quotes: list[str], there: bool) -> None:
    assert shown(answer, *quotes) is there


@pytest.mark.parametrize(
    ("answer", "is_short"),
    [
        ("x" * 40, True),
        ("x" * 41, False),
        ("Yes.", False),
        ("no", False),
        ("no one", True),
        ("…", False),
        ("", False),
        (None, False),
        (" ".join(["ab"] * 13), True),  # 13 words and 12 spaces are 38 characters
        (" ".join(["ab"] * 14), False),
    ],
)
def test_what_is_a_short_answer(answer: str | None, is_short: bool) -> None:
    short = gold.short(pl.DataFrame({"question_id": ["q"], "answer": [answer]}, schema_overrides={"answer": pl.String}))
    assert (len(short) == 1) is is_short
    assert (curve_oracles.answer_shown(answer, []) is not None) is is_short


def test_contexts_of_questions_without_a_short_answer_are_left_out() -> None:
    contexts = pl.DataFrame({"question_id": ["q", "r"], "point": "p", "quoted": "One."})
    short = gold.short(pl.DataFrame({"question_id": ["q", "r"], "answer": ["one", None]}))
    assert gold.shown(contexts, short).rows() == [("q", "p", True)]
    assert gold.shown(contexts, short.clear()).is_empty()
