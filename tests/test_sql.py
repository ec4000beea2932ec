"""A run in DuckDB: its own views, our prompt, and any other client."""

import subprocess
import sys

import duckdb
import polars as pl
import pytest
from typer.testing import CliRunner

from jobs.sql import app, session
from tests.workspace import Workspace


def sql(work, *arguments, text=None):
    return CliRunner().invoke(app, [str(work.out), *arguments], input=text)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A run in a folder whose name is pattern, quote and comma to DuckDB."""
    work = Workspace(tmp_path_factory.mktemp("sql") / "it's [1], *")
    work.build()
    return work


@pytest.fixture(autouse=True)
def without_a_shell(monkeypatch):
    monkeypatch.setattr("jobs.sql.shutil.which", lambda name: None)


def test_views_are_the_files(built):
    with session(built.out) as connection:
        for name in ("parts", "questions", "windows", "evidence", "records"):
            assert (
                connection.sql(f"FROM {name}").pl().equals(pl.read_parquet(built.out / f"{name}.parquet", glob=False))
            )
        rows = connection.sql("FROM sequences WHERE sequence = 'items@320/160'").pl()
    assert rows.drop("sequence").sort("question_id", "position").equals(built.rows("items@320%2F160"))


@pytest.mark.parametrize("budget", [0, 20, 33, 34, 37, 5000])
def test_cut_is_the_prefix_a_budget_takes(built, budget):
    rows = built.rows("coverage")
    expected, passed = [], set()
    for question, position, used in rows.select("question_id", "position", "used").iter_rows():
        if position and used > budget:
            passed.add(question)
        if question not in passed:
            expected.append((question, position))
    with session(built.out) as connection:
        found = connection.sql("FROM cut('coverage', $budget)", params={"budget": budget})
        assert sorted(found.project("question_id, position").fetchall()) == expected


def test_one_query(built):
    result = sql(built, "-c", "SELECT question_id, count(*) AS steps FROM cut('items', 0) GROUP BY ALL ORDER BY 1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split("│")[1:3] for line in result.stdout.splitlines() if "q1" in line or "q2" in line] == [
        [" q1          ", "     1 "],
        [" q2          ", "     1 "],
    ]


def test_the_prompt_goes_on_after_an_error(built):
    result = sql(built, text="\nSELECT 1 +\n  41 AS sum;\nFROM nowhere;\nSELECT 'a;b' AS c;\n")
    assert result.exit_code == 0
    assert "42" in result.stdout
    assert "a;b" in result.stdout
    assert result.stderr.startswith("error: FROM nowhere;")


def test_a_query_that_duckdb_refuses(built):
    result = sql(built, "-c", "FROM nowhere")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: FROM nowhere: Catalog Error: Table with name nowhere does not exist!")
    assert len(result.stderr.splitlines()) == 1


def test_what_is_not_a_run(tmp_path):
    result = CliRunner().invoke(app, [str(tmp_path)])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "is not the output of a run" in result.stderr


def test_analysis_sql_needs_nothing_of_ours(built):
    """From the run's folder, as its first line says."""
    code = (
        "import duckdb; c = duckdb.connect(); c.execute(open('analysis.sql').read());"
        "print(c.sql(\"SELECT count(*) FROM cut('evidence', 5000)\").fetchall()[0][0])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=built.out, capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(built.rows("evidence"))


def test_the_shell_gets_the_views(built, tmp_path, monkeypatch):
    """Where DuckDB's own shell is installed, it is opened with the same views."""
    shell = tmp_path / "duckdb"
    code = (
        "import duckdb, sys; c = duckdb.connect(); c.execute(sys.argv[2]); c.sql('FROM records').write_csv('found.csv')"
    )
    shell.write_text(f"#!{sys.executable}\n{code}\n")
    shell.chmod(0o755)
    monkeypatch.setattr("jobs.sql.shutil.which", lambda name: str(shell))
    monkeypatch.chdir(tmp_path)
    assert sql(built).exit_code == 0
    assert duckdb.sql(f"FROM '{tmp_path}/found.csv'").fetchall()[0][:2] == ("ep:1", 37)
