"""Turn an SQLite store into Parquet files, for object stores and clusters."""

import sys
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.console import Console
from rich.progress import track

from allocation.errors import InputError
from allocation.tables import Entities, Records, Rejects, StoredBlocks, StoredNodes
from jobs import outputs
from jobs.errors import told_in_one_line
from jobs.store import open_store

RECORDS = 2000  # exported at a time, and to a row group

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
            tables = {"records": Records, "blocks": StoredBlocks, "nodes": StoredNodes}
            files = {name: outputs.Rows(folder / f"{name}.parquet", table) for name, table in tables.items()}
            rejects: list[pl.DataFrame] = [Rejects.create_empty()]
            counts = dict.fromkeys(tables, 0)
            owners = opened.owners()
            batches = owners["record_ref"].to_frame().iter_slices(RECORDS)
            total, console = -(-len(owners) // RECORDS), Console(stderr=True)
            for batch in track(
                batches, "exporting", total, console=console, transient=True, disable=not sys.stderr.isatty()
            ):
                problems = opened.problems(batch["record_ref"])
                refs = problems.filter(pl.col("problem").is_null())["record_ref"].sort()
                rejects.append(_rejected(problems, store))
                for name, rows in zip(
                    files, (opened.records(refs), opened.blocks(refs), opened.nodes(refs)), strict=True
                ):
                    files[name].add(rows)
                    counts[name] += len(rows)
            for file in files.values():
                file.close()
            names = opened.entities(owners["agent_id"].unique().sort())
            Entities.validate(names).write_parquet(folder / "entities.parquet", compression="zstd")
            bad = pl.concat(rejects)
            if len(bad):
                bad.write_parquet(folder / "rejects.parquet", compression="zstd")
        told = ", ".join(f"{count:,} {name}" for name, count in (counts | {"entities": len(names)}).items())
        typer.echo(f"{out}: {told}")
        if len(bad):
            typer.echo(f"warning: {len(bad)} records could not be used; see {out / 'rejects.parquet'}", err=True)


def _rejected(problems: pl.DataFrame, store: Path) -> pl.DataFrame:
    """Rejects of a store: the row is the record's own number."""
    return problems.filter(pl.col("problem").is_not_null()).select(
        source=pl.lit(str(store)),
        row=pl.col("record_ref").str.split(":").list.last().cast(pl.Int64),
        key=pl.format("record_ref={}", "record_ref"),
        reason="problem",
    )


if __name__ == "__main__":
    app(prog_name="export-store")
