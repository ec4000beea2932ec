"""Divide a text into clause-sized blocks, offline (DESIGN.md, "Division at read time")."""

import itertools
import re

import numpy as np

BLOCK_LIMIT = 739  # characters: the longest block the divider leaves whole

_BOUNDARY = re.compile(r"\n|[。．！？]|[.!?](?=\s|$)")
_WEAK_BOUNDARIES = (re.compile(r"[、，,;；:：]"), re.compile(r"\s"))
_FENCE = re.compile(r"^[ \t]*```", re.MULTILINE)
_CLOSES = {
    "「": "」",
    "『": "』",
    "（": "）",
    "(": ")",
    "［": "］",
    "[": "]",
    "【": "】",
    "《": "》",
    "〈": "〉",
}
_BRACKET = re.compile("[" + re.escape("".join(_CLOSES) + "".join(_CLOSES.values())) + "]")

Span = tuple[int, int]


def divide(text: str) -> list[Span]:
    """Half-open code point spans that partition ``text``, in order; none for an empty text."""
    if not text:
        return []
    bounds = [0, *_cuts(text), len(text)]
    pieces = [piece for start, end in itertools.pairwise(bounds) for piece in _split_long(text, start, end)]
    return _fold_blank(text, pieces)


def _cuts(text: str) -> list[int]:
    """Offsets after a line break or a sentence end that no fence or bracket pair protects, ascending."""
    cuts = np.array([match.end() for match in _BOUNDARY.finditer(text)], dtype=np.int64)
    cuts = cuts[cuts < len(text)]
    protected = sorted(_fences(text) + _bracket_pairs(text))
    if not protected or not len(cuts):
        return list(map(int, cuts))
    starts, ends = np.array(protected).T
    furthest = np.maximum.accumulate(ends)
    # A cut is protected when a range that starts before it ends after it.
    before = np.searchsorted(starts, cuts, side="left")
    inside = (before > 0) & (furthest[np.maximum(before - 1, 0)] > cuts)
    return list(map(int, cuts[~inside]))


def _fences(text: str) -> list[Span]:
    """Fenced code: from the opening line to the end of the closing fence's line, or of the text."""
    marks = [match.start() for match in _FENCE.finditer(text)]
    ranges = []
    for opening, closing in zip(marks[::2], marks[1::2], strict=False):
        line_end = text.find("\n", closing)
        ranges.append((opening, len(text) if line_end == -1 else line_end + 1))
    if len(marks) % 2:
        ranges.append((marks[-1], len(text)))
    return ranges


def _bracket_pairs(text: str) -> list[Span]:
    """Matched pairs. A closing mark closes the nearest opening of its kind; openings above it never close."""
    pending: list[tuple[str, int]] = []
    # NOTE: how many pending openings each closing mark could close, so that a stray one costs nothing.
    waiting = dict.fromkeys(_CLOSES.values(), 0)
    pairs = []
    for match in _BRACKET.finditer(text):
        mark = match.group()
        if mark in _CLOSES:
            pending.append((_CLOSES[mark], match.start()))
            waiting[_CLOSES[mark]] += 1
        elif waiting[mark]:
            expected = None
            while expected != mark:
                expected, opening = pending.pop()
                waiting[expected] -= 1
            pairs.append((opening, match.end()))
    return pairs


def _split_long(text: str, start: int, end: int) -> list[Span]:
    """Cut a span longer than the limit at weak boundaries in the second half of the allowance, else at it."""
    pieces = []
    while end - start > BLOCK_LIMIT:
        limit = start + BLOCK_LIMIT
        cut = _last_weak_boundary(text, start + BLOCK_LIMIT // 2, limit)
        pieces.append((start, cut))
        start = cut
    return [*pieces, (start, end)]


def _last_weak_boundary(text: str, floor: int, limit: int) -> int:
    for pattern in _WEAK_BOUNDARIES:
        ends = [match.end() for match in pattern.finditer(text, floor - 1, limit)]
        if ends:
            return ends[-1]
    return limit


def _fold_blank(text: str, pieces: list[Span]) -> list[Span]:
    """Join a white-space piece to the next one (the last one to the one before) where the limit allows."""
    blocks: list[Span] = []
    blank: Span | None = None
    for piece in pieces:
        if blank is not None:
            if piece[1] - blank[0] <= BLOCK_LIMIT:
                piece = (blank[0], piece[1])
            else:
                blocks.append(blank)
            blank = None
        if text[piece[0] : piece[1]].isspace():
            blank = piece
        else:
            blocks.append(piece)
    if blank is not None:
        if blocks and blank[1] - blocks[-1][0] <= BLOCK_LIMIT:
            blocks[-1] = (blocks[-1][0], blank[1])
        else:
            blocks.append(blank)
    return blocks
