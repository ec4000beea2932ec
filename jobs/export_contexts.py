"""Write the contexts of a point, for an answering model to answer from."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
import typer

from allocation import contexts, points, splits, tokens
from allocation.errors import InputError
from allocation.points import Point
from jobs import outputs
from jobs.errors import told_in_one_line
from jobs.runs import Run

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", show_default=False)],
    point: Annotated[
        str, typer.Option(help="SEQUENCE:CHARACTERS, SEQUENCE:topITEMS or SEQUENCE:all.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="File to write.", show_default=False)],
    split: Annotated[Literal["dev", "test"] | None, typer.Option(help="Only the questions of this split.")] = None,
    changed_from: Annotated[
        Path | None, typer.Option(help="An earlier export: leave out the questions whose context is the same.")
    ] = None,
    form: Annotated[
        Literal["jsonl", "omnimemeval"],
        typer.Option("--format", help="jsonl: a question a line; omnimemeval: that harness's search results."),
    ] = "jsonl",
    store: Annotated[Path | None, typer.Option(help="The store, where it is no longer where the run found it.")] = None,
) -> None:
    """Write what an answering model reads of each question at a point.

    Exit status: 0 done, 2 bad input or arguments, 1 anything else.
    """
    with told_in_one_line():
        finished, chosen = Run(run), points.of(point)
        finished.sequence(chosen.sequence, pl.lit(value=False))
        questions = finished.table("questions")
        if split is not None:
            questions = splits.only(questions, split, str(run))
        rows = _rendered(finished, chosen, store).join(questions, on="question_id", maintain_order="right")
        if changed_from is not None:
            known = _earlier(changed_from)
            rows = rows.filter(~pl.struct("question_id", "context_sha256").is_in(known.implode()))
        with outputs.whole_file(out) as part:
            part.write_text((_lines if form == "jsonl" else _search_results)(rows), encoding="utf-8")
        same = f"; {len(questions) - len(rows)} have the context of {changed_from}" if changed_from else ""
        typer.echo(f"{out}: {len(rows)} of {len(questions)} questions at {chosen.name}{same}")


def _rendered(run: Run, point: Point, elsewhere: Path | None) -> pl.DataFrame:
    """question_id, point, context, its hash and its tokens; a question without a window has an empty context."""
    found = []
    with run.store(elsewhere) as store:
        for batch in run.batches(store, [point]):
            ranges = contexts.shown(contexts.spans(batch.sequences[point.sequence], batch.records), [point])
            joined = contexts.join(ranges).select("question_id", "context")
            found.append(batch.questions.select("question_id").join(joined, on="question_id", how="left"))
    rows = pl.concat(found).with_columns(pl.col("context").fill_null(""), point=pl.lit(point.name))
    return rows.with_columns(contexts.hashes(rows["context"]).alias("context_sha256")).hstack(
        tokens.count(rows["context"])
    )


def _lines(rows: pl.DataFrame) -> str:
    names = (
        *("question_id", "point", "question", "question_type", "question_date"),
        *("context", "context_sha256", *tokens.ENCODINGS),
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.select(names).iter_rows(named=True))


def _search_results(rows: pl.DataFrame) -> str:
    """The file that OmniMemEval's answer stage reads for LongMemEval: an entry a user, here a question."""
    results: dict[str, list[dict[str, Any]]] = {
        row["question_id"]: [
            {
                "question": row["question"],
                "category": row["question_type"],
                "date": row["question_date"],
                "golden_answer": row["answer"],
                "answer_evidences": [],
                "search_context": row["context"],
                "search_duration_ms": 0.0,
                "status": "success" if row["context"] else "success_empty",
            }
        ]
        for row in rows.iter_rows(named=True)
    }
    return json.dumps(results, ensure_ascii=False, indent=4) + "\n"


def _earlier(path: Path) -> pl.Series:
    """question_id and context_sha256 of an export, of either form."""
    try:
        text = path.read_text(encoding="utf-8")
        if text.startswith("{\n"):
            entries = json.loads(text)
            pairs = [(name, own[0]["search_context"]) for name, own in entries.items()]
            hashed = contexts.hashes(pl.Series([context for _, context in pairs], dtype=pl.String))
            frame = pl.DataFrame({"question_id": [name for name, _ in pairs], "context_sha256": hashed})
        else:
            lines = [json.loads(line) for line in text.splitlines()]
            frame = pl.DataFrame(
                [(line["question_id"], line["context_sha256"]) for line in lines],
                schema={"question_id": pl.String, "context_sha256": pl.String},
                orient="row",
            )
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: is no export of contexts; write one with export-contexts") from error
    return frame.select(pl.struct("question_id", "context_sha256")).to_series()


if __name__ == "__main__":
    app(prog_name="export-contexts")
