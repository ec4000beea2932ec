"""Do the intervals cover the truth? Simulated studies whose true difference is known; run with ``-m slow``."""

import numpy as np
import pytest

from allocation import bootstrap

STUDIES, AT_A_TIME = 20_000, 1_000
BOTH, ONLY_POINT, ONLY_CONTROL = 0.70, 0.11, 0.07  # share of questions that are right on both sides, on one alone


@pytest.mark.slow
@pytest.mark.parametrize("questions", [50, 100, 400])
def test_coverage(questions, record_property):
    truth = ONLY_POINT - ONLY_CONTROL
    random = np.random.Generator(np.random.PCG64(questions))
    covered = below = 0
    for seed in range(STUDIES // AT_A_TIME):
        drawn = random.random((questions, AT_A_TIME))
        point = (drawn < BOTH + ONLY_POINT).astype(np.int64)
        control = ((drawn < BOTH) | (drawn >= 1 - ONLY_CONTROL)).astype(np.int64)
        ones = np.ones_like(point)
        _, low, high = bootstrap.differences((control, ones), (point, ones), seed=seed)
        # A hair's breadth, since a bound is a quotient and the truth is not one of them.
        covered += int(((low <= truth + 1e-12) & (truth - 1e-12 <= high)).sum())
        below += int((low <= truth + 1e-12).sum())
    share, one_sided = covered / STUDIES, below / STUDIES
    record_property("coverage", share)
    print(f"{questions} questions: {100 * share:.1f} % covered, {100 * one_sided:.1f} % by the lower bound")  # noqa: T201
    assert 0.93 < share < 0.96
    assert 0.95 < one_sided < 0.985
