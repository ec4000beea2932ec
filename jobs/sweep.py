"""Try a grid of settings on the development questions."""

import json
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from allocation import charts, splits, sweep
from allocation.errors import InputError
from jobs import build_sequences, outputs, report
from jobs.errors import told_in_one_line
from jobs.store import open_store

SHARD = 256  # questions held at a time
SHOWN = 15  # variants of each sequence and budget that are printed
RANKED_BY = "turns_touched"
WIDTH = 140  # columns of what is not printed to a terminal

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    file: Annotated[Path, typer.Argument(metavar="SETTINGS", help="TOML file with the grid.", show_default=False)],
    store: Annotated[Path | None, typer.Option(help="As for build-sequences.")] = None,
    questions: Annotated[Path | None, typer.Option(help="As for build-sequences.")] = None,
    windows: Annotated[
        Path | None, typer.Option(help="As for build-sequences; a run's windows.parquet will do.")
    ] = None,
    evidence: Annotated[Path | None, typer.Option(help="Evidence labels.")] = None,
    dev: Annotated[Path | None, typer.Option(help="Development questions as draw-dev wrote them.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write; an earlier sweep there is replaced.")] = Path(
        "outputs/sweep"
    ),
) -> None:
    """Judge a grid of settings by the evidence metrics, on development questions only.

    Each variant is compared with the base settings, paired by question. Exit status: 0 done, 2 bad input or arguments,
    1 anything else.
    """
    with told_in_one_line():
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"{file}: cannot be read as TOML: {error}") from error
        grid = sweep.grid_of(values, str(file))
        paths = build_sequences.input_paths(store, questions, windows, evidence, dev)
        if "evidence" not in paths:
            raise InputError("a sweep is judged by evidence labels; give --evidence")
        if (out / "run.json").exists() and "sweep" not in json.loads((out / "run.json").read_text(encoding="utf-8")):
            raise InputError(f"{out}: is the output of a run, which a sweep does not replace; choose another --out")
        with outputs.run_folder(out) as folder, open_store(paths["store"]) as opened:
            ready = build_sequences.read(paths, opened, skip=False)
            own = splits.only(ready.questions, splits.DEV, str(paths["questions"]))
            ready = build_sequences.of_questions(ready, own)
            shards = list(range(0, len(own), SHARD))
            with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
                task = progress.add_task("trying", total=len(shards) * len(grid.variants))
                found = [
                    sweep.measure(shard, grid, lambda: progress.advance(task))
                    for shard in build_sequences.shards(ready, opened, SHARD)
                ]
            table = sweep.table(pl.concat(found), grid)
            outputs.write(table, folder / "sweep.parquet")
            description = {
                "sweep": values,
                "base": asdict(grid.base),
                "variants": [asdict(variant) for variant in grid.variants],
                "questions": len(own),
                "inputs": {
                    name: build_sequences.describe(path, opened.content if name == "store" else None)
                    for name, path in paths.items()
                },
            }
            chart = charts.sweep(table, grid.names)
            report.save_charts(folder / "charts", {} if chart is None else {"sweep": chart})
            outputs.write_json(folder / "run.json", description)
    _print(table, grid, len(own), out)


def _print(table: pl.DataFrame, grid: sweep.Grid, questions: int, out: Path) -> None:
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, markup=False)
    console.print(f"{questions} development questions, {len(grid.variants)} variants; * the interval does not hold 0")
    for (sequence, budget), rows in table.group_by("sequence", "budget", maintain_order=True):
        best = rows.filter(pl.col("metric") == RANKED_BY).sort("rate", "variant", descending=[True, False])
        chosen = dict.fromkeys([*best["variant"].head(SHOWN), 0]) if len(best) > 1 else [best["variant"][0]]
        names = [*grid.names, *sweep.METRICS]
        printed = Table(
            *(name.replace("_", " ") for name in names), title=f"{sequence} at {budget:,} characters", box=box.SIMPLE
        )
        for column in printed.columns:
            column.justify = "right"
        for variant in chosen:
            own = rows.filter(pl.col("variant") == variant)
            printed.add_row(
                *(f"{own[name][0]:g}" if isinstance(own[name][0], float) else str(own[name][0]) for name in grid.names),
                *map(_cell, own.iter_rows(named=True)),
            )
        console.print(printed)
        if len(best) > SHOWN:
            console.print(f"{len(best) - SHOWN} more variants are in the table")
    console.print(f"{out / 'sweep.parquet'}", soft_wrap=True)


def _cell(row: dict[str, Any]) -> str:
    """A rate in percent, and what the base's is exceeded by, in points; * where the interval does not hold 0."""
    if row["rate"] is None or row["rate"] != row["rate"]:
        return ""
    if not row["variant"] and not row["difference"]:
        return f"{100 * row['rate']:.1f} (base)"
    return f"{100 * row['rate']:.1f} ({100 * row['difference']:+.1f}{'*' if row['clear'] else ''})"


if __name__ == "__main__":
    app(prog_name="sweep")
