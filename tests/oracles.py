"""The batch job in plain Python: one question, one record, one block at a time.

Slow on purpose. Every function says in loops what the job does with arrays, so that a test can
compare the two row by row.
"""

from array import array
from collections.abc import Sequence
from itertools import pairwise
from math import fsum, sqrt
from typing import Any

import numpy as np

LONGEST_BLOCK = 739
CONTEXT_LIMIT = 1478
SERVER_QUOTE = 800
SEPARATOR_LENGTH = 3
BLOCK_ORDER_K = 60  # fixed; `rrf_k` belongs to the order across records

SENTENCE_ENDS = tuple("。！？．.!?…")
ENDS_ANYWHERE = "。．！？"
ENDS_BEFORE_SPACE = ".!?"
CLAUSE_MARKS = "、，,;；:："
FENCE = "```"
PAIRS = {
    "」": "「",
    "』": "『",
    "）": "（",
    ")": "(",
    "］": "［",
    "]": "[",
    "】": "【",
    "》": "《",
    "〉": "〈",
}
QUALIFIERS = (
    *("except", "however", "but ", "although", "though", "unless", "instead", "on the other hand"),
    *("that said", "caveat", "note that", "provided that", "in fact", "actually"),
    *("ただし", "但し", "ただ、", "しかし", "しかしながら", "だが", "ですが", "でも、", "なお", "とはいえ"),
    *("一方", "他方", "その代わり", "代わりに"),
)

Span = tuple[int, int]
Passage = tuple[int, int, list[int]]


# Division at read time


def divide(text: str) -> list[Span]:
    """Divide a text that has no current block set into blocks that cover it."""
    protected = [*fences(text), *matched_pairs(text)]
    cuts = [cut for cut in possible_cuts(text) if not any(start < cut < end for start, end in protected)]
    pieces = []
    start = 0
    for cut in [*cuts, len(text)]:
        if cut > start:
            pieces.extend(split_long(text, start, cut))
            start = cut
    return join_blank(text, pieces)


def possible_cuts(text: str) -> list[int]:
    """Give the offsets after a line break (so also after a blank line) or a sentence end."""
    cuts = []
    for i, char in enumerate(text):
        at_word_end = i + 1 == len(text) or text[i + 1].isspace()
        if char == "\n" or char in ENDS_ANYWHERE or (char in ENDS_BEFORE_SPACE and at_word_end):
            cuts.append(i + 1)
    return cuts


def fences(text: str) -> list[Span]:
    """Give the fenced code blocks, each up to and with the line break of its closing line.

    A fence may stand after spaces and tabs.
    """
    found = []
    opened = None
    start = 0
    for line in text.split("\n"):
        end = min(start + len(line) + 1, len(text))
        if line.lstrip(" \t").startswith(FENCE):
            if opened is None:
                opened = start
            else:
                found.append((opened, end))
                opened = None
        start = end
    if opened is not None:
        found.append((opened, len(text)))
    return found


def matched_pairs(text: str) -> list[Span]:
    """Give the bracketed ranges; a closing sign ends the nearest open sign of its kind.

    Signs opened in between and still open then never close.
    """
    found = []
    still_open: list[int] = []
    for i, char in enumerate(text):
        if char in PAIRS.values():
            still_open.append(i)
        elif char in PAIRS:
            for place in reversed(range(len(still_open))):
                if text[still_open[place]] == PAIRS[char]:
                    found.append((still_open[place], i + 1))
                    del still_open[place:]
                    break
    return found


def split_long(text: str, start: int, end: int) -> list[Span]:
    """Split a span until no piece is longer than a block may be."""
    pieces = []
    while end - start > LONGEST_BLOCK:
        allowance = text[start : start + LONGEST_BLOCK]
        mark = max(i if char in CLAUSE_MARKS else -1 for i, char in enumerate(allowance))
        space = max(i if char.isspace() else -1 for i, char in enumerate(allowance))
        if mark + 1 >= LONGEST_BLOCK // 2:
            length = mark + 1
        elif space + 1 >= LONGEST_BLOCK // 2:
            length = space + 1
        else:
            length = LONGEST_BLOCK
        pieces.append((start, start + length))
        start += length
    return [*pieces, (start, end)]


def join_blank(text: str, pieces: list[Span]) -> list[Span]:
    """Join a piece of white space only to the next one, the last one to the one before."""
    joined: list[Span] = []
    for start, end in pieces:
        if joined and is_blank(text, joined[-1]) and end - joined[-1][0] <= LONGEST_BLOCK:
            start = joined.pop()[0]
        joined.append((start, end))
    if len(joined) > 1 and is_blank(text, joined[-1]) and joined[-1][1] - joined[-2][0] <= LONGEST_BLOCK:
        end = joined.pop()[1]
        joined[-1] = (joined[-1][0], end)
    return joined


def is_blank(text: str, span: Span) -> bool:
    """Say whether a span holds white space only."""
    return not text[span[0] : span[1]].strip()


# Block sets


def is_current(record: dict[str, Any]) -> bool:
    """Say whether a record's stored blocks may be used."""
    blocks = record["blocks"]
    if not blocks:
        return False
    covered = 0
    for start, end, vector, model in blocks:
        if start != covered or start >= end:
            return False
        if not vector or model != blocks[0][3]:
            return False
        if any(start < node_end < end for node_end in record["node_ends"]):
            return False
        covered = end
    return covered == len(record["text"])


def block_spans(record: dict[str, Any]) -> list[Span]:
    """Give the stored spans of a current set, else the spans the text divides into."""
    if is_current(record):
        return [(start, end) for start, end, _, _ in record["blocks"]]
    return divide(record["text"])


def block_vectors(record: dict[str, Any], query: list[float] | None) -> list[bytes] | None:
    """Give the blocks' vectors, or None where they cannot be compared with the query."""
    if query is None or not is_current(record):
        return None
    vectors = [vector for _, _, vector, _ in record["blocks"]]
    if any(len(vector) != len(query) for vector in vectors):
        return None
    return vectors


# Governing ranges and passages


def governing_range(text: str, spans: Sequence[Span], index: int) -> Span:
    """Grow one block to its whole sentence and to the neighbours that qualify it."""
    first = last = index
    while True:
        start, end = spans[first][0], spans[last][1]
        if first > 0 and (
            not ends_sentence(text[spans[first - 1][0] : spans[first - 1][1]]) or begins_with_qualifier(text[start:end])
        ):
            if end - spans[first - 1][0] > CONTEXT_LIMIT:
                return start, end
            first -= 1
        elif last + 1 < len(spans) and (
            not ends_sentence(text[start:end]) or begins_with_qualifier(following(text, spans, last + 1))
        ):
            if spans[last + 1][1] - start > CONTEXT_LIMIT:
                return start, end
            last += 1
        else:
            return start, end


def following(text: str, spans: Sequence[Span], first: int) -> str:
    """Give the blocks from ``first`` on, through blank ones up to the end of one that is not."""
    last = first
    while last + 1 < len(spans) and is_blank(text, spans[last]):
        last += 1
    return text[spans[first][0] : spans[last][1]]


def ends_sentence(text: str) -> bool:
    """Say whether a text ends a sentence; white space alone does not."""
    return text.rstrip().endswith(SENTENCE_ENDS)


def begins_with_qualifier(text: str) -> bool:
    """Say whether a text begins, after white space, with a word that limits what stands before it."""
    return text.lstrip().lower().startswith(QUALIFIERS)


def passages(record_text: str, spans: Sequence[Span], passage_limit: int = CONTEXT_LIMIT) -> list[Passage]:
    """Unite the overlapping governing ranges of a record: (start, end, the blocks that led to it)."""
    ranges = sorted((*governing_range(record_text, spans, i), i) for i in range(len(spans)))
    made: list[Passage] = []
    for start, end, block in ranges:
        if not made or start >= made[-1][1]:
            made.append((start, end, [block]))
            continue
        last_start, last_end, blocks = made[-1]
        if end <= last_end:
            made[-1] = (last_start, last_end, [*blocks, block])
        elif end - last_start <= passage_limit:
            made[-1] = (last_start, end, [*blocks, block])
        else:
            made.append((last_end, end, [block]))
    return made


# Ranks


def dense_ranks(values: Sequence[Any], *, highest_first: bool = False) -> list[int]:
    """Number values from 0, best first; equal values share a number and none is skipped."""
    order = sorted(set(values), reverse=highest_first)
    return [order.index(value) for value in values]


def trigrams(text: str) -> set[str]:
    """Give the distinct runs of three characters of a lower-case text; a shorter text is one."""
    lowered = text.lower()
    if not lowered:
        return set()
    if len(lowered) < 3:
        return {lowered}
    return {lowered[i : i + 3] for i in range(len(lowered) - 2)}


def cosine_key(vector: bytes, query: Sequence[float]) -> int:
    """Give the whole number nearest to a billion times the cosine."""
    numbers = array("b", vector)
    norm = sqrt(sum(number * number for number in numbers)) * sqrt(fsum(value * value for value in query))
    if norm == 0:
        return 0
    dot = fsum(number * value for number, value in zip(numbers, query, strict=True))
    return round(dot / norm * 1e9)


def server_cosines(vectors: list[bytes], query: Sequence[float]) -> list[float]:
    """Give the cosines as the memory server computes them; the order of rows moves the last bit."""
    matrix = np.array([array("b", vector) for vector in vectors], dtype=np.int8).astype(np.float32)
    question = np.array(query, dtype=np.float32)
    dots = matrix @ question
    norms = np.linalg.norm(matrix, axis=1) * float(np.linalg.norm(question))
    return [float(dot / norm) if norm else 0.0 for dot, norm in zip(dots, norms, strict=True)]


def block_order(question: str, text: str, spans: Sequence[Span], cosines: Sequence[float] | None) -> list[int]:
    """Give a record's blocks, best first."""
    wanted = trigrams(question)
    shared = [len(wanted & trigrams(text[start:end])) for start, end in spans]
    lists = [dense_ranks(shared, highest_first=True)]
    if cosines is not None:
        lists.append(dense_ranks(cosines, highest_first=True))
    scores = [fsum(1 / (BLOCK_ORDER_K + 1 + ranks[i]) for ranks in lists) for i in range(len(spans))]
    return sorted(range(len(spans)), key=lambda i: (-scores[i], i))


# Sequences


def merged_record(
    question: str, query: list[float] | None, record: dict[str, Any], passage_limit: int
) -> list[dict[str, Any]]:
    """Give a record's passages under the policy `merge`."""
    text, spans = record["text"], block_spans(record)
    vectors = block_vectors(record, query)
    keys = None if query is None or vectors is None else [cosine_key(vector, query) for vector in vectors]
    order = block_order(question, text, spans, keys)
    made = passages(text, spans, passage_limit)
    best_places = [min(order.index(block) for block in blocks) for _, _, blocks in made]
    rows = []
    for (start, end, blocks), best_place in zip(made, best_places, strict=True):
        inside_rank = sum(other < best_place for other in best_places)
        cosine = None if keys is None else max(keys[block] for block in blocks)
        rows.append({"start": start, "end": end, "inside_rank": inside_rank, "cosine": cosine})
    return rows


def server_record(question: str, query: list[float] | None, record: dict[str, Any]) -> list[dict[str, Any]]:
    """Give a record's passages under the policy `server`."""
    text, spans = record["text"], block_spans(record)
    if not text:
        return []
    if len(text) <= SERVER_QUOTE or len(spans) <= 1:
        return [{"start": 0, "end": min(len(text), SERVER_QUOTE), "inside_rank": 0, "cosine": None}]
    vectors = block_vectors(record, query)
    cosines = None if query is None or vectors is None else server_cosines(vectors, query)
    order = block_order(question, text, spans, cosines)
    again = None
    if query is not None and vectors is not None:
        again = server_cosines([vectors[block] for block in order], query)
    uncut: list[Span] = []
    rows: list[dict[str, Any]] = []
    for place, block in enumerate(order):
        start, end = governing_range(text, spans, block)
        if any(start < other_end and other_start < end for other_start, other_end in uncut):
            continue
        uncut.append((start, end))
        end = min(end, start + SERVER_QUOTE)
        cosine = None if again is None else again[place]
        rows.append({"start": start, "end": end, "inside_rank": len(rows), "cosine": cosine})
    return rows


def sequence(
    question: dict[str, Any],
    window: list[dict[str, Any]],
    records: dict[str, dict[str, Any]],
    *,
    policy: str = "merge",
    rrf_k: int = 60,
    passage_limit: int = CONTEXT_LIMIT,
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> list[dict[str, Any]]:
    """Give a question's passages in the order in which a budget is spent on them."""
    text = question["question"]
    query = None if question["query_vector"] is None else list(array("f", question["query_vector"]))
    if policy == "server":
        window = [row for row in window if row["claim_position"] == 0]
        record_ranks = dense_ranks([row["item_position"] for row in window])
    else:
        record_ranks = dense_ranks([row["recall_rank"] for row in window])

    rows: list[dict[str, Any]] = []
    for row, record_rank in zip(window, record_ranks, strict=True):
        record = records[row["record_ref"]]
        if policy == "server":
            found = server_record(text, query, record)
        else:
            found = merged_record(text, query, record, passage_limit)
        place = {key: row[key] for key in ("item_position", "claim_position", "record_ref")}
        rows.extend({**place, "record_rank": record_rank, **passage} for passage in found)

    known = sorted({row["cosine"] for row in rows if row["cosine"] is not None}, reverse=True)
    for row in rows:
        cosine = row.pop("cosine")
        row["cosine_rank"] = None if not known else len(known) if cosine is None else known.index(cosine)
    rows.sort(key=lambda row: order_key(row, rrf_k, weights))
    return with_costs(rows)


def order_key(
    row: dict[str, Any], rrf_k: int, weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
) -> tuple[Any, ...]:
    """Give what a passage is sorted by: its fused score, then ties by recall, place and item."""
    ranks = [row["record_rank"], row["inside_rank"], row["cosine_rank"]]
    weighted = zip(weights, ranks, strict=True)
    score = fsum(weight / (rrf_k + 1 + rank) for weight, rank in weighted if rank is not None)
    return (-score, row["record_rank"], row["start"], row["item_position"], row["claim_position"])


def with_costs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Number the passages and add what each adds to its record's quote."""
    taken: dict[str, list[Span]] = {}
    used = 0
    done = []
    for position, row in enumerate(rows):
        before = taken.get(row["record_ref"], [])
        after = [*before, (row["start"], row["end"])]
        cost = quote_length(after) - quote_length(before)
        taken[row["record_ref"]] = after
        used += cost
        done.append({"position": position, **row, "cost": cost, "used": used})
    return done


def quote_length(ranges: list[Span]) -> int:
    """Count the characters of a record's quote: its ranges and a separator at each gap."""
    in_text = sorted(ranges)
    length = sum(end - start for start, end in in_text)
    for (_, end), (start, _) in pairwise(in_text):
        if end != start:
            length += SEPARATOR_LENGTH
    return length
