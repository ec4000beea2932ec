"""The orders that are compared, on small hand-made passages and on the sample."""

from typing import Any

import polars as pl
import pytest

from allocation import chain, steps
from allocation.settings import Settings
from allocation.tables import Evidence
from tests import frames, sample

Passage = tuple[str, int, int, int | None]  # record, start, end, cosine rank

RECORDS = {  # question, item, claim, length, record rank
    "mem:1": (0, 0, 0, 900, 0),
    "mem:2": (0, 1, 0, 800, 2),
    "mem:3": (0, 2, 0, 801, 1),
    "mem:4": (0, 3, 0, 40, 3),
    "mem:5": (0, 3, 1, 30, 3),
    "mem:6": (1, 0, 0, 20, 0),
}


def ranked(*passages: Passage) -> pl.DataFrame:
    """Passages in fused order, with all that the steps read."""
    rows: list[dict[str, Any]] = []
    for record, start, end, cosine in passages:
        question, item, claim, length, rank = RECORDS[record]
        rows.append(
            {
                "window_row": list(RECORDS).index(record),
                "question": question,
                "question_id": f"q{question}",
                "record": int(record[-1]),
                "item_position": item,
                "claim_position": claim,
                "record_ref": record,
                "record_rank": rank,
                "length": length,
                "passage_start": start,
                "passage_end": end,
                "cosine_rank": cosine,
                "inside_rank": sum(other["record_ref"] == record for other in rows),
                "position": sum(other["question"] == question for other in rows),
            }
        )
    types = {"question_id": pl.String, "record_ref": pl.String}
    names = ("window_row", "question", "question_id", "record", "item_position", "claim_position", "record_ref")
    numbers = ("record_rank", "length", "passage_start", "passage_end", "cosine_rank", "inside_rank", "position")
    return pl.DataFrame(rows, schema={name: types.get(name, pl.Int64) for name in (*names, *numbers)})


def spans(ordered: pl.DataFrame) -> list[tuple[str, int, int]]:
    for _, own in ordered.group_by("question"):
        assert own["position"].to_list() == list(range(len(own)))
    return ordered.select("record_ref", "passage_start", "passage_end").rows()


def test_whole_puts_short_heads_first_in_item_order_as_one_step() -> None:
    given = ranked(
        ("mem:5", 0, 30, 1),
        ("mem:4", 0, 40, 5),
        ("mem:3", 400, 801, 0),
        ("mem:2", 300, 800, 4),
        ("mem:1", 0, 900, 2),
        ("mem:2", 0, 300, 3),
        ("mem:3", 0, 400, 6),
        ("mem:6", 10, 20, None),
        ("mem:6", 0, 10, None),
    )

    ordered = steps.whole(given)

    assert spans(ordered) == [
        ("mem:2", 0, 800),
        ("mem:4", 0, 40),
        ("mem:5", 0, 30),  # short, but no head
        ("mem:3", 400, 801),  # a character too long
        ("mem:1", 0, 900),
        ("mem:3", 0, 400),
        ("mem:6", 0, 20),
    ]
    assert ordered["cosine_rank"].to_list() == [3, 5, 1, 0, 2, 6, None]
    assert ordered["inside_rank"].to_list() == [0, 0, 0, 0, 0, 1, 0]
    assert ordered["record_rank"].to_list() == [2, 3, 3, 1, 0, 1, 0]


def labels(*rows: tuple[str, str, int | None, int | None]) -> pl.DataFrame:
    names = ("question_id", "record_ref", "start", "end")
    return frames.table(Evidence, [dict(zip(names, row, strict=True)) for row in rows])


def test_oracle_puts_the_densest_first_then_labelled_records() -> None:
    given = ranked(
        ("mem:5", 0, 30, 0),  # the whole record is the label: no span, so no share
        ("mem:1", 0, 100, 1),  # nothing inside, but of a record with evidence
        ("mem:2", 0, 50, 2),  # no evidence for this question
        ("mem:3", 0, 100, 3),  # 30 of 100
        ("mem:1", 100, 140, 4),  # 20 of 40, at its end
        ("mem:3", 100, 120, 5),  # 10 of 20, in two spans: an equal, so it stays behind
        ("mem:4", 0, 40, 6),  # touched at the edge only: nothing inside
        ("mem:1", 140, 150, 7),  # all of it, the span goes on
        ("mem:6", 0, 20, 0),
    )
    marked = labels(
        ("q0", "mem:1", 120, 600),
        ("q0", "mem:3", 70, 104),
        ("q0", "mem:3", 110, 116),
        ("q0", "mem:4", 40, 50),
        ("q0", "mem:5", None, None),
        ("q1", "mem:2", 0, 50),
    )

    assert spans(steps.oracle(given, marked)) == [
        ("mem:1", 140, 150),
        ("mem:1", 100, 140),
        ("mem:3", 100, 120),
        ("mem:3", 0, 100),
        ("mem:5", 0, 30),
        ("mem:1", 0, 100),
        ("mem:4", 0, 40),
        ("mem:2", 0, 50),
        ("mem:6", 0, 20),
    ]


def test_oracle_without_labels_is_the_order_it_was_given() -> None:
    given = ranked(("mem:2", 0, 50, 2), ("mem:1", 0, 100, 1))
    assert spans(steps.oracle(given, labels())) == spans(given)


def test_recall_shows_records_whole_in_text_order() -> None:
    given = ranked(
        ("mem:5", 0, 30, 1),
        ("mem:4", 20, 40, 0),
        ("mem:2", 0, 800, 4),
        ("mem:4", 0, 20, 5),
        ("mem:1", 700, 900, 2),
        ("mem:1", 0, 700, 3),
        ("mem:6", 0, 20, 0),
    )

    assert spans(steps.recall(given)) == [
        ("mem:1", 0, 700),
        ("mem:1", 700, 900),
        ("mem:2", 0, 800),
        ("mem:4", 0, 20),  # of one rank with mem:5, and before it in the window
        ("mem:4", 20, 40),
        ("mem:5", 0, 30),
        ("mem:6", 0, 20),
    ]


def test_oracle_needs_evidence() -> None:
    given = sample.shard()
    without = chain.Shard(
        *(given.questions[:1], given.windows.filter(pl.col("question_id") == given.questions["question_id"][0])),
        *(given.records, given.blocks, given.nodes, given.entities),
    )

    with pytest.raises(ValueError, match="oracle needs evidence"):
        chain.build(without, Settings(), ("oracle",))
    chain.build(without, Settings(), ("cosine", "recall"))


def test_sample_recall_is_records_in_recall_order() -> None:
    ordered = sample.built("merge")["recall"]
    recalled = sample.shard().windows.sort("question_id", "recall_rank").select("question_id", "record_ref")

    seen = ordered.unique(["question_id", "record_ref"], maintain_order=True).select("question_id", "record_ref")

    assert seen.rows() == recalled.rows()
    runs = pl.struct("question_id", "record_ref").rle_id()
    assert ordered.select(runs.n_unique()).item() == len(recalled)
    before = pl.col("end").shift(1, fill_value=0).over("question_id", "record_ref")
    assert ordered.select((pl.col("start") == before).all()).item()


def test_sample_cosine_is_by_cosine_rank_then_recall() -> None:
    ordered = sample.built("merge")["cosine"]

    by_rank = ordered.sort("question_id", "cosine_rank", "record_rank", "start", nulls_last=True)

    assert ordered.equals(by_rank)
    without = ordered.filter(pl.col("cosine_rank").is_null())["question_id"].unique().sort().to_list()
    assert without == ["q020", "q059"]


def test_sample_whole_has_every_short_head_first() -> None:
    given = sample.shard()
    length = pl.col("text").str.len_chars().cast(pl.Int64)
    short = (
        given.windows.filter(pl.col("claim_position") == 0)
        .join(given.records.select("record_ref", length=length), on="record_ref")
        .filter(pl.col("length") <= 800)
        .sort("question_id", "item_position")
    )
    ordered = sample.built("merge")["whole"]

    counts = dict(short.group_by("question_id").len().iter_rows())
    floor = ordered.filter(pl.col("position") < pl.col("question_id").replace_strict(counts, default=0))

    assert floor.select("question_id", "record_ref", "start", "end").rows() == [
        (question, ref, 0, length)
        for question, ref, length in short.select("question_id", "record_ref", "length").iter_rows()
    ]
    heads = short.select("question_id", "record_ref")
    rest = ordered.join(heads, on=["question_id", "record_ref"], how="anti", maintain_order="left")
    evidence = sample.built("merge")["evidence"]
    evidence = evidence.join(heads, on=["question_id", "record_ref"], how="anti", maintain_order="left")
    place = ("question_id", "record_ref", "start", "end")
    assert rest.select(place).equals(evidence.select(place))
    assert len(rest) > 500
    assert len(short) > 200


def test_sample_oracle_shows_evidence_first() -> None:
    given = sample.shard()
    assert given.evidence is not None
    ordered = sample.built("merge")["oracle"]
    spans = ordered.select("question_id", "position", "record_ref", "start", "end").join(
        given.evidence, on=["question_id", "record_ref"], suffix="_label"
    )
    inside = pl.min_horizontal("end", "end_label") > pl.max_horizontal("start", "start_label")
    holding = spans.filter(inside).unique(["question_id", "position"])

    by_question = holding.group_by("question_id").agg(pl.col("position").sort())

    assert len(by_question) > 50
    assert all(places.to_list() == list(range(len(places))) for places in by_question["position"])


def test_sequences_of_passages_are_permutations_of_the_same() -> None:
    built = sample.built("merge")
    place = ["question_id", "record_ref", "start", "end", "record_rank", "inside_rank", "cosine_rank"]
    expected = built["evidence"].select(place).sort(place)

    for name in ("coverage", "oracle", "cosine", "recall"):
        assert built[name].select(place).sort(place).equals(expected)
        assert not built[name].select(place).equals(built["evidence"].select(place))


def test_sequences_of_passages_show_the_same_characters_in_the_end() -> None:
    built = sample.built("merge")
    length = sample.shard().records.select("record_ref", length=pl.col("text").str.len_chars().cast(pl.Int64))
    in_window = sample.shard().windows.join(length, on="record_ref")
    expected = dict(in_window.group_by("question_id").agg(pl.col("length").sum()).iter_rows())

    for name in ("evidence", "whole", "coverage", "oracle", "cosine", "recall"):
        last = built[name].group_by("question_id").agg(pl.col("used").last(), (pl.col("end") - pl.col("start")).sum())
        assert {question: used for question, used, _ in last.iter_rows()} == expected
        assert {question: shown for question, _, shown in last.iter_rows()} == expected


def test_only_coverage_has_parts() -> None:
    for policy in ("merge", "server"):
        for name, ordered in sample.built(policy).items():
            passages = ordered.filter(pl.col("basis") == "passage")
            assert passages["parts"].is_null().all() == (name != "coverage")
            assert passages["new_parts"].is_null().all() == (name != "coverage")


def test_labels_that_overlap_count_a_character_once() -> None:
    columns = {"question": 0, "question_id": "q", "passage_start": 0, "passage_end": 100}
    ranked = pl.DataFrame([{**columns, "record_ref": ref, "position": i} for i, ref in enumerate("ba")])
    labels = [("b", 0, 40), ("b", 0, 41), ("b", 10, 20), ("a", 0, 70)]
    evidence = pl.DataFrame(
        [("q", *label) for label in labels], schema=["question_id", "record_ref", "start", "end"], orient="row"
    )
    # b holds 41 of 100 characters, not 40 + 41 + 10; a holds 70
    assert steps.oracle(ranked, evidence)["record_ref"].to_list() == ["a", "b"]
