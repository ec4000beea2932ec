"""Show what an answering model would see of one question's sequence at a budget."""

import json
from pathlib import Path
from typing import Annotated, Any

import dataframely as dy
import polars as pl
import typer

from allocation import chain, render
from allocation.errors import InputError
from allocation.tables import Parts, Questions, Sequences, conform
from jobs import outputs, tabular
from jobs.errors import told_in_one_line
from jobs.store import open_store

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    question: Annotated[str, typer.Argument(help="question_id of the question.", show_default=False)],
    sequence: Annotated[str, typer.Option(help="Sequence of the run to cut.")] = "coverage",
    budget: Annotated[int, typer.Option(min=0, help="Characters of quoted text.")] = 2800,
    run: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("outputs/latest"),
    store: Annotated[Path | None, typer.Option(help="The store, where it is no longer where the run found it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with ranges, ranks and parts.")] = False,
) -> None:
    """Print a question's context: its items in recall order, cut at a budget, and what was left out.

    Exit status: 0 done, 2 bad input or arguments, 1 anything else.
    """
    with told_in_one_line():
        shown = _shown(question, sequence, budget, run, store)
    if as_json:
        typer.echo(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    omitted = shown["omitted"]
    typer.echo(f"{question}: {shown['question']}")
    typer.echo(f"{sequence} at {budget:,} characters, {shown['used']:,} used\n")
    typer.echo(render.context(shown))
    typer.echo(
        f"left out: {omitted['items']} items, {omitted['excerpts']} excerpts, {omitted['characters']:,} characters"
    )


def _shown(question: str, sequence: str, budget: int, run: Path, store: Path | None) -> dict[str, Any]:
    """The response as ``render.response`` gives it, with the question and its parts."""
    chain.names_of(sequence)
    description = outputs.read_run(run)
    files = outputs.sequence_folder(run, sequence)
    if not files.is_dir():
        raise InputError(f"{run}: has no sequence {sequence}; it has {', '.join(description['sequences'])}")
    mine = pl.col("question_id") == question
    steps = _rows(files, Sequences, mine)
    asked = tabular.read(Path(description["inputs"]["questions"]["path"]), Questions).filter(mine)
    if steps.is_empty() or asked.is_empty():
        raise InputError(f"{run}: has no question {question} with a sequence; look for its question_id in {files}")
    with open_store(store or Path(description["inputs"]["store"]["path"])) as opened:
        records = opened.records(steps["record_ref"].unique().sort())
    _refuse_if_changed(steps, records)
    parts = _rows(run / "parts.parquet", Parts, mine)
    return {
        "question_id": question,
        "question": asked["question"][0],
        "sequence": sequence,
        **render.response(steps.sort("position"), records, budget),
        "parts": parts.drop("question_id").to_dicts(),
    }


def _rows(path: Path, table: type[dy.Schema], mine: pl.Expr) -> pl.DataFrame:
    try:
        rows = pl.scan_parquet(path, hive_partitioning=False, glob=False).filter(mine).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{path}: cannot be read ({str(error).splitlines()[0]}); build the run again") from error
    return conform(rows, table, str(path))


def _refuse_if_changed(steps: pl.DataFrame, records: pl.DataFrame) -> None:
    lengths = records.select("record_ref", length=pl.col("text").str.len_chars().cast(pl.Int64))
    gone = steps.join(lengths, on="record_ref", how="left").filter(
        pl.col("length").is_null() | (pl.col("end") > pl.col("length"))
    )
    if len(gone):
        raise InputError(f"{gone['record_ref'][0]}: gone or shorter in the store than in the run; build the run again")


if __name__ == "__main__":
    app(prog_name="render")
