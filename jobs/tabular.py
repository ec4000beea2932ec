"""Read a table of the chain from Parquet, CSV or JSON lines."""

import re
from collections.abc import Callable
from pathlib import Path

import dataframely as dy
import polars as pl

from allocation.errors import InputError
from allocation.tables import conform

_HALF_PAIR = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")


def read(path: Path, table: type[dy.Schema]) -> pl.DataFrame:
    """``path`` as ``table``, in the order of its rows.

    Raises:
        InputError: the file is missing, of an unknown kind, damaged, or has other columns.
    """
    if not path.is_file():
        raise InputError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}; give a table file")
    columns = table.column_names()
    readers: dict[str, Callable[[], pl.DataFrame]] = {
        ".parquet": lambda: _known(pl.scan_parquet(path, glob=False), columns),
        ".csv": lambda: _whole_numbers(pl.read_csv(path, infer_schema=False, glob=False), table, path),
        ".jsonl": lambda: _json_lines(path),
        ".ndjson": lambda: _json_lines(path),
    }
    if path.suffix not in readers:
        raise InputError(f"{path}: unknown kind of file; the name must end in {', '.join(readers)}")
    try:
        frame = readers[path.suffix]()
    except (pl.exceptions.PolarsError, OSError, UnicodeError) as error:
        raise InputError(f"{path}: cannot be read as {path.suffix[1:]}: {str(error).splitlines()[0]}") from error
    return conform(frame, table, str(path))


def _known(scan: pl.LazyFrame, columns: list[str]) -> pl.DataFrame:
    present = scan.collect_schema().names()
    return scan.select([name for name in columns if name in present] or pl.all()).collect()


def _json_lines(path: Path) -> pl.DataFrame:
    content = path.read_bytes()
    # NOTE: polars reads half of a surrogate pair as a NUL character instead of refusing it.
    if half := _HALF_PAIR.search(content):
        line = content.count(b"\n", 0, half.start()) + 1
        raise InputError(f"{path}: line {line}: \\u escape of half a surrogate pair; write the character itself")
    return pl.read_ndjson(content, infer_schema_length=None)


def _whole_numbers(text: pl.DataFrame, table: type[dy.Schema], path: Path) -> pl.DataFrame:
    """CSV cells are text; one that is no whole number becomes null, or -1 where a null is fine: both are reported."""
    if "query_vector" in text.columns:
        raise InputError(
            f"{path}: a CSV cannot hold query_vector; use Parquet or JSON lines for questions with vectors"
        )
    numbers = []
    for name, column in table.columns().items():
        if name in text.columns and column.dtype.is_integer():
            cell = pl.col(name).str.strip_chars()
            number = cell.cast(column.dtype, strict=False)
            unread = pl.when(cell != "").then(pl.lit(-1, dtype=column.dtype))
            numbers.append(pl.coalesce(number, unread) if column.nullable else number)
    return text.with_columns(numbers)
