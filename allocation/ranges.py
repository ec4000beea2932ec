"""Block to governing range: its sentence, and a neighbour that qualifies it (DESIGN.md, "Governing range")."""

import re

import numpy as np
import polars as pl

from allocation.text import WHITE_SPACE, Corpus, Offsets

CONTEXT_LIMIT = 1478  # characters past which a range stops growing

TERMINATORS = "。！？．.!?…"
QUALIFIERS = (
    *("except", "however", "but ", "although", "though", "unless", "instead", "on the other hand"),
    *("that said", "caveat", "note that", "provided that", "in fact", "actually"),
    *("ただし", "但し", "ただ、", "しかし", "しかしながら", "だが", "ですが", "でも、", "なお", "とはいえ"),
    *("一方", "他方", "その代わり", "代わりに"),
)
_ENDS_SENTENCE = f"[{re.escape(TERMINATORS)}]$"
# Shortest first, because the shorter of two that begin alike decides; ASCII letters in either case, no others.
_QUALIFIER = "^(" + "|".join(
    f"(?i-u:{q})" if q.isascii() else q for q in sorted(QUALIFIERS, key=len)
) + ")"  # fmt: skip
_NEVER = np.iinfo(np.int64).max


def governing(blocks: pl.DataFrame, corpus: Corpus) -> pl.DataFrame:
    """Add range_start and range_end to the blocks of ``block_sets.build``.

    All blocks grow at once, a neighbour a turn, each until neither rule fires or the next step would pass
    the limit; backwards first. Row order is kept.
    """
    record = blocks["record"].to_numpy()
    start = corpus.base[record] + blocks["start"].to_numpy()
    end = corpus.base[record] + blocks["end"].to_numpy()
    at = np.arange(len(record))
    lowest = np.searchsorted(record, record, side="left")  # the first and last block of the same record
    highest = np.searchsorted(record, record, side="right") - 1

    text = corpus.cut(start, end)
    unpadded = text.str.strip_chars_start(WHITE_SPACE)
    blank = (unpadded == "").to_numpy()
    ends_sentence = text.str.strip_chars_end(WHITE_SPACE).str.contains(_ENDS_SENTENCE).to_numpy()
    previous_filled = np.maximum.accumulate(np.where(blank, -1, at))
    next_filled = np.minimum.accumulate(np.where(blank, len(at), at)[::-1])[::-1]
    qualified_at = _qualifier_ends(corpus, end - unpadded.str.len_chars().cast(pl.Int64).to_numpy(), record)
    # What follows is read through blank blocks, up to the end of the first block that is not.
    reader = np.minimum(next_filled, highest)
    followed_by_qualifier = ~blank[reader] & (qualified_at[reader] <= end[reader])

    first, last, growing = at.copy(), at.copy(), at
    while len(growing):
        low, high = first[growing], last[growing]
        filled = np.minimum(next_filled[low], highest[growing])
        opens_with_qualifier = (next_filled[low] <= high) & (qualified_at[filled] <= end[high])
        wants_before = (low > lowest[growing]) & (~ends_sentence[low - 1] | opens_with_qualifier)
        closer = previous_filled[high]
        complete = (closer >= low) & ends_sentence[closer]
        after = np.minimum(high + 1, highest[growing])
        wants_after = ~wants_before & (high < highest[growing]) & (~complete | followed_by_qualifier[after])
        low, high = low - wants_before, high + wants_after
        grows = (wants_before | wants_after) & (end[high] - start[low] <= CONTEXT_LIMIT)
        growing = growing[grows]
        first[growing], last[growing] = low[grows], high[grows]
    base = corpus.base[record]
    return blocks.with_columns(range_start=start[first] - base, range_end=end[last] - base)


def _qualifier_ends(corpus: Corpus, heads: Offsets, record: Offsets) -> Offsets:
    """Where a qualifier that starts at each offset ends, in all texts; past everything where none does."""
    longest = max(map(len, QUALIFIERS))
    found = corpus.cut(heads, np.minimum(heads + longest, corpus.base[record + 1])).str.extract(_QUALIFIER)
    length = found.str.len_chars().cast(pl.Int64)
    return np.where(found.is_not_null().to_numpy(), heads + length.fill_null(0).to_numpy(), _NEVER)
