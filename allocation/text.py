"""Text in bulk: cut many spans at once, and lower-case exactly as Python does."""

import unicodedata
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Offsets = npt.NDArray[np.int64]

# Python's white space (``str.isspace``), spelt out because polars strips four control characters fewer.
WHITE_SPACE = "".join(filter(str.isspace, map(chr, range(0x3001))))

# A lone surrogate: no text holds it, and to lower case and to NFKC it is no letter and no neighbour.
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
        # The code point that each further byte of one belongs to; in ASCII there is none.
        further = np.flatnonzero((self._data & 0xC0) == 0x80)
        self._owner = further - np.arange(1, len(further) + 1)

    def _bytes(self, offsets: Offsets) -> Offsets:
        """Where code points start, in bytes: each is one byte, and those before have further ones."""
        return offsets + np.searchsorted(self._owner, offsets)

    def cut(self, starts: Offsets, ends: Offsets) -> pl.Series:
        """The texts of the spans ``[starts, ends)``, offsets into all texts, as a string column [spans]."""
        first, last = self._bytes(starts), self._bytes(ends)
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
    return _as_python(texts, str.lower)


def normalize(texts: pl.Series) -> pl.Series:
    """NFKC, then lower case, of each text, as Python does it."""
    return _as_python(texts, lambda text: unicodedata.normalize("NFKC", text).lower())


def normalize_one(text: str) -> str:
    """NFKC, then lower case."""
    return str(normalize(pl.Series([text], dtype=pl.String))[0])


def _as_python(texts: pl.Series, function: Callable[[str], str]) -> pl.Series:
    """``function``, which leaves ASCII lower case, of each text: one call for all that are not ASCII."""
    plain = texts.str.len_bytes() == texts.str.len_chars()
    lowered = texts.str.to_lowercase()
    if plain.all():
        return lowered
    others = function(_SEPARATOR.join(texts.filter(~plain).to_list())).split(_SEPARATOR)
    return lowered.scatter((~plain).arg_true(), others)
