"""Runs of equal values."""

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt


def runs(values: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Half-open row ranges of the runs of equal ``values``, in order."""
    changes = (np.flatnonzero(np.diff(values)) + 1).tolist()
    yield from itertools.pairwise([0, *changes, len(values)] if len(values) else ())
