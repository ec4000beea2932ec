"""What a memory server answered the LoCoMo questions with, reproduced: quotes, excerpts, cuts and used budgets."""

from functools import cache

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from allocation import chain, render
from allocation.settings import Settings
from allocation.tables import Questions, Windows
from jobs import tabular
from jobs.store import open_store
from tests.test_locomo import COMPARED, FOLDER, WINDOW_SETS, pytestmark  # noqa: F401 - the mark skips this file too

CALL = ["question_id", "budget"]


def shard(window_set: str) -> chain.Shard:
    windows = tabular.read(FOLDER / f"windows_{window_set}.parquet", Windows)
    questions = tabular.read(FOLDER / "questions.parquet", Questions)
    refs = windows["record_ref"].unique().sort()
    with open_store(FOLDER / f"store_{WINDOW_SETS[window_set]}.db") as store:
        agents = questions["agent_id"].unique().sort()
        parts = (store.records(refs), store.blocks(refs), store.nodes(refs), store.entities(agents))
    return chain.Shard(questions, windows, *parts)


@cache
def built(window_set: str) -> dict[str, pl.DataFrame]:
    return chain.build(shard(window_set), Settings(passages="server"), ("items", "evidence", "whole"))[0]


@cache
def merged() -> dict[str, pl.DataFrame]:
    return chain.build(shard("session"), Settings())[0]


def recorded(name: str) -> pl.DataFrame:
    return pl.read_parquet(FOLDER / f"expected_{name}.parquet")


def cut(sequence: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The steps each call's effective budget takes."""
    shown = [
        render.cut(sequence.join(asked, on="question_id", how="semi"), budget).join(asked, on="question_id")
        for (budget,), asked in calls.select(*CALL, "effective_budget").unique().group_by("effective_budget")
    ]
    return pl.concat(shown).sort(*CALL, "position", nulls_last=True)


@pytest.mark.parametrize("window_set", WINDOW_SETS)
def test_items(window_set: str) -> None:
    expected = recorded(f"items_{window_set}")
    steps = cut(built(window_set)["items"], expected)
    used = pl.col("cost").sum().over(CALL).cast(pl.Int32)
    spans = pl.col("ranges").list.eval(
        pl.concat_list(pl.element().struct.field("start"), pl.element().struct.field("end"))
    )
    actual = steps.with_columns(used_budget=used).filter(claim_position=0)
    actual = actual.select(
        *CALL, "item_position", head_ref="record_ref", quote_basis="basis", ranges=spans, used_budget="used_budget"
    )
    assert_frame_equal(actual, expected.select(actual.columns), check_row_order=False)


def test_excerpts() -> None:
    expected = recorded("excerpts_turn")
    calls = recorded("items_turn").select(*CALL, "effective_budget").unique()
    steps = cut(built("turn")["items"], calls).filter(pl.col("claim_position") > 0)
    names = (*CALL, "item_position", "record_ref")
    actual = steps.select(*names, quote_chars="cost")
    assert len(expected) == 2107
    assert_frame_equal(actual, expected.select(actual.columns), check_row_order=False)
    blocks = expected.drop_nulls("start").select(*names, "start", "end")
    assert_frame_equal(
        steps.filter(basis="block").select(blocks.columns).join(blocks, on=names, how="semi", nulls_equal=True),
        blocks,
        check_row_order=False,
    )


def test_the_order_whole() -> None:
    expected = recorded("whole_session").select(COMPARED).sort("question_id", "position")
    assert_frame_equal(built("session")["whole"].select(COMPARED), expected)


def test_cut_prefixes() -> None:
    expected = recorded("budgets")
    steps = cut(built("session")["evidence"], expected)
    actual = steps.group_by(CALL).agg(
        passages_taken=pl.len().cast(pl.Int32),
        used_budget=pl.col("cost").sum().cast(pl.Int32),
        returned_items=pl.col("item_position").n_unique().cast(pl.Int32),
    )
    assert len(expected) == 3996
    assert_frame_equal(actual, expected.select(actual.columns), check_row_order=False)


def taken_one_by_one(masks: list[int], step_up: int, step_down: int) -> list[int]:
    """The greedy pass as it is told: the lowest of all that are left, again and again."""
    places = np.arange(len(masks))
    holds = np.array(masks, dtype=np.int64)
    order, held = [0], int(holds[0])
    left = np.ones(len(masks), dtype=bool)
    left[0] = False
    for _ in range(len(masks) - 1):
        new = (holds & ~held) != 0
        moved = np.where(new, places - step_up, np.where(holds != 0, places + step_down, places))
        best = int(np.argmin(np.where(left, moved, 2 * len(masks) + step_down)))  # of equals the first
        order.append(best)
        held |= int(holds[best])
        left[best] = False
    return order


def test_coverage_of_every_question_equals_taking_the_lowest_again_and_again() -> None:
    evidence, coverage = (merged()[name] for name in ("evidence", "coverage"))
    step = ["question_id", "record_ref", "start", "end"]
    placed = coverage.select(*step, "parts", place=pl.int_range(pl.len()).over("question_id"))
    joined = evidence.select(step).join(placed, on=step, maintain_order="left")
    assert len(joined) == len(evidence) > 400_000
    moved = 0
    for (question_id,), rows in joined.group_by("question_id", maintain_order=True):
        masks = [sum(1 << part for part in parts) for parts in rows["parts"]]
        order = taken_one_by_one(masks, 5, 5)
        assert rows["place"].arg_sort().to_list() == order, question_id
        moved += order != sorted(order)
    assert moved > 500


@pytest.mark.parametrize("name", chain.COMPARED)
def test_a_larger_budget_takes_nothing_away(name: str) -> None:
    steps = merged()[name]
    smaller = render.cut(steps, 0)
    assert smaller["question_id"].n_unique() == 999
    for budget in (200, 500, 800, 1000, 1001, 2000, 2800, 2801, 4000, 8000, 1_000_000):
        larger = render.cut(steps, budget)
        key = ["question_id", "position"]
        assert smaller.join(larger, on=key, how="anti").is_empty()
        last = larger.group_by("question_id").agg(pl.len(), pl.col("position").max())
        assert (last["len"] == last["position"] + 1).all()  # a prefix
        over = larger.filter((pl.col("used") > budget) & (pl.col("position") > 0))
        assert over.is_empty()
        smaller = larger
    assert len(smaller) == len(steps)
