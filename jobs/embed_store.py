"""Divide a store's records into blocks and give them vectors from an embedding endpoint."""

from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from allocation import block_sets
from allocation.similarity import packed
from allocation.tables import StoredBlocks
from allocation.text import Corpus
from jobs import embedding, outputs, store_files
from jobs.errors import told_in_one_line
from jobs.store import open_store

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    store: Annotated[
        Path,
        typer.Argument(help="Folder with records.parquet and blocks.parquet, or SQLite store.", show_default=False),
    ],
    url: Annotated[
        str,
        typer.Option(help="The endpoint: http://…/embed of a memory, or …/v1/embeddings.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder to write; an earlier export there is replaced.", show_default=False)
    ],
    model: Annotated[str | None, typer.Option(help="The endpoint's model; /v1/embeddings needs it.")] = None,
    cache: Annotated[Path, typer.Option(help="File that keeps every vector.")] = embedding.CACHE,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 60,
) -> None:
    """Write the store as Parquet with a vector for every block.

    Records whose blocks have vectors of this model keep them; others are divided anew. What was fetched is kept if the
    command is stopped, and not sent again. A key is read from the environment variable EMBEDDING_API_KEY. Exit
    status: 0 done, 2 bad input or arguments, 1 anything else.
    """
    with told_in_one_line():
        with (
            outputs.whole_folder(out, "records.parquet", "an exported store") as folder,
            open_store(store) as opened,
            embedding.Embedder(url, model, cache, timeout) as embedder,
        ):
            counts = store_files.write(
                opened, store, folder, "embedding", lambda records, stored: _blocks(records, stored, embedder)
            )
            sent = embedder.sent
        done, *warnings = store_files.told(counts, out)
        typer.echo(f"{done}; {sent:,} texts were sent")
        for warning in warnings:
            typer.echo(warning, err=True)


def _blocks(records: pl.DataFrame, stored: pl.DataFrame, embedder: embedding.Embedder) -> pl.DataFrame:
    """StoredBlocks of the records, all with vectors of the endpoint's model."""
    blocks = block_sets.build(records, stored.filter(pl.col("embedding_model") == embedder.label))
    missing = pl.col("vector").is_null()
    own = blocks.filter(missing)
    corpus = Corpus(records["text"])
    base = corpus.base[own["record"].to_numpy()]
    texts = corpus.cut(base + own["start"].to_numpy(), base + own["end"].to_numpy())
    found = own.with_columns(vector=packed(embedder.vectors(texts.to_list())))
    filled = pl.concat([blocks.filter(~missing), found]).with_columns(embedding_model=pl.lit(embedder.label))
    return StoredBlocks.validate(filled.select(StoredBlocks.column_names()).sort("record_ref", "block_index"))


if __name__ == "__main__":
    app(prog_name="embed-store")
