"""Governing ranges to passages, policy ``merge``: each rule by example, then against the slow twin."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import block_sets, passages, ranges
from allocation.text import Corpus
from tests import oracles, strategies
from tests.frames import frames_of
from tests.oracles import Span


def merged(*records: list[Span], passage_limit: int) -> list[list[Span]]:
    """The passage of each range, record by record, in the order the ranges are given in."""
    rows = [(n, i, start, end) for n, ranges_ in enumerate(records) for i, (start, end) in enumerate(ranges_)]
    columns = dict.fromkeys(("record", "block_index", "range_start", "range_end"), pl.Int64)
    blocks = pl.DataFrame(rows, schema=columns, orient="row")
    corpus = Corpus(pl.Series("text", ["x" * max(end for _, end in own) for own in records], dtype=pl.String))
    made = passages.merge(blocks, corpus, passage_limit).sort("record", "block_index")
    found = made.select("record", "passage_start", "passage_end").rows()
    return [[(low, high) for record, low, high in found if record == number] for number in range(len(records))]


@pytest.mark.parametrize(
    ("found", "passage_limit", "expected", "why"),
    [
        ([(0, 5), (5, 9)], 99, [(0, 5), (5, 9)], "touching is not overlapping"),
        ([(0, 5), (4, 9)], 99, [(0, 9), (0, 9)], "overlapping is"),
        ([(0, 5), (0, 5)], 99, [(0, 5), (0, 5)], "two blocks of one range"),
        ([(0, 9), (2, 5), (5, 9)], 99, [(0, 9)] * 3, "contained ranges add their blocks"),
        ([(0, 9), (2, 5), (9, 12)], 99, [(0, 9), (0, 9), (9, 12)], "a contained one does not pull the end back"),
        ([(0, 5), (4, 9), (8, 12), (12, 20)], 99, [(0, 12)] * 3 + [(12, 20)], "one after another"),
        ([(0, 6), (5, 10)], 10, [(0, 10), (0, 10)], "up to the limit"),
        ([(0, 6), (5, 11)], 10, [(0, 6), (6, 11)], "a range that would push over starts where the last one ends"),
        ([(0, 6), (5, 11), (7, 16)], 10, [(0, 6), (6, 16), (6, 16)], "the next passage has a limit of its own"),
        ([(0, 6), (5, 11), (7, 17)], 10, [(0, 6), (6, 11), (11, 17)], "and may be pushed over itself"),
        ([(0, 20)], 10, [(0, 20)], "a single range over the limit is not cut"),
        ([(0, 20), (3, 9), (19, 24)], 10, [(0, 20), (0, 20), (20, 24)], "it takes in contained ones, no others"),
        ([(0, 6), (5, 30), (29, 31)], 10, [(0, 6), (6, 30), (30, 31)], "nor is one that was pushed over"),
        ([(0, 3), (2, 5), (4, 7)], 1, [(0, 3), (3, 5), (5, 7)], "a limit of one character"),
        (
            [(0, 12), (8, 20), (18, 35), (35, 40)],
            30,
            [(0, 20), (0, 20), (20, 35), (35, 40)],
            "the design's example",
        ),
    ],
)
def test_uniting(found: list[Span], passage_limit: int, expected: list[Span], why: str) -> None:
    assert merged(found, passage_limit=passage_limit) == [expected], why
    # Neither other records nor the numbers of the blocks matter.
    around = [(0, 7), (6, 9)]
    assert merged(around, found, around, passage_limit=passage_limit)[1] == expected, why
    assert merged(found[::-1], passage_limit=passage_limit) == [expected[::-1]], why


def test_no_ranges_no_passages() -> None:
    blocks = pl.DataFrame(schema=dict.fromkeys(("record", "block_index", "range_start", "range_end"), pl.Int64))

    assert passages.merge(blocks, Corpus(pl.Series(dtype=pl.String)), 1478).is_empty()


def of_case(case: dict[str, Any], passage_limit: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    _, _, records, stored = frames_of(case)
    corpus = Corpus(records["text"])
    blocks = ranges.governing(block_sets.build(records, stored), corpus)
    return records, passages.merge(blocks, corpus, passage_limit)


@settings(max_examples=100)
@given(case=strategies.cases(), passage_limit=st.sampled_from([1, 3, 20, 40, 300, 739, 1478, 10**9]))
def test_equals_the_slow_twin(case: dict[str, Any], passage_limit: int) -> None:
    records, made = of_case(case, passage_limit)

    for number, ref in enumerate(records["record_ref"]):
        own = made.filter(pl.col("record") == number).sort("block_index")
        record = case["records"][ref]
        expected = {
            block: (start, end)
            for start, end, blocks in oracles.passages(record["text"], oracles.block_spans(record), passage_limit)
            for block in blocks
        }
        assert own.select("passage_start", "passage_end").rows() == [expected[i] for i in range(len(own))]


@settings(max_examples=100)
@given(case=strategies.cases(), passage_limit=st.sampled_from([1, 40, 300, 1478]))
def test_passages_partition_every_text(case: dict[str, Any], passage_limit: int) -> None:
    records, made = of_case(case, passage_limit)

    for number, text in enumerate(records["text"]):
        own = made.filter(pl.col("record") == number)
        spans = sorted(set(own.select("passage_start", "passage_end").rows()))
        assert "".join(text[start:end] for start, end in spans) == text
        assert [start for start, _ in spans] == [0, *(end for _, end in spans)][: len(spans)]
        longest = max((own["range_end"] - own["range_start"]).to_list(), default=0)
        assert all(end - start <= max(passage_limit, longest) for start, end in spans)
