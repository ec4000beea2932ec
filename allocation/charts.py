"""Pictures of the instruments, from frames (DESIGN.md, "Curves").

Names that come from data are values in the frames, never names of columns, so that no chart reads them as syntax.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import altair as alt
import polars as pl

from allocation import points
from allocation.points import Point

Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart | alt.ConcatChart

AT = 2800  # characters; the budget at which sequences are compared, or the nearest one drawn

# Told apart with every common colour blindness, and legible on white and on near black.
_COLOURS = {
    "items": "#e08a00",
    "evidence": "#2f86d0",
    "whole": "#159a75",
    "coverage": "#c95fa4",
    "items@500/250": "#b3a125",
    "items@320/160": "#a3755a",
    "oracle": "#858b93",
    "cosine": "#6cb8ea",
    "recall": "#d4552a",
}
_FURTHER = ("#8f7ae0", "#7a9a3a", "#d0708a", "#4aa3a8")  # items@FIRST/REST of other sizes, by place
_FATES = {
    "turns_whole": ("shown whole", "#159a75"),
    "turns_in_part": ("shown in part", "#8bcdb0"),
    "turns_outside": ("record quoted, turn left out", "#e9b44c"),
    "turns_not_quoted": ("record not quoted", "#d4652a"),
    "turns_not_recalled": ("record not recalled", "#858b93"),
}
_RATES = {
    "sessions_shown": "answer sessions shown",
    "turns_touched": "evidence turns touched",
    "turn_characters": "characters of evidence turns shown",
    "evidence_share": "quoted text that is from answer sessions",
}
_TOKENS = "context, tokens (cl100k_base)"
_VARIANTS = 20  # of a sweep that a panel shows, the best by evidence turns touched
_PANEL = {"width": 330, "height": 220}


def draw(instruments: dict[str, pl.DataFrame]) -> dict[str, alt.TopLevelMixin]:
    """Every chart that has something to show, by name.

    Args:
        instruments: The rows of each instrument by its name (``queries.INSTRUMENTS``); rates are 0 to 1.
    """
    made = {
        "budget_curve": _budget_curve(instruments["budget_curve"]),
        "count_and_quote_curves": _count_and_quote_curves(instruments["count_curve"], instruments["quote_curve"]),
        "losses": _losses(instruments["losses"]),
        "evidence_rank": _evidence_rank(instruments["evidence_rank"]),
        "by_type": _by_type(instruments["by_type"]),
    }
    return {name: _styled(chart) for name, chart in made.items() if chart is not None}


def nearest_budget(budgets: pl.Series) -> int | None:
    """The drawn budget nearest to ``AT``, the lower of two; None where none was drawn."""
    drawn = sorted(set(budgets.drop_nulls()))
    return min(drawn, key=lambda budget: abs(budget - AT), default=None)


def _styled(chart: Chart) -> alt.TopLevelMixin:
    styled: alt.TopLevelMixin = (
        chart.configure(
            background="white", font="system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif", padding=8
        )
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=11, titleFontSize=12, titleFontWeight="normal", domain=False, tickColor="#bbbbbb")
        .configure_axisX(labelOverlap="greedy", labelFlush=False, titlePadding=8)
        .configure_axisY(labelLimit=240)
        .configure_legend(orient="top", title=None, labelFontSize=12, labelLimit=220, symbolStrokeWidth=2.5, columns=7)
        .configure_title(anchor="start", fontSize=13, fontWeight=600, offset=8)
    )
    return styled


def _colour(names: Sequence[str]) -> alt.Color:
    """One fixed colour for each sequence, whatever else is drawn."""
    further = [name for name in names if name not in _COLOURS]
    more = {name: _FURTHER[place % len(_FURTHER)] for place, name in enumerate(further)}
    scale = alt.Scale(domain=list(names), range=[(_COLOURS | more)[name] for name in names])
    return alt.Color("sequence", type="nominal", scale=scale, legend=alt.Legend(title=None))


def _rate(title: str, domain: list[float]) -> alt.Y:
    axis = alt.Axis(format=".0%", title=None, tickCount=6)
    return alt.Y("rate", type="quantitative", axis=axis, title=title, scale=alt.Scale(domain=domain, nice=False))


def _names(frame: pl.DataFrame) -> list[str]:
    return frame["sequence"].unique(maintain_order=True).to_list()


def _budget_curve(frame: pl.DataFrame) -> Chart | None:
    names, budgets = _names(frame), sorted(set(frame["budget"]))
    panels = []
    for metric, title in _RATES.items():
        rows = frame.select("sequence", "budget", tokens="cl100k_base", rate=metric).drop_nulls("rate")
        if rows.is_empty():
            continue
        span = alt.Undefined if len(budgets) == 1 else [budgets[0], budgets[-1]]
        base = alt.Chart().encode(
            x=alt.X(
                "budget",
                type="quantitative",
                scale=alt.Scale(type="log", domain=span, nice=False),
                axis=alt.Axis(
                    values=budgets,
                    format=",",
                    labelOverlap="greedy",
                    title="budget, characters of quoted text",
                    grid=False,
                ),
            ),
            y=_rate(title, _tens(rows["rate"])),
            color=_colour(names),
            tooltip=[
                alt.Tooltip("sequence", type="nominal"),
                alt.Tooltip("budget", type="quantitative", format=",", title="budget, characters"),
                alt.Tooltip("rate", type="quantitative", format=".1%", title=title),
                alt.Tooltip("tokens", type="quantitative", format=",.0f", title=_TOKENS),
            ],
        )
        best, others = rows.filter(pl.col("sequence") == "oracle"), rows.filter(pl.col("sequence") != "oracle")
        layers = []
        if len(others):
            layers.append(base.properties(data=others).mark_line(strokeWidth=2, point={"size": 28, "filled": True}))
        if len(best):
            dashed = base.properties(data=best).mark_line(
                strokeWidth=2, strokeDash=[6, 4], point={"size": 22, "filled": True}
            )
            layers.append(dashed)
        panels.append(alt.layer(*layers, title=_capital(title), **_PANEL))
    return alt.concat(*panels, columns=2, spacing=28) if panels else None


def _count_and_quote_curves(count: pl.DataFrame, quote: pl.DataFrame) -> Chart | None:
    """Both ways to make today's context smaller, over what it costs."""
    counts = count.select("turns_touched", "sessions_shown", tokens="cl100k_base", label="items_shown").with_columns(
        curve=pl.lit("fewer items, full quotes")
    )
    sizes = quote.select("turns_touched", "sessions_shown", tokens="cl100k_base", label="quote_size").with_columns(
        curve=pl.lit("all items, shorter quotes")
    )
    curves = {"fewer items, full quotes": "items", "all items, shorter quotes": "items@320/160"}
    scale = alt.Scale(domain=list(curves), range=[_COLOURS[name] for name in curves.values()])
    panels = []
    for metric in ("turns_touched", "sessions_shown"):
        title = _RATES[metric]
        kinds = [rows.rename({metric: "rate"}).drop_nulls("rate") for rows in (counts, sizes)]
        domain = _tens(pl.concat([rows["rate"] for rows in kinds]))
        layers = []
        for rows, up in zip(kinds, (True, False), strict=True):
            if rows.is_empty():
                continue
            apart = pl.Series("apart", _apart(rows["tokens"], rows["rate"]))
            rows = rows.select("curve", "label", "tokens", "rate", apart)
            base = alt.Chart(rows).encode(
                x=alt.X(
                    "tokens", type="quantitative", scale=alt.Scale(zero=False), axis=alt.Axis(title=_TOKENS, grid=False)
                ),
                y=_rate(title, domain),
                color=alt.Color("curve", type="nominal", scale=scale, legend=alt.Legend(title=None)),
                tooltip=[
                    alt.Tooltip("curve", type="nominal", title="what is made smaller"),
                    alt.Tooltip(
                        "label", type="nominal", title="items shown" if up else "quote size, first five / others"
                    ),
                    alt.Tooltip("rate", type="quantitative", format=".1%", title=title),
                    alt.Tooltip("tokens", type="quantitative", format=",.0f", title=_TOKENS),
                ],
            )
            layers.append(base.mark_line(strokeWidth=2, point={"size": 36, "filled": True}))
            named = base.transform_filter(alt.datum.apart).encode(text=alt.Text("label", type="nominal"))
            layers.append(named.mark_text(dy=-11 if up else 15, fontSize=11))
        if layers:
            panels.append(alt.layer(*layers, title=_capital(title), **_PANEL))
    return alt.concat(*panels, columns=2, spacing=28) if panels else None


def _tens(rates: pl.Series) -> list[float]:
    """The tenths around rates, with room for a label."""
    if rates.is_empty():
        return [0, 1]
    return [max(0, math.floor(10 * rates.min() - 0.4) / 10), min(1, math.ceil(10 * rates.max() + 0.4) / 10)]  # type: ignore[operator]


def _apart(tokens: pl.Series, rates: pl.Series) -> list[bool]:
    """Whether each point stands apart enough from the labelled ones before it to have a label; the last always has."""
    wide = (tokens.max() - tokens.min()) or 1.0  # type: ignore[operator]
    high = (rates.max() - rates.min()) or 1.0  # type: ignore[operator]
    kept: list[tuple[float, float]] = []
    found = []
    places = list(zip(tokens / wide, rates / high, strict=True))
    for place in reversed(places):
        free = all(abs(place[0] - x) > 0.07 or abs(place[1] - y) > 0.1 for x, y in kept)
        found.append(free)
        if free:
            kept.append(place)
    return found[::-1]


def _losses(frame: pl.DataFrame) -> Chart | None:
    cuts = [points.of(name) for name in frame["point"]]
    at = nearest_budget(pl.Series([cut.budget for cut in cuts], dtype=pl.Int64))
    chosen = {cut.name: _in_words(cut) for cut in sorted(filter(lambda cut: _in_losses(cut, at), cuts), key=_group)}
    order = pl.DataFrame(
        {"point": list(chosen), "shown": list(chosen.values())}, schema=dict.fromkeys(("point", "shown"), pl.String)
    )
    fates = pl.DataFrame(
        [(name, *told) for name, told in _FATES.items()], schema=["metric", "fate", "colour"], orient="row"
    )
    rows = (
        order.join(frame, on="point", maintain_order="left")
        .unpivot(list(_FATES), index=["shown", "cl100k_base"], variable_name="metric", value_name="rate")
        .drop_nulls("rate")
        .join(fates.select("metric", "fate", place=pl.int_range(pl.len())), on="metric", maintain_order="left")
        .select("shown", "fate", "place", "rate", tokens="cl100k_base")
    )
    if rows.is_empty():
        return None
    note = [] if at is None else [f"“at {at:,}”: cut at {at:,} characters of quoted text"]
    title = alt.Title("What became of the evidence turns", subtitle=note)
    bars: alt.Chart = (
        alt.Chart(rows, title=title, width=640, height=alt.Step(26))
        .mark_bar(height={"band": 0.78})
        .encode(
            x=alt.X(
                "rate",
                type="quantitative",
                stack="zero",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format=".0%", title="share of all evidence turns", grid=False, tickCount=5),
            ),
            y=alt.Y("shown", type="nominal", sort=None, axis=alt.Axis(title=None, ticks=False, labelPadding=8)),
            color=alt.Color(
                "fate",
                type="nominal",
                scale=alt.Scale(domain=fates["fate"].to_list(), range=fates["colour"].to_list()),
                legend=alt.Legend(title=None),
            ),
            order=alt.Order("place", type="ordinal"),
            tooltip=[
                alt.Tooltip("shown", type="nominal", title="context"),
                alt.Tooltip("fate", type="nominal", title="evidence turns"),
                alt.Tooltip("rate", type="quantitative", format=".1%", title="share"),
                alt.Tooltip("tokens", type="quantitative", format=",.0f", title=_TOKENS),
            ],
        )
    )
    return bars


def _in_losses(cut: Point, at: int | None) -> bool:
    if cut.sequence.startswith("items@"):
        return cut.budget is None and cut.count is None
    if cut.sequence == "items" and cut.budget is None:
        return cut.count in (4, None)
    return cut.budget is not None and cut.budget == at


def _group(cut: Point) -> tuple[bool, bool, bool]:
    return cut.budget is not None, cut.sequence == "oracle", cut.sequence.startswith("items@")


def _in_words(cut: Point) -> str:
    if cut.budget is not None:
        return f"{cut.sequence} at {cut.budget:,}"
    if cut.count is not None:
        return f"{cut.sequence}, first {cut.count} only"
    return f"{cut.sequence}, all"


def _evidence_rank(frame: pl.DataFrame) -> Chart | None:
    if not frame["turns"].sum():
        return None
    base = alt.Chart(
        frame.select("turns", "share", place="inside_rank"),
        title="Best place of evidence in its record",
        width=520,
        height=alt.Step(30),
    ).encode(
        x=alt.X(
            "share",
            type="quantitative",
            axis=alt.Axis(format=".0%", title="share of recalled evidence turns", grid=False, tickCount=6),
        ),
        y=alt.Y("place", type="nominal", sort=None, axis=alt.Axis(title=None, ticks=False, labelPadding=8)),
        tooltip=[
            alt.Tooltip("place", type="nominal", title="place of its passage"),
            alt.Tooltip("turns", type="quantitative", format=",", title="evidence turns"),
            alt.Tooltip("share", type="quantitative", format=".1%", title="share"),
        ],
    )
    label = base.mark_text(align="left", dx=6, fontSize=11).encode(
        text=alt.Text("share", type="quantitative", format=".1%")
    )
    return alt.layer(base.mark_bar(color=_COLOURS["evidence"], height={"band": 0.72}), label)


def _by_type(frame: pl.DataFrame) -> Chart | None:
    at = nearest_budget(frame["budget"])
    if at is None:
        return None
    compared = [name for name in _names(frame) if name != "oracle" and not name.startswith("items@")]
    there = frame.filter((pl.col("budget") == at) & pl.col("sequence").is_in(compared))
    if there.filter(pl.col("question_type") != "(none)").is_empty():
        return None
    panels = []
    for metric in ("turns_touched", "sessions_shown"):
        title = _RATES[metric]
        rows = there.select("sequence", "labelled", kind="question_type", rate=metric).drop_nulls("rate")
        if rows.is_empty():
            continue
        chart = (
            alt.Chart(rows, title=f"{_capital(title)} at {at:,} characters", width=300, height=alt.Step(11))
            .mark_bar()
            .encode(
                x=alt.X(
                    "rate",
                    type="quantitative",
                    scale=alt.Scale(domain=[0, 1]),
                    axis=alt.Axis(format=".0%", title=title, tickCount=5),
                ),
                y=alt.Y(
                    "kind",
                    type="nominal",
                    sort=None,
                    scale=alt.Scale(paddingInner=0.25),
                    axis=alt.Axis(title=None, ticks=False, labelPadding=8),
                ),
                yOffset=alt.YOffset("sequence", type="nominal", scale=alt.Scale(domain=compared)),
                color=_colour(compared),
                tooltip=[
                    alt.Tooltip("kind", type="nominal", title="question type"),
                    alt.Tooltip("sequence", type="nominal"),
                    alt.Tooltip("rate", type="quantitative", format=".1%", title=title),
                    alt.Tooltip("labelled", type="quantitative", format=",", title="questions with evidence"),
                ],
            )
        )
        panels.append(chart)
    return alt.concat(*panels, columns=2, spacing=28) if panels else None


def _capital(title: str) -> str:
    return title[0].upper() + title[1:]


def sweep(table: pl.DataFrame, varied: Sequence[str]) -> alt.TopLevelMixin | None:
    """What each variant of a sweep gains over the base settings, with intervals; None where nothing varies.

    Args:
        table: ``sweep.table``.
        varied: The settings that vary.
    """
    label = pl.format(", ".join(f"{name} {{}}" for name in varied), *varied) if varied else pl.lit("")
    rows = table.filter(pl.col("variant") > 0).with_columns(label=label)
    panels = []
    for (sequence, budget), own in rows.group_by("sequence", "budget", maintain_order=True):
        best = own.filter(pl.col("metric") == "turns_touched").sort("rate", "variant", descending=[True, False])
        order = best["label"].head(_VARIANTS).to_list()
        for metric in ("turns_touched", "evidence_share"):
            title = f"{sequence} at {budget:,}: {_RATES[metric]}"
            shown = own.filter(pl.col("metric") == metric, pl.col("label").is_in(order)).drop_nulls("difference")
            base = alt.Chart(shown.select("label", "rate", "difference", "low", "high", "clear")).encode(
                y=alt.Y("label", type="nominal", sort=order, axis=alt.Axis(title=None, ticks=False, labelLimit=260)),
                opacity=alt.condition("datum.clear", alt.value(1), alt.value(0.4)),
                tooltip=[
                    alt.Tooltip("label", type="nominal", title="settings"),
                    *(alt.Tooltip(name, type="quantitative", format="+.1%") for name in ("difference", "low", "high")),
                    alt.Tooltip("rate", type="quantitative", format=".1%"),
                ],
            )
            axis = alt.Axis(format="+.0%", title="difference from the base settings, 95% interval", tickCount=5)
            spans = base.mark_rule(strokeWidth=2, color=_COLOURS["evidence"]).encode(
                x=alt.X("low", type="quantitative", axis=axis), x2="high"
            )
            dots = base.mark_point(filled=True, size=40, color=_COLOURS["evidence"]).encode(
                x=alt.X("difference", type="quantitative")
            )
            zero = alt.Chart().mark_rule(strokeDash=[4, 4], color="#858b93").encode(x=alt.datum(0))
            panels.append(alt.layer(zero, spans, dots).properties(title=title, width=300, height=alt.Step(16)))
    return _styled(alt.concat(*panels, columns=2, spacing=28)) if panels else None
