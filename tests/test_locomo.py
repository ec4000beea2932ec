"""The orders a memory server recorded for the LoCoMo questions, reproduced from its stores.

The folder is not part of the project: it is looked for beside it, or where LOCOMO_DIR says.
"""

import os
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from allocation import server
from allocation.settings import Settings
from allocation.tables import Questions, Records, Sequences, StoredBlocks, Windows, conform
from tests import frames, oracles

FOLDER = Path(os.environ.get("LOCOMO_DIR") or Path(__file__).parents[1] / "../shared/data/locomo")
WINDOW_SETS = {"session": "session", "session_deep": "session", "turn": "turn"}  # and the store of each
ALIKE = 1e-6  # cosines closer than this may change places on another processor
COMPARED = ["question_id", "position", "record_ref", "start", "end", "record_rank", "inside_rank", "cosine_rank"]
SEQUENCE = {name: column.dtype for name, column in Sequences.columns().items()}

pytestmark = pytest.mark.skipif(
    not (FOLDER / "questions.parquet").is_file(),
    reason="no LoCoMo folder: there is no questions.parquet in LOCOMO_DIR or ../shared/data/locomo",
)


@dataclass(frozen=True)
class Inputs:
    questions: pl.DataFrame
    windows: pl.DataFrame
    records: pl.DataFrame
    blocks: pl.DataFrame

    def of(self, question_ids: list[str]) -> frames.Frames:
        """Some questions with what they need, and no more."""
        questions = self.questions.filter(pl.col("question_id").is_in(question_ids))
        windows = self.windows.join(questions, on="question_id", how="semi")
        records = self.records.join(windows, on="record_ref", how="semi")
        return questions, windows, records, self.blocks.join(records, on="record_ref", how="semi")


def store(path: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Records and StoredBlocks of a whole store; these hold memories only."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        ends: dict[int, list[int]] = {}
        for parent, end in connection.execute("SELECT parent_id, end_char FROM record_nodes ORDER BY 1, 2"):
            ends.setdefault(parent, []).append(end)
        records = [
            {"record_ref": f"mem:{number}", "agent_id": agent, "text": text, "node_ends": ends.get(number, [])}
            for number, agent, text in connection.execute("SELECT id, agent_id, content FROM memories")
        ]
        blocks = connection.execute(
            "SELECT 'mem:' || parent_id, block_index, start_char, end_char, embedding_model, embedding_i8 "
            "FROM record_blocks LEFT JOIN record_block_vectors USING (parent_kind, parent_id, block_index)"
        ).fetchall()
    names = list(StoredBlocks.columns())
    return frames.table(Records, records), frames.table(
        StoredBlocks, [dict(zip(names, row, strict=True)) for row in blocks]
    )


@cache
def inputs(window_set: str) -> Inputs:
    questions = conform(pl.read_parquet(FOLDER / "questions.parquet"), Questions, "questions")
    windows = conform(pl.read_parquet(FOLDER / f"windows_{window_set}.parquet"), Windows, "windows")
    return Inputs(questions, windows, *store(FOLDER / f"store_{WINDOW_SETS[window_set]}.db"))


@pytest.mark.parametrize("window_set", WINDOW_SETS)
def test_policy_server_reproduces_the_recorded_orders(window_set: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = inputs(window_set)
    recorded = recorded_orders(window_set)
    actual = server_orders(given.of(given.questions["question_id"].to_list()))

    left = differing(actual, recorded)
    for question_id in left:
        problem = unexplained(given, question_id, actual, recorded)
        assert problem is None, f"{question_id}: {problem}"

    total = recorded["question_id"].n_unique()
    with capsys.disabled():
        sys.stdout.write(
            f"\n{window_set}: {total - len(left)} of {total} questions equal in every row, "
            f"{len(left)} but for cosines within {ALIKE:g}\n"
        )
    if not left:
        assert_frame_equal(actual, recorded)


def server_orders(some: frames.Frames) -> pl.DataFrame:
    built = frames.evidence(*some, Settings(passages="server"))
    return built.select(COMPARED).sort("question_id", "position")


def recorded_orders(window_set: str) -> pl.DataFrame:
    recorded = pl.read_parquet(FOLDER / f"expected_evidence_{window_set}.parquet")
    return recorded.select(pl.col(name).cast(SEQUENCE[name]) for name in COMPARED).sort("question_id", "position")


def differing(actual: pl.DataFrame, recorded: pl.DataFrame) -> list[str]:
    """Questions of which a row is missing, more, or not the same."""
    odd = [
        one.join(other, on=COMPARED, how="anti", nulls_equal=True)["question_id"]
        for one, other in ((actual, recorded), (recorded, actual))
    ]
    return pl.concat(odd).unique().sort().to_list()


def unexplained(given: Inputs, question_id: str, actual: pl.DataFrame, recorded: pl.DataFrame) -> str | None:
    """What in two orders of a question cosines that are off by less than ALIKE cannot do; None if nothing.

    Explained are the same passages with the same record ranks, whose other ranks are in the order of some
    cosines that near the exact ones, and whose positions follow from their ranks.
    """
    case = frames.case_of(*given.of([question_id]))
    [question] = case["questions"]
    places = ["record_ref", "start", "end"]
    ours, theirs = (side.filter(pl.col("question_id") == question_id) for side in (actual, recorded))
    same = [*places, "record_rank"]
    if not ours.select(same).sort(places).equals(theirs.select(same).sort(places)):
        return "other passages or record ranks"
    ranges = {ref: possible(question, case["records"][ref]) for ref in ours["record_ref"].unique()}
    items = {row["record_ref"]: row["item_position"] for row in question["window"]}
    for side in (ours, theirs):
        rows = side.sort("position").rows(named=True)
        found = [ranges[row["record_ref"]].get((row["start"], row["end"]), UNKNOWN) for row in rows]
        cosine_ranks = [row["cosine_rank"] for row in rows if row["cosine_rank"] is not None]
        if len(cosine_ranks) != (0 if all(one is UNKNOWN for one in found) else len(rows)):
            return "cosine ranks where there should be none, or none where there should be"
        if cosine_ranks and not (
            sorted(set(cosine_ranks)) == list(range(max(cosine_ranks) + 1))
            and in_order(cosine_ranks, [one.cosine for one in found])
        ):
            return "cosine ranks between passages that are not alike"
        for ref in ranges:
            own = [
                (row["inside_rank"], one.score)
                for row, one in zip(rows, found, strict=True)
                if row["record_ref"] == ref
            ]
            ranks = [rank for rank, _ in own]
            if sorted(ranks) != list(range(len(own))) or not in_order(ranks, [score for _, score in own]):
                return "inside ranks between passages that are not alike"
        keys = [
            oracles.order_key({**row, "item_position": items[row["record_ref"]], "claim_position": 0}, 60)
            for row in rows
        ]
        if keys != sorted(keys):
            return "positions do not follow from the ranks"
    return None


@dataclass(frozen=True)
class Possible:
    """Lowest and highest score in the block order, and cosine, of the block that brings a passage."""

    score: tuple[float, float]
    cosine: tuple[float, float]


UNKNOWN = Possible((0, 0), (-2, -2))  # a passage without a cosine comes after all others


def possible(question: dict[str, Any], record: dict[str, Any]) -> dict[oracles.Span, Possible]:
    """What each passage of a record may have when every cosine is off by less than ALIKE."""
    text, spans = record["text"], oracles.block_spans(record)
    vectors = oracles.block_vectors(record, question["query_vector"])
    if vectors is None or len(text) <= oracles.SERVER_QUOTE:
        return {}
    wanted = oracles.trigrams(question["question"])
    shared = oracles.dense_ranks(
        [len(wanted & oracles.trigrams(text[start:end])) for start, end in spans], highest_first=True
    )
    cosines = np.array([oracles.cosine_key(vector, question["query_vector"]) / 1e9 for vector in vectors])
    falling = np.sort(cosines)[::-1]
    steps = np.append(0, np.cumsum(-np.diff(falling) >= ALIKE))  # steps down that cannot close
    brought: dict[oracles.Span, list[tuple[float, float, float]]] = {}
    for block, cosine in enumerate(cosines):
        fewest = int(steps[np.searchsorted(-falling, -cosine)])
        most = int((cosines > cosine - ALIKE).sum()) - 1
        low, high = (1 / (61 + shared[block]) + 1 / (61 + rank) for rank in (most, fewest))
        start, end = oracles.governing_range(text, spans, block)
        place = (start, min(end, start + oracles.SERVER_QUOTE))
        brought.setdefault(place, []).append((low, high, cosine))
    found = {}
    for place, blocks in brought.items():
        low, high = max(low for low, _, _ in blocks), max(high for _, high, _ in blocks)
        likely = [cosine for _, own_high, cosine in blocks if own_high >= low - 1e-12]
        found[place] = Possible((low - 1e-12, high + 1e-12), (min(likely), max(likely) + ALIKE))
    return found


def in_order(ranks: list[int], between: list[tuple[float, float]]) -> bool:
    """Whether values between these bounds may have these ranks, highest first; equal ranks want equal values."""
    rank, (low, high) = np.array(ranks), np.array(between).T
    return bool(((high[:, None] >= low) | (rank < rank[:, None])).all())


def test_noise_in_the_last_bits_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another processor may do, and more: two last bits of every cosine at random."""
    given = inputs("session")
    generator = np.random.default_rng(3)
    exact = server._cosines
    monkeypatch.setattr(
        server,
        "_cosines",
        lambda vectors, query: (
            exact(vectors, query) * (1 + generator.integers(-2, 3, len(vectors)) * 2.0**-23)
        ).astype(np.float32),
    )
    some = given.questions["question_id"].sort().gather_every(40).to_list()
    recorded = recorded_orders("session").filter(pl.col("question_id").is_in(some))

    actual = server_orders(given.of(some))

    left = differing(actual, recorded)
    assert left
    assert [unexplained(given, question_id, actual, recorded) for question_id in left] == [None] * len(left)


def test_real_differences_are_not_explained() -> None:
    given = inputs("session")
    name = given.questions["question_id"].sort()[0]
    recorded = recorded_orders("session").filter(pl.col("question_id") == name)
    assert unexplained(given, name, recorded, recorded) is None

    last = recorded["cosine_rank"].max()
    swapped = pl.col("cosine_rank").replace({0: last, last: 0})
    shifted = pl.when(pl.col("cosine_rank") > 3).then(pl.col("cosine_rank") + 1).otherwise("cosine_rank")
    turned = (pl.len().over("record_ref") - 1 - pl.col("inside_rank")).cast(pl.Int32)
    for wrong in (
        recorded.with_columns(cosine_rank=swapped),
        recorded.with_columns(cosine_rank=shifted),
        recorded.with_columns(cosine_rank=pl.lit(None, dtype=pl.Int32)),
        recorded.with_columns(inside_rank=turned),
        recorded.with_columns(record_rank=pl.col("record_rank") + 1),
        recorded.with_columns(position=pl.col("position").reverse()),
        recorded.with_columns(end=pl.col("end") + 1),
        recorded[:-1],
    ):
        assert differing(wrong, recorded) == [name]
        assert unexplained(given, name, wrong, recorded) is not None


@pytest.mark.parametrize("window_set", WINDOW_SETS)
def test_policy_merge_equals_the_slow_twin(window_set: str) -> None:
    given = inputs(window_set)
    names = given.questions["question_id"].sort().gather_every(40)  # 25 of 999
    some = given.of(names.to_list())

    actual = frames.evidence(*some, Settings())

    assert len(names) == 25
    assert_frame_equal(actual, frames.expected(frames.case_of(*some)))
