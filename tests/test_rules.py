"""Rules as files: what they say, and what a typo is told."""

import tomllib
from pathlib import Path

import pytest

from allocation import rules
from allocation.errors import InputError

RULES = Path(__file__).parents[1] / "data" / "rules"
GOOD = {
    "name": "mine",
    "why": "because",
    "point": "coverage:2400",
    "control": "items:top4",
    "split": "test",
    "metric": "accuracy",
    "lower_bound_above": 0.0,
}


def test_the_rules_of_the_design():
    primary, secondary = (
        rules.of(tomllib.loads((RULES / f"{name}.toml").read_text(encoding="utf-8")), name)
        for name in ("primary", "secondary")
    )
    assert (primary.point, primary.control, primary.max_context_tokens) == ("coverage:2400", "items:top4", 1000)
    assert (secondary.point, secondary.control, secondary.max_context_tokens) == ("coverage:2400", "items:all", None)
    assert [primary.bound_holds(low) for low in (-0.1, 0.0, 0.1)] == [False, False, True]
    assert [secondary.bound_holds(low) for low in (-2.1, -2.0, 0.0)] == [False, True, True]
    assert (primary.bound, secondary.bound) == ("above +0", "at or above -2")
    for rule in (primary, secondary):
        assert rule.interval == {"level": 0.95, "resamples": 10_000, "seed": 20261003}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"lower_bound": 1}, "'lower_bound' is no key of a rule; the keys are name, why"),
        ({"why": " "}, "why = ' ': give a text"),
        ({"name": None}, "name = None: give a text"),
        ({"name": "../x"}, "name = '../x': use letters, digits, - and _"),
        ({"point": "coverage"}, "point 'coverage' names no sequence or no cut"),
        ({"point": "coverge:2400"}, "sequence 'coverge' is unknown"),
        ({"control": "items:top"}, "the budget 'top' is not a whole number"),
        ({"control": "coverage:2400"}, "control = 'coverage:2400': it is the point itself"),
        ({"split": "dev"}, "split = 'dev': a claim is made on test questions"),
        ({"metric": "turns_touched"}, "metric = 'turns_touched': a rule is about accuracy"),
        ({"lower_bound_at_least": -2}, "give one of lower_bound_above and lower_bound_at_least"),
        ({"lower_bound_above": "0"}, "lower_bound_above = '0': give a number"),
        ({"lower_bound_above": float("nan")}, "lower_bound_above = nan: give a number"),
        ({"max_context_tokens": True}, "max_context_tokens = True: give a number"),
        ({"interval": 5}, "[interval] has the keys level, resamples, seed"),
        ({"interval": {"levle": 0.9}}, "[interval] has the keys level, resamples, seed"),
        ({"interval": {"level": 95}}, "interval.level = 95: give a share between 0 and 1"),
        ({"interval": {"resamples": 10}}, "interval.resamples = 10: give a whole number from 100"),
        ({"interval": {"seed": -1}}, "interval.seed = -1: give a whole number from 0"),
    ],
)
def test_a_typo(change, told):
    values = {key: value for key, value in (GOOD | change).items() if value is not None}
    with pytest.raises(InputError) as refused:
        rules.of(values, "rule.toml")
    assert told in str(refused.value)


def test_points_are_named_one_way():
    assert rules.of(GOOD | {"point": " coverage:2400 "}, "rule.toml").point == "coverage:2400"
