"""Turn an SQLite store into Parquet files, for object stores and clusters."""

from pathlib import Path
from typing import Annotated

import typer

from allocation.errors import InputError
from jobs import outputs, store_files
from jobs.errors import told_in_one_line
from jobs.store import open_store

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    store: Annotated[Path, typer.Argument(help="SQLite store of a memory server.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="Folder to write; an earlier export there is replaced.", show_default=False)
    ],
) -> None:
    """Write a store as records.parquet, blocks.parquet, nodes.parquet and entities.parquet.

    The store is read in one transaction. Records without a text that can be read are listed in rejects.parquet. Exit
    status: 0 done, 2 bad input or arguments, 1 anything else.
    """
    with told_in_one_line():
        if not store.is_file():
            raise InputError(f"{store}: {'is a folder' if store.exists() else 'no such file'}; give an SQLite file")
        with outputs.whole_folder(out, "records.parquet", "an exported store") as folder, open_store(store) as opened:
            counts = store_files.write(opened, store, folder, "exporting")
        done, *warnings = store_files.told(counts, out)
        typer.echo(done)
        for warning in warnings:
            typer.echo(warning, err=True)


if __name__ == "__main__":
    app(prog_name="export-store")
