"""The committed sample, and LoCoMo where it is present, as shards and as cases of the slow twin."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from allocation import chain, inputs
from allocation.settings import Settings
from allocation.tables import Evidence, Questions, Sequences, Windows
from jobs import tabular
from jobs.store import open_store
from tests import frames

SAMPLE = Path(__file__).parents[1] / "data" / "sample"
LOCOMO = Path(os.environ.get("LOCOMO_DIR") or Path(__file__).parents[1] / "../shared/data/locomo")
NAMES = (*chain.COMPARED, "items@320/160", *chain.YARDSTICKS)


def labels_of(store: Path, path: Path, questions: pl.DataFrame) -> pl.DataFrame:
    """The usable Evidence of ``path`` for some questions."""
    labels = tabular.read(path, Evidence).join(questions, on="question_id", how="semi")
    with open_store(store) as opened:
        lengths = opened.problems(labels["record_ref"].unique().sort()).select("record_ref", "length")
    usable, rejects = inputs.evidence(labels, "evidence", questions, lengths)
    assert rejects.is_empty()
    return usable


def shard_of(store: Path, questions: pl.DataFrame, windows: pl.DataFrame, evidence: pl.DataFrame) -> chain.Shard:
    """Questions with what a store holds for them."""
    with open_store(store) as opened:
        refs = windows["record_ref"].unique().sort()
        usable, rejects = inputs.windows(
            windows, "windows", questions, opened.problems(refs).select("record_ref", "problem")
        )
        assert rejects.is_empty()
        return chain.Shard(
            questions,
            usable,
            opened.records(refs),
            opened.blocks(refs),
            opened.nodes(refs),
            opened.entities(questions["agent_id"].unique().sort()),
            evidence,
        )


@cache
def shard() -> chain.Shard:
    """The whole sample."""
    questions, _ = inputs.questions(tabular.read(SAMPLE / "questions.parquet", Questions), "questions")
    evidence = labels_of(SAMPLE / "store.db", SAMPLE / "evidence.parquet", questions)
    return shard_of(SAMPLE / "store.db", questions, tabular.read(SAMPLE / "windows.parquet", Windows), evidence)


@cache
def built(policy: str) -> dict[str, pl.DataFrame]:
    """Every sequence of the sample."""
    sequences, _ = chain.build(shard(), Settings(passages=policy), NAMES)
    return {name: Sequences.validate(sequence) for name, sequence in sequences.items()}


@cache
def locomo(window_set: str, count: int) -> chain.Shard:
    """``count`` LoCoMo questions, evenly picked."""
    read = tabular.read(LOCOMO / "questions.parquet", Questions)
    questions, _ = inputs.questions(read, "questions")
    questions = questions.gather_every(len(questions) // count)[:count]
    windows = tabular.read(LOCOMO / f"windows_{window_set}.parquet", Windows)
    windows = windows.join(questions, on="question_id", how="semi")
    kind = window_set.partition("_")[0]
    evidence = labels_of(LOCOMO / f"store_{kind}.db", LOCOMO / f"evidence_{kind}.parquet", questions)
    return shard_of(LOCOMO / f"store_{kind}.db", questions, windows, evidence)


def case_of(given: chain.Shard) -> dict[str, Any]:
    """A shard as a case the slow twin can read: ``frames.case_of`` with nodes, names and labels."""
    case: dict[str, Any] = frames.case_of(given.questions, given.windows, given.records, given.blocks)
    for row in given.nodes.sort("record_ref", "node_index").iter_rows(named=True):
        node = (row["start"], row["end"], row["embedding_model"], row["embedding"])
        case["records"][row["record_ref"]].setdefault("nodes", []).append(node)
    names = dict(given.entities.group_by("agent_id").agg("name").iter_rows())
    labels: dict[str, dict[str, list[tuple[int, int] | None]]] = {}
    if given.evidence is not None:
        for question_id, ref, start, end in given.evidence.iter_rows():
            span = None if start is None else (start, end)
            labels.setdefault(question_id, {}).setdefault(ref, []).append(span)
    for question in case["questions"]:
        question["names"] = names.get(question["agent_id"], [])
        question["labels"] = labels.get(question["question_id"], {})
    return case
