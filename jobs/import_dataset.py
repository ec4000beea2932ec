"""Turn a benchmark's file into a store without vectors, its questions and its evidence."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import dataframely as dy
import ijson
import polars as pl
import typer
from rich.console import Console
from rich.progress import track

from allocation import datasets
from allocation.errors import InputError
from allocation.tables import Evidence, Questions, Records, Rejects, StoredBlocks
from jobs import outputs
from jobs.errors import told_in_one_line

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    name: Annotated[Literal["longmemeval", "locomo"], typer.Argument(help="Which data set.", show_default=False)],
    file: Annotated[Path, typer.Argument(help="Its JSON file.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="Folder to write; an earlier import there is replaced.", show_default=False)
    ],
    records: Annotated[
        Literal["session", "turn"], typer.Option(help="What a record is (LoCoMo; LongMemEval has sessions).")
    ] = "session",
) -> None:
    """Write store/ (records, no vectors), questions.parquet and evidence.parquet.

    What cannot be used is listed in rejects.parquet. Exit status: 0 done, 2 bad input or arguments, 1 anything else.
    """
    with told_in_one_line():
        if name == "longmemeval" and records == "turn":
            raise InputError("--records turn: LongMemEval's records are sessions")
        with outputs.whole_folder(out, "questions.parquet", "an imported data set") as folder:
            counts = _write(name, file, folder, records)
        told = ", ".join(f"{count:,} {table}" for table, count in counts.items() if table != "rejects")
        typer.echo(f"{out}: {told}")
        if counts["rejects"]:
            typer.echo(
                f"warning: {counts['rejects']} notes on what could not be used: {out / 'rejects.parquet'}", err=True
            )


def _write(name: str, file: Path, folder: Path, records: Literal["session", "turn"]) -> dict[str, int]:
    (folder / "store").mkdir()
    tables: dict[str, tuple[str, type[dy.Schema]]] = {
        "records": ("store/records.parquet", Records),
        "questions": ("questions.parquet", Questions),
        "evidence": ("evidence.parquet", Evidence),
        "rejects": ("rejects.parquet", Rejects),
    }
    files = {table: outputs.Rows(folder / path, schema) for table, (path, schema) in tables.items()}
    counts = dict.fromkeys(tables, 0)
    known: set[str] = set()
    entries = track(
        _entries(file), "importing", None, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    )
    for number, entry in enumerate(entries, 1):
        found = (
            datasets.longmemeval(entry, counts["records"] + 1)
            if name == "longmemeval"
            else datasets.locomo(entry, counts["records"] + 1, records)
        )
        for question in found.questions:
            if question["question_id"] in known:
                raise InputError(f"{file}: question {question['question_id']} occurs twice; give each entry once")
            known.add(question["question_id"])
        noted = [{"source": file.name, "row": number, "key": key, "reason": reason} for key, reason in found.rejects]
        rows = {"records": found.records, "questions": found.questions, "evidence": found.evidence, "rejects": noted}
        for table, own in rows.items():
            schema = {column: kind.dtype for column, kind in tables[table][1].columns().items()}
            files[table].add(pl.DataFrame(own, schema=schema))
            counts[table] += len(own)
    for written in files.values():
        written.close()
    if not counts["questions"]:
        raise InputError(f"{file}: holds no question; give the data set's own JSON")
    outputs.write(StoredBlocks.create_empty(), folder / "store" / "blocks.parquet")
    if not counts["rejects"]:
        (folder / "rejects.parquet").unlink()
    return counts


def _entries(file: Path) -> Iterator[Any]:
    """The elements of the file's list, one at a time: LongMemEval's has 270 MB. A file of one element may be no list.

    Raises:
        InputError: the file is missing, or no list in JSON to its end.
    """
    try:
        with file.open("rb") as content:
            alone = content.read(1) == b"{"
            content.seek(0)
            yield from ijson.items(content, "" if alone else "item", use_float=True)
    except FileNotFoundError as error:
        raise InputError(f"{file}: no such file; give the data set's JSON") from error
    except (ijson.JSONError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file}: is no whole JSON list ({' '.join(str(error).split())[:80]}); get it again"
        ) from error


if __name__ == "__main__":
    app(prog_name="import-dataset")
