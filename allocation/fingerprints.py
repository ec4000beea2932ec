"""What a question's sequences depend on, as one hash, so that nothing is made twice (DESIGN.md, "Nightly")."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from allocation.chain import Shard


def build(shard: Shard, stamp: str) -> pl.DataFrame:
    """question_id and sha256 of everything the question's sequences and parts are made from; by question_id.

    Args:
        shard: Questions and what they are answered from.
        stamp: What is the same for all questions: settings, names of the sequences, version of the code.
    """
    of_record = dict.fromkeys(shard.records["record_ref"], b"")
    for table in (shard.records, shard.blocks, shard.nodes):
        for ref, digest in _digests(table, "record_ref"):
            of_record[ref] += digest
    names = dict(_digests(shard.entities.sort("agent_id", "name"), "agent_id"))
    windows = _rows_by_question(shard.windows)
    labels = {} if shard.evidence is None else _rows_by_question(shard.evidence)
    record_ref = shard.windows.columns.index("record_ref")
    found = []
    own = ("question_id", "agent_id", "question", "query_vector", "parts")
    for question in shard.questions.select(own).sort("question_id").iter_rows():
        question_id, agent_id = question[:2]
        whole = hashlib.sha256(stamp.encode())
        for told in (question, windows.get(question_id), labels.get(question_id)):
            whole.update(_framed(repr(told).encode()))
        whole.update(_framed(names.get(agent_id, b"")))
        for row in windows.get(question_id, ()):
            whole.update(_framed(of_record[row[record_ref]]))
        found.append((question_id, whole.hexdigest()))
    return pl.DataFrame(found, schema={"question_id": pl.String, "sha256": pl.String}, orient="row")


def _rows_by_question(table: pl.DataFrame) -> dict[str, list[tuple[Any, ...]]]:
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for row in table.iter_rows():
        rows.setdefault(row[0], []).append(row)
    return rows


def _framed(content: bytes) -> bytes:
    """``content`` behind its length, so that two texts beside each other are not one."""
    return len(content).to_bytes(8, "little") + content


def _digests(table: pl.DataFrame, key: str) -> Iterator[tuple[str, bytes]]:
    """Each value of ``key``, whose rows stand together, and a hash of its rows."""
    if table.is_empty():
        return
    columns = [_bytes(table[name]) for name in table.columns]
    runs = table[key].rle_id().to_numpy()
    starts = np.flatnonzero(np.diff(runs, prepend=-1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(table)], strict=True):
        digest = hashlib.sha256()
        for offsets, data in columns:
            digest.update(np.diff(offsets[start : end + 1]).tobytes())
            digest.update(data[offsets[start] : offsets[end]])
        yield table[key][start], digest.digest()


def _bytes(column: pl.Series) -> tuple[npt.NDArray[np.int64], memoryview]:
    """Where each value's bytes start (one offset more than values), and the bytes; a null has none that a value has."""
    if column.dtype == pl.Binary:
        tagged = [b"-" if value is None else b"+" + value for value in column]
    elif column.dtype == pl.String:
        tagged = [b"-" if value is None else b"+" + value.encode() for value in column]
    else:
        tagged = [repr(value).encode() for value in column.to_list()]
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in tagged])])
    return offsets, memoryview(b"".join(tagged))
