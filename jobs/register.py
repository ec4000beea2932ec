"""Register a rule before its test questions are answered."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from allocation import splits
from allocation.errors import InputError
from jobs import outputs, rule_files
from jobs.errors import told_in_one_line
from jobs.import_answers import kept
from jobs.runs import Run

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    named: Annotated[
        str, typer.Argument(metavar="RULE", help="A TOML file, or a name in data/rules.", show_default=False)
    ],
    run: Annotated[Path, typer.Option(help="Folder of the run the rule is about.")] = Path("outputs/latest"),
) -> None:
    """Freeze a rule, the run's settings and its test questions into data/rules/registered.jsonl.

    Commit that file, so that the date is not your word alone. Exit status: 0 done, 2 bad input or arguments, 1
    anything else.
    """
    with told_in_one_line():
        rule, digest = rule_files.read(named)
        finished = Run(run)
        questions = rule_files.test_questions(finished)
        for point in (rule.point, rule.control):
            finished.points(point)
        with outputs.only_one(rule_files.REGISTERED):
            if any(entry["name"] == rule.name for entry in rule_files.registered()):
                raise InputError(f"rule {rule.name}: is registered already; a changed rule needs another name")
            seen = kept().filter(
                pl.col("question_id").is_in(questions["question_id"].implode()), pl.col("point") == rule.point
            )
            if len(seen):
                raise InputError(
                    f"rule {rule.name}: {len(seen)} test questions have answers at {rule.point} already; a rule is"
                    " registered before any is seen"
                )
            entry = {
                "name": rule.name,
                "rule_sha256": digest,
                **rule_files.frozen(finished, questions),
                "settings": finished.description["settings"],
                "point": rule.point,
                "control": rule.control,
                "test_questions": len(questions),
                "registered_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "commit": _commit(),
            }
            rule_files.add(entry)
        typer.echo(
            f"{rule_files.REGISTERED}: {rule.name}, {rule.point} against {rule.control} on {len(questions)}"
            f" {splits.TEST} questions; commit the file before the answers come"
        )


def _commit() -> str | None:
    """The commit that is checked out, marked where files differ from it; None outside version control."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--match="]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return None


if __name__ == "__main__":
    app(prog_name="register")
