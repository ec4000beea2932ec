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
    shared = np.zeros(len(pairs), dtype=np.int64)
    keys = np.zeros(len(pairs), dtype=np.int64)
    has_key = np.zeros(len(pairs), dtype=bool)
    for rows in _scopes(questions, question):
        members = np.unique(question[rows])
        low, high = int(block[rows].min()), int(block[rows].max()) + 1
        column = np.searchsorted(members, question[rows])
        counts = shared_trigrams([asked[member] for member in members], texts[low:high])
        shared[rows] = counts[block[rows] - low, column]
        for width, group in _by_width(questions, members):
            chosen = rows[np.isin(question[rows], group)]
            chosen = chosen[(blocks["width"].gather(block[chosen]) == width).fill_null(value=False).to_numpy()]
            if len(chosen):
                low, high = int(block[chosen].min()), int(block[chosen].max()) + 1
                vectors = np.array(questions["query_vector"].gather(group).to_list(), dtype=np.float32)
                matrix = cosine_keys(vector_matrix(blocks["vector"][low:high], width), vectors)
                keys[chosen] = matrix[block[chosen] - low, np.searchsorted(group, question[chosen])]
                has_key[chosen] = True
    cosine_key = pl.when(pl.Series(has_key)).then(pl.Series(keys))
    return pairs.with_columns(shared=pl.Series(shared), cosine_key=cosine_key)


def _scopes(questions: pl.DataFrame, question: Array) -> Iterator[Array]:
    """Row numbers of the pairs of each agent_id: questions of one scope share their records."""
    scope = questions["agent_id"].rank("dense").to_numpy()[question]
    by_scope = np.argsort(scope, kind="stable")
    yield from np.split(by_scope, np.flatnonzero(np.diff(scope[by_scope])) + 1) if len(scope) else ()


def _by_width(questions: pl.DataFrame, members: Array) -> Iterator[tuple[int, Array]]:
    widths = questions["query_vector"].list.len().fill_null(0).gather(members).to_numpy()
    for width in np.unique(widths[widths > 0]):
        yield int(width), members[widths == width]


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
    pair_of = np.zeros((len(letters) + 1, len(letters) + 1), dtype=np.int32)
    for pair, i in pairs.items():
        pair_of[letters[pair[0]], letters[pair[1]]] = i
    gram_of = np.zeros((len(pairs) + 1, len(letters) + 1), dtype=np.int32)
    for gram, i in number.items():
        gram_of[pairs[gram[:2]], letters[gram[2]]] = i
    asked = np.zeros((len(every), len(questions)), dtype=np.float32)
    for column, own in enumerate(grams):
        asked[[number[gram] - 1 for gram in own], column] = 1

    letter_of = np.zeros(max(map(ord, letters)) + 2, dtype=np.int32)
    letter_of[list(map(ord, letters))] = list(letters.values())
    for low in range(0, len(blocks), _CHUNK):
        chunk = blocks[low : low + _CHUNK]
        points = np.frombuffer("".join(chunk.to_list()).encode("utf-32-le"), dtype=np.uint32)
        found = letter_of[np.minimum(points, len(letter_of) - 1)]
        owner = np.repeat(np.arange(len(chunk), dtype=np.int32), chunk.str.len_chars().to_numpy())
        trigram = gram_of[pair_of[found[:-2], found[1:-1]], found[2:]]
        hits = np.flatnonzero((trigram > 0) & (owner[:-2] == owner[2:]))
        seen = np.zeros((len(chunk), len(every)), dtype=np.float32)
        seen[owner[hits], trigram[hits] - 1] = 1
        counts[low : low + _CHUNK] += seen @ asked  # sums of ones, exact in any order
    return counts


def vector_matrix(vectors: pl.Series, width: int) -> npt.NDArray[np.int8]:
    """Stored vectors as int8 [vectors, width]; one that is missing or of another width becomes zeros."""
    sizes = vectors.bin.size().fill_null(0)
    usable = (sizes == width).to_numpy()
    data = b"".join(vectors.filter(usable).to_list()) if not usable.all() else _joined(vectors)
    matrix = np.zeros((len(vectors), width), dtype=np.int8)
    matrix[usable] = np.frombuffer(data, dtype=np.int8).reshape(-1, width)
    return matrix


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
    query_norms = [math.sqrt(math.fsum(float(x) * float(x) for x in query)) for query in queries]
    levels = list(_exact_levels(queries.astype(np.float64)))
    for low in range(0, len(vectors), _CHUNK):
        chunk = vectors[low : low + _CHUNK].astype(np.float64)
        dots = _rounded_once([chunk @ level.T for level in levels])
        squares = np.einsum("ij,ij->i", chunk, chunk)  # integers below 2^53, exact in any order
        norms = np.sqrt(squares)[:, None] * np.array(query_norms)
        cosines = np.divide(dots, norms, out=np.zeros_like(norms), where=norms > 0)
        keys[low : low + _CHUNK] = np.rint(cosines * KEY_SCALE)
    return keys


def _rounded_once(parts: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """The sum of the parts, rounded once: plain addition does that for two, seldom are there more."""
    if len(parts) <= 2:
        return np.asarray(sum(parts), dtype=np.float64)
    terms = np.stack(parts, axis=-1)
    return np.array([math.fsum(row) for row in terms.reshape(-1, len(parts)).tolist()]).reshape(terms.shape[:-1])


def _exact_levels(queries: npt.NDArray[np.float64]) -> Iterator[npt.NDArray[np.float64]]:
    """Parts that sum to ``queries``, smallest first, each with exact dot products with int8 vectors.

    A sum of ``width`` products with an int8 is exact in any order when all parts are multiples of one power of
    two and at most 2^(53 - 8 - log2 width) times as large. Embeddings need one part, seldom two.
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
