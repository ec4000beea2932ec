"""Draw the development questions, once."""

from pathlib import Path
from typing import Annotated

import typer

from allocation import inputs, splits
from allocation.errors import InputError
from allocation.tables import Questions
from jobs import outputs, tabular
from jobs.errors import told_in_one_line

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    count: Annotated[int, typer.Option("--n", min=1, help="How many.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 20261003,
    questions: Annotated[Path, typer.Option(help="Questions: .parquet, .csv or .jsonl.")] = Path(
        "data/sample/questions.parquet"
    ),
    plain: Annotated[bool, typer.Option("--plain", help="Do not draw from each question type its share.")] = False,
    out: Annotated[Path, typer.Option(help="File to write and commit.")] = Path("data/dev_questions.json"),
) -> None:
    """Draw the questions that settings are chosen on; all others are left to test claims on.

    The draw depends on the seed and the question_ids alone. A file that exists is never drawn again. Exit status: 0
    done, 2 bad input or arguments, 1 anything else.
    """
    with told_in_one_line():
        if out.exists():
            raise InputError(
                f"{out}: development questions are drawn once; name another --out for another question set"
            )
        usable, rejects = inputs.questions(tabular.read(questions, Questions), str(questions))
        inputs.refuse(rejects)
        drawn = splits.draw(usable, count, seed, stratified=not plain)
        content = {"seed": seed, "drawn_from": len(usable), "stratified": not plain, "question_ids": drawn}
        outputs.write_json(out, content)
        typer.echo(f"{out}: {len(drawn)} of {len(usable)} questions; commit it, and build runs with --dev {out}")


if __name__ == "__main__":
    app(prog_name="draw-dev")
