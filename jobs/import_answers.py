"""Take graded answers into the file that rules are judged by."""

import hashlib
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from allocation import answers, points
from allocation.errors import InputError
from allocation.tables import Answers
from jobs import answer_files, outputs, tabular
from jobs.errors import told_in_one_line
from jobs.runs import Run

ANSWERS = Path("data/answers.parquet")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    file: Annotated[
        Path, typer.Argument(help="Graded answers: JSON lines, CSV, Parquet, or OmniMemEval's judged JSON.")
    ],
    run: Annotated[Path, typer.Option(help="Folder of the run whose contexts were answered.")] = Path("outputs/latest"),
    point: Annotated[str, typer.Option(help="The point whose contexts were answered.", show_default=False)] = "",
) -> None:
    """Take graded answers, each tied to the bytes of the context it was given for.

    A context that was answered already, at another point, keeps its first answer. Exit status: 0 done, 2 bad input or
    arguments, 1 anything else.
    """
    with told_in_one_line():
        name = points.of(point).name
        finished = Run(run)
        with outputs.only_one(ANSWERS):
            earlier = kept()
            taken = answers.take(
                answer_files.read(file),
                finished.points(name),
                finished.table("questions"),
                earlier,
                file.name,
                hashlib.sha256(file.read_bytes()).hexdigest(),
            )
            every = pl.concat([earlier, taken.new]).sort("question_id", "context_sha256")
            with outputs.whole_file(ANSWERS) as part:
                outputs.write(every, part)
        correct = int(taken.new["correct"].sum())
        same = f"; {taken.known} contexts were answered before, their first answer stays" if taken.known else ""
        typer.echo(f"{ANSWERS}: {len(taken.new)} answers at {name}, {correct} of them correct{same}")


def kept() -> pl.DataFrame:
    """The Answers imported so far.

    Raises:
        InputError: the file is damaged.
    """
    if not ANSWERS.exists():
        return Answers.create_empty()
    try:
        return Answers.validate(tabular.read(ANSWERS, Answers))
    except InputError as error:
        raise InputError(f"{error}; restore {ANSWERS}, it cannot be made again") from error


if __name__ == "__main__":
    app(prog_name="import-answers")
