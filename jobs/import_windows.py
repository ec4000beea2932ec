"""Turn a memory server's saved answers into windows, and the parts of the questions its traces recorded."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from allocation import traces
from allocation.errors import InputError
from allocation.tables import Questions, Rejects, Windows
from jobs import outputs, tabular
from jobs.errors import told_in_one_line

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    file: Annotated[
        Path,
        typer.Argument(help="Answers of reconstruct or recall, with trace=true: .json or .jsonl.", show_default=False),
    ],
    questions: Annotated[Path, typer.Option(help="The questions that were asked.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="Folder to write; an earlier import there is replaced.", show_default=False)
    ],
) -> None:
    """Write windows.parquet, and questions.parquet with the recorded parts.

    An answer is named by a question_id beside it (and what was asked, as record-windows keeps it), or by its key in one
    JSON object. One that cannot be used is listed in rejects.parquet. Exit status: 0 done, 2 bad input or arguments,
    1 anything else.
    """
    with told_in_one_line():
        asked = tabular.read(questions, Questions)
        texts = dict(asked.select("question_id", "question").iter_rows())
        windows: dict[str, list[traces.Row]] = {}
        recorded: dict[str, list[str] | None] = {}
        refused: dict[str, list[tuple[int, str]]] = {}
        for row, question_id, answer in _answers(file):
            try:
                if question_id not in texts:
                    raise InputError("question_id is unknown")
                if question_id in windows:
                    raise InputError("the question was answered before; the first answer is used")
                known = answer.get("asked")
                if isinstance(known, dict) and known.get("query") != texts[question_id]:
                    raise InputError("was asked with another text than the question has")
                response = traces.unwrapped(answer)
                own = traces.window(question_id, response)
                recorded[question_id] = traces.parts(texts[question_id], response)
                windows[question_id] = own
                refused.pop(question_id, None)  # an attempt before this one
            except InputError as error:
                refused.setdefault(question_id, []).append((row, str(error)))
        if not any(windows.values()):
            why = next(iter(refused.values()), [(0, "it holds no answer")])[0]
            raise InputError(f"{file}: row {why[0]}: {why[1]}; no answer in it can be used")
        rejects = [
            {"source": str(file), "row": row, "key": f"question_id={question_id}", "reason": reason}
            for question_id, reasons in refused.items()
            for row, reason in reasons
        ]
        schema = {name: column.dtype for name, column in Windows.columns().items()}
        rows = pl.DataFrame([row for own in windows.values() for row in own], schema=schema)
        parts = [
            recorded.get(question_id) or own for question_id, own in asked.select("question_id", "parts").iter_rows()
        ]
        with outputs.whole_folder(out, "windows.parquet", "imported windows") as folder:
            ordered = Windows.validate(rows.sort("question_id", "item_position", "claim_position"))
            outputs.write(ordered, folder / "windows.parquet")
            filled = asked.with_columns(parts=pl.Series(parts, dtype=asked.schema["parts"]))
            outputs.write(filled, folder / "questions.parquet")
            if rejects:
                bad = pl.DataFrame(rejects, schema={name: column.dtype for name, column in Rejects.columns().items()})
                outputs.write(bad.sort("source", "row", "reason"), folder / "rejects.parquet")
    told = sum(own is not None for own in recorded.values())
    typer.echo(f"{out}: {len(rows):,} window rows of {len(windows):,} questions, recorded parts of {told:,}")
    if rejects:
        typer.echo(f"warning: {len(rejects)} answers could not be used; see {out / 'rejects.parquet'}", err=True)
    without = len(texts) - len(windows)
    if without:
        typer.echo(f"warning: {without} questions have no answer and so no window", err=True)


def _answers(file: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Row (from 1), question_id and answer of each entry of the file.

    Raises:
        InputError: the file is missing, no JSON to its end, or an entry has no question_id.
    """
    for row, entry in _entries(file):
        question_id = entry.get("question_id") if isinstance(entry, dict) else None
        if not isinstance(question_id, str):
            raise InputError(f"{file}: row {row}: has no question_id; put it beside the server's answer")
        yield row, question_id, entry


def _entries(file: Path) -> Iterator[tuple[int, Any]]:
    if not file.is_file():
        raise InputError(f"{file}: {'is a folder' if file.is_dir() else 'no such file'}; give the saved answers")
    if file.suffix not in (".json", ".jsonl", ".ndjson"):
        raise InputError(f"{file}: unknown kind of file; the name must end in .json or .jsonl")
    with file.open(encoding="utf-8") as content:
        row = 0
        try:
            if file.suffix == ".json":
                whole = json.load(content)
                if isinstance(whole, dict) and "question_id" not in whole:
                    whole = [{"question_id": key, "response": answer} for key, answer in whole.items()]
                yield from enumerate(whole if isinstance(whole, list) else [whole], 1)
            else:
                for row, line in enumerate(content, 1):
                    if line.strip():
                        yield row, json.loads(line)
        except (ValueError, RecursionError) as error:
            told = " ".join(str(error).split())[:80]
            raise InputError(
                f"{file}: {f'row {row}: ' if row else ''}is no whole JSON ({told}); save it again"
            ) from error


if __name__ == "__main__":
    app(prog_name="import-windows")
