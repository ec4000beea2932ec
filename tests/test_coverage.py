"""The greedy pass against taking the lowest again and again."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import coverage, steps
from tests import sequence_oracles


def pairs(
    holds: list[set[int]], ranks: list[int], step_up: int, step_down: int, keep_records: int = 0
) -> list[tuple[int, set[int]]]:
    """The covered order: each step, and the parts it was the first to hold."""
    masks = np.array([sum(1 << part for part in own) for own in holds], dtype=np.int64)
    movable = np.array(ranks, dtype=np.int64) >= keep_records
    order, firsts = coverage.order(masks, movable, step_up, step_down)
    return [
        (int(step), {part for part in range(32) if first >> part & 1})
        for step, first in zip(order, firsts, strict=True)
    ]


@st.composite
def passages(draw: st.DrawFn) -> tuple[list[set[int]], list[int]]:
    count = draw(st.integers(0, 40))
    most = draw(st.sampled_from((1, 2, 3, 8, 32)))
    few = st.sets(st.integers(0, most - 1), max_size=3)
    holds = draw(st.lists(st.one_of(few, few, st.just(set())), min_size=count, max_size=count))
    return holds, draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))


STEPS = st.one_of(st.integers(0, 8), st.sampled_from((0, 5, 39, 40, 1000, 1_000_000_000)))


@settings(max_examples=600)
@given(given=passages(), step_up=STEPS, step_down=STEPS, keep_records=st.integers(0, 5))
def test_the_order_equals_the_slow_twin(
    given: tuple[list[set[int]], list[int]], step_up: int, step_down: int, keep_records: int
) -> None:
    holds, ranks = given
    expected = sequence_oracles.covered(holds, ranks, step_up, step_down, keep_records)
    assert pairs(holds, ranks, step_up, step_down, keep_records) == expected


@settings(max_examples=60)
@given(questions=st.lists(passages(), max_size=4), step_up=STEPS, step_down=STEPS, keep_records=st.integers(0, 3))
def test_questions_are_covered_apart(
    questions: list[tuple[list[set[int]], list[int]]], step_up: int, step_down: int, keep_records: int
) -> None:
    rows = [
        (question, place, rank, sum(1 << part for part in own))
        for question, (holds, ranks) in enumerate(questions)
        for place, (own, rank) in enumerate(zip(holds, ranks, strict=True))
    ]
    columns = dict.fromkeys(("question", "place", "record_rank", "mask"), pl.Int64)

    taken = steps.covered(pl.DataFrame(rows, schema=columns, orient="row"), step_up, step_down, keep_records)

    expected = [
        (question, step, position, sum(1 << part for part in new))
        for question, (holds, ranks) in enumerate(questions)
        for position, (step, new) in enumerate(sequence_oracles.covered(holds, ranks, step_up, step_down, keep_records))
    ]
    assert taken.select("question", "place", "position", "new_mask").rows() == expected


# A question of two sessions: part 0 "kestrel", part 1 "shelf", part 2 "glaze". Record A is the first session and
# recalled first, record B holds "glaze" alone, record C neither. In fused order, with what each holds:
EXAMPLE = [
    ("A1", {0, 1}),
    ("A2", {0}),
    ("A3", {1}),
    ("C1", set()),
    ("A4", {0, 1}),
    ("C2", set()),
    ("B1", {0, 2}),
    ("B2", {2}),
]
RANKS = [0, 0, 0, 1, 0, 1, 2, 2]


def test_the_example_of_two_sessions() -> None:
    """A1 is taken first and holds kestrel and shelf. What is left, with steps of 5:

    A2 1 + 5 = 6, A3 2 + 5 = 7, C1 3, A4 4 + 5 = 9, C2 5, B1 6 - 5 = 1, B2 7 - 5 = 2.
    B1 is the lowest and brings glaze, so that B2 has nothing new: 7 + 5 = 12. Nothing changes after that:
    C1 3, C2 5, A2 6, A3 7, A4 9, B2 12.
    """
    order = pairs([own for _, own in EXAMPLE], RANKS, 5, 5)

    assert [EXAMPLE[step][0] for step, _ in order] == ["A1", "B1", "C1", "C2", "A2", "A3", "A4", "B2"]
    assert [new for _, new in order] == [{0, 1}, {2}, *[set()] * 6]


def test_the_example_with_the_first_record_kept() -> None:
    """With keep_records 1 A's passages stay at 1, 2 and 4; B1 at 1 ties with A2, which stands earlier.

    A2 1, B1 1; then A3 2, C1 3, A4 4, C2 5, B2 12.
    """
    order = pairs([own for _, own in EXAMPLE], RANKS, 5, 5, keep_records=1)

    assert [EXAMPLE[step][0] for step, _ in order] == ["A1", "A2", "B1", "A3", "C1", "A4", "C2", "B2"]
    assert [new for _, new in order] == [{0, 1}, set(), {2}, *[set()] * 5]


def test_steps_of_zero_change_nothing() -> None:
    order = pairs([own for _, own in EXAMPLE], RANKS, 0, 0)

    assert [step for step, _ in order] == list(range(8))
    assert [new for _, new in order] == [{0, 1}, *[set()] * 5, {2}, set()]


def test_the_first_is_taken_whatever_it_holds() -> None:
    assert pairs([set(), {0}, {1}], [0, 0, 0], 1000, 0) == [(0, set()), (1, {0}), (2, {1})]
    assert pairs([set(), set(), {0}], [0, 0, 0], 1000, 0) == [(0, set()), (2, {0}), (1, set())]


def test_a_passage_without_parts_is_never_moved() -> None:
    assert [step for step, _ in pairs([{0}, {0}, set(), set()], [0] * 4, 5, 1)] == [0, 1, 2, 3]
    assert [step for step, _ in pairs([{0}, {0}, set(), set()], [0] * 4, 5, 2)] == [0, 2, 1, 3]


@pytest.mark.parametrize("step_up", [0, 5])
def test_no_passages(step_up: int) -> None:
    assert pairs([], [], step_up, 5) == []
