"""Head quotes and other claims' excerpts, by hand and against the slow twin."""

import struct
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import chain
from allocation.chain import names_of
from allocation.errors import InputError
from allocation.settings import POLICIES, Settings
from allocation.tables import Entities, Sequences, StoredNodes
from tests import frames, sequence_oracles, strategies

VECTOR = b"\x01\x02\x03\x04"
QUOTE = ("record_ref", "item_position", "ranges", "basis", "cost")


def quotes(case: dict[str, Any], name: str, policy: str = "merge") -> pl.DataFrame:
    """The steps of a sequence ``items``."""
    nodes = [
        dict(zip(("record_ref", "node_index", "start", "end", "embedding_model", "embedding"), row, strict=True))
        for ref, record in case["records"].items()
        for row in ((ref, index, *node) for index, node in enumerate(record.get("nodes", [])))
    ]
    stored = frames.table(StoredNodes, nodes)
    shard = chain.Shard(*frames.frames_of(case), stored, Entities.create_empty())
    built, _ = chain.build(shard, Settings(passages=policy), (name,))
    return Sequences.validate(built[name])


def stored(text: str, *cuts: int) -> dict[str, Any]:
    """A record with a current block set, cut at these offsets."""
    ends = [*cuts, len(text)]
    blocks = [(start, end, VECTOR, "m") for start, end in zip([0, *cuts], ends, strict=True)]
    return {"text": text, "blocks": blocks, "node_ends": []}


def divided(text: str) -> dict[str, Any]:
    return {"text": text, "blocks": [], "node_ends": []}


def asked(question: str, items: list[list[tuple[str, dict[str, Any]]]]) -> dict[str, Any]:
    """A case of one question without a vector, whose items have these claims."""
    window = [
        {"item_position": item, "claim_position": claim, "record_ref": ref, "recall_rank": item}
        for item, claims in enumerate(items)
        for claim, (ref, _) in enumerate(claims)
    ]
    records = {ref: record for claims in items for ref, record in claims}
    row = {"question_id": "q", "question": question, "query_vector": None, "window": window}
    return {"records": records, "questions": [row]}


def heads(question: str, *records: dict[str, Any], name: str) -> list[tuple[list[tuple[int, int]], str, int]]:
    """Ranges, basis and cost of the head quote of each record, each an item of its own."""
    steps = quotes(asked(question, [[(f"mem:{i}", record)] for i, record in enumerate(records)]), name)
    assert steps["item_position"].to_list() == list(range(len(records)))
    return [
        ([(span["start"], span["end"]) for span in ranges], basis, cost)
        for ranges, basis, cost in steps.select("ranges", "basis", "cost").iter_rows()
    ]


def test_a_quote_is_filled_best_first_and_shown_in_text_order() -> None:
    text = "The red key is here. " + "Nothing of note. " + "A red key hangs. " + "We left."  # 21, 17, 17, 8
    record = stored(text, 21, 38, 55)

    # "The red key is here." holds most, then "A red key hangs."; a separator stands between them.
    assert heads("the red key is", record, name="items@41/9") == [([(0, 21), (38, 55)], "blocks", 41)]
    assert heads("the red key is", record, name="items@40/9") == [([(0, 21)], "blocks", 21)]
    assert heads("the red key is", record, name="items@21/9") == [([(0, 21)], "blocks", 21)]
    assert heads("the red key is", record, name="items@20/9") == [([(0, 20)], "blocks", 20)]
    assert heads("the red key is", record, name="items@63/9") == [([(0, 63)], "whole", 63)]


def test_ranges_that_touch_cost_no_separator_and_are_joined() -> None:
    text = "A red key. " + "The red keys. " + "We left home and went. " + "More of that."  # 11, 14, 23, 13
    record = stored(text, 11, 25, 48)

    assert heads("the red keys", record, name="items@25/9") == [([(0, 25)], "blocks", 25)]
    assert heads("the red keys", record, name="items@24/9") == [([(11, 25)], "blocks", 14)]


def test_a_range_that_closes_a_gap_is_counted_once_too_often() -> None:
    """Both ends of the text, then the middle: 10 + (10 + 3) + 10 counted, though 30 are shown in the end."""
    text = "Red key a.Red maps.." + "Red key b." + "Much later we left home."
    record = stored(text, 10, 20, 30)

    # Blocks 0 and 2 share more trigrams with the question than block 1.
    assert heads("red key", record, name="items@33/9") == [([(0, 30)], "blocks", 30)]
    assert heads("red key", record, name="items@32/9") == [([(0, 10), (20, 30)], "blocks", 23)]


def test_the_first_that_does_not_fit_ends_the_quote() -> None:
    text = "The red key is here. " + "A red key hangs on the long wall of the shed. " + "A key. "
    record = stored(text, 21, 67)

    # The second does not fit; the third would.
    assert heads("the red key is", record, name="items@40/9") == [([(0, 21)], "blocks", 21)]


def test_a_range_that_overlaps_one_taken_is_passed_over() -> None:
    text = "The red key is here. " + "However, the key is old. " + "A red key. " + "It rained on us all day."
    record = stored(text, 21, 46, 57)

    # The first two are one range, found from either block: passed over the second time, not the end.
    assert heads("the red key is", record, name="items@60/9") == [([(0, 57)], "blocks", 57)]


def test_the_first_five_items_have_the_first_size() -> None:
    record = divided("One red key. Two red keys. Three red keys.")

    found = heads("red", *[dict(record) for _ in range(7)], name="items@41/14")

    assert found == [([(0, 26)], "lexical", 26)] * 5 + [([(0, 12)], "lexical", 12)] * 2


def test_bases_of_head_quotes() -> None:
    long = "word " * 30
    one = stored(long)
    assert heads("word", one, name="items@149/9") == [([(0, 149)], "start", 149)]
    assert heads("word", one, name="items@150/9") == [([(0, 150)], "whole", 150)]
    assert heads("word", divided(long), name="items@10/9") == [([(0, 10)], "start", 10)]
    two = "One red key. Two red keys."
    assert heads("red", divided(two), name="items@15/9")[0][1] == "lexical"
    assert heads("red", stored(two, 13), name="items@15/9")[0][1] == "blocks"


def excerpts(question: str, *claims: tuple[str, dict[str, Any]]) -> list[tuple[str, int, int, str, int]]:
    steps = quotes(asked(question, [[("mem:0", divided("Head.")), *claims]]), "items")
    assert steps["record_ref"][0] == "mem:0"
    return steps.slice(1).select("record_ref", "start", "end", "basis", "cost").rows()


def test_bases_of_excerpts() -> None:
    text = "Nothing of note. " + "The red key. "
    node = struct.pack("<2f", 1, 0)
    nodes = [(0, 17, "m", node), (17, 30, "m", node)]
    with_nodes = divided(text) | {"nodes": nodes}
    long = "w" * 600

    assert excerpts("red key", ("mem:1", stored(text, 17))) == [("mem:1", 17, 30, "block", 13)]
    assert excerpts("red key", ("mem:1", with_nodes)) == [("mem:1", 17, 30, "node", 13)]
    assert excerpts("red key", ("mem:1", with_nodes | {"nodes": nodes[1:]})) == [("mem:1", 0, 30, "start", 30)]
    assert excerpts("red key", ("mem:1", divided(text))) == [("mem:1", 0, 30, "start", 30)]
    assert excerpts("red key", ("ep:1", divided(text))) == [("ep:1", 0, 30, "start", 40)]
    assert excerpts("red key", ("ep:1", stored(text, 17))) == [("ep:1", 17, 30, "block", 13)]
    assert excerpts("red key", ("mem:1", stored(long))) == [("mem:1", 0, 500, "block", 500)]
    assert excerpts("red key", ("mem:1", divided(long))) == [("mem:1", 0, 500, "start", 500)]
    assert excerpts("red key", ("ep:1", divided(long))) == [("ep:1", 0, 490, "start", 500)]


@pytest.mark.parametrize("meeting", [-1, None, 0, 30, 40])
def test_nodes_that_are_empty_or_run_backwards_are_not_current(meeting: int | None) -> None:
    text = "Nothing of note. " + "The red key. "
    node = struct.pack("<2f", 1, 0)
    record = divided(text) | {"nodes": [(0, meeting, "m", node), (meeting, 30, "m", node)]}

    assert excerpts("red key", ("mem:1", record)) == [("mem:1", 0, 30, "start", 30)]


def test_nodes_whose_cosines_differ_in_the_eighth_place_do_not_tie() -> None:
    text = "Aaa bbb. " + "Ccc ddd. "
    embeddings = [struct.pack("<2f", 1, y) for y in (2e-4, 1.5e-4)]  # cosines 0.99999998 and 0.999999989
    nodes = [(0, 9, "m", embeddings[0]), (9, 18, "m", embeddings[1])]
    case = asked("zzz", [[("mem:0", divided("Head.")), ("mem:1", divided(text) | {"nodes": nodes})]])
    case["questions"][0]["query_vector"] = [1.0, 0.0]

    steps = quotes(case, "items")

    assert steps.select("start", "end").rows()[1] == (9, 18)


def test_excerpts_come_in_rounds_behind_all_heads() -> None:
    def claims(*numbers: int) -> list[tuple[str, dict[str, Any]]]:
        return [(f"mem:{number}", divided(f"Text {number}.")) for number in numbers]

    case = asked("text", [claims(10, 11, 12, 13), claims(20), claims(30, 31, 32)])
    expected = ["mem:10", "mem:20", "mem:30", "mem:11", "mem:31", "mem:12", "mem:32", "mem:13"]

    assert quotes(case, "items")["record_ref"].to_list() == expected
    for row in case["questions"][0]["window"]:
        row["claim_position"] *= 3  # gaps do not delay a round
    assert quotes(case, "items")["record_ref"].to_list() == expected


SIZES = ("items", "items@500/250", "items@320/160", "items@10/5", "items@1/1", "items@40/2000")


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60)
@given(case=strategies.cases(), name=st.sampled_from(SIZES))
def test_quotes_equal_the_slow_twin(case: dict[str, Any], policy: str, name: str) -> None:
    steps = quotes(case, name, policy)

    expected = [
        (row["record_ref"], row["item_position"], row["ranges"], row["basis"], row["cost"])
        for question in sorted(case["questions"], key=lambda question: question["question_id"])
        for row in sequence_oracles.sequence(name, question, case["records"], policy=policy)
    ]
    actual = [
        (ref, item, [(span["start"], span["end"]) for span in ranges], basis, cost)
        for ref, item, ranges, basis, cost in steps.select(QUOTE).iter_rows()
    ]
    assert actual == expected


def test_names_of() -> None:
    assert names_of("items, evidence ,,whole,coverage,items,oracle,cosine,recall") == [
        *("items", "evidence", "whole", "coverage", "oracle", "cosine", "recall"),
    ]
    assert names_of("items@320/160,items@999999/1") == ["items@320/160", "items@999999/1"]


@pytest.mark.parametrize(
    "name",
    [
        *("Items", "item", "items@", "items@320", "items@320/", "items@/160", "items@0/160", "items@320/0"),
        *("items@0320/160", "items@-1/5", "items@1000000/5", "items@1/2/3", "items@３/4", "items@3 /4", "evidence@3/4"),
    ],
)
def test_names_of_refuses_what_is_no_sequence(name: str) -> None:
    with pytest.raises(InputError, match=r"is unknown; choose from items, evidence, .*items@FIRST/REST") as refused:
        names_of(f"evidence,{name}")
    assert repr(name) in str(refused.value)


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_names_of_wants_one_name_at_least(text: str) -> None:
    with pytest.raises(InputError, match="no sequence named"):
        names_of(text)
