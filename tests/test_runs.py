"""Runs of equal values."""

import numpy as np
import pytest

from allocation.runs import runs


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([7], [(0, 1)]),
        ([1, 1, 2, 1, 1, 1], [(0, 2), (2, 3), (3, 6)]),
    ],
)
def test_runs(values: list[int], expected: list[tuple[int, int]]) -> None:
    assert list(runs(np.array(values, dtype=np.int64))) == expected
