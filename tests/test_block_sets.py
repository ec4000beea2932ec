"""Which stored block sets are used: each way a set is not current."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from polars.testing import assert_frame_equal

from allocation import block_sets
from allocation.tables import Records, StoredBlocks
from tests import oracles, strategies
from tests.frames import frames_of, table

TEXT = "One. Two. Three."  # 16 characters; divides into [0,4) [4,9) [9,16)
CURRENT: list[tuple[Any, ...]] = [(0, 2, "m", b"\x01\x02"), (2, 9, "m", b"\x03\x04"), (9, 16, "m", b"\x05\x06")]
DIVIDED = [(0, 4), (4, 9), (9, 16)]


def built(blocks: list[tuple[Any, ...]], node_ends: list[int | None] | None = None, text: str = TEXT) -> pl.DataFrame:
    """The blocks of one record; block_index has gaps, as it may."""
    records = table(Records, [{"record_ref": "mem:1", "agent_id": "a", "text": text, "node_ends": node_ends}])
    rows = [
        {"record_ref": "mem:1", "block_index": 3 + 2 * i, "start": s, "end": e, "embedding_model": m, "vector": v}
        for i, (s, e, m, v) in enumerate(blocks)
    ]
    # The rows arrive last block first.
    return block_sets.build(records, table(StoredBlocks, rows[::-1]))


def test_a_current_set_is_used_as_stored_and_numbered_anew() -> None:
    expected = pl.DataFrame(
        {
            "record": [0, 0, 0],
            "block_index": [0, 1, 2],
            "start": [0, 2, 9],
            "end": [2, 9, 16],
            "vector": [b"\x01\x02", b"\x03\x04", b"\x05\x06"],
            "width": [2, 2, 2],
            "record_ref": ["mem:1"] * 3,
        }
    )

    assert_frame_equal(built(CURRENT), expected, check_column_order=False)


NOT_CURRENT: dict[str, tuple[list[tuple[Any, ...]], list[int | None] | None]] = {
    "no blocks": ([], None),
    "does not start at 0": ([(1, 2, "m", b"\x01"), *CURRENT[1:]], None),
    "starts before 0": ([(-1, 2, "m", b"\x01"), *CURRENT[1:]], None),
    "gap": ([CURRENT[0], (3, 9, "m", b"\x03\x04"), CURRENT[2]], None),
    "a block is missing": ([CURRENT[0], CURRENT[2]], None),
    "overlap": ([CURRENT[0], (1, 9, "m", b"\x03\x04"), CURRENT[2]], None),
    "two blocks are swapped": ([CURRENT[1], CURRENT[0], CURRENT[2]], None),
    "stops before the end": (CURRENT[:2], None),
    "past the end": ([*CURRENT[:2], (9, 17, "m", b"\x05\x06")], None),
    "a further block past the end": ([*CURRENT, (16, 17, "m", b"\x07\x08")], None),
    "empty block": ([CURRENT[0], (2, 2, "m", b"\x01\x02"), *CURRENT[1:]], None),
    "empty block at the end": ([*CURRENT, (16, 16, "m", b"\x01\x02")], None),
    "end before start": ([CURRENT[0], (2, 1, "m", b"\x01\x02"), (1, 9, "m", b"\x01\x02"), CURRENT[2]], None),
    "start is missing": ([CURRENT[0], (None, 9, "m", b"\x03\x04"), CURRENT[2]], None),
    "end is missing": ([*CURRENT[:2], (9, None, "m", b"\x05\x06")], None),
    "vector is missing": ([CURRENT[0], (2, 9, "m", None), CURRENT[2]], None),
    "vector has no bytes": ([CURRENT[0], (2, 9, "m", b""), CURRENT[2]], None),
    "two models": ([CURRENT[0], (2, 9, "other", b"\x03\x04"), CURRENT[2]], None),
    "model is missing": ([CURRENT[0], (2, 9, None, b"\x03\x04"), CURRENT[2]], None),
    "no model at all": ([(start, end, None, vector) for start, end, _, vector in CURRENT], None),
    "a block crosses a node end": (CURRENT, [9, 12]),
    "a block crosses the first of the text": (CURRENT, [1]),
}


@pytest.mark.parametrize("name", NOT_CURRENT)
def test_any_other_record_is_divided(name: str) -> None:
    blocks, node_ends = NOT_CURRENT[name]

    actual = built(blocks, node_ends)

    assert actual.select("start", "end").rows() == DIVIDED
    assert actual["block_index"].to_list() == [0, 1, 2]
    assert actual.select("vector", "width").null_count().row(0) == (3, 3)


@pytest.mark.parametrize("node_ends", [[], [9], [2, 9], [0], [16], [-1, 0, 16, 17, 99], [None]])
def test_node_ends_at_block_ends_or_not_inside_the_text_do_not_matter(node_ends: list[int | None]) -> None:
    assert built(CURRENT, node_ends).select("start", "end").rows() == [(0, 2), (2, 9), (9, 16)]


def test_an_empty_model_name_is_a_name() -> None:
    blocks = [(start, end, "", vector) for start, end, _, vector in CURRENT]

    assert built(blocks)["width"].to_list() == [2, 2, 2]


def test_vectors_of_several_widths_have_no_width_but_keep_the_blocks() -> None:
    actual = built([CURRENT[0], (2, 9, "m", b"\x03\x04\x05"), CURRENT[2]])

    assert actual.select("start", "end").rows() == [(0, 2), (2, 9), (9, 16)]
    assert actual["width"].to_list() == [None, None, None]
    assert actual["vector"].null_count() == 0


def test_offsets_are_code_points() -> None:
    actual = built([(0, 3, "m", b"\x01"), (3, 5, "m", b"\x02")], text="😀é。雨。")

    assert actual.select("start", "end").rows() == [(0, 3), (3, 5)]
    assert actual["width"].to_list() == [1, 1]


def test_an_empty_text_has_no_blocks() -> None:
    assert built([], text="").is_empty()
    assert built([(0, 0, "m", b"\x01")], text="").is_empty()


def test_each_record_is_judged_alone() -> None:
    texts = {"mem:1": TEXT, "mem:2": TEXT, "ep:1": TEXT}
    records = table(Records, [{"record_ref": ref, "agent_id": "a", "text": text} for ref, text in texts.items()])
    rows = [
        {"record_ref": ref, "block_index": i, "start": s, "end": e, "embedding_model": ref, "vector": v}
        for ref, blocks in (("mem:1", CURRENT[:2]), ("mem:2", CURRENT))
        for i, (s, e, _, v) in enumerate(blocks)
    ]

    actual = block_sets.build(records, table(StoredBlocks, rows))

    assert actual["record"].to_list() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert actual["start"].to_list() == [0, 4, 9, 0, 2, 9, 0, 4, 9]
    assert actual["width"].to_list() == [None] * 3 + [2] * 3 + [None] * 3


@settings(max_examples=150)
@given(case=strategies.cases())
def test_equals_the_slow_twin(case: dict[str, Any]) -> None:
    _, _, records, stored = frames_of(case)

    actual = block_sets.build(records, stored)

    expected = []
    for ref, record in case["records"].items():
        widths = {len(vector) for _, _, vector, _ in record["blocks"]} if oracles.is_current(record) else set()
        width = widths.pop() if len(widths) == 1 else None
        expected += [(ref, i, *span, width) for i, span in enumerate(oracles.block_spans(record))]
    assert actual.select("record_ref", "block_index", "start", "end", "width").rows() == expected


def test_a_block_index_twice_makes_the_set_not_current() -> None:
    records = pl.DataFrame(
        {"record_ref": ["mem:1"], "agent_id": ["a"], "text": ["One is. Two are."], "node_ends": [None]},
        schema_overrides={"node_ends": pl.List(pl.Int64)},
    )
    stored = pl.DataFrame(
        {
            "record_ref": ["mem:1"] * 2,
            "block_index": [0, 0],
            "start": [0, 7],
            "end": [7, 16],
            "embedding_model": ["m"] * 2,
            "vector": [b"\x01", b"\x02"],
        }
    )
    for rows in (stored, stored.reverse()):
        assert block_sets.build(records, rows)["vector"].null_count() == 2
