"""Sequences, parts, coverage and what a budget shows, in plain Python: one step at a time.

Written from the definitions and slow on purpose, as ``oracles``, whose blocks, ranges and passages it takes.
"""

import unicodedata
from array import array
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import fsum, sqrt
from typing import Any

from tests import oracles
from tests.oracles import Span

Row = dict[str, Any]
Part = tuple[str, str, int]  # text, kind, records of the window that hold it

MOST_PARTS = 32
QUOTE = 800
EXCERPT = 500
LABEL = "[Episode] "
SEPARATOR = " … "

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
MARKS = "._/#-"


# Parts


def normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text).lower()


def words(text: str) -> list[tuple[int, str]]:
    """The words of a normalized text and where each starts: identifiers, katakana and kanji, two or more."""
    found = []
    at = 0
    while at < len(text):
        end = word_end(text, at)
        if end - at > 1:
            found.append((at, text[at:end]))
        at = max(end, at + 1)
    return found


def word_end(text: str, at: int) -> int:
    end = at
    if text[at] == "#":
        end += 1
        while end < len(text) and text[end] in "0123456789":
            end += 1
    elif text[at] in LETTERS:
        while end < len(text) and text[end] in LETTERS + MARKS:
            end += 1
        while text[end - 1] in MARKS:  # marks stand inside only
            end -= 1
    else:
        for script in (is_katakana, is_kanji):
            while end < len(text) and script(text[end]):
                end += 1
            if end > at:
                break
    return end


def is_katakana(char: str) -> bool:
    return "\u30a0" <= char <= "\u30ff"


def is_kanji(char: str) -> bool:
    return "\u4e00" <= char <= "\u9fff" or char == "々"


def parts(
    question: str, names: Iterable[str], recorded: Sequence[str] | None, record_texts: Sequence[str], rare_share: float
) -> list[Part]:
    """The parts of a question over the texts of its window's records, in order of first appearance."""
    records = [normalize(text) for text in record_texts]
    found: list[tuple[str, str]] = []
    if recorded is not None:
        found = [(normalize(text), "recorded") for text in recorded]
    else:
        asked = normalize(question)
        entities = {normalize(name) for name in names}
        placed = [(asked.index(name), 0, name, "entity") for name in entities if name and name in asked]
        placed += [(at, 1, word, "word") for at, word in words(asked)]
        found = [(text, kind) for _, _, text, kind in sorted(placed)]
    kept: list[Part] = []
    for text, kind in found:
        holding = sum(text in record for record in records)
        rare = holding == 0 or Fraction(holding, len(records)) <= Fraction(str(rare_share))
        if text and text not in [own for own, _, _ in kept] and (rare or kind != "word"):
            kept.append((text, kind, holding))
    return kept[:MOST_PARTS]


def held(text: str, of: Sequence[Part]) -> set[int]:
    """The parts a passage holds."""
    own = normalize(text)
    return {i for i, (part, _, _) in enumerate(of) if part in own}


def covered(
    holds: Sequence[set[int]], record_ranks: Sequence[int], step_up: int, step_down: int, keep_records: int
) -> list[tuple[int, set[int]]]:
    """Take the first, then the lowest again and again: the steps, and the parts each was the first to hold."""
    left = list(range(len(holds)))
    done: set[int] = set()
    taken: list[tuple[int, set[int]]] = []

    def place(step: int) -> int:
        if holds[step] - done:
            return step - step_up
        if holds[step] and record_ranks[step] >= keep_records:
            return step + step_down
        return step

    while left:
        step = left[0] if not taken else min(left, key=lambda step: (place(step), step))
        left.remove(step)
        taken.append((step, holds[step] - done))
        done |= holds[step]
    return taken


# Orders of passages


def whole(rows: list[Row], records: dict[str, Row]) -> list[Row]:
    """Short head records as one step each, in item order, then the others as they stand."""

    def is_short(row: Row) -> bool:
        return row["claim_position"] == 0 and len(records[row["record_ref"]]["text"]) <= QUOTE

    floor = []
    for row in sorted(filter(is_short, rows), key=lambda row: row["item_position"]):
        if floor and floor[-1]["record_ref"] == row["record_ref"]:
            if row["cosine_rank"] is not None:
                floor[-1]["cosine_rank"] = min(floor[-1]["cosine_rank"], row["cosine_rank"])
            continue
        floor.append({**row, "start": 0, "end": len(records[row["record_ref"]]["text"]), "inside_rank": 0})
    return floor + [row for row in rows if not is_short(row)]


def oracle(rows: list[Row], labels: dict[str, list[Span | None]]) -> list[Row]:
    """Densest in evidence first, then the rest of labelled records, then the others."""

    def key(row: Row) -> tuple[Fraction, bool]:
        spans = labels.get(row["record_ref"], [])
        inside = sum(max(0, min(row["end"], span[1]) - max(row["start"], span[0])) for span in spans if span)
        return -Fraction(inside, row["end"] - row["start"]), row["record_ref"] not in labels

    return sorted(rows, key=key)


def by_cosine(rows: list[Row]) -> list[Row]:
    def key(row: Row) -> tuple[int, ...]:
        return (row["cosine_rank"] or 0, row["record_rank"], row["start"], row["item_position"], row["claim_position"])

    return sorted(rows, key=key)


def by_recall(rows: list[Row]) -> list[Row]:
    """Records whole in recall order, text order inside."""
    keys = ("record_rank", "item_position", "claim_position", "start")
    return sorted(rows, key=lambda row: tuple(row[key] for key in keys))


# Quotes


def query_of(question: Row) -> list[float] | None:
    return None if question["query_vector"] is None else list(array("f", question["query_vector"]))


def ranked_ranges(question: Row, record: Row, policy: str) -> list[Span]:
    """The governing ranges of a record's blocks, best block first."""
    text, spans, query = record["text"], oracles.block_spans(record), query_of(question)
    vectors = oracles.block_vectors(record, query)
    cosines: list[float] | None = None
    if query is not None and vectors is not None:
        exact = [oracles.cosine_key(vector, query) for vector in vectors]
        cosines = oracles.server_cosines(vectors, query) if policy == "server" else exact
    order = oracles.block_order(question["question"], text, spans, cosines)
    return [oracles.governing_range(text, spans, block) for block in order]


def head_quotes(question: Row, record: Row, size: int, policy: str) -> tuple[list[Span], str]:
    """The ranges of a head record's quote, in text order, and what they were chosen by."""
    text = record["text"]
    if len(text) <= size:
        return [(0, len(text))], "whole"
    if len(oracles.block_spans(record)) == 1:
        return [(0, size)], "start"
    basis = "blocks" if oracles.is_current(record) else "lexical"
    taken: list[Span] = []
    used = 0
    for start, end in ranked_ranges(question, record, policy):
        if any(start < other_end and other_start < end for other_start, other_end in taken):
            continue
        touches = any(start == other_end or end == other_start for other_start, other_end in taken)
        used += end - start + (0 if touches or not taken else len(SEPARATOR))
        if used > size:
            return (joined(taken), basis) if taken else ([(start, start + size)], basis)
        taken.append((start, end))
    return joined(taken), basis


def joined(ranges: Iterable[Span]) -> list[Span]:
    """Ranges in text order, those that touch made one."""
    out: list[Span] = []
    for start, end in sorted(ranges):
        if out and out[-1][1] == start:
            start = out.pop()[0]
        out.append((start, end))
    return out


def excerpt(question: Row, ref: str, record: Row, policy: str) -> tuple[Span, str, int]:
    """The range of another claim's quote, what it was chosen by, and the characters it shows."""
    if oracles.is_current(record):
        start, end = ranked_ranges(question, record, policy)[0]
        basis = "block"
    elif are_current_nodes(record):
        start, end = best_node(question, record)
        basis = "node"
    else:
        label = len(LABEL) if ref.startswith("ep:") else 0
        end = min(len(record["text"]), EXCERPT - label)
        return (0, end), "start", end + label
    end = min(end, start + EXCERPT)
    return (start, end), basis, end - start


def are_current_nodes(record: Row) -> bool:
    nodes = record.get("nodes", [])
    at = 0
    for start, end, model, embedding in nodes:
        if start != at or end is None or end <= start or not embedding or model != nodes[0][2]:
            return False
        at = end
    return bool(nodes) and at == len(record["text"])


def best_node(question: Row, record: Row) -> Span:
    nodes, query = record["nodes"], query_of(question)
    wanted = oracles.trigrams(question["question"])
    shared = [len(wanted & oracles.trigrams(record["text"][start:end])) for start, end, _, _ in nodes]
    lists = [oracles.dense_ranks(shared, highest_first=True)]
    vectors = [list(array("f", embedding)) for _, _, _, embedding in nodes]
    if query is not None and all(len(vector) == len(query) for vector in vectors):
        lists.append(oracles.dense_ranks([cosine(vector, query) for vector in vectors], highest_first=True))
    scores = [fsum(1 / (61 + ranks[i]) for ranks in lists) for i in range(len(nodes))]
    start, end, _, _ = nodes[scores.index(max(scores))]
    return start, end


def cosine(one: list[float], other: list[float]) -> float:
    norms = sqrt(fsum(x * x for x in one)) * sqrt(fsum(x * x for x in other))
    return round(fsum(x * y for x, y in zip(one, other, strict=True)) / norms, 9) if norms else 0.0


# Sequences


def sequence(
    name: str,
    question: Row,
    records: dict[str, Row],
    *,
    policy: str = "merge",
    base: list[Row] | None = None,
    names: Iterable[str] = (),
    labels: dict[str, list[Span | None]] | None = None,
    coverage_base: str = "evidence",
    step_up: int = 5,
    step_down: int = 5,
    keep_records: int = 0,
    rare_share: float = 0.5,
    **ranking: int,
) -> list[Row]:
    """The steps of one question's sequence; ``base`` are its passages in fused order where they are known."""
    window = question["window"]
    if name.startswith("items"):
        first, rest = map(int, name.removeprefix("items@").split("/")) if "@" in name else (800, 400)
        rows = numbered(heads(question, records, first, rest, policy))
        return rows + excerpts(question, records, policy, rows)
    if base is None:
        base = oracles.sequence(question, window, records, policy=policy, **ranking)
    rows = [{key: value for key, value in row.items() if key not in ("cost", "used")} for row in base]
    if name == "whole" or (name == "coverage" and coverage_base == "whole"):
        rows = whole(rows, records)
    if name == "coverage":
        texts = [records[row["record_ref"]]["text"] for row in window]
        counted = parts(question["question"], names, question.get("parts"), texts, rare_share)
        holds = [held(records[row["record_ref"]]["text"][row["start"] : row["end"]], counted) for row in rows]
        order = covered(holds, [row["record_rank"] for row in rows], step_up, step_down, keep_records)
        rows = [{**rows[step], "parts": sorted(holds[step]), "new_parts": sorted(new)} for step, new in order]
    elif name == "oracle":
        rows = oracle(rows, labels or {})
    elif name == "cosine":
        rows = by_cosine(rows)
    elif name == "recall":
        rows = by_recall(rows)
    for row in rows:
        row.pop("position")
        row.update(ranges=[(row["start"], row["end"])], basis="passage")
    rows = oracles.with_costs(rows)
    return rows + (excerpts(question, records, policy, rows) if policy == "server" else [])


def heads(question: Row, records: dict[str, Row], first: int, rest: int, policy: str) -> list[Row]:
    rows = []
    for row in question["window"]:
        record = records[row["record_ref"]]
        if row["claim_position"] == 0 and record["text"]:
            size = first if row["item_position"] < 5 else rest
            ranges, basis = head_quotes(question, record, size, policy)
            quote = {"ranges": ranges, "basis": basis, "cost": oracles.quote_length(ranges)}
            rows.append({**place(row, question, policy), **quote})
    return sorted(rows, key=lambda row: row["item_position"])


def excerpts(question: Row, records: dict[str, Row], policy: str, before: list[Row]) -> list[Row]:
    """Each item's first other claim in item order, then each item's second, and so on; behind other steps."""
    others: dict[int, list[Row]] = {}
    for row in sorted(question["window"], key=lambda row: row["claim_position"]):
        if row["claim_position"] > 0:
            others.setdefault(row["item_position"], []).append(row)
    rows = []
    for turn in range(max(map(len, others.values()), default=0)):
        for item in sorted(others):
            if turn < len(others[item]):
                row = others[item][turn]
                span, basis, cost = excerpt(question, row["record_ref"], records[row["record_ref"]], policy)
                rows.append({**place(row, question, policy), "ranges": [span], "basis": basis, "cost": cost})
    return numbered(rows, len(before), before[-1]["used"] if before else 0)


def place(row: Row, question: Row, policy: str) -> Row:
    by = "item_position" if policy == "server" else "recall_rank"
    rank = sorted({other[by] for other in question["window"]}).index(row[by])
    return {key: row[key] for key in ("item_position", "claim_position", "record_ref")} | {"record_rank": rank}


def numbered(rows: list[Row], position: int = 0, used: int = 0) -> list[Row]:
    done = []
    for row in rows:
        used += row["cost"]
        extent = {"start": row["ranges"][0][0], "end": row["ranges"][-1][1]}
        done.append({**row, **extent, "position": position, "used": used})
        position += 1
    return done


# What a budget shows


def cut(rows: list[Row], budget: int) -> list[Row]:
    """Walk the steps and stop at the first whose running total passes the budget; the first is always taken."""
    taken: list[Row] = []
    for row in rows:
        if taken and taken[-1]["used"] + row["cost"] > budget:
            break
        taken.append(row)
    return taken


def quotes(taken: list[Row], records: dict[str, Row]) -> dict[tuple[int, int, str], str]:
    """What is shown of each record, by item, claim and reference."""
    found: dict[tuple[int, int, str], list[Row]] = {}
    for row in taken:
        key = (row["item_position"], row["claim_position"], row["record_ref"])
        found.setdefault(key, []).append(row)
    return {
        (item, claim, ref): quote(
            records[ref]["text"],
            [span for row in rows for span in row["ranges"]],
            labelled=claim > 0 and ref.startswith("ep:") and rows[0]["basis"] == "start",
        )
        for (item, claim, ref), rows in found.items()
    }


def quote(text: str, ranges: Iterable[Span], *, labelled: bool = False) -> str:
    """Ranges in text order, joined where they touch, with the separator between others."""
    shown = LABEL if labelled else ""
    last = None
    for start, end in sorted(ranges):
        if last is not None and start != last:
            shown += SEPARATOR
        shown += text[start:end]
        last = end
    return shown
