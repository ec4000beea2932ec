"""Recall against a plain twin: letter by letter, block by block, one question at a time."""

import functools
import math
import unicodedata
from typing import Any

import polars as pl
import pytest
from hypothesis import given

from allocation import recall
from allocation.tables import Windows
from tests import oracles, sample
from tests.frames import frames_of
from tests.strategies import cases

CJK = (("\u3005", "\u3005"), ("\u3040", "\u30ff"), ("\u3400", "\u4dbf"), ("\u4e00", "\u9fff"))


def kind_of(letter: str) -> str:
    if any(low <= letter <= high for low, high in CJK):
        return "pairs"
    return "word" if letter.isalnum() else "none"


@functools.cache
def words(text: str) -> list[str]:
    """Each run of letters, and each two neighbours of a run without spaces."""
    runs: list[tuple[str, str]] = []
    for letter in unicodedata.normalize("NFKC", text).lower():
        kind = kind_of(letter)
        if runs and runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1] + letter)
        else:
            runs.append((kind, letter))
    found = []
    for kind, run in runs:
        if kind == "word" or (kind == "pairs" and len(run) == 1):
            found.append(run)
        elif kind == "pairs":
            found += [run[i : i + 2] for i in range(len(run) - 1)]
    return found


def bm25(texts: list[list[str]], question: list[str], at: int) -> int:
    """Lucene's BM25 of one text, as a key: k1 1.5, b 0.75, each word of the question once."""
    mean = sum(map(len, texts)) / len(texts)
    terms = []
    for word in set(question):
        holding, count = sum(word in text for text in texts), texts[at].count(word)
        if count:
            rarity = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            terms.append(rarity * count / (count + 1.5 * (0.25 + 0.75 * len(texts[at]) / mean)))
    return math.floor(math.fsum(terms) * 1e6 + 0.5)


def recalled(case: dict[str, Any], question: dict[str, Any], count: int) -> list[str]:
    """The references one question recalls, best first."""
    refs = sorted(case["records"])
    texts = [words(case["records"][ref]["text"]) for ref in refs]
    asked = words(question["question"])
    lists: list[dict[str, int]] = [{}, {}]
    for at, ref in enumerate(refs):
        vectors = oracles.block_vectors(case["records"][ref], question["query_vector"])
        if vectors:
            lists[0][ref] = max(oracles.cosine_key(vector, question["query_vector"]) for vector in vectors)
        if key := bm25(texts, asked, at):
            lists[1][ref] = key
    scores: dict[str, list[float]] = {}
    for keys in lists:
        for ref, rank in zip(keys, oracles.dense_ranks(list(keys.values()), highest_first=True), strict=True):
            scores.setdefault(ref, []).append(1 / (61 + rank))
    return sorted(scores, key=lambda ref: (-math.fsum(scores[ref]), ref))[:count]


def built(case: dict[str, Any], count: int, batch: int) -> dict[str, list[str]]:
    questions, _, records, blocks = frames_of(case)
    by_ref = records.sort("record_ref")
    batches = (
        (own, blocks.join(own, on="record_ref", how="semi").sort("record_ref", "block_index"))
        for own in by_ref.iter_slices(batch)
    )
    windows = Windows.validate(recall.build(questions.sort("question_id"), batches, count))
    assert windows["item_position"].equals(windows["recall_rank"], check_names=False)
    return dict(windows.group_by("question_id").agg(pl.col("record_ref").sort_by("item_position")).iter_rows())


@given(cases())
def test_recall_equals_its_twin_whatever_the_batches(case):
    for count, batch in ((3, 2), (100, 1000)):
        found = built(case, count, batch)
        for question in case["questions"]:
            assert found.get(question["question_id"], []) == recalled(case, question, count)


def test_recall_equals_its_twin_on_the_sample():
    case = sample.case_of(sample.shard())
    for question in case["questions"]:
        question["agent_id"] = "a"
    found = built(case, 10, 7)
    for question in case["questions"][::6]:
        assert found.get(question["question_id"], []) == recalled(case, question, 10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Ｋey, bug-218 and snake_case!", ["the", "key", "bug", "218", "and", "snake", "case"]),
        ("庭の手入れ", ["庭の", "の手", "手入", "入れ"]),
        ("A柿b 柿", ["a", "柿", "b", "柿"]),
        (" … ", []),
        ("", []),
    ],
)
def test_words(text, expected):
    assert recall.words(pl.Series([text])) == [expected] == [words(text)]


def test_pairs_ranked_in_slabs_are_the_same(monkeypatch):
    case = sample.case_of(sample.shard())
    whole = built(case, 10, 1000)
    monkeypatch.setattr(recall, "_CELLS", 200)
    monkeypatch.setattr(recall, "_CHUNK", 3)
    assert built(case, 10, 1000) == whole


def test_one_list_leaves_the_other_in_charge():
    # The nearest record has no word of the question, the other one no vector; each is first in one list.
    near = {"text": "Nothing.", "blocks": [(0, 8, b"\x01\x00", "m")], "node_ends": []}
    told = {"text": "A red key.", "blocks": [], "node_ends": []}
    away = {"text": "Other.", "blocks": [], "node_ends": []}
    question = {"question_id": "q", "question": "Which key?", "query_vector": [1.0, 0.0], "window": []}
    case = {"records": {"mem:1": told, "mem:2": near, "mem:3": away}, "questions": [question]}
    assert built(case, 10, 10) == {"q": ["mem:1", "mem:2"]}
