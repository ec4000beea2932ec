"""A small store with its questions and windows in a folder of its own, and the command run on them."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
from click.testing import Result
from typer.testing import CliRunner

from allocation.tables import Questions, Windows
from jobs.build_sequences import app
from jobs.store import open_store
from tests.frames import table

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "data" / "sample"

# Text, and its blocks as (start, end, vector); None: no stored blocks.
TEXTS: dict[str, tuple[str, list[tuple[int, int, bytes]] | None]] = {
    "mem:1": ("The key is red. The door is green.", [(0, 16, b"\x7f\0\0\0"), (16, 34, b"\0\x7f\0\0")]),
    "mem:2": ("A key was lost in May. Nobody found it.", [(0, 23, b"\0\0\x7f\0"), (23, 39, b"\x01\x02\x03\x04")]),
    "mem:3": ("The spare key hangs in the shed. It is old.", None),
    "ep:1": ("They painted the door. It took a day.", [(0, 23, b"\x10\x10\0\0"), (23, 37, b"\0\0\0\x10")]),
}
QUESTIONS: list[dict[str, Any]] = [
    {"question_id": "q1", "agent_id": "a", "question": "Which key is red?", "query_vector": [1.0, 0.5, 0.0, 0.0]},
    {"question_id": "q2", "agent_id": "a", "question": "Who painted the door?", "query_vector": None},
]
WINDOWS = [
    ("q1", 0, 0, "mem:1"),
    ("q1", 1, 0, "mem:2"),
    ("q1", 1, 1, "mem:3"),
    ("q2", 0, 0, "ep:1"),
    ("q2", 1, 0, "mem:2"),
]


def window_rows(*rows: tuple[str, int, int, str]) -> list[dict[str, Any]]:
    """Window rows of (question_id, item_position, claim_position, record_ref); the item is the recall rank."""
    names = ("question_id", "item_position", "claim_position", "record_ref")
    return [{**dict(zip(names, row, strict=True)), "recall_rank": row[1]} for row in rows]


def make_store(path: Path, schema: int = 19) -> None:
    """An SQLite store with TEXTS, made by the sample's DDL."""
    with closing(sqlite3.connect(path)) as store:
        store.executescript((SAMPLE / "source" / "schema.sql").read_text(encoding="utf-8"))
        store.execute("INSERT INTO schema_version (version) VALUES (?)", (schema,))
        for ref, (text, blocks) in TEXTS.items():
            kind, number = ref.split(":")
            own, columns = ("memories", "content, timestamp") if kind == "mem" else ("episodes", "summary, keywords")
            store.execute(f"INSERT INTO {own} (id, agent_id, {columns}) VALUES (?, 'a', ?, '')", (number, text))
            for index, (start, end, vector) in enumerate(blocks or []):
                store.execute(
                    "INSERT INTO record_blocks (parent_kind, parent_id, block_index, agent_id, start_char,"
                    " end_char, embedding_model) VALUES (?, ?, ?, 'a', ?, ?, 'm')",
                    (kind, number, index, start, end),
                )
                store.execute("INSERT INTO record_block_vectors VALUES (?, ?, ?, ?)", (kind, number, index, vector))
        store.commit()


class Workspace:
    """Paths of one run's inputs and output; all inputs are there and good from the start."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.store = folder / "store.db"
        self.questions = folder / "questions.parquet"
        self.windows = folder / "windows.parquet"
        self.out = folder / "out"
        make_store(self.store)
        self.ask(QUESTIONS)
        self.show(window_rows(*WINDOWS))

    def ask(self, rows: list[dict[str, Any]]) -> None:
        table(Questions, rows).write_parquet(self.questions)

    def show(self, rows: list[dict[str, Any]]) -> None:
        table(Windows, rows).write_parquet(self.windows)

    def sql(self, text: str, *parameters: Any) -> None:
        """Change the store by one statement, or, without parameters, by several."""
        with closing(sqlite3.connect(self.store)) as store:
            if parameters:
                store.execute(text, parameters)
            else:
                store.executescript(text)
            store.commit()

    def arguments(self, *more: str) -> list[str]:
        names = ("store", "questions", "windows", "out")
        return [part for name in names for part in (f"--{name}", str(getattr(self, name)))] + list(more)

    def run(self, *more: str) -> Result:
        """The command in this process."""
        return CliRunner().invoke(app, self.arguments(*more))

    def build(self, *more: str) -> pl.DataFrame:
        """The command, which must succeed, and the rows it wrote."""
        result = self.run(*more)
        assert result.exit_code == 0, result.output
        return self.rows()

    def start(self, *more: str, **environment: str) -> "subprocess.Popen[str]":
        """The command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "jobs.build_sequences", *self.arguments(*more)],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def refused(self, *more: str, status: int = 2) -> str:
        """Run the command, which must fail as the command does: one line, nothing written."""
        before = contents(self.out)
        result = self.run(*more)
        assert result.exit_code == status, result.output
        assert isinstance(result.exception, SystemExit), result.exception
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.endswith("\n")
        assert len(result.stderr.splitlines()) == 1, result.stderr
        assert contents(self.out) == before
        assert not leftovers(self.out)
        return result.stderr.removeprefix("error: ").rstrip("\n")

    def files(self) -> dict[str, bytes]:
        """The sequence files and the parts by their names inside the run."""
        return sequence_files(self.out)

    def rows(self, sequence: str = "evidence") -> pl.DataFrame:
        folder = f"sequences/sequence={sequence}/"
        return pl.concat(pl.read_parquet(content) for name, content in self.files().items() if folder in name)

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "run.json").read_text(encoding="utf-8"))
        return found


def sequence_files(out: Path) -> dict[str, bytes]:
    """The sequences and the parts of a run."""
    return {
        name: content for name, content in (contents(out) or {}).items() if name.startswith(("sequences/", "parts"))
    }


def contents(path: Path) -> dict[str, bytes] | None:
    """Every file under ``path`` (or the file itself), None where there is nothing."""
    if not path.exists():
        return None
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def leftovers(out: Path) -> list[str]:
    """Temporary names beside ``out``."""
    found = [] if not out.parent.is_dir() else out.parent.iterdir()
    return sorted(path.name for path in found if path.name.startswith("."))


def export(store: Path, folder: Path, refs: list[str], row_group_size: int | None = None) -> None:
    """The records of an SQLite store as a Parquet store, with all its names."""
    folder.mkdir()
    wanted = pl.Series(sorted(refs))
    with open_store(store) as opened:
        opened.records(wanted).write_parquet(folder / "records.parquet", row_group_size=row_group_size)
        opened.blocks(wanted).write_parquet(folder / "blocks.parquet", row_group_size=row_group_size)
        opened.nodes(wanted).write_parquet(folder / "nodes.parquet", row_group_size=row_group_size)
        agents = opened.records(wanted)["agent_id"].unique().sort()
        opened.entities(agents).write_parquet(folder / "entities.parquet")
