"""Rules, and the record of those that were registered."""

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import polars as pl

from allocation import rules, splits
from allocation.errors import InputError
from allocation.rules import Rule
from jobs import outputs
from jobs.runs import Run

RULES = Path("data/rules")
REGISTERED = RULES / "registered.jsonl"


def read(named: str) -> tuple[Rule, str]:
    """A rule and the SHA-256 of its file; ``named`` is a path, or the name of a file in data/rules.

    Raises:
        InputError: there is no such file, or it holds no rule.
    """
    path = Path(named) if named.endswith(".toml") else RULES / f"{named}.toml"
    try:
        content = path.read_bytes()
        values = tomllib.loads(content.decode())
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: cannot be read as a rule: {error}") from error
    return rules.of(values, str(path)), hashlib.sha256(content).hexdigest()


def registered() -> list[dict[str, Any]]:
    """Every registration, first to last.

    Raises:
        InputError: the record is damaged.
    """
    if not REGISTERED.exists():
        return []
    try:
        return [json.loads(line) for line in REGISTERED.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise InputError(f"{REGISTERED}: damaged ({error}); restore it from version control") from error


def add(entry: dict[str, Any]) -> None:
    """Append a registration; the caller holds ``outputs.only_one(REGISTERED)``."""
    earlier = REGISTERED.read_text(encoding="utf-8") if REGISTERED.exists() else ""
    with outputs.whole_file(REGISTERED) as part:
        part.write_text(earlier + json.dumps(entry, ensure_ascii=False) + "\n", encoding="utf-8")


def test_questions(run: Run) -> pl.DataFrame:
    """The questions a claim is made on.

    Raises:
        InputError: the run has no test questions, or no development questions were set apart.
    """
    questions = run.table("questions")
    splits.only(questions, splits.DEV, str(run.folder))
    return splits.only(questions, splits.TEST, str(run.folder))


def frozen(run: Run, questions: pl.DataFrame) -> dict[str, str]:
    """What a registration holds fast of a run: its settings and its test questions."""
    ids = "\n".join(questions["question_id"].sort())
    settings = json.dumps(run.description["settings"], sort_keys=True)
    return {"settings_sha256": _digest(settings), "test_questions_sha256": _digest(ids)}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
