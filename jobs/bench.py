"""Time the job and its steps on generated work and, where it is at hand, on LoCoMo. Not a test."""

import json
import multiprocessing
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
import psutil  # type: ignore[import-untyped]
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from allocation import chain
from allocation.divide import divide
from allocation.settings import Settings
from allocation.tables import Questions, Records, StoredBlocks, Windows
from jobs import build_sequences, outputs, tabular
from jobs.make_sample import SCHEMA_VERSION, SOURCE
from jobs.store import open_store

ROOT = Path(__file__).resolve().parent.parent
MEGABYTE = 1e6
LOCOMO_FILES = ("store_session.db", "questions.parquet", "windows_session_deep.parquet", "evidence_session.parquet")

# The shape of LongMemEval-S: sessions of about 10,000 characters and 90 blocks, shared by no two questions.
RECORDS = 12
SENTENCES = 91
SENTENCE_WORDS = (12, 30)
QUESTION_WORDS = (9, 15)
DIMENSIONS = 384
QUESTIONS_A_BATCH = 25  # generated and written at a time, so that memory stays flat

_WORDS = """
a about after all always and another ask because been before best book bring budget camera city coffee concert
could day dinner doctor during every family flight for found friend from garden give guitar had have here house
how idea is it just kitchen know language last learn like live made make many meeting month more morning moved
museum my never next nice of often on only order our paint park people photo plan price project question read
really recipe remember road school season should sister so station store summer take than thank that the their
there think this ticket time to today train travel try under until visit walk want was water we week were what
when which winter with without work would write year yellow yesterday you your
"""
WORDS = _WORDS.split()
FOREIGN = ("café", "Zürich", "naïve", "Ωμέγα", "東京タワー", "ですが", "ＡＢＣ", "☕😀")
OPENINGS = ("However, ", "But ", "Note that ", "Actually, ", "Although ", "On the other hand, ", "Unless ")
ENDINGS = (". ",) * 13 + ("? ", "! ", ".\n", "?\n", "\n", "\n", "\n")

Generator = np.random.Generator
Batch = tuple[pl.DataFrame, pl.DataFrame]  # Records and StoredBlocks of some questions

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Work:
    """What the job is run on."""

    name: str
    store: Path
    questions: Path
    windows: Path
    evidence: Path | None = None  # with it the curves are timed too

    def arguments(self) -> list[str]:
        """The job's options for it."""
        names = ("store", "questions", "windows")
        return [text for name in names for text in (f"--{name}", str(getattr(self, name)))]


# ---------------------------------------------------------------------------------------------------------
# Generated work
# ---------------------------------------------------------------------------------------------------------


def generate(folder: Path, questions: int, kind: Literal["sqlite", "parquet"], seed: int = 1) -> Work:
    """LongMemEval-S-sized work in ``folder``: every question has records of its own."""
    name = f"LongMemEval-S-sized ({questions} questions, {kind})"
    store = folder / ("store.db" if kind == "sqlite" else "store")
    work = Work(name, store, folder / "questions.parquet", folder / "windows.parquet")
    numbers = [range(low, min(low + QUESTIONS_A_BATCH, questions)) for low in range(0, questions, QUESTIONS_A_BATCH)]
    batches = (_batch(batch, seed) for batch in track(numbers, "generating", console=Console(stderr=True)))
    (_write_sqlite if kind == "sqlite" else _write_parquet)(work.store, batches)
    asked = pl.DataFrame([_question(number, seed) for number in range(questions)])
    asked.cast({"query_vector": pl.List(pl.Float32)}).write_parquet(work.questions)
    windows = [
        (f"q{number:05}", place, 0, f"mem:{number * RECORDS + place + 1}", place)
        for number in range(questions)
        for place in range(RECORDS)
    ]
    pl.DataFrame(windows, schema=Windows.column_names(), orient="row").write_parquet(work.windows)
    return work


def _batch(numbers: range, seed: int) -> Batch:
    records, blocks = [], []
    for number in numbers:
        random = np.random.Generator(np.random.PCG64([seed, number, 0]))
        for place in range(RECORDS):
            ref, text = f"mem:{number * RECORDS + place + 1}", _text(random)
            spans = divide(text)
            vectors = random.integers(-127, 128, (len(spans), DIMENSIONS), dtype=np.int8)
            records.append((ref, f"agent-{number:05}", text))
            blocks += [
                (ref, index, start, end, "random", vector.tobytes())
                for index, ((start, end), vector) in enumerate(zip(spans, vectors, strict=True))
            ]
    columns = Records.column_names()[:3], StoredBlocks.column_names()
    return pl.DataFrame(records, columns[0], orient="row"), pl.DataFrame(blocks, columns[1], orient="row")


def _text(random: Generator) -> str:
    sentences = []
    for draw in random.integers(1 << 30, size=SENTENCES).tolist():
        words = _words(random, SENTENCE_WORDS)
        if draw % 100 == 0:
            words.insert(len(words) // 2, FOREIGN[draw // 100 % len(FOREIGN)])
        elif draw % 100 < 4:
            words[0] = OPENINGS[draw // 100 % len(OPENINGS)] + words[0]
        sentences.append(" ".join(words) + ENDINGS[draw // 1000 % len(ENDINGS)])
    return "".join(sentences)


def _words(random: Generator, sizes: tuple[int, int]) -> list[str]:
    return [WORDS[i] for i in random.integers(len(WORDS), size=random.integers(*sizes))]


def _question(number: int, seed: int) -> dict[str, Any]:
    random = np.random.Generator(np.random.PCG64([seed, number, 1]))
    text = " ".join(_words(random, QUESTION_WORDS)).capitalize() + "?"
    vector = random.integers(-(2**20), 2**20, DIMENSIONS) / 2.0**24
    names = {"question_id": f"q{number:05}", "agent_id": f"agent-{number:05}"}
    return {**names, "question": text, "query_vector": vector.tolist()}


def _write_sqlite(path: Path, batches: Iterable[Batch]) -> None:
    path.unlink(missing_ok=True)
    number = pl.col("record_ref").str.strip_prefix("mem:").cast(pl.Int64)
    with closing(sqlite3.connect(path)) as store:
        store.execute("PRAGMA journal_mode = off")
        store.executescript((SOURCE / "schema.sql").read_text(encoding="utf-8"))
        store.execute("INSERT INTO schema_version (version) VALUES (?)", (SCHEMA_VERSION,))
        for records, blocks in batches:
            owned = blocks.join(records, on="record_ref", maintain_order="left")
            store.executemany(
                "INSERT INTO memories (id, agent_id, content, timestamp) VALUES (?, ?, ?, '2025-12-01')",
                records.select(number, "agent_id", "text").iter_rows(),
            )
            store.executemany(
                "INSERT INTO record_blocks (parent_kind, parent_id, block_index, agent_id, start_char, end_char, "
                "embedding_bits, embedding_model) VALUES ('mem', ?, ?, ?, ?, ?, zeroblob(48), ?)",
                owned.select(number, "block_index", "agent_id", "start", "end", "embedding_model").iter_rows(),
            )
            store.executemany(
                "INSERT INTO record_block_vectors VALUES ('mem', ?, ?, ?)",
                blocks.select(number, "block_index", "vector").iter_rows(),
            )
        store.commit()


def _write_parquet(folder: Path, batches: Iterable[Batch]) -> None:
    folder.mkdir(exist_ok=True)
    with ExitStack() as stack:
        writers: dict[str, Any] = {}
        for batch in batches:
            for name, frame in zip(("records", "blocks"), batch, strict=True):
                table = frame.to_arrow()
                if name not in writers:
                    path = folder / f"{name}.parquet"
                    writers[name] = stack.enter_context(pq.ParquetWriter(path, table.schema))
                writers[name].write_table(table)


# ---------------------------------------------------------------------------------------------------------
# Whole runs, each in a process of its own
# ---------------------------------------------------------------------------------------------------------

# Bare Python, so that the peak is the program's and not this one's, which a child starts as a copy of.
_LAUNCHER = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
seconds = time.perf_counter() - began
used = resource.getrusage(resource.RUSAGE_CHILDREN)
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps([seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * unit]))
"""
_START = "import jobs.build_sequences"
_FLOOR = "import sys; from jobs.bench import floor; floor(*sys.argv[1:])"


@dataclass(frozen=True)
class Cost:
    """What a program cost: medians of its runs."""

    wall_seconds: float
    cpu_seconds: float
    peak_mb: float


def run(*arguments: str) -> Cost:
    """Python with these arguments, once, in the project's folder."""
    command = [sys.executable, "-c", _LAUNCHER, sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)  # noqa: S603 - our own command
    wall, cpu, peak = json.loads(done.stdout)
    return Cost(wall, cpu, peak / MEGABYTE)


def whole_runs(work: Work, folder: Path, runs: int, shard_size: int, jobs: int, sequences: str) -> dict[str, Cost]:
    """The job, its floor and its start (imports alone), in turns."""
    inputs, out = work.arguments(), str(folder / "job")
    chosen = ["--shard-size", str(shard_size), "--jobs", str(jobs), "--sequences", sequences]
    commands = {
        "job": ["-m", "jobs.build_sequences", *inputs, "--out", out, *chosen],
        "floor": ["-c", _FLOOR, *inputs[1::2], out, str(folder / "floor"), str(shard_size)],
        "start": ["-c", _START],
    }
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in track(range(runs), f"running {work.name}", console=Console(stderr=True)):
        for name, command in commands.items():
            costs[name].append(run(*command))
    return {name: _median(several) for name, several in costs.items()}


def curve_runs(work: Work, evidence: Path, folder: Path, runs: int) -> dict[str, Cost]:
    """The curves of all sequences that are drawn by default, both tokenizers."""
    out = str(folder / "labelled")
    run("-m", "jobs.build_sequences", *work.arguments(), "--evidence", str(evidence), "--out", out)
    return {"curves": _median([run("-m", "jobs.curves", out) for _ in range(runs)])}


def _median(costs: list[Cost]) -> Cost:
    return Cost(*(statistics.median(values) for values in zip(*(asdict(c).values() for c in costs), strict=True)))


def floor(store: str, questions: str, windows: str, done: str, out: str, shard_size: str) -> None:
    """The least any job must do: read every input, shard by shard, and write the output, here a copy."""
    asked = tabular.read(Path(questions), Questions)["question_id"].sort()
    window = tabular.read(Path(windows), Windows)
    with open_store(Path(store)) as opened:
        for low in range(0, len(asked), int(shard_size)):
            own = window.filter(pl.col("question_id").is_in(asked[low : low + int(shard_size)].implode()))
            refs = own["record_ref"].unique().sort()
            opened.records(refs)
            opened.blocks(refs)
    Path(out).mkdir(exist_ok=True)
    for part in Path(done).rglob("*.parquet"):
        pl.read_parquet(part).write_parquet(Path(out) / part.name, compression="zstd")


# ---------------------------------------------------------------------------------------------------------
# Steps
# ---------------------------------------------------------------------------------------------------------


@dataclass
class Step:
    """Totals of a step over the shards, and the most memory that was resident when it ended."""

    rows_in: int = 0
    rows_out: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    resident_mb: float = 0.0


@dataclass
class Clock:
    """Called with each step's table: its time is what passed since the step before, its input that table."""

    steps: dict[str, Step] = field(default_factory=dict)
    rows: int = 0
    wall: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=time.process_time)

    def __call__(self, name: str, table: pl.DataFrame) -> pl.DataFrame:
        """Count the step; returns its table."""
        step = self.steps.setdefault(name, Step())
        step.rows_in += self.rows
        step.rows_out += len(table)
        step.wall_seconds += time.perf_counter() - self.wall
        step.cpu_seconds += time.process_time() - self.cpu
        step.resident_mb = max(step.resident_mb, psutil.Process().memory_info().rss / MEGABYTE)
        self.rows, self.wall, self.cpu = len(table), time.perf_counter(), time.process_time()
        return table


def timed_steps(work: Work, folder: Path, shard_size: int, sequences: str) -> dict[str, Step]:
    """The job's steps in this process, one shard after the other."""
    clock = Clock()
    paths = {"store": work.store, "questions": work.questions, "windows": work.windows}
    names = chain.names_of(sequences)
    files = {name: outputs.SequenceFiles(folder / "steps", name) for name in names}
    with open_store(work.store) as store:
        ready = build_sequences.read(paths, store, skip=False)
        clock("read inputs", ready.windows)
        for shard in build_sequences.shards(ready, store, shard_size):
            clock.rows = len(shard.windows)
            clock("read records and blocks", shard.blocks)
            built, _ = chain.build(shard, Settings(), names, clock)
            for name, rows in built.items():
                files[name].add(rows)
                clock("write", rows)
    for file in files.values():
        file.close()
    clock.rows = 0
    clock("write", pl.DataFrame())
    for path in paths.values():
        build_sequences.describe(path)
    clock("hash inputs", pl.DataFrame())  # the job does so beside the rest
    return clock.steps


# ---------------------------------------------------------------------------------------------------------
# Report
# ---------------------------------------------------------------------------------------------------------


def measure(work: Work, runs: int, shard_size: int, jobs: int, sequences: str) -> dict[str, Any]:
    """All figures of a work."""
    fresh = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(1, fresh) as pool:
        folder = Path(name)
        costs = whole_runs(work, folder, runs, shard_size, jobs, sequences)
        steps = pool.submit(timed_steps, work, folder, shard_size, sequences).result()
        if work.evidence:
            costs |= curve_runs(work, work.evidence, folder, runs)
    return {
        "work": work.name,
        "runs": runs,
        "shard_size": shard_size,
        "jobs": jobs,
        "sequences": sequences,
        "load": os.getloadavg(),
        "whole": {name: asdict(cost) for name, cost in costs.items()},
        "steps": {name: asdict(step) for name, step in steps.items()},
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    names = ("polars", "numpy", "pyarrow", "adbc-driver-sqlite")
    return {
        "cores": os.cpu_count(),
        "memory_mb": round(psutil.virtual_memory().total / MEGABYTE),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }


def tables(figures: dict[str, Any]) -> list[Table]:
    """The two tables of a work's figures."""
    whole, steps = figures["whole"], figures["steps"]
    runs = Table("program", "wall s", "CPU s", "peak MB")
    for name, cost in whole.items():
        runs.add_row(name, *_seconds(cost), f"{cost['peak_mb']:,.0f}")
    for name, start in (("job / floor", None), ("the same without start", whole["start"])):
        runs.add_row(name, *(f"{_ratio(whole, key, start):.1f} x" for key in ("wall_seconds", "cpu_seconds")), "")
    each = Table("step", "rows in", "rows out", "wall s", "CPU s", "resident MB")
    for name, step in steps.items():
        rows = f"{step['rows_in']:,}", f"{step['rows_out']:,}"
        each.add_row(name, *rows, *_seconds(step), f"{step['resident_mb']:,.0f}")
    total = {key: sum(step[key] for step in steps.values()) for key in ("wall_seconds", "cpu_seconds")}
    each.add_row("all", "", "", *_seconds(total), "")
    for column in [*runs.columns[1:], *each.columns[1:]]:
        column.justify = "right"
    return [runs, each]


def _seconds(figures: dict[str, float]) -> tuple[str, str]:
    return f"{figures['wall_seconds']:.2f}", f"{figures['cpu_seconds']:.2f}"


def _ratio(whole: dict[str, Any], key: str, start: dict[str, float] | None) -> float:
    less = start[key] if start else 0.0
    return float((whole["job"][key] - less) / max(whole["floor"][key] - less, 1e-9))


@app.command()
def main(
    questions: Annotated[int, typer.Option(min=0, help="Questions to generate work for; 0: none.")] = 500,
    kind: Annotated[Literal["sqlite", "parquet"], typer.Option(help="Form of the generated store.")] = "sqlite",
    locomo: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help=f"Folder with {', '.join(LOCOMO_FILES)}.",
        ),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Whole runs, of which the median counts.")] = 3,
    shard_size: Annotated[int, typer.Option(min=1, help="Handed to the job.")] = 128,
    jobs: Annotated[int, typer.Option(min=1, help="Handed to the job; steps are timed one by one.")] = 2,
    sequences: Annotated[str, typer.Option(help="Handed to the job.")] = ",".join(chain.COMPARED),
    keep: Annotated[Path | None, typer.Option(help="Folder for the generated work, which then stays.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="File to write the figures to.")] = None,
) -> None:
    """Time the job: whole runs next to the least any job must do, then step by step."""
    console = Console()
    folder = keep.absolute() if keep else Path(tempfile.mkdtemp())
    report: dict[str, Any] = {"machine": machine(), "works": []}
    console.print(" ".join(f"{name} {value}" for name, value in report["machine"].items()), highlight=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        works = [generate(folder, questions, kind)] if questions else []
        if locomo:
            works.append(Work("LoCoMo (full windows)", *(locomo.absolute() / name for name in LOCOMO_FILES)))
        for work in works:
            figures = measure(work, runs, shard_size, jobs, sequences)
            report["works"].append(figures)
            load = ", ".join(f"{value:.1f}" for value in figures["load"])
            console.print(f"\n{work.name}: median of {runs}, load {load}", highlight=False)
            for table in tables(figures):
                console.print(table)
    finally:
        if not keep:
            shutil.rmtree(folder)
    if json_file:
        outputs.write_json(json_file, report)


if __name__ == "__main__":
    app(prog_name="bench")
