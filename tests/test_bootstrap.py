"""Paired percentile intervals: against scipy-like plain resampling, and by their properties."""

import math
from fractions import Fraction

import numpy as np
import pytest

from allocation import bootstrap


def counts(*rows):
    return np.array(rows, dtype=np.int64)


def plain(control, point, resamples, seed, level):
    """The same by loops over the same draws, with exact fractions."""
    n = len(control[0])
    draws = np.random.Generator(np.random.PCG64(seed)).integers(n, size=(resamples, n)).tolist()

    def rate(side, metric, rows):
        part, whole = (sum(int(values[row][metric]) for row in rows) for values in side)
        return Fraction(part, whole) if whole else None

    found = []
    for metric in range(control[0].shape[1]):
        values = []
        for rows in [list(range(n)), *draws]:
            sides = rate(control, metric, rows), rate(point, metric, rows)
            values.append(None if None in sides else float(sides[1] - sides[0]))
        drawn = sorted(value for value in values[1:] if value is not None)

        def quantile(share, drawn=drawn):
            place = share * (len(drawn) - 1)
            low = drawn[math.floor(place)]
            return low + (place - math.floor(place)) * (drawn[math.ceil(place)] - low)

        found.append((values[0], quantile((1 - level) / 2), quantile((1 + level) / 2)))
    return found


def test_equal_to_plain_resampling_of_the_same_draws():
    random = np.random.default_rng(5)
    whole = random.integers(0, 4, (17, 3))
    control, point = ((random.integers(0, whole + 1), whole) for _ in range(2))
    found = bootstrap.differences(control, point, resamples=400, seed=9, level=0.9)
    expected = plain(control, point, 400, 9, 0.9)
    for metric, bounds in enumerate(zip(*found, strict=True)):
        assert bounds == pytest.approx(expected[metric], abs=1e-12)


def test_equal_sides_have_no_difference():
    side = (counts([1], [0], [3]), counts([2], [1], [3]))
    assert [bound.tolist() for bound in bootstrap.differences(side, side)] == [[0.0]] * 3


def test_one_question_has_one_resample():
    difference, low, high = bootstrap.differences((counts([1]), counts([4])), (counts([3]), counts([4])))
    assert difference == low == high == 3 / 4 - 1 / 4


def test_a_metric_that_no_question_has():
    none = (counts([0], [0]), counts([0], [0]))
    assert all(np.isnan(bound).all() for bound in bootstrap.differences(none, none))


def test_questions_are_paired():
    """Each question gains the same, so the interval is a point however much questions differ."""
    part, whole = counts([0], [30], [70]), counts([100], [100], [100])
    difference, low, high = bootstrap.differences((part, whole), (part + 20, whole))
    assert difference == pytest.approx(0.2)
    assert (low, high) == (pytest.approx(0.2), pytest.approx(0.2))


def test_draws_in_pieces_are_whole(monkeypatch):
    """However many are drawn at a time, each resample draws as many questions as there are."""
    monkeypatch.setattr(bootstrap, "_DRAWS", 25)
    drawn = np.concatenate(list(bootstrap.weights(7, 10, seed=1)))
    assert drawn.shape == (10, 7)
    assert (drawn.sum(axis=1) == 7).all()


def test_the_seed_decides():
    first, again, other = (np.concatenate(list(bootstrap.weights(50, 20, seed))) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
