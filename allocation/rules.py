"""Rules: what has to hold for one point to be called better than another (DESIGN.md, "Rules")."""

from dataclasses import dataclass, field
from typing import Any

from allocation import bootstrap, points
from allocation.errors import InputError
from allocation.splits import TEST

_INTERVAL = {"level": bootstrap.LEVEL, "resamples": bootstrap.RESAMPLES, "seed": bootstrap.SEED}
_MOST_RESAMPLES = 1_000_000


@dataclass(frozen=True)
class Rule:
    """A claim about accuracy on test questions, to be registered before they are answered."""

    name: str
    why: str
    point: str
    control: str
    split: str
    metric: str
    lower_bound_above: float | None = None  # percentage points; the bound must be greater
    lower_bound_at_least: float | None = None  # percentage points; the bound must not be less
    max_context_tokens: float | None = None  # mean over the questions
    interval: dict[str, Any] = field(default_factory=lambda: dict(_INTERVAL))

    def bound_holds(self, low: float) -> bool:
        """Whether the lower bound of the difference, in percentage points, is what the rule asks for."""
        if self.lower_bound_above is not None:
            return low > self.lower_bound_above
        return self.lower_bound_at_least is not None and low >= self.lower_bound_at_least

    @property
    def bound(self) -> str:
        """The bound the rule asks for, in words."""
        if self.lower_bound_above is not None:
            return f"above {self.lower_bound_above:+g}"
        return f"at or above {self.lower_bound_at_least:+g}"


_TEXTS = ("name", "why", "point", "control", "split", "metric")
_NUMBERS = ("lower_bound_above", "lower_bound_at_least", "max_context_tokens")


def of(values: dict[str, Any], source: str) -> Rule:
    """The rule in a TOML file.

    Args:
        values: What the file holds.
        source: What to call it.

    Raises:
        InputError: a key is unknown or missing, or a value is not one the rule can have.
    """

    def refuse(key: str, remedy: str) -> InputError:
        return InputError(f"{source}: {key} = {values.get(key)!r}: {remedy}")

    known = (*_TEXTS, *_NUMBERS, "interval")
    for key in values:
        if key not in known:
            raise InputError(f"{source}: {key!r} is no key of a rule; the keys are {', '.join(known)}")
    for key in _TEXTS:
        if not isinstance(values.get(key), str) or not values[key].strip():
            raise refuse(key, "give a text")
    for key in _NUMBERS:
        if key in values and not _is_number(values[key]):
            raise refuse(key, "give a number")
    if not values["name"].replace("-", "").replace("_", "").isalnum():
        raise refuse("name", "use letters, digits, - and _")
    if values["split"] != TEST:
        raise refuse("split", f"a claim is made on {TEST} questions; the development questions chose the settings")
    if values["metric"] != "accuracy":
        raise refuse("metric", "a rule is about accuracy")
    if ("lower_bound_above" in values) == ("lower_bound_at_least" in values):
        raise InputError(f"{source}: give one of lower_bound_above and lower_bound_at_least, in percentage points")
    names = {key: points.of(values[key]).name for key in ("point", "control")}
    if names["point"] == names["control"]:
        raise refuse("control", "it is the point itself")
    return Rule(**values | names | {"interval": _interval(values.get("interval", {}), source)})


def _interval(values: Any, source: str) -> dict[str, Any]:
    if not isinstance(values, dict) or set(values) - set(_INTERVAL):
        raise InputError(f"{source}: [interval] has the keys {', '.join(_INTERVAL)}")
    chosen = _INTERVAL | values
    if not _is_number(chosen["level"]) or not 0 < chosen["level"] < 1:
        raise InputError(f"{source}: interval.level = {chosen['level']!r}: give a share between 0 and 1")
    for key, least, most in (("resamples", 100, _MOST_RESAMPLES), ("seed", 0, 2**63)):
        if type(chosen[key]) is not int or not least <= chosen[key] <= most:
            raise InputError(f"{source}: interval.{key} = {chosen[key]!r}: give a whole number from {least} to {most}")
    return chosen


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and value == value and abs(value) != float("inf")
