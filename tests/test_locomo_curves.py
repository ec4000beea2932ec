"""The curves of LoCoMo: every point against the slow twin, and the shape that is known of it."""

import os
from functools import cache

import pytest

from allocation import chain, curves, points
from tests import sample, test_curves
from tests.test_locomo import pytestmark  # noqa: F401 - the mark skips this file too


@cache
def batch() -> curves.Batch:
    # Every sixth question, as the known figures were taken; all of them take minutes.
    whole = sample.locomo("session_deep", 999)
    asked = whole.questions if os.environ.get("LOCOMO_ALL") else whole.questions.gather_every(6)
    windows, evidence = (
        rows.join(asked, on="question_id", how="semi", maintain_order="left")
        for rows in (whole.windows, whole.evidence)
    )
    shard = chain.Shard(asked, windows, whole.records, whole.blocks, whole.nodes, whole.entities, evidence)
    return test_curves.batch_of(shard)


def test_every_point_equals_the_slow_twin() -> None:
    test_curves.compare(batch(), points.standard(test_curves.NAMES))


def test_the_known_shape_at_2800_characters() -> None:
    cuts = [points.Point(name, budget=2800) for name in chain.COMPARED]
    rows = curves.over_groups(*curves.measure(batch(), cuts), batch().questions)
    metrics = ("sessions_shown", "turns_touched", "turn_characters", "evidence_share")
    found = {row["sequence"]: [row[name] for name in metrics] for row in rows.to_dicts() if row["value"] == "all"}
    if not os.environ.get("LOCOMO_ALL"):
        assert found["items"] == pytest.approx([0.593, 0.572, 0.333, 0.232], abs=0.0006)
        assert found["evidence"] == pytest.approx([0.830, 0.620, 0.280, 0.143], abs=0.0006)
    assert found["evidence"][0] > found["items"][0]
    assert found["evidence"][1] > found["items"][1]
