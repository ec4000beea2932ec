"""Points: a sequence cut at a budget, at a count of items, or not at all (DESIGN.md, "Points")."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from allocation import chain
from allocation.errors import InputError

BUDGETS = (500, 700, 1000, 1400, 2000, 2800, 4000, 5600, 8000)  # characters, each about 1.4 times the one before
COUNTS = (1, 2, 3, 4, 5, 6, 8, 10)  # items, of the sequence ``items``

_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_FORM = "write it as SEQUENCE:CHARACTERS, SEQUENCE:topITEMS or SEQUENCE:all"


@dataclass(frozen=True)
class Point:
    """A sequence and where it is cut; with neither a budget nor a count it is shown whole."""

    sequence: str
    budget: int | None = None  # characters
    count: int | None = None  # items, the first ones of the window

    @property
    def name(self) -> str:
        """What it is called in tables and on the command line."""
        cut = "all" if self.budget is None else str(self.budget)
        return f"{self.sequence}:{cut if self.count is None else f'top{self.count}'}"

    def taken(self) -> pl.Expr:
        """Whether the point takes a step, over Sequences with ``needed`` (``render.needed``)."""
        if self.count is not None:
            return pl.col("item_position") < self.count
        return pl.lit(value=True) if self.budget is None else pl.col("needed") <= self.budget


def of(text: str) -> Point:
    """The point called ``text``.

    Raises:
        InputError: it is not the name of a point.
    """
    sequence, _, cut = text.strip().rpartition(":")
    if not sequence:
        raise InputError(f"point {text!r} names no sequence or no cut; {_FORM}")
    chain.names_of(sequence)
    if cut == "all":
        return Point(sequence)
    if cut.startswith("top") and _NUMBER.fullmatch(cut[3:]):
        return Point(sequence, count=int(cut[3:]))
    return Point(sequence, budget=_budget(cut, text))


def budgets_of(text: str) -> tuple[int, ...]:
    """The budgets in a list by commas, ascending.

    Raises:
        InputError: one is not a whole number of characters.
    """
    return tuple(sorted({_budget(cut.strip(), cut.strip()) for cut in text.split(",")}))


def _budget(cut: str, whole: str) -> int:
    if not _NUMBER.fullmatch(cut):
        raise InputError(f"point {whole!r}: the budget {cut!r} is not a whole number of characters above 0; {_FORM}")
    return int(cut)


def standard(sequences: Sequence[str], budgets: Sequence[int] = BUDGETS) -> list[Point]:
    """Every sequence at every budget; the count curve of ``items``; all items at every quote size."""
    points = [Point(name, budget=budget) for name in sequences for budget in budgets]
    if "items" in sequences:
        points += [Point("items", count=count) for count in COUNTS]
    return points + [Point(name) for name in sequences if name.startswith("items")]
