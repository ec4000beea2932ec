"""Contexts in bulk against the slow twin and the response of one question."""

import polars as pl
import pytest

from allocation import chain, contexts, points, render
from tests import curve_oracles, sample

CASES = [("merge", name) for name in sample.NAMES] + [("server", name) for name in (*chain.COMPARED, "items@320/160")]
BUDGETS = (1, 160, 900, 2800, 10**6)


@pytest.mark.parametrize(("policy", "name"), CASES)
def test_a_context_says_what_the_response_does(policy: str, name: str) -> None:
    """Every question of the sample: episodes, several claims, times, Japanese; with ``server`` excerpts alone."""
    sequence, records = sample.built(policy)[name], sample.shard().records
    cuts = [points.Point(name, budget=budget) for budget in BUDGETS]
    joined = contexts.join(contexts.shown(contexts.spans(sequence, records), cuts))
    found = {(point, question): context for point, question, context in joined.drop("quoted").iter_rows()}
    by_question = sequence.partition_by("question_id", as_dict=True)
    assert len(found) == len(by_question) * len(BUDGETS)
    for (question,), steps in list(by_question.items())[::3]:
        for cut in cuts:
            expected = curve_oracles.context(render.response(steps, records, cut.budget))
            assert found[cut.name, question] == expected


def test_the_sample_has_the_odd_cases() -> None:
    built, records = sample.built("server")["items"], sample.shard().records
    shown = contexts.shown(contexts.spans(built, records), [points.Point("items")])
    whole = "".join(contexts.join(shown)["context"])
    assert "\n  > mem:" in whole
    assert "] ep:" in whole


def test_what_is_searched_is_quotes_and_times_alone() -> None:
    records = pl.DataFrame(
        {"record_ref": ["mem:7", "mem:8"], "agent_id": "a", "text": ["One. Two. Three.", "Four."]}
    ).with_columns(recorded_at=pl.Series(["2025", None]), node_ends=pl.lit(None, dtype=pl.List(pl.Int64)))
    span = pl.List(pl.Struct({"start": pl.Int32, "end": pl.Int32}))
    ranges = [[{"start": 0, "end": 4}, {"start": 10, "end": 16}], [{"start": 0, "end": 5}]]
    sequence = pl.DataFrame(
        {
            "question_id": "q",
            "position": [0, 1],
            "item_position": 0,
            "claim_position": [0, 1],
            "record_ref": ["mem:7", "mem:8"],
            "basis": ["blocks", "start"],
            "cost": [13, 5],
            "used": [13, 18],
        }
    ).with_columns(ranges=pl.Series(ranges, dtype=span))
    joined = contexts.join(contexts.shown(contexts.spans(sequence, records), [points.Point("items")]))
    assert joined["context"].item() == "[1] mem:7 (2025): One. … Three.\n  > mem:8: Four.\n"
    assert joined["quoted"].item() == "\ue0002025 One. … Three.\ue000 Four."
