"""Write the report of a run's curves: one page that loads nothing."""

import base64
import gzip
import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
import polars as pl
import vl_convert

from allocation.points import Point

_VEGA_LITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
_PNG_SCALE = 2


@dataclass(frozen=True)
class Section:
    """A part of the page: instruments that belong together, with what each means, and their chart."""

    title: str
    chart: str | None
    instruments: Mapping[str, str]


SECTIONS = (
    Section(
        "Budget curve",
        "budget_curve",
        {
            "budget_curve": "How much evidence does each sequence show at each budget, and how much room is left under"
            " the oracle, an order made from the labels?"
        },
    ),
    Section(
        "Fewer items or shorter quotes",
        "count_and_quote_curves",
        {
            "count_curve": "Count curve: what is lost when items are removed from the end of the list?",
            "quote_curve": "Quote curve: what is lost when all items stay and every quote gets shorter? A size is that"
            " of the first five items and that of the others, in characters.",
        },
    ),
    Section(
        "What a context quotes",
        None,
        {
            "quoted_text": "How much of what a context quotes comes from answer records, how early do they come, and"
            " how much is said twice?"
        },
    ),
    Section(
        "Losses",
        "losses",
        {"losses": "What became of the evidence turns: at which step of recalling, quoting and cutting is each lost?"},
    ),
    Section(
        "Evidence rank",
        "evidence_rank",
        {
            "evidence_rank": "Where does the evidence rank among the passages of its own record, when its record is"
            " recalled?"
        },
    ),
    Section(
        "Question types",
        "by_type",
        {"by_type": "Which kinds of question gain or lose with each sequence and budget?"},
    ),
)

_PERCENT, _NUMBER, _TEXT = "percent", "number", "text"
_COLUMNS = {
    "sequence": ("sequence", _TEXT),
    "point": ("point", _TEXT),
    "items_shown": ("items shown", _TEXT),
    "quote_size": ("quote size", _TEXT),
    "question_type": ("question type", _TEXT),
    "inside_rank": ("place of its passage", _TEXT),
    "budget": ("budget, characters", _NUMBER),
    "count": ("items", _NUMBER),
    "questions": ("questions", _NUMBER),
    "labelled": ("with evidence", _NUMBER),
    "turns": ("evidence turns", _NUMBER),
    "share": ("share", _PERCENT),
    "cl100k_base": ("tokens (cl100k)", _NUMBER),
    "characters": ("characters", _NUMBER),
    "items": ("items quoted", "decimal"),
    "first_item": ("first answer item, from 0", "decimal"),
    "turn_characters_per_1k_tokens": ("evidence characters per 1,000 tokens", _NUMBER),
    "sessions_shown": ("answer sessions shown", _PERCENT),
    "all_shown": ("all of them shown", _PERCENT),
    "turns_touched": ("evidence turns touched", _PERCENT),
    "turn_characters": ("characters of evidence turns", _PERCENT),
    "evidence_share": ("quoted text from answer sessions", _PERCENT),
    "answer_in_context": ("short answer in context", _PERCENT),
    "duplicate_share": ("quoted text said before", _PERCENT),
    "first_item_is_answer": ("first item is an answer", _PERCENT),
    "turns_whole": ("shown whole", _PERCENT),
    "turns_in_part": ("shown in part", _PERCENT),
    "turns_outside": ("record quoted, turn left out", _PERCENT),
    "turns_not_quoted": ("record not quoted", _PERCENT),
    "turns_not_recalled": ("record not recalled", _PERCENT),
    "room_turns_touched": ("room: turns touched", _PERCENT),
    "room_turn_characters": ("room: turn characters", _PERCENT),
}
_FIRST = (
    "point",
    "question_type",
    "sequence",
    "items_shown",
    "quote_size",
    "inside_rank",
    "budget",
    "count",
    "cl100k_base",
)

# What the basis of a step means, in words.
_BASES = {
    "quote": {
        "whole": "quote: the whole record",
        "blocks": "quote: chosen by block vectors",
        "lexical": "quote: chosen by shared words",
        "start": "quote: the start of the record",
    },
    "excerpt": {
        "block": "excerpt: its best block",
        "node": "excerpt: its best longer span",
        "start": "excerpt: the start of the record",
    },
}


def pack(page: dict[str, Any]) -> str:
    """A page of the question browser as the report holds it: JSON, gzip, base64; the same bytes each time."""
    plain = json.dumps(page, ensure_ascii=False, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(plain, 6, mtime=0)).decode()


def save_charts(folder: Path, charts: Mapping[str, alt.TopLevelMixin]) -> None:
    """Each chart as NAME.svg and NAME.png in ``folder``, which is made."""
    folder.mkdir()
    for name, chart in charts.items():
        svg = vl_convert.vegalite_to_svg(chart.to_dict(), vl_version=_VEGA_LITE)
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        (folder / f"{name}.png").write_bytes(vl_convert.svg_to_png(svg, scale=_PNG_SCALE))


def write(
    path: Path,
    name: str,
    description: dict[str, Any],
    instruments: Mapping[str, pl.DataFrame],
    charts: Mapping[str, alt.TopLevelMixin],
    points: Sequence[Point],
    questions: Sequence[pl.DataFrame],
    pages: Sequence[str],
) -> None:
    """Write the page.

    Args:
        path: The file to write.
        name: The run, as a user would name it.
        description: ``run.json`` of the run with its curves.
        instruments: The rows of each instrument.
        charts: The charts by name.
        points: What was drawn.
        questions: Questions of each page of the browser.
        pages: These pages, packed.
    """
    budgets: dict[str, list[int]] = {}
    for point in points:
        budgets.setdefault(point.sequence, []).extend([] if point.budget is None else [point.budget])
    listed = [
        {"id": key, "question": text, "type": kind, "page": place}
        for place, rows in enumerate(questions)
        for key, text, kind in rows.select("question_id", "question", "question_type").iter_rows()
    ]
    data = {
        "charts": {key: chart.to_dict() for key, chart in charts.items()},
        "budgets": {sequence: sorted(own) for sequence, own in budgets.items() if own},
        "questions": listed,
        "bases": _BASES,
    }
    here = Path(__file__)
    scripts = {
        "vega": vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=_VEGA_LITE),
        "js": _source(here, "js"),
    }
    counted = description["counts"]
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    whole = environment.from_string(_source(here, "html")).render(
        name=name,
        shell_name=shlex.quote(name),
        policy=_policy(scripts.values()),
        css=_source(here, "css"),
        counts=f"{counted['questions']:,} questions over {counted['records']:,} records.",
        warnings=[*description["warnings"], *description["curves"]["warnings"]],
        sections=[_section(section, instruments, charts) for section in SECTIONS],
        picked=_picked(len(listed), counted["questions"]),
        facts=_facts(description),
        data=_in_script(data),
        pages=pages,
        **scripts,
    )
    path.write_text(whole, encoding="utf-8")


def _source(here: Path, kind: str) -> str:
    return here.with_suffix(f".{kind}").read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """The page may run its own scripts and may load nothing."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:"


def _in_script(value: dict[str, Any]) -> str:
    """JSON that cannot end the script element it is in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _picked(shown: int, asked: int) -> str:
    return (
        "" if shown == asked else f"Of {asked:,} questions {shown:,} are here, evenly picked in the order of their ids."
    )


def _section(
    section: Section, instruments: Mapping[str, pl.DataFrame], charts: Mapping[str, alt.TopLevelMixin]
) -> dict[str, Any]:
    return {
        "name": next(iter(section.instruments)),
        "title": section.title,
        "chart": section.chart if section.chart in charts else None,
        "tables": [_table(name, meaning, instruments[name]) for name, meaning in section.instruments.items()],
    }


def _table(name: str, meaning: str, rows: pl.DataFrame) -> dict[str, Any]:
    first = [column for column in rows.columns if column in _FIRST]
    ordered = rows.select(*sorted(first, key=_FIRST.index), pl.exclude(first))
    kinds = [_COLUMNS.get(column, (column.replace("_", " "), _TEXT)) for column in ordered.columns]
    return {
        "name": name,
        "meaning": meaning,
        "columns": [{"title": title, "number": kind != _TEXT} for title, kind in kinds],
        "rows": [
            [_cell(value, kind) for value, (_, kind) in zip(row, kinds, strict=True)] for row in ordered.iter_rows()
        ],
    }


def _cell(value: Any, kind: str) -> str:
    if value is None:
        return "–"
    if kind == _PERCENT:
        return f"{100 * value:.1f} %"
    if kind == _NUMBER:
        return f"{value:,.0f}"
    return f"{value:.2f}" if kind == "decimal" else str(value)


def _facts(description: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """Tables of what the run was made from and with."""
    drawn = description["curves"]
    files = [(name, file) for name, told in description["inputs"].items() for file in told.get("files", [told])]
    inputs = [[name, file["path"], f"{file['bytes']:,} bytes", file["sha256"]] for name, file in files]
    times = [
        ["sequences built", f"{description['finished_at']}, {description['seconds']:,.1f} seconds"],
        ["curves drawn", f"{drawn['finished_at']}, {drawn['seconds']:,.1f} seconds"],
    ]
    steps = [[name, f"{count:,} steps"] for name, count in description["steps"].items()]
    return [
        ("Inputs", inputs),
        ("Settings", _pairs(description["settings"])),
        ("Counts", _pairs(description["counts"])),
        ("Sequences", steps),
        ("Versions", _pairs(description["versions"] | drawn["versions"])),
        ("Times", times),
    ]


def _pairs(values: Mapping[str, Any]) -> list[list[str]]:
    return [
        [key.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value)] for key, value in values.items()
    ]
