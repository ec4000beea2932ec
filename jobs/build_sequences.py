"""Build every question's payload sequence from a store, and write it as Parquet."""

import hashlib
import os
import platform
import sys
import time
import tomllib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import polars as pl
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from allocation import chain, fingerprints, inputs, queries, run_records, splits
from allocation.errors import InputError
from allocation.settings import Settings, settings_of
from allocation.tables import Evidence, Parts, Questions, Rejects, RunRecords, Windows
from jobs import carry, dev_questions, outputs, recalled, tabular
from jobs.errors import told_in_one_line
from jobs.store import Store, open_store

SAMPLE = Path("data/sample")

T = TypeVar("T")
R = TypeVar("R")

_OTHER_WIDTH = "have a query_vector of another width than their records' vectors; words alone rank their passages"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Inputs:
    """Everything read before the first shard, usable rows only."""

    questions: pl.DataFrame
    windows: pl.DataFrame
    evidence: pl.DataFrame | None
    rejects: pl.DataFrame
    foreign: int  # window rows that name a record of another agent
    unstored: int  # evidence labels that name a record the store does not have


@dataclass(frozen=True)
class Built:
    """A shard's sequences and parts, and the records they are made from."""

    sequences: dict[str, pl.DataFrame]
    parts: pl.DataFrame
    records: pl.DataFrame  # RunRecords
    other_width: pl.Series  # question_id of those whose vector cannot be compared with any vector of their records
    marks: pl.DataFrame | None = None  # question_id, sha256 and other_width, where fingerprints are kept
    carried: int = 0  # questions whose rows come from the earlier run
    moved: int = 0  # questions made anew that the earlier run had with other rows


@dataclass(frozen=True)
class Job:
    """What to build, and how."""

    paths: dict[str, Path]  # as ``input_paths`` gives them
    names: list[str]  # of the sequences
    settings: Settings
    count: int = recalled.COUNT  # items to recall, where no file has windows
    skip: bool = False  # go on without rows that cannot be used
    shard_size: int = 128
    jobs: int = 2
    agents: pl.Series | None = None  # only questions of these
    fingerprints: bool = False  # keep them
    earlier: carry.Earlier | None = None  # what to carry over from


@app.command()
def main(
    store: Annotated[
        Path | None, typer.Option(help="SQLite store, or folder with records.parquet and blocks.parquet.")
    ] = None,
    questions: Annotated[Path | None, typer.Option(help="Questions: .parquet, .csv or .jsonl.")] = None,
    windows: Annotated[
        Path | None,
        typer.Option(
            help="Windows, what recall returned: .parquet, .csv or .jsonl; or the word recall, as without this option:"
            " records are recalled from the store."
        ),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Items to recall, without --windows (10).")] = None,
    evidence: Annotated[Path | None, typer.Option(help="Evidence labels; only the sequence oracle reads them.")] = None,
    dev: Annotated[
        Path | None,
        typer.Option(help="Development questions as draw-dev wrote them; all others become test questions."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run; an earlier run there is replaced.")] = Path(
        "outputs/latest"
    ),
    sequences: Annotated[
        str | None,
        typer.Option(
            help="Which to build, by commas: items, evidence, whole, coverage; items@FIRST/REST (other quote sizes);"
            " oracle, cosine, recall (yardsticks). Default: what the curves draw.",
            show_default=False,
        ),
    ] = None,
    passages: Annotated[
        Literal["merge", "server"] | None,
        typer.Option(help="merge: unite overlapping ranges (the default); server: the memory server's own."),
    ] = None,
    rrf_k: Annotated[int | None, typer.Option(help="The k of reciprocal-rank fusion (60).")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting, KEY=VALUE; may be given again.")] = None,
    settings: Annotated[Path | None, typer.Option(help="TOML file with settings; --set overrides it.")] = None,
    on_bad_row: Annotated[
        Literal["refuse", "skip"],
        typer.Option(help="refuse: stop at a row that cannot be used; skip: go on and write rejects.parquet."),
    ] = "refuse",
    shard_size: Annotated[int, typer.Option(min=1, help="Questions worked on at a time.")] = 128,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Shards worked on at once.")] = 2,
) -> None:
    """Order every question's passages by how likely they are to carry the answer.

    Without arguments it builds the sample's sequences. Exit status: 0 done, 2 bad input or arguments, 1
    anything else.
    """
    with told_in_one_line():
        chosen = _settings(settings, set_ or [], passages, rrf_k)
        paths = input_paths(store, questions, windows, evidence, dev)
        if count is not None and "windows" in paths:
            raise InputError("--count is for recall from the store; leave out --windows, or --count")
        drawn = [*chain.COMPARED, *chain.QUOTE_CURVE] + ["oracle"] * ("evidence" in paths)
        names = drawn if sequences is None else chain.names_of(sequences)
        if "oracle" in names and "evidence" not in paths:
            raise InputError("the sequence oracle needs evidence labels; give --evidence")
        for path in (*paths.values(), out):
            if str(path) != os.fsencode(path).decode(errors="replace"):
                raise InputError(f"{path}: the name is not valid UTF-8; rename it")
        skip = on_bad_row == "skip"
        job = Job(paths, names, chosen, count or recalled.COUNT, skip, shard_size, jobs)
        _summary(build(job, out), out)


def input_paths(
    store: Path | None, questions: Path | None, windows: Path | None, evidence: Path | None, dev: Path | None
) -> dict[str, Path]:
    """The inputs by name: those given, or the sample's if none is. Without windows, they are recalled from the store.

    Raises:
        InputError: only some of those that belong together are given.
    """
    given = {"store": store, "questions": questions, "windows": windows, "evidence": evidence}
    paths = {name: path for name, path in given.items() if path is not None}
    drawn = {} if dev is None else {"dev": dev}
    if not paths:
        return {name: SAMPLE / ("store.db" if name == "store" else f"{name}.parquet") for name in given} | drawn
    missing = [f"--{name}" for name in ("store", "questions") if name not in paths]
    if missing:
        raise InputError(f"{', '.join(missing)} missing; give --store and --questions together")
    if str(windows) == recalled.SOURCE:
        del paths["windows"]
    return paths | drawn


def _settings(file: Path | None, pairs: list[str], passages: str | None, rrf_k: int | None) -> Settings:
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values |= tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"{file}: cannot be read as TOML: {error}") from error
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair}: write it as KEY=VALUE")
        values[key] = _number(value)
    flags = {"passages": passages, "rrf_k": rrf_k}
    return settings_of(values | {name: value for name, value in flags.items() if value is not None})


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:  # not written so, or with thousands of digits
            continue
    return text


def build(job: Job, out: Path) -> dict[str, Any]:
    """Build the sequences and write the run to ``out``; its description, as in run.json.

    Raises:
        InputError: an input cannot be used.
    """
    names = job.names
    warnings: list[str] = []

    def warn(text: str) -> None:
        warnings.append(text)
        typer.echo(f"warning: {text}", err=True)

    began = time.perf_counter()
    steps = dict.fromkeys(names, 0)
    parts: list[pl.DataFrame] = [Parts.create_empty()]
    records: list[pl.DataFrame] = [RunRecords.create_empty()]
    other_width = carried = moved = 0
    marks: list[pl.DataFrame] = []
    stamp = repr((asdict(job.settings), names, carry.code())) if job.fingerprints else None
    with (
        outputs.run_folder(out) as folder,  # outermost: a store that changed is found out when it is closed
        open_store(job.paths["store"]) as store,
        ThreadPoolExecutor(1) as hasher,
    ):
        contents = {"store": store.content}
        described = {name: hasher.submit(describe, path, contents.get(name)) for name, path in job.paths.items()}
        ready = read(job.paths, store, skip=job.skip, count=job.count, agents=job.agents)
        for warning in _warnings(ready):
            warn(warning)
        files = {name: outputs.SequenceFiles(folder, name) for name in names}
        total = -(-len(ready.questions) // job.shard_size)
        built = _in_order(shards(ready, store, job.shard_size), lambda shard: _sequences(shard, job, stamp), job.jobs)
        for shard in track(
            built,
            "building",
            total,
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        ):
            for name, rows in shard.sequences.items():
                files[name].add(rows)
                steps[name] += len(rows)
            parts.append(shard.parts)
            records.append(shard.records)
            other_width += len(shard.other_width)
            carried += shard.carried
            moved += shard.moved
            if shard.marks is not None:
                marks.append(shard.marks)
        if other_width:
            warn(f"{other_width} questions {_OTHER_WIDTH}")
        for file in files.values():
            file.close()
        used = pl.concat(records).unique().sort("record_ref")
        tables = {
            "questions": ready.questions.drop("query_vector", "parts"),
            "windows": ready.windows,
            "evidence": Evidence.create_empty() if ready.evidence is None else ready.evidence,
            "parts": pl.concat(parts),
            "records": used,
        }
        if len(ready.rejects):
            tables["rejects"] = ready.rejects
        if marks:
            tables["fingerprints"] = pl.concat(marks)
        for name, table in tables.items():
            outputs.write(table, folder / f"{name}.parquet")
        (folder / "analysis.sql").write_text(queries.analysis(with_curves=False), encoding="utf-8")
        run = {
            "layout": outputs.LAYOUT,
            "inputs": {name: future.result() for name, future in described.items()},
            "store": store.facts,
            **({} if "windows" in job.paths else {"recall": {"count": job.count}}),
            "sequences": names,
            "settings": asdict(job.settings),
            "counts": {
                "questions": len(ready.questions),
                "records": len(used),
                "records_without_current_blocks": int(used["divided"].sum()),
                "blocks": int(used["blocks"].sum()),
                "rejected_rows": len(ready.rejects),
                **({"recomputed": len(ready.questions) - carried, "carried_over": carried} if stamp else {}),
                **({"moved": moved} if job.earlier else {}),
            },
            "steps": steps,
            "warnings": warnings,
            "versions": _versions(),
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - began, 3),
        }
        outputs.write_json(folder / "run.json", run)
    return run


def read(
    paths: dict[str, Path],
    store: Store,
    *,
    skip: bool,
    count: int = recalled.COUNT,
    agents: pl.Series | None = None,
) -> Inputs:
    """Everything but the store's records; windows of ``count`` items where no file has them.

    With ``agents``, questions of others are left out, and so are their windows and evidence.

    Raises:
        InputError: a row cannot be used and ``skip`` is not set.
    """
    rejects: list[pl.DataFrame] = []

    def usable(checked: inputs.Checked) -> pl.DataFrame:
        rows, bad = checked
        if not skip:
            inputs.refuse(bad)
        rejects.append(bad)
        return rows

    questions = usable(inputs.questions(tabular.read(paths["questions"], Questions), str(paths["questions"])))
    if "dev" in paths:
        questions = splits.mark(questions, dev_questions.read(paths["dev"]), str(paths["dev"]))
    others = questions.clear()
    if agents is not None:
        theirs = pl.col("agent_id").is_in(agents.implode())
        questions, others = questions.filter(theirs), questions.filter(~theirs)
    source = str(paths.get("windows", recalled.SOURCE))
    given = "windows" in paths
    named = tabular.read(paths["windows"], Windows) if given else recalled.windows(store, questions, count)
    named = named.join(others, on="question_id", how="anti", maintain_order="left")
    problems = store.problems(named["record_ref"].drop_nulls().unique().sort())
    owners = problems.select("record_ref", owner="agent_id")
    windows = usable(inputs.windows(named, source, questions, problems.select("record_ref", "problem")))
    foreign = (
        windows.join(questions.select("question_id", "agent_id"), on="question_id")
        .join(owners, on="record_ref")
        .filter(pl.col("agent_id") != pl.col("owner"))
    )
    evidence, unstored = None, 0
    if "evidence" in paths:
        labels = tabular.read(paths["evidence"], Evidence)
        labels = labels.join(others, on="question_id", how="anti", maintain_order="left")
        stored = store.problems(labels["record_ref"].drop_nulls().unique().sort()).select("record_ref", "length")
        evidence = usable(inputs.evidence(labels, str(paths["evidence"]), questions, stored))
        unstored = len(evidence.join(stored, on="record_ref", how="anti"))
    return Inputs(
        questions,
        windows,
        evidence,
        pl.concat([Rejects.create_empty(), *rejects]).sort("source", "row", "reason"),
        len(foreign),
        unstored,
    )


def of_questions(ready: Inputs, questions: pl.DataFrame) -> Inputs:
    """What belongs to some of the questions."""

    def own(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.join(questions, on="question_id", how="semi", maintain_order="left")

    evidence = None if ready.evidence is None else own(ready.evidence)
    return replace(ready, questions=questions, windows=own(ready.windows), evidence=evidence)


def _warnings(ready: Inputs) -> list[str]:
    """What a user should know though the run goes on."""
    without = len(ready.questions) - ready.windows["question_id"].n_unique()
    found = [
        (without, "questions have no window and so no sequence"),
        (ready.foreign, "window rows name a record of another agent_id; they are used"),
        (ready.unstored, "evidence labels name a record the store does not have; it counts as never shown"),
        (len(ready.rejects), "input rows could not be used; see rejects.parquet"),
    ]
    return [f"{count} {text}" for count, text in found if count]


def shards(ready: Inputs, store: Store, size: int) -> Iterator[chain.Shard]:
    """``size`` questions at a time, by question_id, with what they need of the store."""
    for low in range(0, len(ready.questions), size):
        questions = ready.questions[low : low + size]
        windows = ready.windows.join(questions.select("question_id"), on="question_id", how="semi")
        refs = windows["record_ref"].unique().sort()
        agents = questions["agent_id"].unique().sort()
        evidence = ready.evidence
        if evidence is not None:
            evidence = evidence.join(questions.select("question_id"), on="question_id", how="semi")
        yield chain.Shard(
            questions,
            windows,
            store.records(refs),
            store.blocks(refs),
            store.nodes(refs),
            store.entities(agents),
            evidence,
        )


def _sequences(shard: chain.Shard, job: Job, stamp: str | None) -> Built:
    """A shard's sequences: made, or carried over from the earlier run where nothing they depend on has changed."""
    if stamp is None:
        return _made(shard, job)
    marks = fingerprints.build(shard, stamp)
    same = marks.clear().select("question_id", other_width=pl.lit(value=False))
    if job.earlier is not None:
        same = job.earlier.same(marks)
    known = same["question_id"]
    made = _made(carry.without(shard, known), job)
    other_width = pl.concat([made.other_width, same.filter("other_width")["question_id"]])
    marks = marks.with_columns(other_width=pl.col("question_id").is_in(other_width.implode()))
    if job.earlier is None:
        return replace(made, marks=marks)
    sequences, parts, records = made.sequences, made.parts, made.records
    moved = _moved(made, job.earlier)
    if len(known):
        sequences = {
            name: pl.concat([rows, job.earlier.sequence(name, known)]).sort("question_id", "position")
            for name, rows in sequences.items()
        }
        parts = pl.concat([parts, job.earlier.parts(known)]).sort("question_id", "part")
        refs = shard.windows.join(same, on="question_id", how="semi")["record_ref"].unique()
        records = pl.concat([records, job.earlier.records(refs)]).unique().sort("record_ref")
    return Built(sequences, parts, records, other_width, marks, len(known), moved)


def _moved(made: Built, earlier: carry.Earlier) -> int:
    """How many questions the earlier run has with other rows."""
    moved: set[str] = set()
    for name, rows in made.sequences.items():
        asked = rows["question_id"].unique()
        if asked.is_empty() or name not in earlier.run.description["steps"]:
            continue
        before = dict(earlier.sequence(name, asked).partition_by("question_id", as_dict=True))
        now = rows.partition_by("question_id", as_dict=True)
        moved |= {str(key[0]) for key, own in now.items() if key in before and not own.equals(before[key])}
    return len(moved)


def _made(shard: chain.Shard, job: Job) -> Built:
    records: pl.DataFrame = RunRecords.create_empty()
    other_width = shard.questions["question_id"].clear()

    def watch(step: str, table: pl.DataFrame) -> pl.DataFrame:
        nonlocal records, other_width
        if step == "blocks":
            records = run_records.build(shard.records, table)
            other_width = _of_other_width(shard.questions, shard.windows, table)
        return table

    sequences, parts = chain.build(shard, job.settings, job.names, watch)
    return Built(sequences, parts, records, other_width)


def _of_other_width(questions: pl.DataFrame, windows: pl.DataFrame, blocks: pl.DataFrame) -> pl.Series:
    """The questions that have a query vector, and records with vectors, but none of the query's width."""
    stored = blocks.filter(pl.col("vector").is_not_null()).select("record_ref", "width").unique()
    asked = questions.select("question_id", asked=pl.col("query_vector").list.len()).filter(pl.col("asked") > 0)
    pairs = asked.join(windows, on="question_id").join(stored, on="record_ref")
    fits = (pl.col("width") == pl.col("asked")).fill_null(value=False)
    return pairs.group_by("question_id").agg(fits=fits.any()).filter(~pl.col("fits"))["question_id"]


def _in_order(tasks: Iterator[T], work: Callable[[T], R], jobs: int) -> Iterator[R]:
    """``work`` of each task, in order, ``jobs`` at once; one more task is read ahead, not all."""
    with ThreadPoolExecutor(jobs) as pool:
        running: deque[Future[R]] = deque()
        for task in tasks:
            running.append(pool.submit(work, task))
            if len(running) > jobs:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def describe(path: Path, opened: BufferedReader | None = None) -> dict[str, Any]:
    """Name, size and hash of a file or of the Parquet files in a folder."""
    if path.is_dir():
        return {"path": str(path), "files": [describe(file) for file in sorted(path.glob("*.parquet"))]}
    with path.open("rb") if opened is None else nullcontext(opened) as content:
        content.seek(0)
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return {"path": str(path), "bytes": path.stat().st_size, "sha256": digest}


def _versions() -> dict[str, str]:
    packages = ("polars", "numpy", "pyarrow", "adbc-driver-sqlite")
    system = {"python": platform.python_version(), "system": platform.platform()}
    return system | {name: version(name) for name in packages}


def _summary(run: dict[str, Any], out: Path) -> None:
    console = Console()
    table = Table(show_header=False)
    for name, value in run["counts"].items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    for name, value in run["steps"].items():
        table.add_row(f"steps of {name}", f"{value:,}")
    table.add_row("seconds", f"{run['seconds']:.1f}")
    table.add_row("output", str(out))
    console.print(table)
    files = str(out / "sequences" / "*" / "*.parquet").replace("'", "''")
    sql = f"SELECT * FROM '{files}' WHERE sequence = '{run['sequences'][0]}' ORDER BY question_id, position LIMIT 10"  # noqa: S608
    console.print(f"Look at it in DuckDB:\n  {sql}", highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    app(prog_name="build-sequences")
