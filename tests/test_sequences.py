"""Every sequence through the whole chain against its slow twin: drawn cases, the sample and LoCoMo."""

import struct
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from allocation import chain
from allocation.settings import POLICIES, Settings
from allocation.tables import Entities, Evidence, Parts, Sequences, StoredNodes
from tests import frames, oracles, sample, sequence_oracles, strategies

NAMES = (*chain.COMPARED, *chain.YARDSTICKS, "items@500/250", "items@320/160", "items@10/5")
ENTITIES = ("Osaka", "契約", "the lease end", "ＢＵＧ-218", "İ", "may", "雨", "a", "", "Σ", "カメラ", "Lease")
QUESTIONS = (
    *("When does the lease end in Osaka?", "Did version 2.6.5 or bug-218 cost more in may?", "カメラの契約はいつ？"),
    *("ｂｕｇ－２１８ and Ｏｓａｋａ", "see v1.2.3-rc.1; no nested note"),
)


@st.composite
def nodes(draw: st.DrawFn, text: str, width: int) -> list[tuple[int, int, str, bytes]]:
    """Draw current nodes, or such as are nearly current."""
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=3)) - {len(text)})
    spans = list(zip([0, *cuts], [*cuts, len(text)], strict=True))
    own = draw(st.sampled_from((width, width, width, width + 1)))
    numbers = st.lists(st.sampled_from((0.0, 0.5, -1.0, 0.3)), min_size=own, max_size=own)
    found = [(start, end, "m1", struct.pack(f"<{own}f", *draw(numbers))) for start, end in spans]
    start, end, model, embedding = found[-1]
    spoilt = [
        (start, end + 1, model, embedding),
        (start + 1, end, model, embedding),
        (start, start, model, embedding),
        (start, end, "m2", embedding),
        (start, end, model, b""),
    ]
    found[-1] = draw(st.sampled_from([found[-1]] * 6 + spoilt))
    if draw(st.integers(0, 5)) == 0:  # ends and starts still meet, but one node is empty or runs backwards
        meeting = draw(st.sampled_from((len(text), len(text) + 3, -1, None)))
        ends = [(0, meeting), (meeting, len(text))]
        found = [(start, end, model, embedding) for start, end in ends]
    return found


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a case with nodes, declared names, recorded parts and evidence labels."""
    case = draw(strategies.cases())
    for record in case["records"].values():
        width = draw(st.integers(4, 8))
        record["nodes"] = draw(nodes(record["text"], width)) if draw(st.booleans()) else []
    names = draw(st.lists(st.sampled_from(ENTITIES), unique=True))
    for question in case["questions"]:
        if draw(st.booleans()):
            question["question"] = draw(st.sampled_from(QUESTIONS))
        question["names"] = names
        if draw(st.integers(0, 3)) == 0:
            question["parts"] = draw(st.lists(st.sampled_from((*ENTITIES, "ends", "in")), max_size=5))
        question["labels"] = {}
        for row in question["window"]:
            if draw(st.booleans()):
                question["labels"][row["record_ref"]] = draw(spans(len(case["records"][row["record_ref"]]["text"])))
    return case


@st.composite
def spans(draw: st.DrawFn, length: int) -> list[oracles.Span | None]:
    """Draw spans that do not overlap, or a label of the whole record."""
    cuts = sorted(draw(st.sets(st.integers(0, length), max_size=6)))
    found: list[oracles.Span | None] = list(zip(cuts[::2], cuts[1::2], strict=False))
    return found or [None]


def shard_of(case: dict[str, Any]) -> chain.Shard:
    questions, windows, records, blocks = frames.frames_of(case)
    recorded = [question.get("parts") for question in case["questions"]]
    questions = questions.with_columns(parts=pl.Series(recorded, dtype=pl.List(pl.String)))
    stored = [
        {"record_ref": ref, "node_index": 2 * index, "start": start, "end": end}
        | {"embedding_model": model, "embedding": embedding}
        for ref, record in case["records"].items()
        for index, (start, end, model, embedding) in enumerate(record["nodes"])
    ]
    names = [{"agent_id": "a", "name": name} for name in case["questions"][0]["names"]]
    others = [{"agent_id": "b", "name": name} for name in ENTITIES]
    labels = [
        {"question_id": question["question_id"], "record_ref": ref}
        | {"start": span and span[0], "end": span and span[1]}
        for question in case["questions"]
        for ref, marked in question["labels"].items()
        for span in marked
    ]
    return chain.Shard(
        questions,
        windows,
        records,
        blocks,
        frames.table(StoredNodes, stored),
        frames.table(Entities, names + others),
        frames.table(Evidence, labels),
    )


def expected(case: dict[str, Any], names: tuple[str, ...], policy: str, **chosen: Any) -> dict[str, pl.DataFrame]:
    """Every named sequence of every question by the slow twin."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for question in sorted(case["questions"], key=lambda question: question["question_id"]):
        base = oracles.sequence(question, question["window"], case["records"], policy=policy)
        own = {"base": base, "names": question["names"], "labels": question["labels"], "policy": policy, **chosen}
        for name in names:
            steps = sequence_oracles.sequence(name, question, case["records"], **own)
            rows[name] += [
                {
                    "question_id": question["question_id"],
                    **step,
                    "ranges": [{"start": start, "end": end} for start, end in step["ranges"]],
                }
                for step in steps
            ]
    return {name: frames.table(Sequences, own) for name, own in rows.items()}


def expected_parts(case: dict[str, Any], rare_share: float) -> pl.DataFrame:
    rows = []
    for question in sorted(case["questions"], key=lambda question: question["question_id"]):
        texts = [case["records"][row["record_ref"]]["text"] for row in question["window"]]
        recorded = question.get("parts")
        counted = sequence_oracles.parts(question["question"], question["names"], recorded, texts, rare_share)
        rows += [
            {"question_id": question["question_id"], "part": part, "text": text, "kind": kind, "records_holding": held}
            for part, (text, kind, held) in enumerate(counted)
        ]
    return frames.table(Parts, rows)


def compare(shard: chain.Shard, case: dict[str, Any], names: tuple[str, ...], policy: str, **chosen: Any) -> None:
    built, found = chain.build(shard, Settings(passages=policy, **chosen), names)

    for name, wanted in expected(case, names, policy, **chosen).items():
        assert_frame_equal(built[name], wanted)
    if "coverage" in names:
        assert_frame_equal(found, expected_parts(case, chosen.get("rare_share", 0.5)))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=35)
@given(case=cases())
def test_every_sequence_equals_the_slow_twin(case: dict[str, Any], policy: str) -> None:
    compare(shard_of(case), case, NAMES, policy)


@pytest.mark.parametrize("base", ["evidence", "whole"])
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30)
@given(
    case=cases(),
    rare_share=st.sampled_from((0, 0.2, 0.5, 1)),
    keep_records=st.sampled_from((0, 0, 1, 3)),
    steps=st.sampled_from(((5, 5), (0, 0), (1, 2), (0, 40), (1_000_000_000, 1_000_000_000))),
)
def test_coverage_with_other_settings_equals_the_slow_twin(
    case: dict[str, Any], rare_share: float, keep_records: int, steps: tuple[int, int], policy: str, base: str
) -> None:
    chosen = {"rare_share": rare_share, "keep_records": keep_records, "step_up": steps[0], "step_down": steps[1]}
    compare(shard_of(case), case, ("coverage",), policy, coverage_base=base, **chosen)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_sample_equals_the_slow_twin(policy: str) -> None:
    given = sample.shard()
    some = pl.col("question_id").is_in([f"q{number:03}" for number in range(2, 61, 6)])
    of_some = chain.Shard(
        given.questions.filter(some),
        given.windows.filter(some),
        *(given.records, given.blocks, given.nodes, given.entities, given.evidence),
    )

    compare(of_some, sample.case_of(of_some), NAMES, policy)


@pytest.mark.skipif(
    not (sample.LOCOMO / "questions.parquet").is_file(),
    reason="no LoCoMo folder: there is no questions.parquet in LOCOMO_DIR or ../shared/data/locomo",
)
@pytest.mark.parametrize(("window_set", "count"), [("session", 20), ("turn", 20)])
def test_locomo_equals_the_slow_twin(window_set: str, count: int) -> None:
    given = sample.locomo(window_set, count)
    case = sample.case_of(given)
    bases = [oracles.sequence(question, question["window"], case["records"]) for question in case["questions"]]
    assert len(bases) == count

    for coverage_base, rare_share, keep_records in (("evidence", 0.5, 0), ("whole", 0, 2), ("evidence", 1, 1)):
        chosen: dict[str, Any] = {
            "coverage_base": coverage_base,
            "rare_share": rare_share,
            "keep_records": keep_records,
        }
        built, found = chain.build(given, Settings(**chosen), ("coverage",))
        for question, base in zip(case["questions"], bases, strict=True):
            wanted = sequence_oracles.sequence(
                "coverage", question, case["records"], base=base, names=question["names"], **chosen
            )
            own = built["coverage"].filter(pl.col("question_id") == question["question_id"])
            for column in ("record_ref", "start", "end", "cost", "used", "parts", "new_parts"):
                assert own[column].to_list() == [row[column] for row in wanted]
        assert_frame_equal(found, expected_parts(case, rare_share))
