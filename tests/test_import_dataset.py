"""The two data sets' own JSON, in small: what becomes records, questions and evidence."""

import json
import re
import sqlite3
from contextlib import closing

import polars as pl
import pytest
from typer.testing import CliRunner

from allocation import datasets
from allocation.errors import InputError
from jobs import build_sequences, curves, import_dataset
from tests import sample
from tests.workspace import leftovers, window_rows


def turn(role, content, **more):
    return {"role": role, "content": content} | more


LONG = {
    "question_id": "q1",
    "question_type": "multi-session",
    "question": "Which key is red?",
    "answer": 7,
    "question_date": "2023/05/30 (Tue) 23:40",
    "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 10:00", "yesterday"],
    "haystack_session_ids": ["s1", "answer_1", "answer_2"],
    "haystack_sessions": [
        [turn("user", " Hello."), turn("assistant", "Hi ☕!")],
        [turn("user", "The door is green."), turn("user", "The key is red.", has_answer=True)],
        [turn("assistant", "Of the key again.", has_answer=False)],
    ],
    "answer_session_ids": ["answer_1", "answer_2"],
}
TALK = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ann",
        "speaker_b": "Bo",
        "session_2_date_time": "10:04 am on 9 May, 2023",
        "session_2": [{"speaker": "Bo", "dia_id": "D2:1", "text": "Nothing new."}],
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ann", "dia_id": "D1:1", "text": "I got a dog!"},
            {"speaker": "Bo", "dia_id": "D1:2", "text": "Look.", "blip_caption": "a photo of a cat"},
        ],
    },
    "qa": [
        {"question": "Who has a dog?", "answer": "Ann", "evidence": ["D1:1; D1:2", "D1:1"], "category": 4},
        {"question": "Who has a cow?", "adversarial_answer": "Bo", "evidence": ["D", "D9:1", "D:1:2"], "category": 5},
    ],
}


def shown(found):
    texts = {row["record_ref"]: row["text"] for row in found.records}
    return [
        (
            row["question_id"],
            row["record_ref"],
            row["start"] is not None and texts[row["record_ref"]][row["start"] : row["end"]],
        )
        for row in found.evidence
    ]


def test_longmemeval():
    found = datasets.longmemeval(LONG, 5)
    assert [(row["record_ref"], row["text"], row["recorded_at"]) for row in found.records] == [
        ("mem:5", "user:  Hello.\nassistant: Hi ☕!", "2023-05-20T02:21:00+00:00"),
        ("mem:6", "user: The door is green.\nuser: The key is red.", "2023-05-21T10:00:00+00:00"),
        ("mem:7", "assistant: Of the key again.", "yesterday"),
    ]
    assert shown(found) == [("q1", "mem:6", "The key is red."), ("q1", "mem:7", False)]
    (question,) = found.questions
    assert question == {
        "question_id": "q1",
        "agent_id": "q1",
        "question": "Which key is red?",
        "question_type": "multi-session",
        "answer": "7",
        "question_date": "2023/05/30 (Tue) 23:40",
    }
    assert found.rejects == [
        ("question_id=q1, session=answer_2", "the time 'yesterday' is of no known form; it is kept as it is")
    ]


def test_what_longmemeval_never_said():
    found = datasets.longmemeval(LONG | {"question_id": "q1_abs"}, 1)
    assert (found.questions[0]["question_type"], found.evidence) == ("abstention", [])


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (
            {"haystack_sessions": [[], [turn("user", "x")], [turn("user", "y")]]},
            "s1: the session has no turn with content",
        ),
        (
            {"haystack_sessions": [[turn("user", None), turn("user", " ")], [turn("user", "x")], [turn("user", "y")]]},
            "s1, turn=1: the turn has no content",
        ),
        ({"haystack_session_ids": ["s1", "s1", "answer_2"]}, "s1: the session is in this history before"),
        ({"answer_session_ids": ["s9"]}, "s9: the answer session is not in the history"),
        (
            {"haystack_sessions": ["text", [turn("user", "x")], [turn("user", "y")]]},
            "s1: the session has no turn with content",
        ),
    ],
)
def test_notes_on_longmemeval(change, note):
    found = datasets.longmemeval(LONG | change, 1)
    notes = [f"{key}: {reason}" for key, reason in found.rejects]
    assert any(own.endswith(note) for own in notes), notes
    assert len(found.questions) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"question_id": None}, "an entry: has no question_id"),
        ({"question": ""}, "question q1: has no question"),
        ({"haystack_sessions": None}, "q1: has no list haystack_sessions"),
        ({"haystack_dates": []}, "question q1: 3 sessions, 3 session ids, 0 dates"),
    ],
)
def test_what_is_no_longmemeval(change, told):
    with pytest.raises(InputError, match=told):
        datasets.longmemeval(LONG | change, 1)
    with pytest.raises(InputError, match="an entry: has no question_id"):
        datasets.longmemeval("text", 1)


def test_locomo_sessions():
    found = datasets.locomo(TALK, 1, "session")
    assert [(row["record_ref"], row["text"], row["recorded_at"]) for row in found.records] == [
        ("mem:1", "Ann: I got a dog!\nBo: Look. [image: a photo of a cat]", "2023-05-08T13:56:00+00:00"),
        ("mem:2", "Bo: Nothing new.", "2023-05-09T10:04:00+00:00"),
    ]
    assert shown(found) == [
        ("conv-1_q000", "mem:1", "I got a dog!"),
        ("conv-1_q000", "mem:1", "Look. [image: a photo of a cat]"),
    ]
    assert [(row["question_type"], row["answer"]) for row in found.questions] == [
        ("single-hop", "Ann"),
        ("adversarial", None),
    ]
    assert found.rejects == [
        ("question_id=conv-1_q001", "the evidence 'D' is malformed"),
        ("question_id=conv-1_q001", "the evidence 'D9:1' names no turn of the conversation"),
        ("question_id=conv-1_q001", "the evidence 'D:1:2' is malformed"),
    ]


def test_locomo_turns():
    found = datasets.locomo(TALK, 3, "turn")
    assert [row["text"] for row in found.records] == [
        "Ann: I got a dog!",
        "Bo: Look. [image: a photo of a cat]",
        "Bo: Nothing new.",
    ]
    assert shown(found) == [
        ("conv-1_q000", "mem:3", "I got a dog!"),
        ("conv-1_q000", "mem:4", "Look. [image: a photo of a cat]"),
    ]


def run(*arguments):
    return CliRunner().invoke(import_dataset.app, [str(argument) for argument in arguments])


def imported(tmp_path, name, entries, *more):
    file = tmp_path / "data.json"
    file.write_text(json.dumps(entries), encoding="utf-8")
    result = run(name, file, "--out", tmp_path / "imported", *more)
    assert result.exit_code == 0, result.output
    return tmp_path / "imported", result


def test_from_the_file_to_curves(tmp_path):
    """A data set, a window written by hand, sequences, curves."""
    out, result = imported(tmp_path, "longmemeval", [LONG, LONG | {"question_id": "q2_abs"}])
    assert result.stdout == f"{out}: 6 records, 2 questions, 2 evidence\n"
    assert result.stderr == f"warning: 2 notes on what could not be used: {out / 'rejects.parquet'}\n"
    windows = tmp_path / "windows.jsonl"
    rows = window_rows(("q1", 0, 0, "mem:2"), ("q1", 1, 0, "mem:1"), ("q2_abs", 0, 0, "mem:4"))
    windows.write_text("".join(json.dumps(row) + "\n" for row in rows))
    inputs = [part for name in ("questions", "evidence") for part in (f"--{name}", str(out / f"{name}.parquet"))]
    arguments = ["--store", str(out / "store"), *inputs, "--windows", str(windows), "--out", str(tmp_path / "run")]
    assert CliRunner().invoke(build_sequences.app, arguments).exit_code == 0
    result = CliRunner().invoke(curves.app, [str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    found = pl.read_parquet(tmp_path / "run" / "curves.parquet").filter(
        pl.col("point") == "items:all", pl.col("breakdown") == "all"
    )
    assert found.select("sessions_shown", "turns_touched").row(0) == (0.5, 1)  # answer_2 was not recalled


def test_the_command_refuses(tmp_path):
    whole = json.dumps([LONG])
    cases = [
        (whole[:200], "is no whole JSON list"),
        ("", "is no whole JSON list"),
        ("[]", "holds no question"),
        ("5", "holds no question"),
        (json.dumps([LONG, LONG]), "question q1 occurs twice"),
        (json.dumps([TALK]), "an entry: has no question_id"),
    ]
    file = tmp_path / "data.json"
    for text, told in cases:
        file.write_text(text)
        result = run("longmemeval", file, "--out", tmp_path / "out")
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), (text[:20], result.output)
        assert told in result.stderr
        assert not (tmp_path / "out").exists()
        assert not leftovers(tmp_path / "out")
    assert "none.json: no such file" in run("locomo", tmp_path / "none.json", "--out", tmp_path / "out").stderr
    assert "LongMemEval's records are sessions" in (
        run("longmemeval", file, "--out", tmp_path / "out", "--records", "turn").stderr
    )


def test_a_conversation_alone_and_an_import_again(tmp_path):
    for entries in ([TALK], TALK):
        out, result = imported(tmp_path, "locomo", entries, "--records", "turn")
        assert result.stdout == f"{out}: 3 records, 2 questions, 2 evidence\n"


@pytest.mark.skipif(not sample.LOCOMO.is_dir(), reason="no LoCoMo")
@pytest.mark.parametrize("kind", ["session", "turn"])
def test_locomo_as_it_is(kind, tmp_path):
    """The conversations put back together from the recorded turns, which have lost white space: the same evidence."""
    folder = sample.LOCOMO
    with closing(sqlite3.connect(f"file:{folder}/store_turn.db?mode=ro&immutable=1", uri=True)) as store:
        turns = store.execute("SELECT msg_id, content FROM memories ORDER BY id").fetchall()
    samples: dict[str, dict] = {}
    for name, content in turns:
        match = re.fullmatch(r"(conv-[0-9]+)_(D([0-9]+):[0-9]+)", name)
        if match:
            talk = samples.setdefault(match[1], {"sample_id": match[1], "conversation": {}, "qa": []})
            speaker, _, text = content.partition(": ")
            own = {"speaker": speaker, "dia_id": match[2], "text": text}
            talk["conversation"].setdefault(f"session_{match[3]}", []).append(own)
    labels = pl.read_parquet(folder / f"evidence_{kind}.parquet")
    of_question = dict(labels.group_by("question_id", maintain_order=True).agg("label").iter_rows())
    asked = pl.read_parquet(folder / "questions.parquet").sort("question_id")
    for question_id, question, category, answer in asked.select(
        "question_id", "question", "category", "answer"
    ).iter_rows():
        samples[question_id.partition("_")[0]]["qa"].append(
            {"question": question, "answer": answer, "category": category, "evidence": of_question.get(question_id, [])}
        )
    out, _ = imported(tmp_path, "locomo", list(samples.values()), "--records", kind)
    questions = pl.read_parquet(out / "questions.parquet")
    assert questions.select("question_id", "question_type").equals(asked.select("question_id", "question_type"))
    with closing(sqlite3.connect(f"file:{folder}/store_{kind}.db?mode=ro&immutable=1", uri=True)) as store:
        stored = {f"mem:{number}": text for number, text in store.execute("SELECT id, content FROM memories")}
    texts = dict(pl.read_parquet(out / "store" / "records.parquet").select("record_ref", "text").iter_rows())
    found = pl.read_parquet(out / "evidence.parquet")
    assert len(found) == len(labels) == 1348

    def quoted(rows, of):
        return sorted((question, of[ref][start:end].strip()) for question, ref, start, end in rows.iter_rows())

    expected = quoted(labels.select("question_id", "record_ref", "start", "end"), stored)
    assert quoted(found, texts) == expected
