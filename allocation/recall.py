"""Windows for a store without a recorded recall: cosine and BM25, fused (DESIGN.md, "Recall")."""

import re
from collections.abc import Iterable

import bm25s
import numpy as np
import numpy.typing as npt
import polars as pl

from allocation import block_sets, ranks
from allocation.fusion import score
from allocation.similarity import cosine_keys, vector_matrix
from allocation.tables import Windows
from allocation.text import normalize

Array = npt.NDArray[np.int64]

RECALL_K = 60
KEY_SCALE = 1e6  # a BM25 score is ranked by the integer nearest to it times this
_NONE = -(1 << 40)  # no cosine; lower than any key
_CHUNK = 4096  # blocks compared at a time
_CELLS = 1 << 21  # pairs of a record and a question ranked at a time
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\u3005"
_WORD = re.compile(rf"[^\W_{_CJK}]+|(?=([{_CJK}]{{2}}))|(?<![{_CJK}])[{_CJK}](?![{_CJK}])")


def build(questions: pl.DataFrame, batches: Iterable[tuple[pl.DataFrame, pl.DataFrame]], count: int) -> pl.DataFrame:
    """What is recalled for the questions of one agent: for each its ``count`` best records, each an item of its own.

    Reciprocal-rank fusion of two dense ranks, a record's best block cosine and its BM25 score. A record without the
    one or the other is left out of that list; one in neither list is not recalled. Ties go by record_ref.

    Args:
        questions: Questions of one agent.
        batches: The agent's Records and their StoredBlocks, some records at a time, by record_ref.
        count: Items of a window.

    Returns:
        Windows, ordered by question_id, item_position.
    """
    asked = words(questions["question"])
    vocabulary = set().union(*asked)
    refs: list[str] = []
    texts: list[list[str]] = []
    cosines = [np.empty((0, len(questions)), dtype=np.int64)]
    for records, stored in batches:
        refs += records["record_ref"].to_list()
        # Words no question has count for a text's length alone, so one stands for all of them.
        texts += [[word if word in vocabulary else "" for word in text] for text in words(records["text"])]
        cosines.append(_best_cosines(questions, records, stored))
    cosine, lexical = np.concatenate(cosines), _lexical(texts, asked)
    slab = max(1, _CELLS // max(len(refs), 1))
    found = [
        _first(cosine[:, low : low + slab], lexical[:, low : low + slab], count).with_columns(pl.col("question") + low)
        for low in range(0, len(questions), slab)
    ]
    first = pl.concat(found)
    rows = first.select(
        question_id=questions["question_id"].gather(first["question"]),
        item_position="position",
        claim_position=pl.lit(0),
        record_ref=pl.Series(refs, dtype=pl.String).gather(first["record"]),
        recall_rank="position",
    )
    columns = {name: column.dtype for name, column in Windows.columns().items()}
    return rows.cast(columns).sort("question_id", "item_position")  # type: ignore[arg-type]


def words(texts: pl.Series) -> list[list[str]]:
    """The words of each text: runs of letters and digits; in Japanese and Chinese, without spaces, each two letters."""
    return [[match[1] or match[0] for match in _WORD.finditer(text)] for text in normalize(texts).to_list()]


def _best_cosines(questions: pl.DataFrame, records: pl.DataFrame, stored: pl.DataFrame) -> Array:
    """The highest cosine key of each record's blocks; _NONE where it has none; int64 [records, questions]."""
    best = np.full((len(records), len(questions)), _NONE)
    asked = questions["query_vector"]
    widths = asked.list.len().fill_null(0).to_numpy()
    blocks = block_sets.current(records, stored)
    for width in np.unique(widths[widths > 0]).tolist():
        group = np.flatnonzero(widths == width)
        queries = np.array(asked.gather(group).to_list(), dtype=np.float32)
        for chunk in blocks.filter(pl.col("width") == width).iter_slices(_CHUNK):
            record = chunk["record"].to_numpy()
            starts = np.flatnonzero(np.diff(record, prepend=-1))
            keys = cosine_keys(vector_matrix(chunk["vector"], width), queries)
            own = np.ix_(record[starts], group)
            best[own] = np.maximum(best[own], np.maximum.reduceat(keys, starts))
    return best


def _lexical(texts: list[list[str]], asked: list[list[str]]) -> Array:
    """The BM25 score of each text for each question, as a key; 0: no word in common; int64 [texts, questions]."""
    keys = np.zeros((len(texts), len(asked)), dtype=np.int64)
    held = {word for text in texts for word in text}
    if not held:
        return keys
    index = bm25s.BM25(dtype="float64")
    index.index(texts, show_progress=False)
    for column, question in enumerate(asked):
        shared = sorted(held.intersection(question))
        if shared:
            keys[:, column] = np.floor(index.get_scores(shared) * KEY_SCALE + 0.5).astype(np.int64)
    return keys


def _first(cosine: Array, lexical: Array, count: int) -> pl.DataFrame:
    """question, record (numbers) and position of each question's first ``count`` records, in order."""
    record, question = np.nonzero((cosine != _NONE) | (lexical > 0))
    pairs = pl.DataFrame({"question": question, "record": record})
    cosine_key = pl.Series(cosine[record, question])
    lexical_key = pl.Series(lexical[record, question])
    return (
        pairs.with_columns(cosine_key=cosine_key, lexical_key=lexical_key)
        # What a list leaves out has its lowest key, and loses the rank that gives it.
        .pipe(
            ranks.within,
            "question",
            cosine_rank=("dense", [-pl.col("cosine_key")]),
            lexical_rank=("dense", [-pl.col("lexical_key")]),
        )
        .with_columns(
            cosine_rank=pl.when(pl.col("cosine_key") != _NONE).then("cosine_rank"),
            lexical_rank=pl.when(pl.col("lexical_key") > 0).then("lexical_rank"),
        )
        .with_columns(score=score({"cosine_rank": 1, "lexical_rank": 1}, RECALL_K))
        .pipe(ranks.within, "question", position=("ordinal", [-pl.col("score"), "record"]))
        .filter(pl.col("position") < count)
        .sort("question", "position")
        .select("question", "record", "position")
    )
