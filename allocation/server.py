"""The memory server's own passages, for reproducing its orders (DESIGN.md, "The server policy")."""

import numpy as np
import numpy.typing as npt
import polars as pl

from allocation.runs import runs
from allocation.similarity import vector_matrix
from allocation.steps import QUOTE_LIMIT
from allocation.text import Offsets

Floats = npt.NDArray[np.float32]


def add_cosines(pairs: pl.DataFrame, questions: pl.DataFrame, blocks: pl.DataFrame) -> pl.DataFrame:
    """Replace cosine_key by the server's: float32 products over each record's blocks in text order.

    The last bit of such a product depends on the order of the rows, so each record is one product. ``pairs``
    is ordered by window_row, block_index, and stays so.
    """
    keys = _keys(pairs, questions, blocks)
    return pairs.with_columns(cosine_key=pl.when(pl.col("cosine_key").is_not_null()).then(pl.Series(keys)))


def _keys(pairs: pl.DataFrame, questions: pl.DataFrame, blocks: pl.DataFrame) -> npt.NDArray[np.int64]:
    """A key a row of ``pairs``, whose rows of one window_row stand together, in the order to multiply in."""
    keys = np.zeros(len(pairs), dtype=np.int64)
    # Vectors are usable for all blocks of a record or for none.
    known = pairs["cosine_key"].is_not_null().to_numpy()
    window_row, block, question = (pairs[name].to_numpy()[known] for name in ("window_row", "block", "question"))
    found = np.zeros(len(block), dtype=np.int64)
    matrices: dict[int, Floats] = {}
    queries = {i: questions["query_vector"][int(i)].to_numpy().astype(np.float32) for i in np.unique(question)}
    for low, high in runs(window_row):
        query = queries[question[low]]
        if len(query) not in matrices:
            matrices[len(query)] = vector_matrix(blocks["vector"], len(query)).astype(np.float32)
        found[low:high] = _as_keys(_cosines(matrices[len(query)][block[low:high]], query))
    keys[known] = found
    return keys


def _cosines(vectors: Floats, query: Floats) -> Floats:
    norms = np.linalg.norm(vectors, axis=1) * float(np.linalg.norm(query))
    cosines: Floats = np.divide(vectors @ query, norms, out=np.zeros_like(norms), where=norms > 0)
    return cosines


def _as_keys(values: Floats) -> npt.NDArray[np.int64]:
    """Integers in the order of the floats; equal floats, and only they, have equal keys."""
    bits = (values + np.float32(0)).view(np.int32).astype(np.int64)  # + 0 turns -0.0 into 0.0
    return np.where(bits >= 0, bits, -(bits & 0x7FFFFFFF))


def passages(pairs: pl.DataFrame, questions: pl.DataFrame, blocks: pl.DataFrame, lengths: Offsets) -> pl.DataFrame:
    """The server's candidate passages.

    A record no longer than a quote is one whole passage, one that divides into a single block its start, both
    without a cosine. Of any other record the governing ranges in block order, without those that overlap a
    better one, each cut to the length of a quote.

    Args:
        pairs: window_row, question, record, block, range_start, range_end, place, cosine_key.
        questions: Questions of the shard.
        blocks: Blocks of the shard.
        lengths: Code points of each record's text.

    Returns:
        window_row, passage_start, passage_end, place, cosine_key; in no order.
    """
    sized = pairs.with_columns(length=pl.Series(lengths[pairs["record"].to_numpy()]), size=pl.len().over("window_row"))
    whole = (pl.col("length") <= QUOTE_LIMIT) | (pl.col("size") == 1)
    starts = sized.filter(whole & (pl.col("place") == 0)).with_columns(
        range_start=0, range_end="length", cosine_key=None
    )
    chosen = sized.filter(~whole).pipe(without_overlaps).sort("window_row", "place")
    # The server multiplies again for these, over the blocks in ranked order: all of a record's, not the chosen.
    ranked = sized.filter(~whole).sort("window_row", "place")
    keyed = ranked.select("window_row", "place", ranked_key=pl.Series(_keys(ranked, questions, blocks)))
    chosen = chosen.join(keyed, on=["window_row", "place"]).with_columns(
        cosine_key=pl.when(pl.col("cosine_key").is_not_null()).then("ranked_key")
    )
    columns = ("window_row", "range_start", "range_end", "place", "cosine_key")
    both = pl.concat([part.select(pl.col(columns).cast(pl.Int64)) for part in (starts, chosen)])
    limit = pl.min_horizontal("range_end", pl.col("range_start") + QUOTE_LIMIT)
    return both.with_columns(range_end=limit).rename({"range_start": "passage_start", "range_end": "passage_end"})


def without_overlaps(pairs: pl.DataFrame) -> pl.DataFrame:
    """The ranges that overlap no better one that stays, of each window_row; rows with one range are the best's.

    All records at once: a range that is the best of those it overlaps stays, those it overlaps go, and again
    with the rest. Starts and ends of a record's governing ranges never fall, so what a range overlaps stands
    beside it.
    """
    ranges = pairs.sort("window_row", "range_start", "range_end", "place").unique(
        ["window_row", "range_start", "range_end"], keep="first", maintain_order=True
    )
    if ranges.is_empty():
        return ranges
    span = int(ranges["range_end"].max()) + 1  # type: ignore[arg-type]
    offset = ranges["window_row"].to_numpy() * span
    start, end = offset + ranges["range_start"].to_numpy(), offset + ranges["range_end"].to_numpy()
    place = ranges["place"].to_numpy()
    low, high = np.searchsorted(end, start, side="right"), np.searchsorted(start, end, side="left")
    neighbours = np.stack([low, high], axis=1).ravel()

    def among_neighbours(reduce: np.ufunc, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        # NOTE: reduceat wants every index inside the array, so one value that never wins is put behind it.
        return reduce.reduceat(np.append(values, reduce.reduce(values)), neighbours)[::2]

    undecided, stays = np.ones(len(ranges), dtype=bool), np.zeros(len(ranges), dtype=bool)
    worst = place.max() + 1
    while undecided.any():
        best = among_neighbours(np.minimum, np.where(undecided, place, worst))
        kept = undecided & (best == place)
        stays |= kept
        undecided &= among_neighbours(np.maximum, kept.astype(np.int64)) == 0
    return ranges.filter(stays)
