"""Write a store as Parquet files, some records at a time."""

import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.progress import track

from allocation.tables import Entities, Records, Rejects, StoredBlocks, StoredNodes
from jobs import outputs
from jobs.store import Store

RECORDS = 2000  # read at a time, and to a row group


def write(
    opened: Store,
    source: Path,
    folder: Path,
    doing: str,
    blocks_of: Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame] = lambda _, stored: stored,
) -> dict[str, int]:
    """Write records, blocks, nodes and entities, and rejects.parquet if there is a record without a text to read.

    Args:
        opened: The store.
        source: What to call it in a reject.
        folder: Where to.
        doing: What to call the work while it goes on.
        blocks_of: StoredBlocks to write for Records and the StoredBlocks they have.

    Returns:
        Rows of each file.
    """
    tables = {"records": Records, "blocks": StoredBlocks, "nodes": StoredNodes}
    files = {name: outputs.Rows(folder / f"{name}.parquet", table) for name, table in tables.items()}
    rejects: list[pl.DataFrame] = [Rejects.create_empty()]
    counts = dict.fromkeys(tables, 0)
    owners = opened.owners()
    batches = owners["record_ref"].to_frame().iter_slices(RECORDS)
    total, console = -(-len(owners) // RECORDS), Console(stderr=True)
    for batch in track(batches, doing, total, console=console, transient=True, disable=not sys.stderr.isatty()):
        problems = opened.problems(batch["record_ref"])
        refs = problems.filter(pl.col("problem").is_null())["record_ref"].sort()
        rejects.append(_rejected(problems, source))
        records = opened.records(refs)
        for name, rows in zip(
            files, (records, blocks_of(records, opened.blocks(refs)), opened.nodes(refs)), strict=True
        ):
            files[name].add(rows)
            counts[name] += len(rows)
    for file in files.values():
        file.close()
    names = opened.entities(owners["agent_id"].unique().sort())
    outputs.write(Entities.validate(names), folder / "entities.parquet")
    bad = pl.concat(rejects)
    if len(bad):
        outputs.write(bad, folder / "rejects.parquet")
    return counts | {"entities": len(names), "rejects": len(bad)}


def told(counts: dict[str, int], out: Path) -> list[str]:
    """The line that tells what was written, and a warning if something was not."""
    done = ", ".join(f"{count:,} {name}" for name, count in counts.items() if name != "rejects")
    bad = counts["rejects"]
    warnings = [f"warning: {bad} records could not be used; see {out / 'rejects.parquet'}"] if bad else []
    return [f"{out}: {done}", *warnings]


def _rejected(problems: pl.DataFrame, source: Path) -> pl.DataFrame:
    """Rejects of a store: the row is the record's own number."""
    return problems.filter(pl.col("problem").is_not_null()).select(
        source=pl.lit(str(source)),
        row=pl.col("record_ref").str.split(":").list.last().cast(pl.Int64),
        key=pl.format("record_ref={}", "record_ref"),
        reason="problem",
    )
