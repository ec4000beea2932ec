"""Cut a run's sequences at points, count what of the evidence each shows, and draw the curves."""

import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from allocation import browse, charts, curves, points, queries
from allocation.errors import InputError
from allocation.points import Point
from allocation.tables import Metrics, Points
from jobs import outputs, report
from jobs.errors import told_in_one_line
from jobs.runs import Run
from jobs.sql import session

# What this command adds to a run, in place of what it added before.
ADDED = ("points.parquet", "metrics.parquet", "curves.parquet", "analysis.sql", "charts", "report.html", "run.json")
WIDTH = 100  # columns of what is not printed to a terminal
SUMMARY_BUDGET = 2800  # characters; the budget of the printed table, where it was drawn

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")] = Path("outputs/latest"),
    budgets: Annotated[
        str, typer.Option(help="Budgets of the budget curve, characters of quoted text, by commas.")
    ] = ",".join(map(str, points.BUDGETS)),
    more: Annotated[
        list[str] | None,
        typer.Option(
            "--point",
            help="A further point: SEQUENCE:CHARACTERS, SEQUENCE:topITEMS or SEQUENCE:all; may be given again.",
        ),
    ] = None,
    store: Annotated[Path | None, typer.Option(help="The store, where it is no longer where the run found it.")] = None,
) -> None:
    """Draw the evidence, count, quote and budget curves of a run that was built with evidence.

    Adds points, metrics, curves, charts and report.html to the run's folder. Exit status: 0 done, 2 bad input or
    arguments, 1 anything else.
    """
    with told_in_one_line():
        further = [points.of(text) for text in more or []]
        grid = points.budgets_of(budgets)
        finished = Run(run)
        chosen = list(dict.fromkeys([*points.standard(finished.description["sequences"], grid), *further]))
        drawn = draw(finished, chosen, store)
        _summary(run, *drawn)


def draw(
    run: Run, chosen: list[Point], elsewhere: Path | None = None, title: str | None = None
) -> tuple[pl.DataFrame, float]:
    """Add points, metrics, curves, charts and the report to a run; its budget curve, and the seconds it took.

    Args:
        run: A finished run.
        chosen: Where its sequences are cut.
        elsewhere: The store, where it is no longer where the run found it.
        title: What the report calls the run; its folder if there is none.

    Raises:
        InputError: the run has no evidence, or lacks a sequence of the points.
    """
    began = time.perf_counter()
    questions, evidence = run.table("questions"), run.table("evidence")
    for sequence in {point.sequence: None for point in chosen}:
        run.sequence(sequence, pl.lit(value=False))  # one that the run does not have is told before the work
    if evidence.is_empty():
        raise InputError(f"{run.folder}: has no evidence labels; build the run with --evidence")
    warnings = _warnings(questions, evidence)
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    picked = browse.picked(questions["question_id"])
    largest = max((point.budget or 0 for point in chosen), default=0)
    asked, pages = [], []
    with run.store(elsewhere) as store, outputs.added_to(run.folder, ADDED) as folder:
        written = {
            "points": outputs.Rows(folder / "points.parquet", Points),
            "metrics": outputs.Rows(folder / "metrics.parquet", Metrics),
        }
        total = -(-len(questions) // outputs.QUESTIONS_A_FILE)
        console = Console(stderr=True)
        batches = run.batches(store, chosen)
        for batch in track(
            batches, "measuring", total, console=console, transient=True, disable=not sys.stderr.isatty()
        ):
            for name, rows in zip(written, curves.measure(batch, chosen), strict=True):
                written[name].add(rows)
            asked.append(batch.questions.filter(pl.col("question_id").is_in(picked.implode())))
            pages.append(report.pack(browse.page(batch, asked[-1]["question_id"], largest)))
        for file in written.values():
            file.close()
        measured = {name: pl.read_parquet(folder / f"{name}.parquet", glob=False) for name in written}
        rows = curves.over_groups(measured["points"], measured["metrics"], questions)
        outputs.write(rows, folder / "curves.parquet")
        (folder / "analysis.sql").write_text(queries.analysis(with_curves=True), encoding="utf-8")
        with session(folder) as connection:
            instruments = {name: connection.sql(f"FROM {name}").pl() for name in queries.INSTRUMENTS}
        pictures = charts.draw(instruments)
        report.save_charts(folder / "charts", pictures)
        seconds = round(time.perf_counter() - began, 3)
        drawn = {
            "points": [point.name for point in chosen],
            "warnings": warnings,
            "versions": {
                name: version(name) for name in ("altair", "duckdb", "polars", "toktok-rs", "vl-convert-python")
            },
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": seconds,
        }
        description = run.description | {"curves": drawn}
        report.write(
            folder / "report.html", title or str(run.folder), description, instruments, pictures, chosen, asked, pages
        )
        outputs.write_json(folder / "run.json", description)
    return instruments["budget_curve"], seconds


def _warnings(questions: pl.DataFrame, evidence: pl.DataFrame) -> list[str]:
    without = questions.join(evidence, on="question_id", how="anti")["question_id"]
    if without.is_empty():
        return []
    named = ", ".join(without[:3]) + (", …" if len(without) > 3 else "")
    return [
        f"{len(without)} of {len(questions)} questions have no evidence ({named}); the evidence metrics leave them out"
    ]


def _summary(folder: Path, budget_curve: pl.DataFrame, seconds: float) -> None:
    shown = budget_curve.filter(pl.col("budget") == SUMMARY_BUDGET)
    columns = ("sessions_shown", "turns_touched", "turn_characters", "evidence_share")
    headings = [name.replace("_", " ") for name in columns]
    table = Table("sequence", "tokens", *headings, title=f"at {SUMMARY_BUDGET:,} characters", box=box.SIMPLE)
    for row in shown.iter_rows(named=True):
        table.add_row(row["sequence"], f"{row['cl100k_base']:,.0f}", *(_percent(row[name]) for name in columns))
    for column in table.columns[1:]:
        column.justify = "right"
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    if len(shown):
        console.print(table)
    console.print(f"{folder / 'report.html'} ({seconds:.1f} seconds)", highlight=False, markup=False, soft_wrap=True)


def _percent(rate: float | None) -> str:
    return "" if rate is None else f"{100 * rate:.1f} %"


if __name__ == "__main__":
    app(prog_name="curves")
