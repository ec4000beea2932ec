"""Text in bulk: cut many spans at once, and lower-case exactly as Python does."""

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Offsets = npt.NDArray[np.int64]

# Python's white space (``str.isspace``), spelt out because polars strips four control characters fewer.
WHITE_SPACE = "".join(filter(str.isspace, map(chr, range(0x3001))))

# A lone surrogate: no text holds it, and it counts as no letter where lower case depends on the neighbours.
_SEPARATOR = "\ud800"


def lengths(texts: pl.Series) -> Offsets:
    """Code points of each text, int64 [texts]."""
    return texts.str.len_chars().cast(pl.Int64).to_numpy()


class Corpus:
    """Texts laid end to end, so that one pair of offsets names a span of any of them."""

    def __init__(self, texts: pl.Series) -> None:
        """Index ``texts`` by code point."""
        self.lengths = lengths(texts)
        self.base = np.concatenate([[0], np.cumsum(self.lengths)])  # where each text starts; then the end
        self._data = np.frombuffer("".join(texts.to_list()).encode(), dtype=np.uint8)
        if len(self._data) == self.base[-1]:
            self._byte_at = np.arange(len(self._data) + 1, dtype=np.int64)
        else:
            starts = np.flatnonzero((self._data & 0xC0) != 0x80)
            self._byte_at = np.append(starts, len(self._data))

    def cut(self, starts: Offsets, ends: Offsets) -> pl.Series:
        """The texts of the spans ``[starts, ends)``, offsets into all texts, as a string column [spans]."""
        first, last = self._byte_at[starts], self._byte_at[ends]
        offsets = np.concatenate([[0], np.cumsum(last - first)])
        data = self._data
        if len(first) and (first[1:] == last[:-1]).all():
            data = data[first[0] : last[-1]]  # spans that follow each other need no copy
        else:
            data = data[np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], last - first)]
        strings = pa.LargeStringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(data))
        return pl.Series("text", strings, dtype=pl.String)


def lower(texts: pl.Series) -> pl.Series:
    """``str.lower`` of each text, in bulk; polars differs from Python beyond ASCII."""
    plain = texts.str.len_bytes() == texts.str.len_chars()
    if plain.all():
        return texts.str.to_lowercase()
    others = _SEPARATOR.join(texts.filter(~plain).to_list()).lower().split(_SEPARATOR)
    return texts.str.to_lowercase().scatter((~plain).arg_true(), others)
