"""Governing ranges: both rules by example, then against the slow twin."""

import itertools
import sys
from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import ranges
from allocation.text import WHITE_SPACE, Corpus
from tests import oracles, strategies
from tests.oracles import Span

LIMIT = 1478


def governing(*records: tuple[str, Sequence[Span]]) -> list[list[Span]]:
    """The range of each block of each record."""
    rows = [(number, start, end) for number, (_, spans) in enumerate(records) for start, end in spans]
    blocks = pl.DataFrame(rows, schema=dict.fromkeys(("record", "start", "end"), pl.Int64), orient="row")
    corpus = Corpus(pl.Series("text", [text for text, _ in records], dtype=pl.String))
    grown = ranges.governing(blocks, corpus).select("record", "range_start", "range_end").rows()
    return [[(low, high) for record, low, high in grown if record == number] for number in range(len(records))]


def ranges_of(*blocks: str) -> list[Span]:
    """The range of each block of a record, as numbers of its first block and of the one behind its last."""
    bounds = [0, *itertools.accumulate(map(len, blocks))]
    [grown] = governing(("".join(blocks), list(itertools.pairwise(bounds))))
    return [(bounds.index(start), bounds.index(end)) for start, end in grown]


@pytest.mark.parametrize(
    ("blocks", "expected", "why"),
    [
        (["One.", " Two.", " Three."], [(0, 1), (1, 2), (2, 3)], "whole sentences stay alone"),
        (["One,", " two."], [(0, 2), (0, 2)], "an open sentence grows forward, its end back"),
        (["a,", " b,", " c"], [(0, 3), (0, 3), (0, 3)], "from anywhere to all of it"),
        (["Zero.", " a,", " b.", " Four."], [(0, 1), (1, 3), (1, 3), (3, 4)], "and no further"),
        (["One. \n", "Two"], [(0, 1), (1, 2)], "white space behind the end does not matter"),
        (["一。", "二！", "三？", "四．", "五…", "六!", "七?", "八."], [(i, i + 1) for i in range(8)], "all ends"),
        (["「一。」", "二。"], [(0, 2), (0, 2)], "a closing mark ends no sentence"),
        (["One.", " ", "Two."], [(0, 1), (1, 3), (1, 3)], "a blank block ends none and joins what follows"),
        (["Zero.", "One.", " \n"], [(0, 1), (1, 2), (2, 3)], "with nothing behind it, it stays alone"),
    ],
)
def test_finish_the_sentence(blocks: list[str], expected: list[Span], why: str) -> None:
    assert ranges_of(*blocks) == expected, why


@pytest.mark.parametrize(
    ("blocks", "expected", "why"),
    [
        (
            ["One.", " However, two.", " Three."],
            [(0, 2), (0, 2), (2, 3)],
            "the qualifier goes with what it limits",
        ),
        (["One.", "ただし、二。", "三。"], [(0, 2), (0, 2), (2, 3)], "Japanese too"),
        (["One.", "But two.", "But three."], [(0, 3), (0, 3), (0, 3)], "one after the other"),
        (["However, one.", " Two."], [(0, 1), (1, 2)], "the first block has nothing before it"),
        (["One.", " Note\nthat."], [(0, 1), (1, 2)], "a qualifier is spelt as it is"),
        (["One.", " Buttons."], [(0, 1), (1, 2)], "but needs its space"),
        (["One.", " Howeverish."], [(0, 2), (0, 2)], "the others need no word boundary"),
        (["One.", " He said however."], [(0, 1), (1, 2)], "only at the beginning"),
        (
            ["One.", "\n", "However, two.", "Three."],
            [(0, 3), (0, 3), (0, 3), (3, 4)],
            "read through a blank block",
        ),
        (["One.", "\n", "Two."], [(0, 1), (1, 3), (1, 3)], "what follows the blank is no qualifier"),
        (["One.", "\n", " ", "But two."], [(0, 4)] * 4, "through several blank blocks"),
        (["One.", "How", "ever."], [(0, 1), (0, 3), (0, 3)], "a qualifier over two blocks counts in a range only"),
        (["One.", "But", " two."], [(0, 1), (0, 3), (0, 3)], "here its space is in the block behind"),
        (["One.", "But ", "two."], [(0, 3), (0, 3), (0, 3)], "here it is in the block"),
    ],
)
def test_follow_the_qualifier(blocks: list[str], expected: list[Span], why: str) -> None:
    assert ranges_of(*blocks) == expected, why


@pytest.mark.parametrize("word", oracles.QUALIFIERS)
def test_every_qualifier_in_either_case(word: str) -> None:
    for written in (word, word.upper(), word.capitalize(), word.swapcase().title()):
        assert ranges_of("One.", f"\n {written}x.") == [(0, 2), (0, 2)]


@pytest.mark.parametrize(
    "written",
    ["İn fact", "ın fact", "unleſs", "inſtead", "actu\u00adally", "ＢＵＴ it", "hоwever", "excepﬅ", "Ｉn fact"],
)
def test_other_letters_are_not_ascii_letters(written: str) -> None:
    assert ranges_of("One.", f"{written}.") == [(0, 1), (1, 2)]


def test_no_letter_beyond_ascii_stands_for_an_ascii_one() -> None:
    """Every code point in place of every letter of a qualifier; the Kelvin sign is one of them."""
    like: dict[str, list[str]] = {}
    for other in map(chr, range(128, sys.maxunicode + 1)):
        for letter in {other.lower(), other.upper().lower(), other.casefold()}:
            like.setdefault(letter, []).append(other)
    assert like["s"] == ["ſ"]
    assert like["k"] == ["\u212a"]
    for word in filter(str.isascii, oracles.QUALIFIERS):
        for place, letter in enumerate(word):
            for other in like.get(letter, []):
                assert ranges_of("One.", f"{word[:place]}{other}{word[place + 1 :]}x.") == [(0, 1), (1, 2)]


def test_all_of_pythons_white_space_and_no_other() -> None:
    every = [char for char in map(chr, range(sys.maxunicode + 1)) if char.isspace()]
    assert sorted(WHITE_SPACE) == every
    for char in every:
        assert ranges_of(f"One.{char}", f"{char}But two.", f"{char}Three.") == [(0, 2), (0, 2), (2, 3)], repr(char)
        assert ranges_of("One.", char, "But two.") == [(0, 3)] * 3, repr(char)
    for char in "\u200b\ufeff\u180e\u2060\x00\x1b":
        assert ranges_of(f"One.{char}", f"{char}But two.") == [(0, 2), (0, 2)], repr(char)  # the sentence is open
        assert ranges_of("One.", f"{char}But two.") == [(0, 1), (1, 2)], repr(char)


def test_backwards_first() -> None:
    """Block 1 wants both neighbours; only one of them fits, and it is the one before."""
    assert ranges_of("a" * 1000, "b" * 400, "c" * 400)[1] == (0, 2)
    # Backward stops at the limit, and then forward, which would fit, is not tried.
    assert ranges_of("a" * 1400, "b" * 400, "c" * 400)[1] == (1, 2)


@pytest.mark.parametrize(
    ("lengths", "expected", "why"),
    [
        ([738, 740], [(0, 2), (0, 2)], "just the limit"),
        ([738, 741], [(0, 1), (1, 2)], "one character more"),
        ([1479], [(0, 1)], "a block longer than the limit is its own range"),
        ([2000, 1, 1], [(0, 1), (1, 2), (1, 3)], "growth back over it is not possible"),
        ([500, 500, 478, 1], [(0, 3), (0, 3), (0, 3), (1, 4)], "up to the limit from each block"),
    ],
)
def test_the_limit(lengths: list[int], expected: list[Span], why: str) -> None:
    assert ranges_of(*("x" * length for length in lengths)) == expected, why
    assert sum(lengths[low] for low in range(*expected[0])) <= max(LIMIT, lengths[0])


def test_the_example_of_the_design() -> None:
    text = "One.\n\nHowever, two.\nThree."

    assert governing((text, [(0, 5), (5, 6), (6, 20), (20, 26)])) == [[(0, 20), (0, 20), (0, 20), (20, 26)]]


def test_growth_does_not_leave_a_record() -> None:
    halves = ("an open sentence", [(0, 3), (3, 16)])

    assert governing(halves, ("But two", [(0, 7)]), halves) == [[(0, 16)] * 2, [(0, 7)], [(0, 16)] * 2]


@st.composite
def divided(draw: st.DrawFn) -> tuple[str, list[Span]]:
    text = draw(strategies.texts())
    return text, draw(strategies.partitions(text))


@st.composite
def shredded(draw: st.DrawFn) -> tuple[str, list[Span]]:
    """Pieces of qualifiers, ends and white space, cut anywhere."""
    parts = st.sampled_from(
        [*oracles.QUALIFIERS, *strategies.LEADS, *" \n\t\u3000\x1c", " ", "  ", *".。!…", "a", "x. ", "雨"]
    )
    text = "".join(draw(st.lists(parts, min_size=1, max_size=12))) * draw(st.sampled_from([1, 1, 1, 30]))
    cuts = draw(st.sets(st.integers(1, len(text)), max_size=40))
    return text, list(itertools.pairwise(sorted({0, *cuts, len(text)})))


@settings(max_examples=200)
@given(records=st.lists(st.one_of(divided(), shredded()), min_size=1, max_size=4))
def test_equals_the_slow_twin(records: list[tuple[str, list[Span]]]) -> None:
    records = [(text, spans) for text, spans in records if text]

    assert governing(*records) == [
        [oracles.governing_range(text, spans, i) for i in range(len(spans))] for text, spans in records
    ]


@settings(max_examples=200)
@given(record=st.one_of(divided(), shredded()))
def test_starts_and_ends_never_fall(record: tuple[str, list[Span]]) -> None:
    """What a range overlaps therefore stands beside it; the policy ``server`` finds overlaps that way."""
    _, spans = record
    [grown] = governing(record)

    for (start, end), (next_start, next_end) in itertools.pairwise(grown):
        assert start <= next_start
        assert end <= next_end
    for (start, end), (low, high) in zip(spans, grown, strict=True):
        assert low <= start < end <= high
        assert high - low <= max(LIMIT, end - start)
