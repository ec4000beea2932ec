"""How a command tells what went wrong."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from allocation.errors import InputError


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Print an expected failure as one line; exit with 2 for bad input, 1 for what the system refused."""
    try:
        yield
    except (InputError, OSError) as error:
        typer.echo("error: " + " ".join(str(error).splitlines()), err=True)
        raise typer.Exit(2 if isinstance(error, InputError) else 1) from error
