"""Drawn texts, records and windows that reach the corners of the design.

Texts are put together from ready fragments and vectors from a small palette, so that a case is cheap
to draw and equal texts, equal vectors and equal ranks are common.
"""

from typing import Any

from hypothesis import strategies as st

from tests.oracles import QUALIFIERS, Span, divide

SENTENCES = (
    *("The lease ends in May.", "She moved to Osaka in 2019!", "Did it rain?"),
    *("Version 2.6.5 costs 3.14 now.", "We waited…", "See v1.2.3-rc.1 for bug-218", "no end here"),
    *("A", "ok.", "Wait?! Really", "e.g. this one.", "契約は五月に終わる。", "雨ですか？"),
    *("カメラを買った！", "価格は3．5万円", "終わりのない文", "はい。", "彼は「行く。」と言った。"),
)
LEADS = (
    *("However, ", "BUT ", "but", "Although it rained ", "in fact ", "On the other hand "),
    *("Note that ", "actually", "ただし、", "しかし", "しかしながら", "でも、", "ただ、", "なお"),
    *("一方", "代わりに", "Instead", "unless "),
)
SPACES = (
    *(" ", " ", " ", "\n", "\n", "\n\n", "  ", "\t", "\r\n", "\n \n", "\u3000", "\u00a0", "\x1c"),
    *("\x85", "\u2028", "", "", "\n\n\n\n", " \u3000\n\x1c\x85\u00a0 "),
)
MARKS = (
    *("```\ncode. more\n\nend\n```", "```py\nopen. still open\n", "```", "\n```\n"),
    *(" ```\nindented. not a fence\n", "(a. b)", "(never closed. ", "closed before opened) "),
    *("「一。二。」", "「一。（二。」三。）", "[see. this]", "】", "『外。「内。」外。』"),
    *("［甲。］", "《乙。》〈丙。〉", "((deep. ) still. )", "（全角。)", "。！", "...", "…", "😀"),
    *("👩‍👩‍👧. ", "İ", "İİ", "Σ", "ΟΔΟΣ. ΑΣ", "ß", "Å", "ﬁ", "，", "；", ":", "\ufeff"),
)
REPEATED = (
    *("The lease ends in May. ", "契約は五月に終わる。", "- a bullet with no end\n"),
    *("* 項目、項目\n", "word ", "one, two; ", "x", "長い文、", "あ", "😀", " ", "\n"),
    *("However, it rained. ", "ただし雨だ。\n", "(nested. ", "a.b", "long\u3000", "İ", "p: q\n\n"),
)
LENGTHS = (369, 370, 738, 739, 740, 799, 800, 801, 1477, 1478, 1479, 1700, 2300, 3200, 4500)
QUESTIONS = (
    *("", "a", "ok", "İ", "aİ", "Σ", "may", "When does the lease end?", "契約はいつ終わる？", "雨"),
    *("ΟΔΟΣ", "however, bug-218"),
)
BLOCK_SIZES = (1, 1, 2, 3, 5, 8, 13, 21, 40, 80, 160, 400, 800, 1500, 5000)
STATES = (
    *["current"] * 6,
    *("none", "gap", "no vector", "empty vector", "models", "node", "overlap", "empty block", "past the end"),
)


def fragments() -> st.SearchStrategy[str]:
    """Draw one fragment of a text."""
    wild = st.text(alphabet="aΣİ .!?。！、,「」()\n\u3000\x1c`", max_size=12)
    return st.one_of(*map(st.sampled_from, (SENTENCES, LEADS, SPACES, MARKS)), wild)


@st.composite
def long_runs(draw: st.DrawFn) -> str:
    """Draw a text that repeats one fragment up to or around a length that matters."""
    length = draw(st.sampled_from(LENGTHS))
    part = draw(st.sampled_from(REPEATED))
    return (part * (length // len(part) + 1))[:length]


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw the text of a record: mostly short, sometimes several thousand characters."""
    parts: list[str] = []
    for part in draw(st.lists(fragments(), max_size=10)):
        parts.append(part)
        if draw(st.booleans()):
            parts.append(draw(st.sampled_from(SPACES)))
    if draw(st.integers(0, 5)) == 0:
        parts.insert(draw(st.integers(0, len(parts))), draw(long_runs()))
    return "".join(parts)


@st.composite
def partitions(draw: st.DrawFn, text: str) -> list[Span]:
    """Draw blocks that cover a text: as it divides, by drawn sizes, around white space, or in one."""
    kind = draw(st.sampled_from(("divided", "divided", "sizes", "sizes", "words", "whole")))
    if kind == "divided" or not text:
        return divide(text)
    if kind == "whole":
        return [(0, len(text))]
    cuts = {len(text)}
    sizes = draw(st.lists(st.sampled_from(BLOCK_SIZES), min_size=1, max_size=6))
    fewest = 1 if len(text) < 300 else 20
    at = turn = 0
    while at < len(text):
        at += max(sizes[turn % len(sizes)], fewest)
        turn += 1
        cuts.add(min(at, len(text)))
    if kind == "words":
        near = [i for i in range(1, len(text)) if text[i].isspace() != text[i - 1].isspace()]
        cuts.update(near[:60])
        low = text.lower()
        if len(low) == len(text):
            inside = draw(st.integers(1, 10))
            found = [low.find(word) + min(inside, len(word) - 1) for word in QUALIFIERS if word in low]
            cuts.update(found)
    ends = sorted(cut for cut in cuts if cut > 0)
    return list(zip([0, *ends[:-1]], ends, strict=True))


def vectors(width: int) -> st.SearchStrategy[list[int]]:
    """Draw a vector of small whole numbers, sometimes all zero or at the limits of a byte."""
    small = st.lists(st.integers(-3, 3), min_size=width, max_size=width)
    return st.one_of(small, small, st.just([0] * width), st.just([127] * width), st.just([-128] * width))


@st.composite
def records(draw: st.DrawFn, text: str, width: int, palette: list[bytes]) -> dict[str, Any]:
    """Draw a record with a current set, a stale one, or none."""
    state = draw(st.sampled_from(STATES))
    if state == "none" or not text:
        return {"text": text, "blocks": [], "node_ends": []}
    spans = draw(partitions(text))
    step, first = draw(st.integers(0, 3)), draw(st.integers(0, len(palette) - 1))
    blocks: list[tuple[int, int, bytes | None, str]] = [
        (start, end, palette[(first + i * step) % len(palette)], "m1") for i, (start, end) in enumerate(spans)
    ]
    node_ends = [blocks[i][1] for i in sorted(draw(st.sets(st.integers(0, len(blocks) - 1), max_size=2)))]
    at = draw(st.integers(0, len(blocks) - 1))
    start, end, vector, model = blocks[at]
    if state == "gap":
        del blocks[at]
    elif state == "no vector":
        blocks[at] = (start, end, None, model)
    elif state == "empty vector":
        blocks[at] = (start, end, b"", model)
    elif state == "empty block":
        blocks.insert(at, (start, start, vector, model))
    elif state == "past the end":
        blocks[-1] = (blocks[-1][0], len(text) + 1, *blocks[-1][2:])
    elif state == "models":
        blocks[at] = (start, end, vector, "m2")
    elif state == "node":
        node_ends.append((start + end) // 2)
    elif state == "overlap":
        blocks[at] = (start, end + 1, vector, model)
    elif draw(st.integers(0, 7)) == 0:
        blocks[at] = (start, end, bytes(width + 1), model)
    return {"text": text, "blocks": blocks, "node_ends": node_ends}


@st.composite
def windows(draw: st.DrawFn, refs: list[str]) -> list[dict[str, Any]]:
    """Draw a window: each chosen record once, in items of one or several claims, ranks often tied."""
    order = draw(st.permutations(refs))
    chosen = order[: draw(st.integers(1, len(order)))]
    rows = []
    item = claim = 0
    for i, ref in enumerate(chosen):
        if i > 0 and draw(st.integers(0, 2)) > 0:
            item, claim = item + 1, 0
        elif i > 0:
            claim += 1
        rank = draw(st.integers(0, 5))
        rows.append({"item_position": item, "claim_position": claim, "record_ref": ref, "recall_rank": rank})
    return rows


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a whole case: `records` by reference, and `questions`, each with its `window` rows."""
    width = draw(st.integers(4, 8))
    signed = draw(st.lists(vectors(width), min_size=1, max_size=5))
    palette = [bytes(number % 256 for number in vector) for vector in signed]
    pool = draw(st.lists(texts(), min_size=1, max_size=4))
    store = {}
    for number in range(draw(st.integers(1, 6))):
        ref = f"{draw(st.sampled_from(('mem', 'mem', 'ep')))}:{number + 1}"
        store[ref] = draw(records(draw(st.sampled_from(pool)), width, palette))

    questions = []
    for number in range(draw(st.integers(1, 4))):
        text = draw(st.one_of(st.sampled_from(QUESTIONS), st.sampled_from(SENTENCES), st.sampled_from(pool)))
        query_width = draw(st.sampled_from((width, width, width, width, width + 1, None)))
        vector = None if query_width is None else [n / 4 for n in draw(vectors(query_width))]
        questions.append(
            {
                "question_id": f"q{number}",
                "question": text[:60],
                "query_vector": vector,
                "window": draw(windows(list(store))),
            }
        )
    return {"records": store, "questions": questions}
