"""A grid of settings judged by the evidence metrics at budgets (DESIGN.md, "The sweep").

What does not depend on a setting is computed once: block sets, ranges, similarities and ranks for each passage
policy and limit, what the passages hold for each share of rare words. A setting then costs an order, its opening
steps up to the largest budget, and a query.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from allocation import bootstrap, chain, contexts, queries, render
from allocation.costs import SEPARATOR
from allocation.errors import InputError
from allocation.points import Point
from allocation.settings import Settings, settings_of
from allocation.tables import Points

METRICS = ("sessions_shown", "all_shown", "turns_touched", "turn_characters", "evidence_share")
MOST = 2000  # variants of a grid
_AT_A_TIME = 50  # variants whose intervals are taken at once

# Neither is asked for here: both need the texts.
_NO_REPEATS = {"record_ref": pl.String, "start": pl.Int64, "end": pl.Int64, "text_id": pl.Int64}
_NO_GOLD = {"question_id": pl.String, "point": pl.String, "answer_in_context": pl.Boolean}

_KEYS = ("split", "sequences", "budgets", "settings", "grid")
_PREPARED = ("passages", "passage_limit")  # settings that what is computed once depends on


@dataclass(frozen=True)
class Grid:
    """What a sweep tries: every variant of the settings, for every sequence at every budget."""

    sequences: tuple[str, ...]
    budgets: tuple[int, ...]
    base: Settings
    names: tuple[str, ...]  # of the settings that vary
    variants: tuple[Settings, ...]  # the base is the first


@dataclass(frozen=True)
class Cut:
    """A sequence under a variant of the settings, at a budget."""

    variant: int
    sequence: str
    budget: int

    @property
    def name(self) -> str:
        """What its point is called inside a sweep."""
        return f"{self.variant} {self.sequence}:{self.budget}"


def grid_of(values: dict[str, Any], source: str) -> Grid:
    """The grid in a TOML file.

    Args:
        values: What the file holds: ``sequences``, ``budgets``, ``[settings]`` in place of the defaults, ``[grid]``
            with a list of values for each setting that varies.
        source: What to call it.

    Raises:
        InputError: a key is unknown, a value is not one the setting can have, or the grid is too large.
    """
    for key in values:
        if key not in _KEYS:
            raise InputError(f"{source}: {key!r} is no key of a sweep; the keys are {', '.join(_KEYS)}")
    if values.get("split", "dev") != "dev":
        raise InputError(f"{source}: split = {values['split']!r}: a sweep tunes, and so reads dev questions only")
    sequences = values.get("sequences", ["evidence", "coverage"])
    budgets = values.get("budgets", [2800])
    if not _are(sequences, str) or not _are(budgets, int) or min(budgets) < 1:
        raise InputError(f"{source}: give sequences as a list of names and budgets as a list of characters")
    names = tuple(chain.names_of(",".join(sequences)))
    grid, base = values.get("grid", {}), values.get("settings", {})
    if (
        not isinstance(grid, dict)
        or not isinstance(base, dict)
        or not all(isinstance(v, list) and v for v in grid.values())
    ):
        raise InputError(f"{source}: [settings] gives a value, [grid] a list of values for each setting")
    size = 1
    for own in grid.values():
        size *= len(own)
    if size > MOST:
        raise InputError(f"{source}: {size:,} variants; a sweep tries {MOST:,} at most")
    combinations = [dict(zip(grid, own, strict=True)) for own in itertools.product(*grid.values())]
    settled = settings_of(base)
    variants = dict.fromkeys([settled, *(settings_of(base | own) for own in combinations)])
    return Grid(names, tuple(sorted(set(budgets))), settled, tuple(grid), tuple(variants))


def _are(values: Any, kind: type) -> bool:
    return isinstance(values, list) and bool(values) and all(type(value) is kind for value in values)


def cuts(grid: Grid) -> list[Cut]:
    """What is measured: quotes depend on the passage policy alone, so other settings do not vary ``items``."""
    every = itertools.product(range(len(grid.variants)), grid.sequences, grid.budgets)
    return [Cut(*own) for own in every if not (own[1].startswith("items") and own[0])]


def measure(shard: chain.Shard, grid: Grid, done: Callable[[], None] = lambda: None) -> pl.DataFrame:
    """The measures of every question at every cut: question_id, point (the cut's name), metric, part, whole.

    Args:
        shard: Questions with evidence and what they are answered from.
        grid: What to try.
        done: Called after each variant.

    Raises:
        ValueError: the shard has no evidence.
    """
    if shard.evidence is None:
        raise ValueError("a sweep needs evidence")
    found = []
    for variant, ranked in _ranked(shard, grid):
        settings = grid.variants[variant]
        own = [cut for cut in cuts(grid) if cut.variant == variant]
        taken = []
        for name in dict.fromkeys(cut.sequence for cut in own):
            ordered = _opening(chain.order(name, ranked, shard, settings), max(grid.budgets))
            steps = chain.sequence(ordered, chain.excerpts(name, ranked, shard, settings), ranked.window).with_columns(
                needed=render.needed()
            )
            ranges = contexts.ranges(steps)
            for cut in own:
                if cut.sequence == name:
                    kept = ranges.filter(Point(name, cut.budget).taken())
                    taken.append(kept.with_columns(point=pl.lit(cut.name)))
        found.append(_measures(shard, shard.evidence, own, pl.concat(taken)))
        done()
    return pl.concat(found)


def _ranked(shard: chain.Shard, grid: Grid) -> Iterator[tuple[int, chain.Ranked]]:
    """Each variant by number with its ranked passages; those with the same passages follow one another."""

    def prepared(variant: int) -> tuple[Any, ...]:
        return tuple(getattr(grid.variants[variant], name) for name in _PREPARED)

    for _, group in itertools.groupby(sorted(range(len(grid.variants)), key=prepared), key=prepared):
        variants = list(group)
        ranked = chain.rank(shard, grid.variants[variants[0]])
        for variant in variants:
            yield variant, chain.reordered(ranked, grid.variants[variant])


def _opening(ordered: pl.DataFrame, budget: int) -> pl.DataFrame:
    """The steps that a budget may take: a step costs its length less a separator at least."""
    if "ranges" in ordered.columns:  # head quotes
        return ordered
    least = pl.col("passage_end") - pl.col("passage_start") - len(SEPARATOR)
    before = least.cum_sum().over("question").shift(1).over("question").fill_null(0)
    return ordered.filter(before.cum_max().over("question") <= budget)


def _measures(shard: chain.Shard, evidence: pl.DataFrame, own: Sequence[Cut], taken: pl.DataFrame) -> pl.DataFrame:
    """Measures of the cuts of one variant; of Points only what the metrics need, so no text and no token."""
    zero = {name: pl.lit(0) for name, column in Points.columns().items() if column.dtype.is_integer()}
    points = pl.concat(shard.questions.select("question_id", point=pl.lit(cut.name), **zero) for cut in own)
    metrics = queries.run(
        "metrics",
        points=points,
        shown=taken.select("question_id", "point", "item_position", "claim_position", "record_ref", "start", "end"),
        evidence=evidence,
        windows=shard.windows,
        repeats=pl.DataFrame(schema=_NO_REPEATS),
        gold=pl.DataFrame(schema=_NO_GOLD),
    )
    measures = queries.run("measures", points=points, metrics=metrics)
    return measures.filter(pl.col("metric").is_in(METRICS)).with_columns(pl.col("part", "whole").cast(pl.Int64))


def table(measures: pl.DataFrame, grid: Grid) -> pl.DataFrame:
    """Every cut's metrics beside the base's, with the paired interval of the difference.

    Args:
        measures: ``measure`` of all questions.
        grid: What was tried.

    Returns:
        variant, sequence, budget, the settings that vary, metric, rate, base_rate, difference, low, high, and
        ``clear``: the interval does not hold 0. By sequence, budget, metric, variant, the base first. Sequences with
        quotes of another size are compared with ``items``.
    """
    every = cuts(grid)
    order = (
        pl.col("question_id"),
        pl.col("point").cast(pl.Enum([cut.name for cut in every])),
        pl.col("metric").cast(pl.Enum(METRICS)),
    )
    ordered = measures.sort(order)
    questions = ordered["question_id"].n_unique()
    part, whole = (ordered[name].to_numpy().reshape(questions, len(every), len(METRICS)) for name in ("part", "whole"))
    number = {(cut.variant, cut.sequence, cut.budget): place for place, cut in enumerate(every)}
    base = [number[0, _base_of(cut.sequence, grid), cut.budget] for cut in every]
    rows = []
    for low in range(0, len(every), _AT_A_TIME):
        chosen = slice(low, low + _AT_A_TIME)
        sides = [
            (part[:, own].reshape(questions, -1), whole[:, own].reshape(questions, -1))
            for own in (base[chosen], chosen)
        ]
        rates = [own_part.sum(axis=0) / own_whole.sum(axis=0) for own_part, own_whole in sides]
        bounds = bootstrap.differences(sides[0], sides[1])
        columns = [values.reshape(-1, len(METRICS)) for values in (rates[1], rates[0], *bounds)]
        for place, cut in enumerate(every[chosen]):
            settings = {name: getattr(grid.variants[cut.variant], name) for name in grid.names}
            for number_of, metric in enumerate(METRICS):
                numbers = dict(
                    zip(
                        ("rate", "base_rate", "difference", "low", "high"),
                        (c[place, number_of] for c in columns),
                        strict=True,
                    )
                )
                own = {"variant": cut.variant, "sequence": cut.sequence, "budget": cut.budget}
                rows.append(own | settings | {"metric": metric} | numbers)
    found = pl.DataFrame(rows, infer_schema_length=None)
    clear = (pl.col("low") > 0) | (pl.col("high") < 0)
    by = (
        pl.col("sequence").cast(pl.Enum(list(grid.sequences))),
        pl.col("budget"),
        pl.col("metric").cast(pl.Enum(METRICS)),
        pl.col("variant"),
    )
    return found.with_columns(clear=clear).sort(by)


def _base_of(sequence: str, grid: Grid) -> str:
    return "items" if sequence.startswith("items") and "items" in grid.sequences else sequence
