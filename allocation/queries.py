"""The SQL of the curves: one file a query in ``sql/``, run by DuckDB (DESIGN.md, "Curves")."""

from importlib.resources import files

import duckdb
import polars as pl

# The instruments, in the order of DESIGN.md; each is a view a user can look at and change.
INSTRUMENTS = ("count_curve", "quote_curve", "quoted_text", "losses", "evidence_rank", "budget_curve", "by_type")


def text(name: str) -> str:
    """The query ``name`` as its file has it."""
    return (files("allocation") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


def run(name: str, **inputs: pl.DataFrame) -> pl.DataFrame:
    """The rows of query ``name`` over frames by the names it reads them by.

    Rows and their order do not depend on the number of threads: sums are of whole numbers, orders have full keys.
    """
    with duckdb.connect() as connection:
        for table, frame in inputs.items():
            connection.register(table, frame)
        rows: pl.DataFrame = connection.sql(text(name)).pl()
        return rows


def analysis(*, with_curves: bool) -> str:
    """SQL that makes a run's files views of one DuckDB session.

    Args:
        with_curves: Also the points, the metrics and the instruments, of a run whose curves are drawn.
    """
    parts = [text("run")]
    if with_curves:
        parts.append(text("run_curves"))
        parts += [f"CREATE OR REPLACE VIEW {name} AS\n{text(name)}" for name in ("measures", *INSTRUMENTS)]
    return "\n".join(part.rstrip().rstrip(";") + ";\n" for part in parts)
