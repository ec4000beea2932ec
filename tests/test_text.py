"""Texts in bulk: spans and lower case as Python has them."""

import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.text import Corpus, lengths, lower

EVERY_CHAR = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point <= 0xDFFF]


def test_lower_equals_python_for_every_code_point() -> None:
    assert lower(pl.Series(EVERY_CHAR)).to_list() == [char.lower() for char in EVERY_CHAR]


def test_lower_equals_python_beside_a_sigma_for_every_code_point() -> None:
    """Whether a sigma is a final one depends on the letters around it."""
    for texts in ([f"Α{char}Σ" for char in EVERY_CHAR], [f"ΑΣ{char}" for char in EVERY_CHAR]):
        assert lower(pl.Series(texts)).to_list() == [text.lower() for text in texts]


@settings(max_examples=500)
@given(texts=st.lists(st.one_of(st.text(max_size=8), st.text(alphabet="aΑΣσςİIıß.'\u0307\u0345 😀", max_size=8))))
def test_lower_equals_python(texts: list[str]) -> None:
    assert lower(pl.Series(texts, dtype=pl.String)).to_list() == [text.lower() for text in texts]


@pytest.mark.parametrize("texts", [["ΑΣ", "Α"], ["ΑΣ", "", "Σ"], ["Α", "Σ"], ["İ", "", "A"]])
def test_texts_beside_each_other_do_not_mix(texts: list[str]) -> None:
    assert lower(pl.Series(texts)).to_list() == [text.lower() for text in texts]


@settings(max_examples=200)
@given(data=st.data(), texts=st.lists(st.text(max_size=12), max_size=5))
def test_cut_equals_slices(data: st.DataObject, texts: list[str]) -> None:
    whole = "".join(texts)
    places = st.integers(0, len(whole))
    spans = [sorted(span) for span in data.draw(st.lists(st.tuples(places, places), max_size=6))]
    corpus = Corpus(pl.Series(texts, dtype=pl.String))

    actual = corpus.cut(*np.array(spans, dtype=np.int64).reshape(-1, 2).T)

    assert actual.to_list() == [whole[start:end] for start, end in spans]
    assert lengths(actual).tolist() == [end - start for start, end in spans]


def test_cut_of_spans_that_follow_each_other() -> None:
    corpus = Corpus(pl.Series(["aé", "", "😀雨b"]))

    assert corpus.lengths.tolist() == [2, 0, 3]
    assert corpus.base.tolist() == [0, 2, 2, 5]
    assert corpus.cut(np.array([1, 2, 2, 4]), np.array([2, 2, 4, 5])).to_list() == ["é", "", "😀雨", "b"]
