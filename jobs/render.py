"""Show what an answering model would see of one question's sequence at a budget."""

import json
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from allocation import chain, contexts, render
from allocation.errors import InputError
from allocation.points import Point
from jobs.errors import told_in_one_line
from jobs.runs import Run

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
        shown, context = _shown(question, sequence, budget, run, store)
    if as_json:
        typer.echo(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    omitted = shown["omitted"]
    typer.echo(f"{question}: {shown['question']}")
    typer.echo(f"{sequence} at {budget:,} characters, {shown['used']:,} used\n")
    typer.echo(context)
    typer.echo(
        f"left out: {omitted['items']} items, {omitted['excerpts']} excerpts, {omitted['characters']:,} characters"
    )


def _shown(question: str, sequence: str, budget: int, run: Path, store: Path | None) -> tuple[dict[str, Any], str]:
    """The response as ``render.response`` gives it, with the question and its parts; and the context."""
    chain.names_of(sequence)
    finished = Run(run)
    mine = pl.col("question_id") == question
    steps, asked = finished.sequence(sequence, mine), finished.table("questions", mine)
    if steps.is_empty() or asked.is_empty():
        raise InputError(f"{run}: has no question {question} with a window; its questions.parquet has the question_id")
    with finished.store(store) as opened:
        records = finished.records(opened, steps["record_ref"].unique().sort())
    taken = contexts.shown(contexts.spans(steps, records), [Point(sequence, budget)])
    response = {
        "question_id": question,
        "question": asked["question"][0],
        "sequence": sequence,
        **render.response(steps, records, budget),
        "parts": finished.table("parts", mine).drop("question_id").to_dicts(),
    }
    return response, contexts.join(taken)["context"][0]


if __name__ == "__main__":
    app(prog_name="render")
