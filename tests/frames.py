"""Drawn cases as the frames of the chain, and the slow twin's rows as Sequences."""

from typing import Any

import dataframely as dy
import polars as pl

from allocation import chain
from allocation.settings import Settings
from allocation.tables import Entities, Questions, Records, Sequences, StoredBlocks, StoredNodes, Windows
from tests import oracles

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]  # questions, windows, records, blocks


def table(kind: type[dy.Schema], rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a frame with the columns of ``kind``; a column no row has is null."""
    return pl.DataFrame(rows, schema={name: column.dtype for name, column in kind.columns().items()})


def frames_of(case: dict[str, Any], agents: tuple[str, ...] = ("a",)) -> Frames:
    """Questions, windows, records and stored blocks of a case; agents take turns over questions and records."""
    questions: list[dict[str, Any]] = []
    windows: list[dict[str, Any]] = []
    for number, question in enumerate(case["questions"]):
        own = {key: question[key] for key in ("question_id", "question", "query_vector")}
        questions.append({**own, "agent_id": agents[number % len(agents)]})
        windows += [{"question_id": question["question_id"], **row} for row in question["window"]]
    records: list[dict[str, Any]] = []
    blocks: list[dict[str, Any]] = []
    for number, (ref, record) in enumerate(case["records"].items()):
        agent = agents[number % len(agents)]
        own = {"text": record["text"], "node_ends": record["node_ends"]}
        records.append({"record_ref": ref, "agent_id": agent, **own})
        for index, (start, end, vector, model) in enumerate(record["blocks"]):
            place = {"record_ref": ref, "block_index": index, "start": start, "end": end}
            blocks.append({**place, "embedding_model": model, "vector": vector})
    return (
        table(Questions, questions),
        table(Windows, windows),
        table(Records, records),
        table(StoredBlocks, blocks),
    )


def evidence(
    questions: pl.DataFrame,
    windows: pl.DataFrame,
    records: pl.DataFrame,
    blocks: pl.DataFrame,
    settings: Settings,
    watch: chain.Watch | None = None,
) -> pl.DataFrame:
    """The passages of the sequence ``evidence``, without the excerpts that may follow them."""
    nothing = (StoredNodes.create_empty(), Entities.create_empty())
    shard = chain.Shard(questions, windows, records, blocks, *nothing)
    watching = {} if watch is None else {"watch": watch}
    built, _ = chain.build(shard, settings, ("evidence",), **watching)
    return built["evidence"].filter(pl.col("basis") == "passage")


def expected(case: dict[str, Any], **settings: Any) -> pl.DataFrame:
    """The Sequences of a case by the slow twin; ``settings`` are those of ``oracles.sequence``."""
    rows = [
        {
            "question_id": question["question_id"],
            "basis": "passage",
            "ranges": [{"start": row["start"], "end": row["end"]}],
            **row,
        }
        for question in sorted(case["questions"], key=lambda question: question["question_id"])
        for row in oracles.sequence(question, question["window"], case["records"], **settings)
    ]
    return table(Sequences, rows)


def case_of(questions: pl.DataFrame, windows: pl.DataFrame, records: pl.DataFrame, blocks: pl.DataFrame) -> Any:
    """The inverse of ``frames_of``: a case the slow twin can read."""
    store: dict[str, Any] = {
        row["record_ref"]: {"text": row["text"], "node_ends": row["node_ends"] or [], "blocks": []}
        for row in records.iter_rows(named=True)
    }
    for row in blocks.sort("record_ref", "block_index").iter_rows(named=True):
        block = (row["start"], row["end"], row["vector"] or None, row["embedding_model"])
        store[row["record_ref"]]["blocks"].append(block)
    by_question: dict[str, list[dict[str, Any]]] = {}
    for row in windows.sort("question_id", "item_position", "claim_position").iter_rows(named=True):
        by_question.setdefault(row["question_id"], []).append(row)
    asked = [{**row, "window": by_question.get(row["question_id"], [])} for row in questions.iter_rows(named=True)]
    return {"records": store, "questions": asked}


def renamed(case: dict[str, Any], prefix: str, step: int) -> dict[str, Any]:
    """The same case under other names: ``prefix`` before question ids, ``step`` added to record numbers."""

    def moved(ref: str) -> str:
        kind, number = ref.split(":")
        return f"{kind}:{int(number) + step}"

    questions = [
        {
            **question,
            "question_id": prefix + question["question_id"],
            "window": [{**row, "record_ref": moved(row["record_ref"])} for row in question["window"]],
        }
        for question in case["questions"]
    ]
    return {"records": {moved(ref): record for ref, record in case["records"].items()}, "questions": questions}
