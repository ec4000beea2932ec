"""What a step adds to its record's quote."""

import itertools

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from allocation import costs
from tests import oracles

Step = tuple[int, int, int]  # record, start, end


def spent(*steps: Step) -> tuple[list[int], list[int]]:
    """cost and used of each step, taken in turn."""
    columns = ("question", "window_row", "position", "passage_start", "passage_end")
    rows = [(0, record, position, start, end) for position, (record, start, end) in enumerate(steps)]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.Int64), orient="row")
    paid = costs.add(frame)
    assert paid["position"].to_list() == list(range(len(steps)))
    assert costs.add(frame[::-1]).sort("position").equals(paid)
    return paid["cost"].to_list(), paid["cost"].cum_sum().to_list()


def test_the_separator_is_three_characters() -> None:
    assert len(costs.SEPARATOR) == oracles.SEPARATOR_LENGTH == 3


def test_the_example_of_the_design() -> None:
    cost, used = spent((1, 55, 90), (2, 10, 30), (1, 0, 40), (1, 40, 55))

    assert cost == [35, 20, 40 + 3, 15 - 3]
    assert used == [35, 55, 98, 110]
    assert used[-1] == (90 - 0) + (30 - 10)  # no separator is left


def test_a_neighbour_that_touches_saves_a_separator_whichever_comes_first() -> None:
    assert spent((1, 0, 10), (1, 10, 30))[0] == [10, 20]
    assert spent((1, 10, 30), (1, 0, 10))[0] == [20, 10]
    assert spent((1, 0, 10), (1, 11, 30))[0] == [10, 19 + 3]
    assert spent((1, 0, 10), (2, 10, 30))[0] == [10, 20]  # each the first of its record


def test_closing_a_gap_saves_what_stood_there() -> None:
    assert spent((1, 0, 10), (1, 20, 30), (1, 10, 20)) == ([10, 13, 10 - 3], [10, 23, 30])
    assert spent((1, 0, 10), (1, 11, 20), (1, 10, 11)) == ([10, 12, 1 - 3], [10, 22, 20])


def test_questions_are_counted_apart() -> None:
    frame = pl.DataFrame(
        {
            "question": [0, 1, 1],
            "window_row": [0, 1, 1],
            "position": [0, 0, 1],
            "passage_start": [0, 0, 50],
            "passage_end": [10, 20, 60],
        }
    )

    assert costs.add(frame)["cost"].to_list() == [10, 20, 13]


@st.composite
def orders(draw: st.DrawFn) -> list[Step]:
    """Some pieces of cut up texts, in any order."""
    steps: list[Step] = []
    for record in range(draw(st.integers(1, 3))):
        cuts = sorted(draw(st.sets(st.integers(0, 40), min_size=2, max_size=12)))
        steps += [(record, start, end) for start, end in itertools.pairwise(cuts)]
    chosen = draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)))
    return draw(st.permutations([step for step, keep in zip(steps, chosen, strict=True) if keep]))


@given(steps=orders())
def test_used_is_the_length_of_all_quotes(steps: list[Step]) -> None:
    _, used = spent(*steps)

    for count, total in enumerate(used, 1):
        taken = steps[:count]
        quotes = [[(start, end) for own, start, end in taken if own == record] for record in range(3)]
        assert total == sum(map(oracles.quote_length, quotes))
