"""Compare the metrics of two runs, point by point and question by question."""

import sys
from pathlib import Path
from typing import Annotated, Any

import duckdb
import polars as pl
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from allocation import bootstrap, points
from allocation.errors import InputError
from jobs.errors import told_in_one_line
from jobs.runs import Run
from jobs.sql import session

COMPARED_AT = 2800  # characters; the budget compared unless points are named

SIZES = (
    "turn_characters_per_1k_tokens",
    "first_item",
    "characters",
    "items",
    "passages",
    "omitted",
    "cl100k_base",
    "o200k_base",
)
_COMPARED = {"point": pl.String, "metric": pl.String} | dict.fromkeys(
    ("a", "b", "difference", "low", "high"), pl.Float64
)
WIDTH = 100  # columns of what is not printed to a terminal

_MEASURES = "FROM measures WHERE point IN (SELECT unnest($points))"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    run_a: Annotated[Path, typer.Argument(help="Folder of the run to compare with.", show_default=False)],
    run_b: Annotated[Path, typer.Argument(help="Folder of the other run.", show_default=False)],
    named: Annotated[
        list[str] | None,
        typer.Option(
            "--point", help=f"A point both have drawn; may be given again. Default: those at {COMPARED_AT:,}."
        ),
    ] = None,
) -> None:
    """Print, for each point of two runs, each metric that differs, with the 95% interval of its difference.

    Questions are paired; the interval is a percentile bootstrap over them. Exit status: 0 done, 2 bad input or
    arguments, 1 anything else.
    """
    with told_in_one_line():
        wanted = [points.of(text).name for text in named or []]
        folders = (run_a, run_b)
        runs = [Run(folder) for folder in folders]
        for folder, run in zip(folders, runs, strict=True):
            if "curves" not in run.description:
                raise InputError(f"{folder}: has no curves yet; draw them with just curves")
            for point in wanted:
                if point not in run.description["curves"]["points"]:
                    raise InputError(f"{folder}: did not draw {point}; draw it with just curves --point {point}")
        drawn, others = (run.description["curves"]["points"] for run in runs)
        chosen = wanted or [name for name in drawn if name in others and name.endswith(f":{COMPARED_AT}")]
        if not chosen:
            raise InputError(f"{run_a} and {run_b}: have no point at {COMPARED_AT} in common; name one with --point")
        paired = _paired(folders, chosen)
        if paired.is_empty():
            raise InputError(f"{run_a} and {run_b}: have no question in common; build both from one question set")
        if not _labels(runs[0], paired).equals(_labels(runs[1], paired)):
            typer.echo("warning: the runs have other evidence labels for the same questions", err=True)
    _print(paired, _compared(paired), chosen, runs)


def between(folders: tuple[Path, Path], chosen: list[str]) -> pl.DataFrame:
    """point, metric, rates a and b, difference, low and high of what differs between two runs; none without a pair."""
    paired = _paired(folders, chosen)
    return _compared(paired) if len(paired) else pl.DataFrame(schema=_COMPARED)


def _labels(run: Run, paired: pl.DataFrame) -> pl.DataFrame:
    return run.table("evidence").join(paired, on="question_id", how="semi", maintain_order="left")


def _paired(folders: tuple[Path, Path], chosen: list[str]) -> pl.DataFrame:
    """The measures of both runs side by side: question_id, point, metric, part, whole, part_b, whole_b.

    Every question has every point and metric, in the same order.
    """
    found = []
    for folder in folders:
        with session(folder) as connection:
            try:
                rows = connection.sql(_MEASURES, params={"points": chosen}).pl()
                metrics = connection.sql("FROM curves LIMIT 0").columns
            except duckdb.Error as error:
                raise InputError(f"{folder}: its curves cannot be read ({error}); draw them again") from error
        found.append(rows.with_columns(pl.col("part", "whole").cast(pl.Int64)))
    order = (pl.col("question_id"), pl.col("point").cast(pl.Enum(chosen)), pl.col("metric").cast(pl.Enum(metrics)))
    paired: pl.DataFrame = found[0].join(found[1], on=("question_id", "point", "metric"), suffix="_b").sort(order)
    return paired


def _compared(paired: pl.DataFrame) -> pl.DataFrame:
    """Rates, difference and interval of every point and metric that is not the same on every question."""
    key = ("point", "metric")
    changed = (pl.col("part") != pl.col("part_b")) | (pl.col("whole") != pl.col("whole_b"))
    rows = paired.filter(changed.any().over(key))
    questions = paired["question_id"].n_unique()

    def side(suffix: str) -> tuple[bootstrap.Counts, bootstrap.Counts]:
        part, whole = (rows[name + suffix].to_numpy().reshape(questions, -1) for name in ("part", "whole"))
        return part, whole

    def rate(suffix: str) -> pl.Expr:
        return pl.col("part" + suffix).sum() / pl.col("whole" + suffix).sum()

    rates = rows.group_by(key, maintain_order=True).agg(a=rate(""), b=rate("_b"))
    difference, low, high = bootstrap.differences(side(""), side("_b"))
    return rates.with_columns(difference=pl.Series(difference), low=pl.Series(low), high=pl.Series(high))


def _print(paired: pl.DataFrame, compared: pl.DataFrame, chosen: list[str], runs: list[Run]) -> None:
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, markup=False)
    for name, run in zip("AB", runs, strict=True):
        console.print(f"{name}: {run.folder}, {len(run.table('questions'))} questions", soft_wrap=True)
    console.print(f"paired: {paired['question_id'].n_unique()} questions")
    metrics = paired["metric"].n_unique()
    for point in chosen:
        rows = compared.filter(pl.col("point") == point)
        same = f"{metrics - len(rows)} of {metrics} metrics are the same on every question"
        console.print(f"\n{point}: {same}")
        if len(rows):
            table = Table("metric", "A", "B", "B - A", "low", "high", "", box=box.SIMPLE)
            for column in table.columns[1:]:
                column.justify = "right"
            for row in rows.iter_rows(named=True):
                certain = row["low"] > 0 or row["high"] < 0
                table.add_row(row["metric"], *_numbers(row), "*" if certain else "")
            console.print(table)
    console.print("low, high: the 95% interval of the difference over questions; * it does not hold 0")


def _numbers(row: dict[str, Any]) -> list[str]:
    """The numbers of a metric, rates in percent and percentage points."""
    scale, digits, unit = (1, 2, "") if row["metric"] in SIZES else (100, 1, " %")
    rates = [f"{scale * row[name]:,.{digits}f}{unit}" for name in ("a", "b")]
    return rates + [f"{scale * row[name]:+,.{digits}f}" for name in ("difference", "low", "high")]


if __name__ == "__main__":
    app(prog_name="compare")
