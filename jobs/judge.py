"""Apply a registered rule to the answers, once."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from allocation import answers, judging
from allocation.errors import InputError
from allocation.rules import Rule
from jobs import outputs, rule_files
from jobs.errors import told_in_one_line
from jobs.import_answers import kept
from jobs.runs import Run

JUDGEMENTS = Path("outputs/judgements")
WIDTH = 100  # columns of what is not printed to a terminal

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    named: Annotated[
        str, typer.Argument(metavar="RULE", help="A TOML file, or a name in data/rules.", show_default=False)
    ],
    run: Annotated[Path, typer.Option(help="Folder of the run the rule is about.")] = Path("outputs/latest"),
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Judge on the questions that are answered on both sides.")
    ] = False,
    rerun: Annotated[bool, typer.Option("--rerun", help="Judge again; needs --why, and both stay on record.")] = False,
    why: Annotated[str | None, typer.Option(help="Why the rule is judged again.")] = None,
) -> None:
    """Say whether a registered rule is met, and write the verdict to outputs/judgements.

    Exit status: 0 judged, met or not; 2 bad input or arguments, 1 anything else.
    """
    with told_in_one_line():
        if rerun != bool(why):
            raise InputError("--rerun and --why TEXT go together")
        rule, digest = rule_files.read(named)
        finished = Run(run)
        questions = rule_files.test_questions(finished)
        registration = _registration(rule, digest, rule_files.frozen(finished, questions))
        with outputs.only_one(JUDGEMENTS / rule.name):
            earlier = sorted(JUDGEMENTS.glob(f"{rule.name}-*.json"))
            if earlier and not rerun:
                raise InputError(
                    f"rule {rule.name}: was judged, see {earlier[-1]}; judge again with --rerun --why TEXT"
                )
            answered, missing = _answered(rule, finished, questions)
            if missing and not allow_missing:
                raise InputError(
                    f"rule {rule.name}: {missing} of {len(questions)} test questions are not answered on both sides;"
                    " import them, or pass --allow-missing"
                )
            if answered.is_empty():
                raise InputError(f"rule {rule.name}: no answer at {rule.point} and {rule.control}; import them")
            verdict = judging.verdict(rule, answered)
            judgement: dict[str, Any] = {
                "rule": rule.name,
                "registration": registration,
                "missing": missing,
                "verdict": verdict,
                "why": why,
                "judged_at": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            path = JUDGEMENTS / f"{rule.name}-{len(earlier) + 1:03}.json"
            outputs.write_json(path, judgement)
    _print(rule, verdict, missing, path)


def _registration(rule: Rule, digest: str, frozen: dict[str, str]) -> dict[str, Any]:
    """The rule's registration.

    Raises:
        InputError: there is none, or what it holds fast has changed.
    """
    found = [entry for entry in rule_files.registered() if entry["name"] == rule.name]
    if not found:
        raise InputError(f"rule {rule.name}: is not registered; register it before its questions are answered")
    entry = found[-1]
    for key, what in (
        ("settings_sha256", "the run's settings are"),
        ("test_questions_sha256", "the test questions are"),
    ):
        if entry[key] != frozen[key]:
            raise InputError(f"rule {rule.name}: {what} not those it was registered with; judge the run it is about")
    if entry["rule_sha256"] != digest:
        raise InputError(f"rule {rule.name}: was changed after it was registered; restore it, or register a new one")
    return entry


def _answered(rule: Rule, run: Run, questions: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The questions answered on both sides, as ``judging.verdict`` reads them, and how many are not."""
    given = kept()
    point, control = (answers.at(run.points(name), given).drop("sha256") for name in (rule.point, rule.control))
    both = (
        questions.select("question_id", "question_type")
        .join(point, on="question_id")
        .join(control.rename(lambda name: name if name == "question_id" else f"control_{name}"), on="question_id")
        .sort("question_id")
    )
    whole = both.drop_nulls(["correct", "control_correct"])
    return whole, len(questions) - len(whole)


def _print(rule: Rule, verdict: dict[str, Any], missing: int, path: Path) -> None:
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, markup=False)
    console.print(f"{rule.name}: {'MET' if verdict['met'] else 'NOT MET'}")
    for reason in verdict["reasons"]:
        console.print(f"  {reason}")
    console.print(
        f"\n{rule.point} against {rule.control}: {verdict['difference']:+.2f} points, {100 * rule.interval['level']:g}%"
        f" interval {verdict['low']:+.2f} to {verdict['high']:+.2f} (asked: lower bound {rule.bound})",
        soft_wrap=True,
    )
    console.print(f"{verdict['questions']} test questions, {missing} more not answered; {verdict['tokens_counted']}\n")
    sides = Table("", "correct", "accuracy", "95% interval", "context tokens", box=box.SIMPLE)
    for name, side in ((rule.point, verdict["point"]), (rule.control, verdict["control"])):
        interval = f"{side['low']:.1f} to {side['high']:.1f} %"
        sides.add_row(
            name, f"{side['correct']:,}", f"{side['accuracy']:.2f} %", interval, f"{side['context_tokens']:,.1f}"
        )
    types = Table("question type", "questions", rule.point, rule.control, "wins", "losses", box=box.SIMPLE)
    for row in verdict["types"]:
        types.add_row(*(str(value) for value in row.values()))
    for table in (sides, types):
        for column in table.columns[1:]:
            column.justify = "right"
        console.print(table)
    for name in ("wins", "losses"):
        console.print(f"{name} ({len(verdict[name])}): {', '.join(verdict[name]) or 'none'}", soft_wrap=True)
    console.print(f"McNemar's exact p: {verdict['mcnemar_p']:.4f}\n{path}", soft_wrap=True)


if __name__ == "__main__":
    app(prog_name="judge")
