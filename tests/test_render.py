"""What a sequence shows at a budget."""

from functools import cache
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation import chain, contexts, render
from allocation.points import Point
from allocation.settings import POLICIES, Settings
from allocation.tables import Entities, Sequences, StoredNodes
from tests import curve_oracles, frames, sample, sequence_oracles

Shown = dict[str, Any]

# Without a vector: q059. Japanese: q048 and q059. Several claims: q001 and q048.
QUESTIONS = ("q001", "q048", "q059")
CASES = [("merge", name) for name in sample.NAMES]
CASES += [("server", name) for name in (*chain.COMPARED, "items@320/160")]


def steps_of(policy: str, name: str, question: str) -> pl.DataFrame:
    return sample.built(policy)[name].filter(pl.col("question_id") == question)


def quotes_of(shown: Shown) -> list[Shown]:
    return [quote for item in shown["items"] for quote in (item, *item["excerpts"])]


def characters(shown: Shown) -> set[tuple[str, int]]:
    """Every character of a record that is shown."""
    return {(q["record_ref"], at) for q in quotes_of(shown) for start, end in q["ranges"] for at in range(start, end)}


def counted(shown: Shown) -> int:
    return sum(len(quote["content"]) for quote in quotes_of(shown))


@pytest.mark.parametrize(("policy", "name"), CASES)
def test_cut_walks_the_steps(policy: str, name: str) -> None:
    """At every total of every question, one less and one more."""
    built = sample.built(policy)[name]
    budgets = sorted({used + d for used in built["used"].gather_every(97) for d in (-1, 0, 1)} | {0, 1, 800, 10**9})
    by_question = {
        question: steps.select("cost", "used").rows(named=True)
        for (question,), steps in built.group_by("question_id", maintain_order=True)
    }
    for budget in budgets[:: max(1, len(budgets) // 40)]:
        taken = dict(render.cut(built, budget).group_by("question_id").len().iter_rows())
        expected = {question: len(sequence_oracles.cut(rows, budget)) for question, rows in by_question.items()}
        assert taken == expected


def test_cut_stops_at_the_first_total_that_passes_though_a_later_one_would_fit() -> None:
    """A step of one character that closes a gap takes two back."""
    steps = pl.DataFrame({"question_id": "q", "position": [0, 1, 2, 3], "cost": [10, 14, -2, 5]})
    steps = steps.with_columns(used=pl.col("cost").cum_sum())

    taken = {budget: render.cut(steps, budget)["position"].to_list() for budget in (0, 10, 22, 23, 24, 26, 27)}

    assert taken == {0: [0], 10: [0], 22: [0], 23: [0], 24: [0, 1, 2], 26: [0, 1, 2], 27: [0, 1, 2, 3]}
    assert all(len(own) == len(sequence_oracles.cut(steps.to_dicts(), budget)) for budget, own in taken.items())


@pytest.mark.parametrize(("policy", "name"), CASES)
def test_a_larger_budget_never_takes_a_character_away(policy: str, name: str) -> None:
    records = sample.shard().records
    for question in QUESTIONS:
        steps = steps_of(policy, name, question)
        rows = rows_of(steps)
        totals = steps["used"].to_list()
        some = totals[:: max(1, len(totals) // 5)] + totals[-1:]
        before: set[tuple[str, int]] = set()
        items: set[int] = set()
        excerpts: set[str] = set()
        for budget in sorted({0, *(total + d for total in some for d in (-1, 0, 1))}):
            shown = render.response(steps, records, budget)

            own = characters(shown)
            assert own >= before
            assert {item["item_position"] for item in shown["items"]} >= items
            assert {q["record_ref"] for item in shown["items"] for q in item["excerpts"]} >= excerpts
            before = own
            items = {item["item_position"] for item in shown["items"]}
            excerpts = {q["record_ref"] for item in shown["items"] for q in item["excerpts"]}
            check(shown, rows, budget)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["items", "items@320/160", "whole", "coverage"])
def test_every_total_of_a_question(policy: str, name: str) -> None:
    records = sample.shard().records
    for question in ("q001", "q048"):
        steps = steps_of(policy, name, question)
        rows = rows_of(steps)
        before: set[tuple[str, int]] = set()
        for budget in sorted({total + d for total in steps["used"][:25] for d in (-1, 0, 1)}):
            shown = render.response(steps, records, budget)
            own = characters(shown)
            assert own >= before
            before = own
            check(shown, rows, budget)


def rows_of(steps: pl.DataFrame) -> list[dict[str, Any]]:
    """Steps as the slow twin has them."""
    return [{**row, "ranges": [(span["start"], span["end"]) for span in row["ranges"]]} for row in steps.to_dicts()]


@cache
def texts_of_sample() -> dict[str, dict[str, str]]:
    return {ref: {"text": text} for ref, text in sample.shard().records.select("record_ref", "text").iter_rows()}


def check(shown: Shown, rows: list[dict[str, Any]], budget: int) -> None:
    """The response is what the slow twin shows, and counts what it leaves out."""
    records = texts_of_sample()
    taken = sequence_oracles.cut(rows, budget)
    expected = sequence_oracles.quotes(taken, records)
    heads = {item["item_position"]: item for item in shown["items"]}
    assert list(heads) == sorted({row["item_position"] for row in taken})
    actual = {(i, 0, item["record_ref"]): item["content"] for i, item in heads.items() if item["ranges"]}
    claims = {row["record_ref"]: row["claim_position"] for row in rows}
    actual |= {
        (i, claims[quote["record_ref"]], quote["record_ref"]): quote["content"]
        for i, item in heads.items()
        for quote in item["excerpts"]
    }
    assert actual == expected
    for quote in quotes_of(shown):
        label = "[Episode] " if quote["content"].startswith("[Episode] ") else ""
        ranges = [records[quote["record_ref"]]["text"][start:end] for start, end in quote["ranges"]]
        assert quote["content"] == label + " … ".join(ranges)
        assert all(end < start for (_, end), (start, _) in pairwise(quote["ranges"]))
    used = sum(row["cost"] for row in taken)
    assert shown["budget"] == budget
    assert shown["used"] == used == counted(shown) == taken[-1]["used"]
    assert used <= budget or len(taken) == 1
    every = {(row["item_position"], row["record_ref"]) for row in rows if row["claim_position"] > 0}
    quoted = {(row["item_position"], row["record_ref"]) for row in taken if row["claim_position"] > 0}
    assert shown["omitted"] == {
        "items": len({row["item_position"] for row in rows}) - len(heads),
        "excerpts": len(every) - len(quoted),
        "characters": rows[-1]["used"] - used,
    }


@pytest.mark.parametrize(("policy", "name"), CASES)
def test_nothing_is_left_out_in_the_end(policy: str, name: str) -> None:
    records = sample.shard().records
    length = records.select("record_ref", length=pl.col("text").str.len_chars())
    windows = sample.shard().windows.join(length, on="record_ref")
    for question in QUESTIONS:
        shown = render.response(steps_of(policy, name, question), records, 10**9)
        own = windows.filter(pl.col("question_id") == question)
        assert shown["omitted"] == {"items": 0, "excerpts": 0, "characters": 0}
        assert [item["item_position"] for item in shown["items"]] == list(range(own["item_position"].n_unique()))
        assert sum(len(item["excerpts"]) for item in shown["items"]) == own["claim_position"].gt(0).sum()
        if policy == "merge" and not name.startswith("items"):
            assert len(characters(shown)) == shown["used"] == own["length"].sum()
            assert all(quote["ranges"][0][0] == 0 and len(quote["ranges"]) == 1 for quote in quotes_of(shown))


def test_the_parts_of_each_step_are_shown() -> None:
    steps = steps_of("merge", "coverage", "q001")
    shown = render.response(steps, sample.shard().records, 3000)

    found = sorted((s["position"], s["parts"], s["new_parts"]) for q in quotes_of(shown) for s in q["steps"])

    wanted = render.cut(steps, 3000).select("position", "parts", "new_parts")
    assert found == sorted(wanted.rows())
    assert any(new for _, _, new in found)


# Item 0: mem:1; item 1: mem:2 with the claims ep:3, an episode without blocks, and mem:4.
RECORDS = {
    "mem:1": ("The key is red. It hangs in the shed. Nobody took it. The door is green.", "2025-03-01 10:00:00"),
    "mem:2": ("契約は五月に終わる。", None),
    "ep:3": ("They painted the door.", "2025-03-02"),
    "mem:4": ("No key.", ""),
}
PLACES = [("mem:1", 0, 0), ("mem:2", 1, 0), ("ep:3", 1, 1), ("mem:4", 1, 2)]


def hand_made() -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    """Sequences of one question, and the records."""
    text = RECORDS["mem:1"][0]
    cuts = [0, 16, 38, 54, len(text)]
    blocks = [(start, end, b"\x01", "m") for start, end in pairwise(cuts)]
    stored = {ref: {"text": text, "blocks": [], "node_ends": []} for ref, (text, _) in RECORDS.items()}
    stored["mem:1"]["blocks"] = blocks
    names = ("record_ref", "item_position", "claim_position", "recall_rank")
    window = [dict(zip(names, (*place, rank), strict=True)) for rank, place in enumerate(PLACES)]
    question = {"question_id": "q", "question": "key red door", "query_vector": None, "window": window}
    questions, windows, records, stored_blocks = frames.frames_of({"records": stored, "questions": [question]})
    times = [RECORDS[ref][1] for ref in records["record_ref"]]
    records = records.with_columns(recorded_at=pl.Series(times, dtype=pl.String))
    none = (StoredNodes.create_empty(), Entities.create_empty())
    shard = chain.Shard(questions, windows, records, stored_blocks, *none)
    built, _ = chain.build(shard, Settings(), ("items@50/400", "evidence"))
    return {name: Sequences.validate(steps) for name, steps in built.items()}, records


def context(name: str, budget: int) -> str:
    built, records = hand_made()
    return text_of(built[name], records, budget)


def text_of(steps: pl.DataFrame, records: pl.DataFrame, budget: int) -> str:
    """What a context of one question says, which the response says as data."""
    joined = contexts.join(contexts.shown(contexts.spans(steps, records), [Point("evidence", budget)]))
    assert joined["context"].item() == curve_oracles.context(render.response(steps, records, budget))
    return str(joined["context"].item())


def test_context_of_quotes() -> None:
    assert context("items@50/400", 1000) == (
        "[1] mem:1 (2025-03-01 10:00:00): The key is red.  … The door is green.\n"
        "\n"
        "[2] mem:2: 契約は五月に終わる。\n"
        "  > ep:3 (2025-03-02): [Episode] They painted the door.\n"
        "  > mem:4: No key.\n"
    )


def test_context_at_smaller_budgets() -> None:
    built, records = hand_made()
    first = built["items@50/400"]["cost"].to_list()
    assert first == [16 + 3 + 18, 10, 10 + 22, 7]
    assert context("items@50/400", 37 + 10 + 31) == (
        "[1] mem:1 (2025-03-01 10:00:00): The key is red.  … The door is green.\n\n[2] mem:2: 契約は五月に終わる。\n"
    )
    assert context("items@50/400", 0) == "[1] mem:1 (2025-03-01 10:00:00): The key is red.  … The door is green.\n"
    shown = render.response(built["items@50/400"], records, 78)
    assert shown["omitted"] == {"items": 0, "excerpts": 2, "characters": 39}
    assert render.response(built["items@50/400"], records, 0)["omitted"] == {
        "items": 1,
        "excerpts": 2,
        "characters": 49,
    }


def test_a_claim_without_its_head_stands_under_the_heads_name() -> None:
    built, records = hand_made()
    only_claims = built["evidence"].filter(~pl.col("record_ref").is_in(["mem:2", "mem:1"]))
    heads = built["evidence"].filter(pl.col("record_ref").is_in(["mem:2", "mem:1"]))
    total = 0
    rows = []
    for position, row in enumerate(pl.concat([only_claims, heads]).to_dicts()):
        total += row["cost"]
        rows.append({**row, "position": position, "used": total})
    turned = frames.table(Sequences, rows)

    shown = render.response(turned, records, 29)

    assert (
        text_of(turned, records, 29) == "[2] mem:2\n  > ep:3 (2025-03-02): They painted the door.\n  > mem:4: No key.\n"
    )
    assert shown["items"][0]["ranges"] == shown["items"][0]["steps"] == []
    assert shown["omitted"] == {"items": 1, "excerpts": 0, "characters": turned["used"][-1] - 29}


def test_context_of_nothing() -> None:
    built, records = hand_made()
    nothing = contexts.shown(contexts.spans(built["evidence"].clear(), records), [Point("evidence", 100)])
    assert contexts.join(nothing).is_empty()


def test_joined() -> None:
    assert render.joined([]) == []
    assert render.joined([(5, 9), (0, 2), (2, 4), (9, 12)]) == [(0, 4), (5, 12)]


@given(cuts=st.sets(st.integers(0, 30), max_size=12), data=st.data())
def test_joined_equals_the_slow_twin(cuts: set[int], data: st.DataObject) -> None:
    ends = sorted(cuts)
    spans = [span for span in pairwise(ends) if data.draw(st.booleans())]
    shuffled = data.draw(st.permutations(spans))
    assert render.joined(shuffled) == sequence_oracles.joined(spans)
