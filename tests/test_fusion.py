"""Reciprocal-rank fusion: the exact sum, and the full key of the order."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from allocation import fusion

RANKS = ("record_rank", "inside_rank", "cosine_rank")


def scores(ranks: Any, k: int) -> Any:
    frame = pl.DataFrame(ranks, schema=dict.fromkeys(RANKS, pl.Int64), orient="row")
    return frame.select(score=fusion.score(dict.fromkeys(RANKS, 1.0), k))["score"].to_numpy()


@pytest.mark.parametrize(
    ("ranks", "k", "expected"),
    [
        ((0, 2, 1), 60, math.fsum([1 / 61, 1 / 63, 1 / 62])),
        ((2, 0, 1), 60, math.fsum([1 / 63, 1 / 61, 1 / 62])),
        ((0, 0, 0), 60, 3 / 61),
        ((0, 1, None), 60, math.fsum([1 / 61, 1 / 62])),
        ((4, None, None), 60, 1 / 65),
        ((None, None, None), 60, 0.0),
        ((0, 0, 0), 0, 3.0),
        ((0, 1, 3), 0, 1.75),
        ((0, 1, 2), 0, math.fsum([1, 1 / 2, 1 / 3])),
        ((9, 99, 999), 10**9, math.fsum([1 / 1000000010, 1 / 1000000100, 1 / 1000001000])),
    ],
)
def test_score_by_hand(ranks: tuple[int | None, ...], k: int, expected: float) -> None:
    assert scores([ranks], k).tolist() == [expected]


@pytest.mark.parametrize(
    ("rows", "highest", "k"),
    [
        (1_000_000, 1_000, 60),
        (200_000, 65_000, 60),
        (200_000, 40, 0),
        (200_000, 65_000, 0),
        (100_000, 65_000, 1),
        (100_000, 1_000, 1_000),
        (100_000, 1_000, 10**9),
    ],
)
def test_score_is_fsum_bit_for_bit(rows: int, highest: int, k: int) -> None:
    ranks = np.random.default_rng(highest + k).integers(0, highest + 1, (rows, 3))
    terms = 1 / (k + 1 + np.arange(highest + 1))

    expected = np.fromiter(map(math.fsum, terms[ranks].tolist()), dtype=np.float64, count=rows)

    assert np.array_equal(scores(ranks, k).view(np.int64), expected.view(np.int64))
    if (highest, k) == (1_000, 60):  # plain addition would not do
        assert (terms[ranks].sum(axis=1) != expected).any()


def test_weights() -> None:
    lists = {"record_rank": 2.0, "inside_rank": 0.3, "cosine_rank": 0.0}
    frame = pl.DataFrame([(3, 1, 0), (0, None, 7)], schema=dict.fromkeys(RANKS, pl.Int64), orient="row")
    found = frame.select(score=fusion.score(lists, 60))["score"].to_list()
    assert found == [math.fsum([2 / 64, 0.3 / 62]), 2 / 61]


def test_the_order_of_the_ranks_does_not_change_a_score() -> None:
    ranks = np.random.default_rng(2).integers(0, 500, (50_000, 3))

    assert (scores(ranks, 60) == scores(ranks[:, ::-1], 60)).all()
    assert (scores(ranks, 60) == scores(ranks[:, [1, 2, 0]], 60)).all()


PASSAGE = {
    "question": 0,
    "item_position": 0,
    "claim_position": 0,
    "passage_start": 0,
    "record_rank": 0,
    "inside_rank": 0,
    "cosine_rank": 0,
}


def order(*passages: dict[str, int | None], k: int = 60) -> list[int]:
    """Names of the passages in order; the first one given is 0. Rows arrive in both directions."""
    rows = [{**PASSAGE, **passage, "name": name} for name, passage in enumerate(passages)]
    columns = dict.fromkeys([*PASSAGE, "name"], pl.Int64)
    found = []
    for arrived in (rows, rows[::-1]):
        ordered = fusion.order(pl.DataFrame(arrived, schema=columns), k)
        found.append(ordered["name"].to_list())
    assert found[0] == found[1]
    return found[0]


def test_higher_scores_first() -> None:
    a = {"record_rank": 0, "inside_rank": 1, "cosine_rank": 3}  # 1/61 + 1/62 + 1/64 = 0.048147
    b = {"record_rank": 1, "inside_rank": 0, "cosine_rank": 0}  # 1/62 + 1/61 + 1/61 = 0.048916
    c = {"record_rank": 2, "inside_rank": 0, "cosine_rank": 2}  # 1/63 + 1/61 + 1/63 = 0.048139

    assert order(a, b, c) == [1, 0, 2]


def test_ties_go_by_record_rank_then_start_then_place_in_the_window() -> None:
    later_item = {"item_position": 4, "passage_start": 5}
    later_claim = {"item_position": 3, "claim_position": 2, "passage_start": 5}
    earlier_claim = {"item_position": 3, "claim_position": 1, "passage_start": 5}
    earlier_start = {"item_position": 9, "passage_start": 4}

    assert order(later_item, later_claim, earlier_claim, earlier_start) == [3, 2, 1, 0]


def test_equal_terms_in_another_order_tie() -> None:
    """1/61 + 1/62 + 1/64 in every order is one score; the record rank decides, before the start."""
    later = {"record_rank": 3, "inside_rank": 0, "cosine_rank": 1, "passage_start": 0}
    earlier = {"record_rank": 1, "inside_rank": 3, "cosine_rank": 0, "passage_start": 700}
    earliest = {"record_rank": 0, "inside_rank": 1, "cosine_rank": 3, "passage_start": 900}

    assert order(later, earlier, earliest) == [2, 1, 0]


def test_rrf_k_weighs_the_ranks() -> None:
    one_best = {"record_rank": 0, "inside_rank": 40, "cosine_rank": 40}
    all_good = {"record_rank": 3, "inside_rank": 3, "cosine_rank": 3}

    assert order(one_best, all_good, k=0) == [0, 1]  # 1 + 2/41 against 3/4
    assert order(one_best, all_good, k=60) == [1, 0]  # 1/61 + 2/101 = 0.0362 against 3/64 = 0.0469


def test_positions_start_anew_for_each_question() -> None:
    rows = [{**PASSAGE, "question": question, "inside_rank": rank} for question in (1, 0) for rank in (1, 0, 2)]

    ordered = fusion.order(pl.DataFrame(rows, schema=dict.fromkeys(PASSAGE, pl.Int64)), 60)

    assert ordered.select("question", "position", "inside_rank").rows() == [
        *[(0, 0, 0), (0, 1, 1), (0, 2, 2)],
        *[(1, 0, 0), (1, 1, 1), (1, 2, 2)],
    ]
    assert "score" not in ordered.columns
