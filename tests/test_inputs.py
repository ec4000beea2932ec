import polars as pl
import pytest
from polars.testing import assert_frame_equal

from allocation import inputs
from allocation.errors import InputError
from allocation.tables import Evidence, Questions, Rejects, Windows
from tests.frames import table
from tests.workspace import window_rows

ASKED = table(Questions, [{"question_id": name, "agent_id": "a", "question": "x"} for name in ("q1", "q2")])
FOUND = pl.DataFrame(
    [("mem:1", None), ("mem:2", None), ("mem:3", None), ("mem:4", "its record's text is empty")],
    schema={"record_ref": pl.String, "problem": pl.String},
    orient="row",
)


def judged(*rows):
    """Windows of (question_id, item_position, claim_position, record_ref): rows kept, and reasons by row."""
    frame = table(Windows, window_rows(*rows))
    usable, rejects = inputs.windows(frame, "w", ASKED, FOUND)
    assert usable.columns == Windows.column_names()
    assert len(usable) + len(rejects) == len(frame)
    assert usable.rows() == sorted(usable.rows())
    numbers = {row: number for number, row in enumerate(frame.rows(), 1)}
    return sorted(numbers[row] for row in usable.rows()), dict(rejects.select("row", "reason").rows())


def asked(*rows):
    names = ("question_id", "agent_id", "question", "query_vector")
    frame = table(Questions, [dict(zip(names, row, strict=True)) for row in rows])
    usable, rejects = inputs.questions(frame, "q")
    return usable["question_id"].to_list(), dict(rejects.select("row", "reason").rows())


def test_good_questions_come_sorted_with_all_columns():
    frame = table(
        Questions,
        [
            {
                "question_id": "b",
                "agent_id": "a",
                "question": "x",
                "query_vector": [1.0, 0.0],
                "answer": "y",
                "parts": ["x"],
            },
            {"question_id": "a", "agent_id": "a", "question": "\0", "query_vector": []},
        ],
    )
    usable, rejects = inputs.questions(frame, "q")
    assert_frame_equal(usable, frame.reverse())
    assert rejects.is_empty()
    Rejects.validate(rejects)


def test_questions_that_cannot_be_used():
    nan, inf = float("nan"), float("inf")
    kept, reasons = asked(
        ("q1", "a", "x", None),
        ("q1", "a", "y", None),
        ("", "a", "x", None),
        ("q4", " ", "x", None),
        ("q5", "a", "\u3000\n", None),
        ("q6", "a", "x", [1.0, nan]),
        ("q7", "a", "x", [inf, 1.0]),
        ("q8", "a", "x", [None, 1.0]),
        ("q9", "a", "x", [0.0, -0.0]),
        (None, "a", "x", None),
    )
    wrong = "query_vector holds a value that is missing, NaN or infinite"
    assert kept == ["q1"]
    assert reasons == {
        2: "question_id occurs before",
        3: "question_id is empty",
        4: "agent_id is empty",
        5: "question is empty",
        6: wrong,
        7: wrong,
        8: wrong,
        9: "query_vector is zero",
        10: "question_id is empty",
    }


def test_no_rows():
    usable, rejects = inputs.questions(Questions.create_empty(), "q")
    assert (len(usable), len(rejects)) == (0, 0)
    assert judged() == ([], {})


def test_good_windows():
    rows = [("q2", 0, 0, "mem:1"), ("q1", 1, 1, "mem:3"), ("q1", 0, 0, "mem:1"), ("q1", 1, 0, "mem:2")]
    assert judged(*rows) == ([1, 2, 3, 4], {})


@pytest.mark.parametrize(
    ("rows", "reasons"),
    [
        ([("q9", 0, 0, "mem:1")], {1: "question_id is unknown"}),
        ([(None, 0, 0, "mem:1")], {1: "question_id is unknown"}),
        ([("q1", 0, 0, "mem:9")], {1: "the store has no such record_ref"}),
        ([("q1", 0, 0, None)], {1: "the store has no such record_ref"}),
        ([("q1", 0, 0, "mem:4")], {1: "its record's text is empty"}),
        ([("q1", -1, 0, "mem:1")], {1: "item_position is negative"}),
        ([("q1", 0, -1, "mem:1")], {1: "claim_position is negative"}),
        ([("q1", 0, None, "mem:1")], {1: "claim_position is missing or not a whole number"}),
        (
            [("q1", 0, 0, "mem:1"), ("q1", 0, 0, "mem:2")],
            {2: "its item has a head already (claim_position 0)"},
        ),
        (
            [("q1", 0, 0, "mem:1"), ("q1", 0, 1, "mem:2"), ("q1", 0, 1, "mem:3")],
            {3: "its item has a claim at this claim_position already"},
        ),
        ([("q1", 0, 0, "mem:1"), ("q1", 1, 0, "mem:1")], {2: "its window names this record before"}),
        ([("q1", 0, 1, "mem:1")], {1: "its item has no head (claim_position 0)"}),
        (
            [("q1", 0, 0, "mem:1"), ("q1", 1, 0, "mem:9"), ("q1", 1, 1, "mem:2")],
            {2: "the store has no such record_ref", 3: "the head of its item was rejected"},
        ),
        # The second head is rejected; the first still carries the item, once.
        (
            [("q1", 0, 0, "mem:1"), ("q1", 0, 1, "mem:3"), ("q1", 0, 0, "mem:2")],
            {3: "its item has a head already (claim_position 0)"},
        ),
    ],
)
def test_window_rows_that_cannot_be_used(rows, reasons):
    kept, found = judged(*rows)
    assert found == reasons
    assert kept == [number for number in range(1, len(rows) + 1) if number not in reasons]


@pytest.mark.parametrize("positions", [(1,), (0, 2), (0, 1, 3)])
def test_item_positions_with_a_gap(positions):
    refs = ("mem:1", "mem:2", "mem:3")
    rows = [("q1", position, 0, ref) for position, ref in zip(positions, refs, strict=False)]
    kept, found = judged(*rows, ("q2", 0, 0, "mem:1"))
    assert kept == [len(rows) + 1]  # the other question's window is untouched
    assert set(found.values()) == {"the item positions of its question have a gap; they must be 0, 1, 2 …"}


def test_a_missing_number_is_told_by_its_own_name():
    rows = window_rows(("q1", 0, 0, "mem:1"))
    _, rejects = inputs.windows(table(Windows, [rows[0] | {"recall_rank": None}]), "w", ASKED, FOUND)
    assert rejects["reason"].to_list() == ["recall_rank is missing or not a whole number"]
    assert rejects["key"].to_list() == ["question_id=q1, item_position=0, claim_position=0, record_ref=mem:1"]


def test_evidence():
    names = ("question_id", "record_ref", "start", "end")
    rows = [
        ("q1", "mem:2", None, None),
        ("q1", "mem:1", 3, 9),
        ("q9", "mem:1", 3, 9),
        ("q1", "", 3, 9),
        ("q1", "mem:1", 3, None),
        ("q1", "mem:1", 9, 9),
        ("q1", "mem:1", -1, 9),
        ("q1", "mem:1", 10, 20),
        ("q1", "mem:1", 10, 21),
        ("q1", "mem:9", 10, 21),
    ]
    frame = table(Evidence, [dict(zip(names, row, strict=True)) for row in rows])
    lengths = pl.DataFrame({"record_ref": ["mem:1", "mem:2"], "length": [20, 30]})
    usable, rejects = inputs.evidence(frame, "e", ASKED, lengths)
    assert usable.rows() == [rows[1], rows[7], rows[0], rows[9]]  # nothing is known of mem:9
    assert dict(rejects.select("row", "reason").rows()) == {
        3: "question_id is unknown",
        4: "record_ref is empty",
        5: "a span needs both start and end",
        6: "the span is empty, negative or not of whole numbers",
        7: "the span is empty, negative or not of whole numbers",
        9: "the span lies outside its record, which has 20 characters",
    }


def test_refuse_names_the_first_row_and_counts_the_others():
    rejects = table(
        Rejects,
        [{"source": "q.csv", "row": row, "key": f"question_id=q{row}", "reason": "bad"} for row in (4, 7, 9)],
    )
    inputs.refuse(rejects.clear())
    with pytest.raises(InputError, match=r"^q\.csv: row 4 \(question_id=q4\): bad; mend it, or pass --on-bad-row skip"):
        inputs.refuse(rejects[:1])
    with pytest.raises(InputError, match=r"bad \(1 more bad row\); mend it"):
        inputs.refuse(rejects[:2])
    with pytest.raises(InputError, match=r"bad \(2 more bad rows\); mend it"):
        inputs.refuse(rejects)


def test_long_keys_are_cut():
    _, rejects = inputs.windows(table(Windows, window_rows(("q" * 500, 0, 0, "mem:1"))), "w", ASKED, FOUND)
    assert len(rejects["key"].item()) < 200
