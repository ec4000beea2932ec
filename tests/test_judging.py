"""Verdicts on made-up answers with a known truth."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from allocation import judging, rules
from tests.test_rules import GOOD


def answered(correct, control, tokens=900, control_tokens=990, prompt=None, types=None):
    """Answers from strings of 0 and 1, one a question."""
    count = len(correct)
    ids = [f"q{n:03}" for n in range(count)]
    return pl.DataFrame(
        {
            "question_id": ids,
            "question_type": types or ["a"] * count,
            "correct": [letter == "1" for letter in correct],
            "control_correct": [letter == "1" for letter in control],
            "rendered_tokens": [tokens] * count,
            "control_rendered_tokens": [control_tokens] * count,
            "prompt_tokens": prompt or [None] * count,
            "control_prompt_tokens": prompt or [None] * count,
        },
        schema_overrides={"prompt_tokens": pl.Int64, "control_prompt_tokens": pl.Int64},
    )


def rule(**change):
    return rules.of(GOOD | {"max_context_tokens": 1000} | change, "rule.toml")


def test_met():
    verdict = judging.verdict(rule(), answered("1" * 80 + "0" * 20, "1" * 60 + "0" * 40))
    assert verdict["met"]
    assert verdict["reasons"] == []
    assert (verdict["point"]["correct"], verdict["control"]["correct"]) == (80, 60)
    assert verdict["difference"] == pytest.approx(20)
    assert 10 < verdict["low"] < 15
    assert 25 < verdict["high"] < 30
    assert verdict["wins"] == [f"q{n:03}" for n in range(60, 80)]
    assert verdict["losses"] == []
    assert verdict["mcnemar_p"] == pytest.approx(2 * 0.5**20)


def test_not_met_by_cost():
    verdict = judging.verdict(rule(), answered("1" * 80 + "0" * 20, "1" * 60 + "0" * 40, tokens=1001))
    assert verdict["reasons"] == ["the mean context has 1,001.0 tokens, more than 1,000"]
    assert not verdict["met"]
    assert judging.verdict(rule(), answered("1" * 80 + "0" * 20, "1" * 60 + "0" * 40, tokens=1000))["met"]


def test_not_met_by_the_interval():
    """Five wins and three losses of 100: better, but not clear of chance."""
    verdict = judging.verdict(rule(), answered("0" * 3 + "1" * 52 + "0" * 45, "1" * 50 + "0" * 50))
    assert verdict["difference"] == pytest.approx(2)
    assert (len(verdict["wins"]), len(verdict["losses"])) == (5, 3)
    assert verdict["low"] < 0
    assert verdict["reasons"] == [f"the lower bound is {verdict['low']:+.2f} points, not above +0"]


def test_not_met_by_both():
    assert len(judging.verdict(rule(), answered("01" * 5, "10" * 5, tokens=2000))["reasons"]) == 2


def test_all_equal_is_not_better_but_not_worse():
    equal = answered("10" * 20, "10" * 20)
    assert judging.verdict(rule(), equal)["reasons"] == ["the lower bound is +0.00 points, not above +0"]
    not_worse = {key: value for key, value in GOOD.items() if key != "lower_bound_above"}
    secondary = rules.of(not_worse | {"lower_bound_at_least": -2}, "rule.toml")
    verdict = judging.verdict(secondary, equal)
    assert (verdict["met"], verdict["low"], verdict["high"], verdict["mcnemar_p"]) == (True, 0, 0, 1)


def test_a_bound_that_is_touched():
    """Ten questions, each lost: -100 in every resample."""
    lost = answered("0" * 10, "1" * 10)
    not_worse = {key: value for key, value in GOOD.items() if key != "lower_bound_above"}
    assert judging.verdict(rules.of(not_worse | {"lower_bound_at_least": -100}, "r"), lost)["met"]
    assert not judging.verdict(rule(lower_bound_above=-100), lost)["met"]


def test_one_question():
    verdict = judging.verdict(rule(), answered("1", "0"))
    assert verdict["reasons"] == ["1 question has no interval; a verdict needs 2 or more"]


def test_tokens_are_those_reported_where_all_are():
    prompts = [1200, 1300]
    reported = judging.verdict(rule(), answered("11", "00", prompt=prompts))
    assert reported["point"]["context_tokens"] == 1250
    assert reported["tokens_counted"] == "prompt tokens the answers report"
    some = judging.verdict(rule(), answered("11", "00", prompt=[1200, None]))
    assert (some["point"]["context_tokens"], some["control"]["context_tokens"]) == (900, 990)
    assert some["tokens_counted"] == "cl100k_base tokens of the contexts"


def test_types():
    verdict = judging.verdict(rule(), answered("1100", "1010", types=["b", "a", "a", None]))
    columns = ("question_type", "questions", "correct", "control_correct", "wins", "losses")
    rows = [("(none)", 1, 0, 0, 0, 0), ("a", 2, 1, 1, 1, 1), ("b", 1, 1, 1, 0, 0)]
    assert verdict["types"] == [dict(zip(columns, row, strict=True)) for row in rows]


def test_wilson_by_hand():
    """8 of 10 and z = 1.959964: the centre is (0.8 + z²/20) / (1 + z²/10), the half width as Wilson has it."""
    z, n, share = 1.959963984540054, 10, 0.8
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
    side = judging.verdict(rule(), answered("1" * 8 + "00", "1" * 10))["point"]
    assert (side["low"], side["high"]) == (pytest.approx(100 * (centre - half)), pytest.approx(100 * (centre + half)))


def test_the_interval_is_scipys_on_the_same_resamples():
    random = np.random.default_rng(3)
    correct, control = ("".join(map(str, random.integers(0, 2, 60))) for _ in range(2))
    verdict = judging.verdict(rule(interval={"resamples": 2000, "seed": 11}), answered(correct, control))
    differences = np.array([int(one) - int(other) for one, other in zip(correct, control, strict=True)])
    expected = stats.bootstrap(
        (differences,),
        np.mean,
        n_resamples=2000,
        method="percentile",
        vectorized=True,
        rng=np.random.Generator(np.random.PCG64(11)),
    ).confidence_interval
    assert (verdict["low"], verdict["high"]) == pytest.approx((100 * expected.low, 100 * expected.high))
