"""Look at a run in DuckDB: a prompt, or the rows of one query."""

import glob
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import duckdb
import typer

from allocation.errors import InputError
from jobs.errors import told_in_one_line
from jobs.runs import Run

ROWS = 10_000  # of a printed table
WIDTH = 10_000  # of a table that is not printed to a terminal
PROMPT = "run> "

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")] = Path("outputs/latest"),
    command: Annotated[str | None, typer.Option("-c", help="Print the rows of this query and leave.")] = None,
) -> None:
    """Open DuckDB with a run's tables as views: sequences, parts, questions, windows, evidence, records; and, once
    its curves are drawn, points, metrics, curves and the instruments.

    Exit status: 0 done, 2 bad input or arguments, 1 anything else.
    """
    with told_in_one_line():
        Run(run)
        shell = shutil.which("duckdb")
        if command is not None:
            with session(run) as connection:
                _show(connection, command)
        elif shell:
            opened = subprocess.run([shell, "-cmd", _views(run)], check=False)  # noqa: S603 - the user's own DuckDB
            raise typer.Exit(opened.returncode)
        else:
            with session(run) as connection:
                _prompt(connection)


@contextmanager
def session(run: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB session with the views of the run's analysis.sql.

    Raises:
        InputError: a file of the run is missing or damaged.
    """
    with duckdb.connect() as connection:
        try:
            connection.execute(_views(run))
        except (duckdb.Error, OSError) as error:
            raise InputError(f"{run}: incomplete ({str(error).splitlines()[0]}); build the run again") from error
        yield connection


def _views(run: Path) -> str:
    """The run's analysis.sql, told where the run is."""
    folder = glob.escape(str(run)).replace("'", "''")
    return f"SET VARIABLE run = '{folder}';\n" + (run / "analysis.sql").read_text(encoding="utf-8")


def _show(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Print what a query gives.

    Raises:
        InputError: DuckDB refuses it.
    """
    try:
        rows = connection.sql(text)
        if rows is not None:
            rows.show(max_rows=ROWS, max_width=shutil.get_terminal_size((WIDTH, 0)).columns)
    except duckdb.Error as error:
        raise InputError(f"{text.strip()}: {error}") from error


def _prompt(connection: duckdb.DuckDBPyConnection) -> None:
    """Read queries, each ended by a semicolon, until the input ends."""
    typer.echo("Queries end with a semicolon, the input's end leaves. Views: FROM sequences, FROM curves …")
    text = ""
    while True:
        try:
            text += input("  -> " if text else PROMPT) + "\n"
        except EOFError:
            typer.echo()
            return
        if not text.strip():
            text = ""
        elif text.rstrip().endswith(";"):
            try:
                _show(connection, text)
            except InputError as error:
                typer.echo(f"error: {error}", err=True)
            text = ""


if __name__ == "__main__":
    app(prog_name="sql")
