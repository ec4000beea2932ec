"""What a memory server answered the LoCoMo questions with, reproduced: quotes, excerpts, cuts and used budgets."""

from functools import cache

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


@cache
def built(window_set: str) -> dict[str, pl.DataFrame]:
    windows = tabular.read(FOLDER / f"windows_{window_set}.parquet", Windows)
    questions = tabular.read(FOLDER / "questions.parquet", Questions)
    refs = windows["record_ref"].unique().sort()
    with open_store(FOLDER / f"store_{WINDOW_SETS[window_set]}.db") as store:
        agents = questions["agent_id"].unique().sort()
        parts = (store.records(refs), store.blocks(refs), store.nodes(refs), store.entities(agents))
    shard = chain.Shard(questions, windows, *parts)
    return chain.build(shard, Settings(passages="server"), ("items", "evidence", "whole"))[0]


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
