"""The whole chain against its slow twin, and what must not change a sequence."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from allocation.settings import POLICIES, WEIGHTS, Settings
from tests import frames, strategies

RRF_KS = (0, 1, 60, 1000)
PASSAGE_LIMITS = (1, 40, 300, 1478)


def evidence(case: dict[str, Any], policy: str, **chosen: Any) -> pl.DataFrame:
    return frames.evidence(*frames.frames_of(case), Settings(passages=policy, **chosen))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=150)
@given(
    case=strategies.cases(),
    rrf_k=st.sampled_from(RRF_KS),
    passage_limit=st.sampled_from(PASSAGE_LIMITS),
    weights=st.sampled_from([(1, 1, 1), (1, 1, 1), (2, 0.5, 1), (0, 1, 0.3), (1000, 0.001, 0)]),
)
def test_every_row_equals_the_slow_twin(
    case: dict[str, Any], policy: str, rrf_k: int, passage_limit: int, weights: tuple[float, float, float]
) -> None:
    own = dict(zip(WEIGHTS, weights, strict=True))
    actual = evidence(case, policy, rrf_k=rrf_k, passage_limit=passage_limit, **own)

    wanted = frames.expected(case, policy=policy, rrf_k=rrf_k, passage_limit=passage_limit, weights=weights)
    assert_frame_equal(actual, wanted)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40)
@given(case=strategies.cases(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_input_rows_changes_nothing(case: dict[str, Any], policy: str, seed: int) -> None:
    shuffled = [frame.sample(fraction=1, shuffle=True, seed=seed) for frame in frames.frames_of(case)]

    actual = frames.evidence(*shuffled, Settings(passages=policy))

    assert_frame_equal(actual, evidence(case, policy))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40)
@given(case=strategies.cases(), data=st.data())
def test_shards_one_after_another_equal_one_call(case: dict[str, Any], policy: str, data: st.DataObject) -> None:
    questions, windows, records, blocks = frames.frames_of(case)
    cut = data.draw(st.integers(0, len(questions)), label="questions in the first shard")
    shards = []
    for part in (questions[:cut], questions[cut:]):
        own = windows.join(part, on="question_id", how="semi")
        # A shard is given the records its own windows name, no others.
        named = records.join(own, on="record_ref", how="semi")
        stored = blocks.join(own, on="record_ref", how="semi")
        shards.append(frames.evidence(part, own, named, stored, Settings(passages=policy)))

    assert_frame_equal(pl.concat(shards), evidence(case, policy))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30)
@given(first=strategies.cases(), second=strategies.cases())
def test_two_agents_in_one_call_equal_each_alone(first: dict[str, Any], second: dict[str, Any], policy: str) -> None:
    ones = frames.frames_of(first, agents=("b",))
    others = frames.frames_of(frames.renamed(second, "r", 100), agents=("a",))
    both = [pl.concat(pair) for pair in zip(ones, others, strict=True)]
    chosen = Settings(passages=policy)

    actual = frames.evidence(*both, chosen)

    assert_frame_equal(actual, pl.concat([frames.evidence(*ones, chosen), frames.evidence(*others, chosen)]))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30)
@given(case=strategies.cases())
def test_windows_may_name_records_of_another_agent(case: dict[str, Any], policy: str) -> None:
    mixed = frames.frames_of(case, agents=("a", "b", "c"))

    actual = frames.evidence(*mixed, Settings(passages=policy))

    assert_frame_equal(actual, evidence(case, policy))


@pytest.mark.parametrize("policy", POLICIES)
def test_no_questions_no_rows(policy: str) -> None:
    assert evidence({"records": {}, "questions": []}, policy).is_empty()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_question_without_a_window_has_no_sequence(policy: str) -> None:
    record = {"text": "One. Two.", "blocks": [], "node_ends": []}
    row = {"item_position": 0, "claim_position": 0, "record_ref": "mem:1", "recall_rank": 0}
    asked = {"question_id": "q1", "question": "two?", "query_vector": None, "window": [row]}
    case = {"records": {"mem:1": record}, "questions": [asked, {**asked, "question_id": "q0", "window": []}]}

    actual = evidence(case, policy)

    assert actual["question_id"].unique().to_list() == ["q1"]


def test_watch_sees_each_step_and_may_replace_its_table() -> None:
    record = {"text": "One. Two.", "blocks": [], "node_ends": []}
    row = {"item_position": 0, "claim_position": 0, "record_ref": "mem:1", "recall_rank": 0}
    asked = {"question_id": "q0", "question": "two?", "query_vector": None, "window": [row]}
    inputs = frames.frames_of({"records": {"mem:1": record}, "questions": [asked]})
    seen: list[str] = []

    def only_the_first_block(step: str, frame: pl.DataFrame) -> pl.DataFrame:
        seen.append(step)
        return frame.head(1) if step == "blocks" else frame

    actual = frames.evidence(*inputs, Settings(), only_the_first_block)

    assert seen == [
        "blocks",
        "ranges",
        "passages",
        "similarity",
        "block_places",
        "ranks",
        "fused_order",
        "evidence",
        "evidence_costs",
    ]
    assert actual.select("start", "end").rows() == [(0, 4)]


def server_spans(text: str, blocks: list[tuple[int, int]] | None = None) -> list[tuple[int, int]]:
    """The passages of one record under the policy ``server``, in order."""
    stored = [(start, end, b"\x01\x02\x03\x04", "m") for start, end in blocks or []]
    record = {"text": text, "blocks": stored, "node_ends": []}
    row = {"item_position": 0, "claim_position": 0, "record_ref": "mem:1", "recall_rank": 0}
    asked = {"question_id": "q0", "question": "zebra?", "query_vector": None, "window": [row]}
    built = evidence({"records": {"mem:1": record}, "questions": [asked]}, "server")
    return built.select("start", "end").rows()


def test_server_quotes_a_short_record_whole_and_one_block_from_its_start() -> None:
    assert server_spans("a. " * 266 + "b.") == [(0, 800)]
    assert server_spans("a" * 801, [(0, 801)]) == [(0, 800)]


def test_server_drops_what_overlaps_a_better_range_even_behind_its_cut() -> None:
    # The best block ends a sentence of 900 characters, quoted up to 800; the block before it lies in that range.
    text = "a" * 820 + "b" * 74 + "zebra." + " The end."
    assert server_spans(text, [(0, 820), (820, 900), (900, 909)]) == [(0, 800), (900, 909)]


def test_server_reads_heads_only_and_ranks_them_by_item() -> None:
    records = {f"mem:{i}": {"text": f"Text {i}.", "blocks": [], "node_ends": []} for i in (1, 2, 3)}
    places = [("mem:1", 0, 0, 9), ("mem:2", 0, 1, 0), ("mem:3", 1, 0, 4)]
    names = ("record_ref", "item_position", "claim_position", "recall_rank")
    window = [dict(zip(names, place, strict=True)) for place in places]
    asked = {"question_id": "q0", "question": "text?", "query_vector": None, "window": window}

    built = evidence({"records": records, "questions": [asked]}, "server")

    assert built.select("record_ref", "record_rank", "inside_rank", "cosine_rank").rows() == [
        ("mem:1", 0, 0, None),
        ("mem:3", 1, 0, None),
    ]
