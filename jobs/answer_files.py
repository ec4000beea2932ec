"""Read graded answers as they come: our own tables, OmniMemEval's judged JSON, LongMemEval's eval-results JSONL."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from allocation.errors import InputError

# What every form is read as. ``question``, where a form has it, stands in for an unknown question_id.
COLUMNS = {
    "row": pl.Int64,
    "question_id": pl.String,
    "question": pl.String,
    "point": pl.String,
    "correct": pl.Boolean,
    "prompt_tokens": pl.Int64,
}

_YES, _NO = ("true", "1", "yes", "correct"), ("false", "0", "no", "wrong", "incorrect")


def read(path: Path) -> pl.DataFrame:
    """The graded answers in ``path``, a row an answer; values that cannot be read are null.

    Raises:
        InputError: the file is missing, of an unknown kind, damaged, or holds no graded answers.
    """
    readers = {".json": _judged, ".jsonl": _lines, ".ndjson": _lines, ".csv": _csv, ".parquet": _parquet}
    # LongMemEval's evaluation adds an ending to the name: hypotheses.jsonl.eval-results-gpt-4o
    kind = ".jsonl" if ".eval-results" in path.name else path.suffix
    if not path.is_file():
        raise InputError(f"{path}: no such file; give a file of graded answers")
    if kind not in readers:
        raise InputError(f"{path}: unknown kind of file; the name must end in {', '.join(readers)}")
    try:
        rows = readers[kind](path)
    except (pl.exceptions.PolarsError, OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: cannot be read as graded answers: {str(error).splitlines()[0]}") from error
    if not rows:
        raise InputError(f"{path}: holds no graded answer")
    if all(row.get("correct") is None for row in rows):
        raise InputError(f"{path}: no answer is graded; give correct (true or false), autoeval_label or llm_judgments")
    numbered = [{name: row.get(name) for name in COLUMNS} | {"row": number} for number, row in enumerate(rows, 1)]
    return pl.DataFrame(numbered, schema=COLUMNS, orient="row")


def _lines(path: Path) -> list[dict[str, Any]]:
    """JSON lines: our own, or LongMemEval's with an autoeval_label."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"line {number} is no JSON") from error
        label = row.get("autoeval_label", row.get("correct"))
        found.append(_row(row, label["label"] if isinstance(label, dict) else label))
    return found


def _judged(path: Path) -> list[dict[str, Any]]:
    """OmniMemEval's judged file: an entry a user; correct is what most of its judge runs say, a tie is wrong."""
    found = []
    for user, entry in json.loads(path.read_text(encoding="utf-8")).items():
        own = entry[0] if isinstance(entry, list) else entry
        runs = [value is True for value in (own.get("llm_judgments") or {}).values()]
        tokens = (own.get("nlp_metrics") or {}).get("context_tokens")
        graded = 2 * sum(runs) > len(runs) if runs else None
        found.append({"question_id": user, "question": own.get("question"), "correct": graded, "prompt_tokens": tokens})
    return found


def _csv(path: Path) -> list[dict[str, Any]]:
    return [_row(row, row.get("correct")) for row in pl.read_csv(path, infer_schema=False, glob=False).to_dicts()]


def _parquet(path: Path) -> list[dict[str, Any]]:
    return [_row(row, row.get("correct")) for row in pl.read_parquet(path, glob=False).to_dicts()]


def _row(row: dict[str, Any], graded: Any) -> dict[str, Any]:
    tokens = row.get("prompt_tokens")
    return {
        "question_id": None if row.get("question_id") is None else str(row["question_id"]),
        "point": row.get("point"),
        "correct": _truth(graded),
        "prompt_tokens": None if tokens in (None, "") else int(tokens),
    }


def _truth(value: Any) -> bool | None:
    text = str(value).strip().lower()
    return True if text in _YES else False if text in _NO else None
