"""Intervals for differences between two ways of answering the same questions (DESIGN.md, "Intervals")."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000
SEED = 20261003
LEVEL = 0.95

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]  # [questions, metrics]

_DRAWS = 10_000_000  # question numbers drawn at a time, so that memory does not grow with the questions


def weights(questions: int, resamples: int, seed: int) -> Iterator[Floats]:
    """How often each question is drawn in each resample, some resamples at a time: [resamples, questions].

    As many questions are drawn as there are, with replacement. Seed and numbers of questions and resamples decide
    everything.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    rows = max(1, _DRAWS // questions)
    for low in range(0, resamples, rows):
        count = min(rows, resamples - low)
        drawn = random.integers(questions, size=(count, questions)) + np.arange(count)[:, None] * questions
        yield np.bincount(drawn.ravel(), minlength=count * questions).reshape(count, questions).astype(np.float64)


def differences(
    control: tuple[Counts, Counts],
    point: tuple[Counts, Counts],
    resamples: int = RESAMPLES,
    seed: int = SEED,
    level: float = LEVEL,
) -> tuple[Floats, Floats, Floats]:
    """The difference of each metric's rate, point minus control, and its interval: percentile bootstrap, paired.

    A rate is the sum of the parts over the sum of the wholes; each resample draws questions, with both their sides.
    The sums are of whole numbers below 2^53 and so exact in any order.

    Args:
        control: Part and whole of each question and metric (``measures``), one row a question.
        point: The same of the same questions, in the same order.
        resamples: How many.
        seed: Of the generator.
        level: Share of the resamples within the interval.

    Returns:
        The difference, the lower and the upper bound of each metric; NaN where a side has no whole.
    """
    sides = [side.astype(np.float64) for side in (*control, *point)]

    def rates(drawn: Floats) -> Floats:
        part, whole, other_part, other_whole = (drawn @ side for side in sides)
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Floats = other_part / other_whole - part / whole
        return found

    observed = rates(np.ones((1, len(sides[0]))))[0]
    resampled = np.concatenate([rates(drawn) for drawn in weights(len(sides[0]), resamples, seed)])
    low, high = _quantiles(resampled, level)
    return observed, low, high


def _quantiles(resampled: Floats, level: float) -> Floats:
    """The bounds of each column's middle ``level``, of the resamples in which its rate exists."""
    bounds = [(1 - level) / 2, (1 + level) / 2]
    columns = [column[~np.isnan(column)] for column in resampled.T]
    found = [np.quantile(column, bounds) if len(column) else np.full(2, np.nan) for column in columns]
    return np.array(found).reshape(-1, 2).T
