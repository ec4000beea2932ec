"""Questions, records and evidence in the files of two benchmarks (DESIGN.md, "Datasets")."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from allocation.errors import InputError

Row = dict[str, Any]

_LOCOMO_TYPES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_SESSION = re.compile(r"session_([0-9]+)")
_TURN_ID = re.compile(r"D[0-9]+:[0-9]+")
_WEEKDAY = re.compile(r" \([A-Z][a-z]{2}\)")
_TIMES = ("%Y/%m/%d %H:%M", "%I:%M %p on %d %B, %Y")


@dataclass
class Imported:
    """Rows of one entry of a dataset: of Records, Questions and Evidence, and what could not be used."""

    records: list[Row] = field(default_factory=list)
    questions: list[Row] = field(default_factory=list)
    evidence: list[Row] = field(default_factory=list)
    rejects: list[tuple[str, str]] = field(default_factory=list)  # key, reason


def longmemeval(entry: Any, first: int) -> Imported:
    """A question of LongMemEval with its own history: sessions are records, the question is their agent.

    A turn is a line ``role: content``. Evidence are the contents of turns that have an answer, and the answer sessions.
    A question whose id ends in ``_abs`` asks for what was never said: its type is ``abstention``, it has no evidence.

    Args:
        entry: An element of the file.
        first: Number of its first record.

    Raises:
        InputError: it is no such question.
    """
    question_id = _text(entry, "question_id", "an entry")
    found = Imported()
    abstains = question_id.endswith("_abs")
    sessions = _list(entry, "haystack_sessions", question_id)
    ids, dates = (_list(entry, f"haystack_{name}", question_id) for name in ("session_ids", "dates"))
    if not len(sessions) == len(ids) == len(dates):
        raise InputError(
            f"question {question_id}: {len(sessions)} sessions, {len(ids)} session ids, {len(dates)} dates"
        )
    answers = set(map(str, entry.get("answer_session_ids") or []))
    known: set[str] = set()
    for session_id, date, turns in zip(map(str, ids), dates, sessions, strict=True):
        key = f"question_id={question_id}, session={session_id}"
        if session_id in known:
            found.rejects.append((key, "the session is in this history before"))
            continue
        known.add(session_id)
        lines = list(_turns(turns, "role", "content", key, found))
        if not lines:
            found.rejects.append((key, "the session has no turn with content"))
            continue
        ref = f"mem:{first + len(found.records)}"
        text, spans = _joined(lines)
        found.records.append(_record(ref, question_id, text, date, key, found))
        if abstains:
            continue
        marked = [span for turn, span in spans if turn.get("has_answer")]
        if marked or session_id in answers:
            found.evidence += [_label(question_id, ref, span) for span in marked] or [_label(question_id, ref, None)]
    for lost in sorted(answers - known):
        found.rejects.append((f"question_id={question_id}, session={lost}", "the answer session is not in the history"))
    found.questions.append(
        {
            "question_id": question_id,
            "agent_id": question_id,
            "question": _text(entry, "question", f"question {question_id}"),
            "question_type": "abstention" if abstains else entry.get("question_type"),
            "answer": None if entry.get("answer") is None else str(entry["answer"]),
            "question_date": entry.get("question_date"),
        }
    )
    return found


def locomo(sample: Any, first: int, records: Literal["session", "turn"]) -> Imported:
    """A conversation of LoCoMo with its questions; its sessions or its turns are records, it is their agent.

    A turn is a line ``speaker: text``, with `` [image: caption]`` where it shows one. A question's id is the
    conversation's and its place.

    Args:
        sample: An element of the file.
        first: Number of its first record.
        records: What a record is.

    Raises:
        InputError: it is no such conversation.
    """
    sample_id = _text(sample, "sample_id", "an entry")
    found = Imported()
    conversation = sample.get("conversation")
    if not isinstance(conversation, dict):
        raise InputError(f"sample {sample_id}: has no conversation; give the data set's own JSON")
    places: dict[str, tuple[str, tuple[int, int]]] = {}  # turn -> its record and span
    numbers = sorted(int(match.group(1)) for match in map(_SESSION.fullmatch, conversation) if match)
    for number in numbers:
        key = f"sample_id={sample_id}, session={number}"
        date = conversation.get(f"session_{number}_date_time")
        turns = [_captioned(turn) for turn in conversation[f"session_{number}"] or [] if isinstance(turn, dict)]
        lines = list(_turns(turns, "speaker", "text", key, found))
        if not lines:
            found.rejects.append((key, "the session has no turn with content"))
            continue
        for own in [lines] if records == "session" else [[line] for line in lines]:
            ref = f"mem:{first + len(found.records)}"
            text, spans = _joined(own)
            found.records.append(_record(ref, sample_id, text, date, key, found))
            for turn, span in spans:
                turn_id = str(turn.get("dia_id"))
                if turn_id in places:
                    found.rejects.append((f"{key}, turn={turn_id}", "the turn's id occurs before"))
                else:
                    places[turn_id] = (ref, span)
    for place, asked in enumerate(_list(sample, "qa", f"sample {sample_id}")):
        question_id = f"{sample_id}_q{place:03}"
        if not isinstance(asked, dict) or not str(asked.get("question") or "").strip():
            found.rejects.append((f"question_id={question_id}", "the question is empty"))
            continue
        category: Any = asked.get("category")
        found.questions.append(
            {
                "question_id": question_id,
                "agent_id": sample_id,
                "question": asked["question"],
                "question_type": _LOCOMO_TYPES.get(category, str(category)),
                "answer": None if asked.get("answer") is None else str(asked["answer"]),
            }
        )
        named = [
            turn_id for text in asked.get("evidence") or [] for turn_id in re.split(r"[;,\s]+", str(text)) if turn_id
        ]
        for turn_id in dict.fromkeys(named):
            if turn_id in places:
                found.evidence.append(_label(question_id, *places[turn_id]))
            else:
                reason = "names no turn of the conversation" if _TURN_ID.fullmatch(turn_id) else "is malformed"
                found.rejects.append((f"question_id={question_id}", f"the evidence {turn_id!r} {reason}"))
    return found


def _captioned(turn: Row) -> Row:
    caption = turn.get("blip_caption")
    return turn | {"text": f"{turn.get('text') or ''} [image: {caption}]"} if caption else turn


def _turns(turns: Any, speaker: str, text: str, key: str, found: Imported) -> Iterator[tuple[Row, str, str]]:
    """The turns with content: the turn, what stands before its content, and this."""
    for place, turn in enumerate(turns if isinstance(turns, list) else []):
        content = turn.get(text) if isinstance(turn, dict) else None
        if not isinstance(content, str) or not content.strip():
            found.rejects.append((f"{key}, turn={place}", "the turn has no content"))
        else:
            yield turn, f"{turn.get(speaker) or 'unknown'}: ", content


def _joined(lines: list[tuple[Row, str, str]]) -> tuple[str, list[tuple[Row, tuple[int, int]]]]:
    """The lines as one text without white space around it, and where in it each turn's content stands."""
    whole = "\n".join(before + content for _, before, content in lines)
    cut = len(whole) - len(whole.lstrip())
    text = whole.strip()
    spans, at = [], -cut
    for turn, before, content in lines:
        start, end = max(at + len(before), 0), min(at + len(before) + len(content), len(text))
        spans.append((turn, (start, end)))
        at += len(before) + len(content) + 1
    return text, spans


def _record(ref: str, agent_id: str, text: str, date: Any, key: str, found: Imported) -> Row:
    time, known = _time(date)
    if not known:
        found.rejects.append((key, f"the time {str(date)!r} is of no known form; it is kept as it is"))
    return {"record_ref": ref, "agent_id": agent_id, "text": text, "recorded_at": time}


def _time(date: Any) -> tuple[str | None, bool]:
    """A date of either data set in ISO 8601, as UTC; and whether its form is known."""
    if date is None:
        return None, True
    plain = _WEEKDAY.sub("", str(date).strip())
    for form in _TIMES:
        try:
            return datetime.strptime(plain, form).replace(tzinfo=UTC).isoformat(), True
        except ValueError:
            continue
    return str(date), False


def _label(question_id: str, ref: str, span: tuple[int, int] | None) -> Row:
    start, end = span or (None, None)
    return {"question_id": question_id, "record_ref": ref, "start": start, "end": end}


def _text(entry: Any, name: str, of: str) -> str:
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{of}: has no {name}; give the data set's own JSON")
    return value


def _list(entry: Row, name: str, of: str) -> list[Any]:
    value = entry.get(name)
    if not isinstance(value, list):
        raise InputError(f"{of}: has no list {name}; give the data set's own JSON")
    return value
