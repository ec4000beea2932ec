"""Fill in the query vectors of questions from an embedding endpoint."""

import sys
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.console import Console
from rich.progress import Progress

from allocation.errors import InputError
from allocation.tables import Questions
from jobs import embedding, outputs, tabular
from jobs.errors import told_in_one_line
from jobs.store import open_store

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    questions: Annotated[Path, typer.Argument(help="Questions: .parquet, .csv or .jsonl.", show_default=False)],
    url: Annotated[
        str,
        typer.Option(help="The endpoint: http://…/embed of a memory, or …/v1/embeddings.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="Parquet file to write.", show_default=False)],
    model: Annotated[str | None, typer.Option(help="The endpoint's model; /v1/embeddings needs it.")] = None,
    store: Annotated[
        Path | None, typer.Option(help="Store the questions are for: warns where its vectors are of another model.")
    ] = None,
    cache: Annotated[Path, typer.Option(help="File that keeps every vector.")] = embedding.CACHE,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 60,
) -> None:
    """Write the questions with query_vector; those that have one keep it.

    A key is read from the environment variable EMBEDDING_API_KEY. Exit status: 0 done, 2 bad input or arguments, 1
    anything else.
    """
    with told_in_one_line():
        if out.suffix != ".parquet":
            raise InputError(f"{out}: vectors are written as Parquet; let --out end in .parquet")
        rows = tabular.read(questions, Questions)
        missing = rows["query_vector"].list.len().fill_null(0) == 0
        empty = rows["question"].fill_null("").str.strip_chars() == ""
        if (missing & empty).any():
            row = (missing & empty).arg_true()[0]
            raise InputError(f"{questions}: row {row + 1} ({rows['question_id'][row]}): question is empty; mend it")
        texts = rows["question"].filter(missing).to_list()
        with (
            embedding.Embedder(url, model, cache, timeout) as embedder,
            Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress,
        ):
            task = progress.add_task("embedding", total=len(texts))
            vectors = embedder.vectors(texts, lambda count: progress.advance(task, count))
            if len(texts) and not vectors.any(axis=1).all():
                row = rows.filter(missing)["question_id"].to_list()[int((~vectors.any(axis=1)).argmax())]
                raise InputError(
                    f"{url.partition('?')[0]}: gave a vector of zeros for question {row}; ask another model"
                )
            fresh = iter(vectors.tolist())
            every = [next(fresh) if new else kept for new, kept in zip(missing, rows["query_vector"], strict=True)]
            filled = rows.with_columns(query_vector=pl.Series(every, dtype=rows.schema["query_vector"]))
            with outputs.whole_file(out) as part:
                outputs.write(filled, part)
            typer.echo(f"{out}: {len(texts):,} vectors of {embedder.label}, {embedder.sent:,} of them fetched now")
            if store is not None and len(texts):
                for warning in _mismatches(store, embedder.names, vectors.shape[1]):
                    typer.echo(f"warning: {warning}", err=True)


def _mismatches(path: Path, names: list[str], width: int) -> list[str]:
    """How a store's vectors differ from the questions'. A label that is empty says nothing."""
    with open_store(path) as opened:
        models = opened.models()
    other = models.filter(~pl.col("embedding_model").is_in([*names, ""]))["embedding_model"].unique().sort()
    found = [
        f"the store's vectors are of {name!r}, the questions' of {names[0]!r}; cosines between them mean nothing"
        for name in other
    ]
    widths = models["width"].drop_nulls().unique().sort().to_list()
    if widths and width not in widths:
        found.append(f"the store's vectors have {', '.join(map(str, widths))} dimensions, the questions' {width}")
    return found


if __name__ == "__main__":
    app(prog_name="embed-questions")
