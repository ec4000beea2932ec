"""The SQL, each query on a few rows, with the arithmetic beside it."""

import re

import duckdb
import polars as pl
import pytest

from allocation import queries

CUTS = {"breakdown": "all", "value": "all"}
RATES = dict.fromkeys(
    (
        *("sessions_shown", "all_shown", "turns_touched", "turn_characters", "evidence_share", "answer_in_context"),
        *("cl100k_base", "characters", "items", "turn_characters_per_1k_tokens", "duplicate_share", "first_item"),
        *("first_item_is_answer", "turns_whole", "turns_in_part", "turns_outside", "turns_not_quoted"),
        *("turns_not_recalled",),
    ),
    0.5,
)


def curve(sequence, budget=None, count=None, **rates):
    cut = f"top{count}" if count else str(budget or "all")
    place = {"point": f"{sequence}:{cut}", "sequence": sequence, "budget": budget, "count": count}
    return CUTS | place | {"questions": 3, "labelled": 2} | RATES | rates


def run(name, rows, **more):
    curves = pl.DataFrame(rows, infer_schema_length=None)
    points = curves.select("point").unique(maintain_order=True).with_row_index("place")
    return queries.run(name, curves=curves, points=points, **more)


@pytest.mark.parametrize("name", ["metrics", "measures", "curves", *queries.INSTRUMENTS])
def test_each_file_states_its_row_and_inputs(name):
    first = re.match(r"(?:-- .*\n)+", queries.text(name))
    assert first
    assert "Row: " in first.group()
    assert "Inputs: " in first.group()


@pytest.mark.parametrize("name", [*queries.INSTRUMENTS, "measures"])
def test_each_is_a_view_of_a_run(name):
    sql = queries.analysis(with_curves=True)
    assert f"CREATE OR REPLACE VIEW {name} AS" in sql
    assert name not in queries.analysis(with_curves=False)


def test_metrics_by_hand():
    """One record [0, 20) shown at [2, 8) and [8, 12), labelled [0, 10), [5, 15) and [16, 20)."""
    points = pl.DataFrame({"question_id": "q", "point": "p", "place": [0]})
    span = {"question_id": "q", "record_ref": "a"}
    evidence = pl.DataFrame([span | {"start": s, "end": e} for s, e in ((0, 10), (5, 15), (16, 20), (None, None))])
    missed = pl.DataFrame([{"question_id": "q", "record_ref": ref, "start": 0, "end": 4} for ref in ("b", "c")])
    place = {"item_position": 1, "claim_position": 0, "point": "p"}
    shown = [span | place | {"start": 2, "end": 8}, span | place | {"start": 8, "end": 12}]
    shown.append(place | {"question_id": "q", "record_ref": "d", "item_position": 0, "start": 0, "end": 7})
    windows = pl.DataFrame({"question_id": "q", "record_ref": ["a", "d", "b"]})
    repeats = [("a", 0, 6, 1), ("d", 0, 5, 1), ("d", 5, 9, 2), ("a", 10, 14, 2)]
    found = queries.run(
        "metrics",
        points=points,
        shown=pl.DataFrame(shown),
        evidence=pl.concat([evidence, missed]),
        windows=windows,
        repeats=pl.DataFrame(repeats, schema=["record_ref", "start", "end", "text_id"], orient="row"),
        gold=pl.DataFrame(schema={"question_id": pl.String, "point": pl.String, "answer_in_context": pl.Boolean}),
    )
    assert found.row(0, named=True) == {
        "question_id": "q",
        "point": "p",
        "answer_records": 3,  # a, b, c
        "answer_records_shown": 1,
        "turns": 5,
        "turns_not_recalled": 1,  # c
        "turns_not_quoted": 1,  # b
        "turns_outside": 1,  # [16, 20)
        "turns_in_part": 2,  # [2, 10) of [0, 10), [5, 12) of [5, 15)
        "turns_whole": 0,
        "turn_characters": 15 + 4 + 4 + 4,  # [0, 15), [16, 20), b, c
        "turn_characters_shown": 10,  # [2, 12)
        "quoted_characters": 10 + 7,
        "answer_record_characters": 10,
        "repeated_characters": 4 + 2,  # of a, which comes after d: [2, 6) and [10, 12)
        "first_item": 1,
        "answer_in_context": None,
    }


def test_measures_by_hand():
    points = pl.DataFrame({"question_id": ["q", "r"], "point": "p", "cl100k_base": [40, 50], "characters": [9, 8]})
    points = points.with_columns(items=1, passages=2, omitted=3, o200k_base=4)
    counts = {
        name: [0, 0] for name in ("turns_not_recalled", "turns_not_quoted", "turns_outside", "repeated_characters")
    }
    metrics = pl.DataFrame(
        {
            "question_id": ["q", "r"],
            "point": "p",
            "answer_records": [3, 0],
            "answer_records_shown": [2, 0],
            "turns": [3, 0],
            "turns_in_part": [1, 0],
            "turns_whole": [0, 0],
            "turn_characters": [6, 0],
            "turn_characters_shown": [1, 0],
            "quoted_characters": [30, 30],
            "answer_record_characters": [12, 0],
            "first_item": [0, None],
            "answer_in_context": [None, True],
            **counts,
        }
    )
    rows = queries.run("measures", points=points, metrics=metrics)
    found = {(question, metric): (part, whole) for question, _, metric, part, whole in rows.iter_rows()}
    assert found["q", "sessions_shown"] == (666_666_667, 10**9)  # 2/3, half up
    assert found["q", "turns_touched"] == (333_333_333, 10**9)
    assert found["q", "turn_characters"] == (166_666_667, 10**9)  # 1/6
    assert found["q", "all_shown"] == (0, 10**9)
    assert found["q", "evidence_share"] == (12, 30)
    assert found["q", "turn_characters_per_1k_tokens"] == (1000, 40)
    assert found["q", "first_item"] == (0, 1)
    assert found["q", "answer_in_context"] == (0, 0)
    assert found["r", "sessions_shown"] == found["r", "evidence_share"] == found["r", "first_item"] == (0, 0)
    assert found["r", "answer_in_context"] == (10**9, 10**9)
    assert found["r", "duplicate_share"] == (0, 30)
    assert found["r", "characters"] == (8, 1)


def test_count_curve():
    rows = [curve("items"), curve("items", count=10, items=8), curve("items", count=2), curve("items", 500)]
    assert run("count_curve", [*rows, curve("coverage")])["items_shown"].to_list() == ["2", "10", "all"]


def test_quote_curve():
    rows = [
        curve("items@320/160"),
        curve("items"),
        curve("items@1000/90"),
        curve("items", 500),
        curve("items", count=2),
    ]
    found = run("quote_curve", [*rows, curve("items@320/160", 500), curve("evidence")])
    assert found["quote_size"].to_list() == ["1000/90", "800/400", "320/160"]


@pytest.mark.parametrize("name", ["quoted_text", "losses"])
def test_every_point_in_order(name):
    rows = [curve("whole", 500), curve("items", count=2), curve("evidence", 500)]
    other = rows[0] | {"breakdown": "split", "value": "dev"}
    assert run(name, [*rows, other])["point"].to_list() == ["whole:500", "items:top2", "evidence:500"]


def test_budget_curve():
    rows = [curve("items", 500, turns_touched=0.25), curve("oracle", 500, turns_touched=1.0), curve("items", 700)]
    found = run("budget_curve", rows).select("sequence", "budget", "room_turns_touched", "room_turn_characters")
    assert found.rows() == [("items", 500, 0.75, 0), ("oracle", 500, 0, 0), ("items", 700, None, None)]


def test_by_type():
    rows = [curve("items", 500) | {"breakdown": "question_type", "value": value} for value in ("b", "a")]
    rows.append(curve("evidence", 500) | {"breakdown": "question_type", "value": "a"})
    found = run("by_type", [curve("items", 500), *rows])
    assert found.select("question_type", "point").rows() == [
        ("a", "items:500"),
        ("a", "evidence:500"),
        ("b", "items:500"),
    ]


def test_evidence_rank():
    """Turn [0, 4) is reached by inside ranks 3 and 1, [4, 5) by 7; [9, 12) by none, and a head quote has no rank."""
    steps = [
        ("evidence", 0, 3, 3, "passage"),
        ("evidence", 3, 4, 1, "passage"),
        ("evidence", 4, 9, 7, "passage"),
        ("coverage", 9, 12, 0, "passage"),
        ("evidence", 9, 12, None, "start"),
    ]
    sequences = pl.DataFrame(steps, schema=["sequence", "start", "end", "inside_rank", "basis"], orient="row")
    key = {"question_id": pl.lit("q"), "record_ref": pl.lit("a")}
    evidence = pl.DataFrame({"start": [0, 4, 9, 0, None], "end": [4, 5, 12, 4, None]}).with_columns(**key)
    found = queries.run("evidence_rank", sequences=sequences.with_columns(**key), evidence=evidence)
    assert found.rows() == [
        ("best", 0, 0),
        ("second", 1, 0.5),
        ("third", 0, 0),
        ("fourth or fifth", 0, 0),
        ("later", 1, 0.5),
    ]
    nothing = queries.run("evidence_rank", sequences=sequences.with_columns(**key), evidence=evidence.clear())
    assert nothing["share"].to_list() == [None] * 5


def test_an_error_of_sql_is_duckdbs():
    with pytest.raises(duckdb.Error):
        queries.run("curves", points=pl.DataFrame({"point": ["p"]}))
