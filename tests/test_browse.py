"""The question browser's values, against a plain reading of the sample's sequences."""

import json
from functools import cache
from typing import Any

import polars as pl
import pytest

from allocation import browse, chain, render
from allocation.curves import Batch
from allocation.settings import Settings
from tests import sample

NAMES = (*chain.COMPARED, "items@320/160", "oracle")
BUDGET = 2000
ASKED = ("q001", "q017", "q045", "q060")


@cache
def given() -> Batch:
    shard = sample.shard()
    sequences, parts = chain.build(shard, Settings(), NAMES)
    return Batch(shard.questions, shard.windows, shard.evidence, shard.records, shard.blocks, sequences, parts)


@cache
def page() -> dict[str, Any]:
    return browse.page(given(), pl.Series(ASKED), BUDGET)


def question(key: str) -> dict[str, Any]:
    return next(row for row in page()["questions"] if row["question_id"] == key)


def test_only_the_questions_asked_for_in_order():
    assert [row["question_id"] for row in page()["questions"]] == list(ASKED)
    assert json.loads(json.dumps(page())) == page()


def test_spans_are_distinct_and_hold_their_records_text():
    batch = given()
    texts = dict(batch.records.select("record_ref", "text").iter_rows())
    spans = page()["spans"]
    assert len({tuple(span[:3]) for span in spans}) == len(spans)
    for record, start, end, text in spans:
        assert text == texts[page()["records"][record][0]][start:end]
    assert any(ord(letter) > 0xFFFF for *_, text in spans for letter in text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ASKED)
def test_steps_are_those_the_budget_takes(key, name):
    batch = given()
    own = batch.sequences[name].filter(pl.col("question_id") == key)
    found = question(key)["sequences"][name]
    records = {(item, claim): record for item, claim, record in question(key)["items"]}
    rows = render.cut(own, BUDGET).to_dicts()
    assert found["later"] == len(own) - len(rows)
    assert len(found["cost"]) == len(rows)
    for place, row in enumerate(rows):
        assert [
            found[column][place] for column in ("item_position", "claim_position", "basis", "cost", "record_rank")
        ] == [row[column] for column in ("item_position", "claim_position", "basis", "cost", "record_rank")]
        record = records[row["item_position"], row["claim_position"]]
        assert page()["records"][record][0] == row["record_ref"]
        shown = [page()["spans"][span][:3] for span in found["spans"][place]]
        assert shown == [[record, span["start"], span["end"]] for span in row["ranges"]]
        for column in ("inside_rank", "cosine_rank", "parts", "new_parts"):
            assert found.get(column, [None] * len(rows))[place] == row[column]
    for budget in (0, 250, 500, 1400, BUDGET):
        assert sum(needed <= budget for needed in found["needed"]) == len(render.cut(own, budget))
    texts = given().parts.filter(pl.col("question_id") == key).sort("part")
    assert question(key)["parts"] == [list(row) for row in texts.select("text", "kind", "records_holding").iter_rows()]


@pytest.mark.parametrize("key", ASKED)
def test_questions_items_and_evidence(key):
    batch = given()
    own = pl.col("question_id") == key
    asked = batch.questions.filter(own).row(0, named=True)
    found = question(key)
    assert [found[name] for name in ("question", "type", "answer", "split")] == [
        asked[name] for name in ("question", "question_type", "answer", "split")
    ]
    items = batch.windows.filter(own).sort("item_position", "claim_position")
    assert [[item, claim, page()["records"][record][0]] for item, claim, record in found["items"]] == [
        list(row) for row in items.select("item_position", "claim_position", "record_ref").iter_rows()
    ]
    labels = batch.evidence.filter(own).unique().select("record_ref", "start", "end")
    assert sorted(map(str, (row[:3] for row in found["evidence"]))) == sorted(map(str, map(list, labels.iter_rows())))
    for ref, start, end, span in found["evidence"]:
        if span is not None:
            record, *rest = page()["spans"][span][:3]
            assert (page()["records"][record][0], rest) == (ref, [start, end])
    times = dict(batch.records.select("record_ref", "recorded_at").iter_rows())
    assert all(times[ref] == time for ref, time in page()["records"])


def test_evidence_in_no_window_and_questions_without_a_window_are_kept():
    batch = given()
    lost = batch.evidence.clear().vstack(
        pl.DataFrame(
            [("q001", "mem:999999", 3, 9), ("q001", "mem:999999", None, None)],
            schema=batch.evidence.schema,
            orient="row",
        )
    )
    without = pl.col("question_id") != "q001"
    bare = Batch(
        batch.questions,
        batch.windows.filter(without),
        lost,
        batch.records,
        batch.blocks,
        {name: rows.filter(without) for name, rows in batch.sequences.items()},
    )
    (found,) = browse.page(bare, pl.Series(["q001"]), BUDGET)["questions"]
    assert found["evidence"] == [["mem:999999", 3, 9, None], ["mem:999999", None, None, None]]
    assert found["items"] == []
    assert found["sequences"] == {name: {"later": 0} for name in NAMES}


def test_no_question_makes_an_empty_page():
    batch = given()
    assert browse.page(batch, pl.Series([], dtype=pl.String), BUDGET) == {
        "records": [],
        "spans": [],
        "questions": [],
    }


def test_questions_are_picked_evenly():
    ids = pl.Series([f"q{place:03d}" for place in range(10)]).reverse()
    assert browse.picked(ids, 10).to_list() == sorted(ids)
    assert browse.picked(ids, 4).to_list() == ["q000", "q002", "q005", "q007"]
