"""Recompute what changed in every store that a pattern finds, and keep dated runs."""

import fcntl
import glob
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import polars as pl
import typer

from allocation import chain, points, sweep
from allocation.errors import InputError
from allocation.settings import Settings
from allocation.tables import Questions
from jobs import build_sequences, carry, compare, curves, outputs, recalled, tabular
from jobs.errors import told_in_one_line
from jobs.runs import Run
from jobs.store import open_store

LATEST = "latest"  # link to a store's last whole run
ALERTED = 3  # exit status
MAKING = ".making"  # a run until it has its curves; what a kill leaves of it is removed by the next night
SUMMARY = "summary.json"
WATCHED = (*sweep.METRICS, "answer_in_context")  # more is better
_RUN = re.compile(r"([0-9]{6,})_[0-9]{4}-[0-9]{2}-[0-9]{2}")
_BESIDE = ("-wal", "-shm", "-journal")  # SQLite's own files

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    stores: Annotated[str, typer.Option(help="Pattern of the stores: 'memories/*.db', in quotes.", show_default=False)],
    questions: Annotated[Path, typer.Option(help="As for build-sequences, of all stores.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder of the runs, one folder in it a store.", show_default=False)],
    windows: Annotated[Path, typer.Option(help="Windows, or the word recall.")] = Path(recalled.SOURCE),
    evidence: Annotated[Path | None, typer.Option(help="Labels; with them each run has its curves.")] = None,
    sequences: Annotated[str | None, typer.Option(help="As for build-sequences.", show_default=False)] = None,
    keep: Annotated[int, typer.Option(min=1, help="Runs of a store to keep.")] = 7,
    alert: Annotated[
        float, typer.Option(min=0, max=1, help="Exit with 3 where a rate fell by more than this since the last run.")
    ] = 0.02,
    shard_size: Annotated[int, typer.Option(min=1, help="Questions worked on at a time.")] = 128,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Shards worked on at once.")] = 2,
) -> None:
    """Write a new run of each store: questions that nothing changed for are carried over from the run before.

    A store's questions are those whose agent_id owns a record of it. Its folder has a link, latest, that moves when a
    run is whole. OUT/summary.json has what is printed. Exit status: 0 done, 3 a metric fell by more than --alert, 2 bad
    arguments, 1 anything else, also where a store could not be read; the others are done then.
    """
    with told_in_one_line():
        found = _stores(stores)
        asked = tabular.read(questions, Questions)
        names = chain.names_of(sequences or ",".join([*chain.COMPARED, *["oracle"] * (evidence is not None)]))
        given = {"questions": questions} | ({} if evidence is None else {"evidence": evidence})
        if str(windows) != recalled.SOURCE:
            given["windows"] = windows
        with _alone(out):
            lines = []
            for store in found:
                try:
                    with open_store(store) as opened:
                        agents = opened.owners()["agent_id"].unique()
                    job = build_sequences.Job(
                        {"store": store} | given,
                        names,
                        Settings(),
                        shard_size=shard_size,
                        jobs=jobs,
                        agents=agents,
                        fingerprints=True,
                    )
                    if asked["agent_id"].is_in(agents.implode()).any():
                        lines.append(_night(job, out / _name(store), keep, alert))
                    else:
                        lines.append({"store": str(store), "skipped": "no question is for an agent of this store"})
                except (InputError, OSError) as error:
                    lines.append({"store": str(store), "error": " ".join(str(error).splitlines())})
                _tell(lines[-1])
            outputs.write_json(out / SUMMARY, {"finished_at": _now().isoformat(timespec="seconds"), "stores": lines})
    total = {name: sum(line.get(name, 0) for line in lines) for name in ("recomputed", "carried_over")}
    typer.echo(f"{total['recomputed']:,} recomputed, {total['carried_over']:,} carried over")
    if any("error" in line for line in lines):
        raise typer.Exit(1)
    if any(line.get("alerts") for line in lines):
        raise typer.Exit(ALERTED)


def _now() -> datetime:
    return datetime.now(UTC)


def _stores(pattern: str) -> list[Path]:
    """The stores a pattern finds, by name."""
    found = [Path(name) for name in sorted(glob.glob(os.path.expanduser(pattern), recursive=True))]
    stores = [path for path in found if not path.name.endswith(_BESIDE)]
    if not stores:
        raise InputError(f"--stores {pattern!r}: finds nothing; put the pattern in quotes")
    return stores


def _name(store: Path) -> str:
    """The folder of a store's runs: its name, and what tells it from others of that name."""
    return f"{quote(store.stem, safe='')[:80]}-{hashlib.sha256(os.fsencode(store.resolve())).hexdigest()[:8]}"


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold off another nightly in the same folder.

    Raises:
        InputError: one is at work.
    """
    out.mkdir(parents=True, exist_ok=True)
    handle = os.open(out / ".lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise InputError(f"{out}: another nightly is at work here; run again when it has ended") from error
    finally:
        os.close(handle)


def _night(job: build_sequences.Job, folder: Path, keep: int, alert: float) -> dict[str, Any]:
    """A new run of one store, its curves, and what they are against the run before."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".pruned-*"):
        shutil.rmtree(left, ignore_errors=True)
    line: dict[str, Any] = {"store": str(job.paths["store"])}
    before, earlier = _earlier(folder, line)
    runs = _runs(folder)
    # Numbered, because a clock may jump back; dated, for who reads it.
    run = folder / f"{(runs[-1][0] if runs else 0) + 1:06}_{_now():%Y-%m-%d}"
    making = folder / MAKING
    counts = _built(job, earlier, making, line)["counts"]
    line |= {"run": str(run)} | {name: counts[name] for name in ("questions", "recomputed", "carried_over")}
    if "evidence" in job.paths:
        finished = Run(making)
        chosen = points.standard(finished.description["sequences"], points.BUDGETS)
        curves.draw(finished, chosen, title=str(run))
    making.rename(run)
    if before is not None:
        line |= {"before": str(before), "moved": counts.get("moved", 0)} | _changes(before, run, alert)
    _point(folder, run)
    for _, old in _runs(folder)[:-keep]:
        if old.name != run.name:
            hidden = old.rename(old.with_name(f".pruned-{old.name}"))
            shutil.rmtree(hidden, ignore_errors=True)
    return line


def _built(job: build_sequences.Job, earlier: carry.Earlier | None, run: Path, line: dict[str, Any]) -> dict[str, Any]:
    """Build the run; anew where what there was of the earlier one turns out not to be readable."""
    if earlier is not None:
        try:
            return build_sequences.build(replace(job, earlier=earlier), run)
        except InputError as error:
            if str(earlier.run.folder) not in str(error):
                raise
            line["note"] = f"the run before is damaged, all is made anew ({error})"
    return build_sequences.build(job, run)


def _runs(folder: Path) -> list[tuple[int, Path]]:
    """Number and folder of a store's runs, the newest last."""
    found = [(match, path) for path in folder.iterdir() if (match := _RUN.fullmatch(path.name))]
    return sorted((int(match[1]), path) for match, path in found)


def _earlier(folder: Path, line: dict[str, Any]) -> tuple[Path | None, carry.Earlier | None]:
    """The last whole run, if there is one, and the same to carry over from, if it can be."""
    link = folder / LATEST
    if not link.is_symlink():
        return None, None
    before = folder / link.readlink().name
    try:
        return before, carry.Earlier(before)
    except InputError as error:
        line["note"] = f"all is made anew ({error})"
        return None, None


def _point(folder: Path, run: Path) -> None:
    """Let the link ``latest`` name the run, at once."""
    part = folder / f".{LATEST}.part"
    part.unlink(missing_ok=True)
    part.symlink_to(run.name)
    part.replace(folder / LATEST)


def _changes(before: Path, run: Path, alert: float) -> dict[str, Any]:
    """The metrics that are not what they were in the run before, and which of them fell too far."""
    drawn, others = (Run(folder).description.get("curves", {}).get("points", []) for folder in (before, run))
    chosen = [name for name in drawn if name in others and name.endswith(f":{compare.COMPARED_AT}")]
    if not chosen:
        return {}
    table = compare.between((before, run), chosen).filter(pl.col("metric").is_in(WATCHED))
    moved = [row for row in table.iter_rows(named=True) if row["difference"]]
    fallen = [f"{row['point']} {row['metric']}" for row in moved if row["difference"] < -alert]
    return {"metrics": moved, "alerts": fallen}


def _tell(line: dict[str, Any]) -> None:
    """Print what came of one store."""
    if "error" in line or "skipped" in line:
        typer.echo(f"{line['store']}: {line.get('error') or line['skipped']}", err="error" in line)
        return
    told = f"{line['recomputed']:,} recomputed, {line['carried_over']:,} carried over"
    if "moved" in line:
        told += f"; {line['moved']:,} have other sequences than before"
    typer.echo(f"{line['run']}: {told}")
    if "note" in line:
        typer.echo(f"note: {line['note']}", err=True)
    for row in line.get("metrics", []):
        name = f"{row['point']} {row['metric']}"
        sign = " ALERT" if name in line["alerts"] else ""
        typer.echo(
            f"  {name}: {row['a']:.4f} -> {row['b']:.4f}"
            f" ({row['difference']:+.4f}, 95% {row['low']:+.4f} to {row['high']:+.4f}){sign}"
        )


if __name__ == "__main__":
    app(prog_name="nightly")
