"""How close a question is to a block: shared trigrams and the cosine's key (DESIGN.md, "Block order")."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from allocation.text import Corpus, lower

Array = npt.NDArray[np.int64]

KEY_SCALE = 1e9  # a cosine is ranked by the integer nearest to it times this
_CHUNK = 4096  # blocks compared at a time, so that the work stays in cache and memory flat


def add(pairs: pl.DataFrame, questions: pl.DataFrame, blocks: pl.DataFrame, corpus: Corpus) -> pl.DataFrame:
    """Add shared (distinct trigrams in common) and cosine_key to pairs of a question and a block.

    Args:
        pairs: question and block (row numbers of the other two tables), any order.
        questions: Questions of the shard.
        blocks: Blocks of the shard; ``width`` is null where a record has no usable vectors.
        corpus: The records' texts.

    Returns:
        ``pairs`` in the same order; cosine_key is null where the record's vectors are missing or of another
        width than the question's.
    """
    base = corpus.base[blocks["record"].to_numpy()]
    texts = lower(corpus.cut(base + blocks["start"].to_numpy(), base + blocks["end"].to_numpy()))
    asked = [question.lower() for question in questions["question"]]
    question, block = pairs["question"].to_numpy(), pairs["block"].to_numpy()
    # Read once: a call of polars costs as much as a small scope's whole work.
    block_widths = blocks["width"].fill_null(0).to_numpy()
    query_widths = questions["query_vector"].list.len().fill_null(0).to_numpy()
    queries = questions["query_vector"].to_list()
    shared = np.zeros(len(pairs), dtype=np.int64)
    keys = np.zeros(len(pairs), dtype=np.int64)
    has_key = np.zeros(len(pairs), dtype=bool)
    for rows in _scopes(questions, question):
        members = np.unique(question[rows])
        own, at = np.unique(block[rows], return_inverse=True)
        column = np.searchsorted(members, question[rows])
        counts = shared_trigrams([asked[member] for member in members], texts.gather(own))
        shared[rows] = counts[at, column]
        for width in np.unique(query_widths[members]).tolist():
            group = members[query_widths[members] == width]
            chosen = rows[(query_widths[question[rows]] == width) & (block_widths[block[rows]] == width)]
            if width and len(chosen):
                own, at = np.unique(block[chosen], return_inverse=True)
                vectors = np.array([queries[member] for member in group], dtype=np.float32)
                matrix = cosine_keys(vector_matrix(blocks["vector"].gather(own), width), vectors)
                keys[chosen] = matrix[at, np.searchsorted(group, question[chosen])]
                has_key[chosen] = True
    cosine_key = pl.when(pl.Series(has_key)).then(pl.Series(keys))
    return pairs.with_columns(shared=pl.Series(shared), cosine_key=cosine_key)


def _scopes(questions: pl.DataFrame, question: Array) -> Iterator[Array]:
    """Row numbers of the pairs of each agent_id: questions of one scope share their records."""
    scope = questions["agent_id"].rank("dense").to_numpy()[question]
    by_scope = np.argsort(scope, kind="stable")
    yield from np.split(by_scope, np.flatnonzero(np.diff(scope[by_scope])) + 1) if len(scope) else ()


def shared_trigrams(questions: list[str], blocks: pl.Series) -> npt.NDArray[np.float32]:
    """Distinct character trigrams each question and each block have in common, exactly; [blocks, questions].

    All texts are lower case already. A text under three characters is one gram, itself.
    """
    counts = np.zeros((len(blocks), len(questions)), dtype=np.float32)
    grams = [sorted({question[i : i + 3] for i in range(len(question) - 2)}) for question in questions]
    for column, question in enumerate(questions):
        if 0 < len(question) < 3:
            counts[:, column] = (blocks == question).to_numpy()
    every = sorted(set().union(*grams))
    if not every:
        return counts
    # A trigram is found in two steps, pair of letters, then pair and letter, so that both tables stay small
    # in any script. Letters, pairs and trigrams of no question are 0.
    number = {gram: i for i, gram in enumerate(every, 1)}
    letters = {letter: i for i, letter in enumerate(sorted(set().union(*every)), 1)}
    pairs = {pair: i for i, pair in enumerate(sorted({gram[:2] for gram in every}), 1)}
    pair_of = np.zeros((len(letters) + 1, len(letters) + 1), dtype=np.intp)
    for pair, i in pairs.items():
        pair_of[letters[pair[0]], letters[pair[1]]] = i
    gram_of = np.zeros((len(pairs) + 1, len(letters) + 1), dtype=np.intp)
    for gram, i in number.items():
        gram_of[pairs[gram[:2]], letters[gram[2]]] = i
    asked = np.zeros((len(every), len(questions)), dtype=np.float32)
    for column, own in enumerate(grams):
        asked[[number[gram] - 1 for gram in own], column] = 1

    letter_of = np.zeros(max(map(ord, letters)) + 2, dtype=np.intp)
    letter_of[list(map(ord, letters))] = list(letters.values())
    for low in range(0, len(blocks), _CHUNK):
        chunk = blocks[low : low + _CHUNK].to_list()
        points = np.frombuffer("".join(chunk).encode("utf-32-le"), dtype=np.uint32)
        found = letter_of.take(points, mode="clip")  # the last is of no letter
        two = pair_of.take(found[:-2] * len(pair_of) + found[1:-1])
        trigram = gram_of.take(two * gram_of.shape[1] + found[2:])
        ends = np.cumsum([len(text) for text in chunk])
        hits = np.flatnonzero(trigram)
        owner = np.searchsorted(ends, hits, side="right")
        inside = ends[owner] - hits >= 3  # not across two blocks
        seen = np.zeros((len(chunk), len(every)), dtype=np.float32)
        seen[owner[inside], trigram[hits[inside]] - 1] = 1
        counts[low : low + _CHUNK] += seen @ asked  # sums of ones, exact in any order
    return counts


def vector_matrix(vectors: pl.Series, width: int) -> npt.NDArray[np.int8]:
    """Stored vectors as int8 [vectors, width]; one that is missing or of another width becomes zeros."""
    sizes = vectors.bin.size().fill_null(0)
    usable = (sizes == width).to_numpy()
    if usable.all():
        return np.frombuffer(_joined(vectors), dtype=np.int8).reshape(-1, width)
    data = b"".join(vectors.filter(usable).to_list())
    matrix = np.zeros((len(vectors), width), dtype=np.int8)
    matrix[usable] = np.frombuffer(data, dtype=np.int8).reshape(-1, width)
    return matrix


def packed(vectors: npt.NDArray[np.float32]) -> pl.Series:
    """Vectors as the memory server stores them: one signed byte a dimension, the largest 127; a zero vector zeros.

    The scale is rounded to float32 after the division, as the server does it, so that equal vectors get equal bytes.
    """
    peaks = np.abs(vectors).max(axis=1, initial=0).astype(np.float64)
    scales = np.divide(127.0, peaks, out=np.zeros(len(peaks)), where=peaks > 0).astype(np.float32)
    rows = np.round(vectors * scales[:, None]).astype(np.int8)
    return pl.Series("vector", [row.tobytes() for row in rows], dtype=pl.Binary)


def _joined(vectors: pl.Series) -> memoryview:
    chunk = vectors.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    offsets = np.frombuffer(chunk.buffers()[1], dtype=np.int64)[chunk.offset :]
    return memoryview(chunk.buffers()[2])[offsets[0] : offsets[len(chunk)]]


def cosine_keys(vectors: npt.NDArray[np.int8], queries: npt.NDArray[np.float32]) -> Array:
    """The integer nearest to cosine times 10^9 of each stored vector with each query; int64 [vectors, queries].

    The dot product is exact, the int8 norm comes from an integer sum, the query's from ``math.fsum``; so no
    library, thread count or order of rows changes a key. A zero vector has cosine 0.
    """
    keys = np.empty((len(vectors), len(queries)), dtype=np.int64)
    wide = queries.astype(np.float64)  # whose squares are exact
    query_norms = [math.sqrt(math.fsum(squares)) for squares in np.square(wide).tolist()]
    levels = list(_exact_levels(wide))
    for low in range(0, len(vectors), _CHUNK):
        chunk = vectors[low : low + _CHUNK].astype(np.float64)
        parts = [chunk @ level.T for level in levels]
        squares = np.einsum("ij,ij->i", chunk, chunk)  # integers below 2^53, exact in any order
        norms = np.sqrt(squares)[:, None] * np.array(query_norms)
        scaled = _scaled(np.asarray(sum(parts)), norms)
        # NOTE: a sum of three parts or more is rounded twice, which can move only what is next to a half.
        close = np.nonzero(np.abs(scaled - np.floor(scaled) - 0.5) < 1e-5) if len(parts) > 2 else ([], [])
        for row, column in zip(*close, strict=True):
            at = np.s_[row : row + 1, column]
            scaled[at] = _scaled(np.array([math.fsum(float(part[row, column]) for part in parts)]), norms[at])
        keys[low : low + _CHUNK] = np.rint(scaled)
    return keys


def _scaled(dots: npt.NDArray[np.float64], norms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.divide(dots, norms, out=np.zeros_like(norms), where=norms > 0) * KEY_SCALE


def _exact_levels(queries: npt.NDArray[np.float64]) -> Iterator[npt.NDArray[np.float64]]:
    """Parts that sum to ``queries``, smallest first, each with exact dot products with int8 vectors.

    A sum of ``width`` products with an int8 is exact in any order when all parts are multiples of one power of
    two and at most 2^(53 - 8 - log2 width) times as large. Embeddings need one part, or
    three where a component is next to nothing.
    """
    bits = 53 - 8 - math.ceil(math.log2(queries.shape[1]))
    parts = []
    rest = queries
    while rest.any():
        unit = 2.0 ** (np.frexp(np.abs(rest).max())[1] - bits)
        part = np.rint(rest / unit) * unit
        parts.append(part)
        rest = rest - part
    yield from reversed(parts or [queries])
