"""Today's sequence: filled head quotes, then excerpts in rounds (DESIGN.md, "Today's sequence")."""

import math

import numpy as np
import polars as pl

from allocation.costs import SEPARATOR, joins
from allocation.ranks import BLOCK_ORDER_K
from allocation.server import without_overlaps
from allocation.similarity import shared_trigrams
from allocation.text import Corpus, lower

FIRST_ITEMS = 5  # items quoted at the first size; the others at the rest size
EXCERPT_LIMIT = 500  # characters of another claim's quote
EPISODE_LABEL = "[Episode] "  # what a start of an episode is shown behind

Range = pl.Struct({"start": pl.Int32, "end": pl.Int32})


def heads(pairs: pl.DataFrame, window: pl.DataFrame, first: int, rest: int) -> pl.DataFrame:
    """One step for each item: the governing ranges of its head record, best first, filled to a size.

    A range that overlaps one already taken is passed over; the first that does not fit ends the quote; the best
    alone, if longer, is cut to the size. A record no longer than the size is quoted whole, one that divides into
    a single block from its start.

    Args:
        pairs: Blocks of every window row with place, range_start, range_end and ``stored``.
        window: Numbered window rows with ``length``, the code points of their record.
        first: Characters of a quote of the first five items.
        rest: Characters of the others.

    Returns:
        window_row, position (the item's), ranges (joined where they touch, in text order), cost, basis.
    """
    short = pl.col("length") <= pl.col("size")
    basis = (
        pl.when(short)
        .then(pl.lit("whole"))
        .when(pl.col("blocks") == 1)
        .then(pl.lit("start"))
        .when("stored")
        .then(pl.lit("blocks"))
        .otherwise(pl.lit("lexical"))
    )
    quoted = (
        window.filter(pl.col("claim_position") == 0)
        .with_columns(size=pl.when(pl.col("item_position") < FIRST_ITEMS).then(first).otherwise(rest))
        .join(pairs.group_by("window_row").agg(pl.len().alias("blocks"), pl.col("stored").first()), on="window_row")
        .select("window_row", "length", "size", position="item_position", basis=basis)
    )
    at_start = pl.col("basis").is_in(["whole", "start"])
    starts = quoted.filter(at_start).select(
        "window_row", range_start=pl.lit(0, dtype=pl.Int64), range_end=pl.min_horizontal("length", "size")
    )
    candidates = pairs.select("window_row", "range_start", "range_end", "place").join(
        quoted.filter(~at_start).select("window_row", "size"), on="window_row"
    )
    filled = candidates.pipe(without_overlaps).pipe(_fill)
    one_quote = pl.col("window_row") == pl.col("window_row").shift(1)
    touching = one_quote & (pl.col("range_start") == pl.col("range_end").shift(1))
    return (
        pl.concat([starts, filled], how="vertical_relaxed")
        .sort("window_row", "range_start")
        .with_columns(joined=(~touching.fill_null(value=False)).cum_sum())
        .group_by("window_row", "joined", maintain_order=True)
        .agg(start=pl.col("range_start").first(), end=pl.col("range_end").last())
        .group_by("window_row", maintain_order=True)
        .agg(
            ranges=pl.struct("start", "end").cast(Range),
            cost=(pl.col("end") - pl.col("start")).sum() + len(SEPARATOR) * (pl.len().cast(pl.Int64) - 1),
        )
        .join(quoted.select("window_row", "position", "basis"), on="window_row", maintain_order="left")
    )


def _fill(ranges: pl.DataFrame) -> pl.DataFrame:
    """The ranges taken while they fit, best first.

    What is counted against the size is a range's length, and a separator unless it is the first or touches one
    already taken: the server's count, which is a separator too much for a range that closes a gap.
    """
    start, end, size = pl.col("range_start"), pl.col("range_end"), pl.col("size")
    best = pl.col("place") == pl.col("place").min().over("window_row")
    left, right = joins("range_start", "range_end", "place")
    return (
        ranges.sort("window_row", "range_start")
        .with_columns(best=best, counted=end - start + len(SEPARATOR) * ~(best | left | right))
        .sort("window_row", "place")
        .with_columns(total=pl.col("counted").cum_sum().over("window_row"))
        .filter(pl.col("best") | (pl.col("total") <= size))
        .select("window_row", "range_start", range_end=pl.min_horizontal(end, start + size))
    )


def excerpts(
    pairs: pl.DataFrame, window: pl.DataFrame, nodes: pl.DataFrame, questions: pl.DataFrame, corpus: Corpus
) -> pl.DataFrame:
    """One step for each other claim: what the server quotes of it, at most 500 characters.

    With a current block set the governing range of its best block; else its best node, if it has current nodes;
    else its start, which for an episode stands behind a label that counts.

    Args:
        pairs: Blocks of every window row with place, range_start, range_end and ``stored``.
        window: Numbered window rows with ``length``.
        nodes: StoredNodes of the records.
        questions: Questions of the shard.
        corpus: The records' texts.

    Returns:
        window_row, basis, ranges, cost, round (0 = the item's first other claim).
    """
    claims = window.filter(pl.col("claim_position") > 0).with_columns(
        round=pl.col("claim_position").rank("dense").over("question", "item_position").cast(pl.Int64) - 1
    )
    best = pairs.filter((pl.col("place") == 0) & pl.col("stored")).select(
        "window_row", "range_start", "range_end", basis=pl.lit("block")
    )
    of_nodes = _best_nodes(claims.join(best, on="window_row", how="anti"), nodes, questions, corpus)
    ranged = claims.join(pl.concat([best, of_nodes]), on="window_row", how="left", maintain_order="left")
    labelled = pl.col("range_start").is_null() & pl.col("record_ref").str.starts_with("ep:")
    label = pl.when(labelled).then(len(EPISODE_LABEL)).otherwise(0)
    start = pl.col("range_start").fill_null(0)
    end = pl.min_horizontal(pl.col("range_end").fill_null(pl.col("length")), start + EXCERPT_LIMIT - label)
    return ranged.with_columns(start=start, end=end).select(
        "window_row",
        "round",
        basis=pl.col("basis").fill_null("start"),
        ranges=pl.concat_list(pl.struct("start", "end").cast(Range)),
        cost=pl.col("end") - pl.col("start") + label,
    )


def _best_nodes(claims: pl.DataFrame, nodes: pl.DataFrame, questions: pl.DataFrame, corpus: Corpus) -> pl.DataFrame:
    """The node each claim is quoted from: fusion of shared trigrams and cosine, ties to the earlier node."""
    found = []
    of_record = {
        ref: rows for (ref,), rows in nodes.sort("node_index").partition_by("record_ref", as_dict=True).items()
    }
    for window_row, question, record, ref in claims.select(
        "window_row", "question", "record", "record_ref"
    ).iter_rows():
        rows = of_record.get(ref)
        if rows is None or not _is_current(rows, int(corpus.lengths[record])):
            continue
        asked = questions.row(question, named=True)
        base = corpus.base[record]
        start, end = rows["start"].to_numpy(), rows["end"].to_numpy()
        texts = lower(corpus.cut(base + start, base + end))
        lists = [shared_trigrams([asked["question"].lower()], texts)[:, 0]]
        cosines = [_cosine(blob, asked["query_vector"]) for blob in rows["embedding"]]
        if None not in cosines:
            lists.append(np.array(cosines))
        scores = [
            math.fsum(1 / (BLOCK_ORDER_K + 1 + int((np.unique(values) > values[i]).sum())) for values in lists)
            for i in range(len(rows))
        ]
        best = scores.index(max(scores))
        found.append((window_row, int(start[best]), int(end[best])))
    columns = dict.fromkeys(("window_row", "range_start", "range_end"), pl.Int64)
    return pl.DataFrame(found, schema=columns, orient="row").with_columns(basis=pl.lit("node"))


def _is_current(nodes: pl.DataFrame, length: int) -> bool:
    starts, ends = nodes["start"].to_list(), nodes["end"].to_list()
    return (
        [0, *ends] == [*starts, length]
        and None not in ends
        and all(start < end for start, end in zip(starts, ends, strict=True))
        and nodes["embedding"].bin.size().fill_null(0).min() != 0
        and nodes["embedding_model"].n_unique() == 1
        and nodes["node_index"].is_unique().all()
    )


def _cosine(blob: bytes, query: list[float] | None) -> float | None:
    """A node's cosine, rounded to nine places; None without a query vector of its width, or if it is not finite."""
    if query is None or len(blob) != 4 * len(query):
        return None
    node = np.frombuffer(blob, dtype="<f4").astype(np.float64)
    if not np.isfinite(node).all():
        return None
    norms = math.sqrt(math.fsum(node * node)) * math.sqrt(math.fsum(x * x for x in query))
    return round(math.fsum(node * np.array(query)) / norms, 9) if norms else 0.0
