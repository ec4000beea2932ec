"""Shared trigrams against sets, cosine keys against ``math.fsum``."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import block_sets, similarity
from allocation.similarity import cosine_keys, shared_trigrams, vector_matrix
from allocation.text import Corpus
from tests import oracles, strategies
from tests.frames import frames_of

LETTERS = "aab bİIıΣσςß.雨はい😀👩\u200d\u0307"
TEXTS = st.one_of(st.text(alphabet=LETTERS, max_size=12), st.text(max_size=6), strategies.texts())


def shared(questions: list[str], texts: list[str]) -> list[list[int]]:
    lowered = [text.lower() for text in texts]
    counts = shared_trigrams([text.lower() for text in questions], pl.Series(lowered, dtype=pl.String))
    return [[int(count) for count in row] for row in counts]


@pytest.mark.parametrize(
    ("question", "text", "expected", "why"),
    [
        ("abcd", "xabcdx", 2, "abc and bcd"),
        ("abcabc", "abc", 1, "distinct ones: abc once"),
        ("abc", "abcabcabc", 1, "distinct in the block too"),
        ("ABC", "abC", 1, "lower case"),
        ("ab", "ab", 1, "under three characters a text is one gram"),
        ("ab", "abc", 0, "which is no part of a longer text's grams"),
        ("abc", "ab", 0, "nor the other way round"),
        ("a", "a", 1, "one character"),
        ("", "", 0, "an empty text has no gram"),
        ("", "abc", 0, "so shares none"),
        ("雨です", "雨です。", 1, "any script"),
        ("😀😀😀", "x😀😀😀", 1, "a character outside the basic plane is one character"),
        ("İ", "i\u0307", 1, "a capital I with a dot is two characters in lower case"),
        ("aİ", "ai\u0307x", 1, "so this question has three"),
        ("ΟΔΟΣ", "οδος", 2, "a final sigma"),
        ("ΟΔΟΣ", "οδοσ", 1, "is another letter than one inside a word"),
    ],
)
def test_shared_trigrams(question: str, text: str, expected: int, why: str) -> None:
    assert shared([question], [text]) == [[expected]], why


@settings(max_examples=300)
@given(questions=st.lists(TEXTS, min_size=1, max_size=4), texts=st.lists(TEXTS, min_size=1, max_size=5))
def test_shared_trigrams_equal_sets(questions: list[str], texts: list[str]) -> None:
    expected = [[len(oracles.trigrams(q) & oracles.trigrams(text)) for q in questions] for text in texts]

    assert shared(questions, texts) == expected


def test_more_blocks_than_are_compared_at_a_time() -> None:
    generator = np.random.default_rng(5)
    texts = ["".join(generator.choice(list("abcd"), size)) for size in generator.integers(0, 9, 9000)]
    questions = ["abcd", "dcbaabc", "ab"]

    expected = [[len(oracles.trigrams(q) & oracles.trigrams(text)) for q in questions] for text in texts]
    assert shared(questions, texts) == expected


def test_a_block_is_lowered_after_it_is_cut() -> None:
    """In the record this sigma stands inside a word, in the block it ends one."""
    record = {"text": "ΟΔΟΣΑ", "blocks": [(0, 4, b"\x01", "m"), (4, 5, b"\x01", "m")], "node_ends": []}
    asked = {"question_id": "q", "question": "οδος", "query_vector": None, "window": []}
    case = {"records": {"mem:1": record}, "questions": [asked]}
    questions, _, records, stored = frames_of(case)
    pairs = pl.DataFrame({"question": [0, 0], "block": [0, 1]})

    actual = similarity.add(pairs, questions, block_sets.build(records, stored), Corpus(records["text"]))

    assert actual["shared"].to_list() == [2, 0]


def key(vector: Any, query: Any) -> int:
    """The slow twin's key; the query is float32 as it is stored."""
    return oracles.cosine_key(np.asarray(vector, dtype=np.int8).tobytes(), np.asarray(query, np.float32).tolist())


def keys(vectors: Any, queries: Any) -> list[list[int]]:
    return cosine_keys(np.asarray(vectors, dtype=np.int8), np.asarray(queries, dtype=np.float32)).tolist()


@pytest.mark.parametrize(
    ("vector", "query", "expected"),
    [
        ([3, 4], [3, 4], 1_000_000_000),
        ([3, 4], [-6, -8], -1_000_000_000),
        ([1, 0], [0, 1], 0),
        ([3, 4], [1, 0], 600_000_000),  # 3 / 5
        ([1, 1], [1, 0], 707_106_781),  # 0.70710678118…
        ([0, 0], [1, 2], 0),
        ([1, 2], [0, 0], 0),
        ([0, 0], [0, 0], 0),
        ([-128, -128], [1, 1], -1_000_000_000),
        ([-128, 127], [1, 1], -3_921_538),  # -1 / sqrt(2 (128² + 127²)) = -1 / 255.00196
        ([1, 1], [1, 1e-9], 707_106_782),  # 0.70710678118 + 0.00000000070 = 0.70710678189
        ([1, 0], [1e-30, 1], 0),
        ([1, 0], [1e-30, 0], 1_000_000_000),
        (
            [127, 1],
            [1e-45, -1e-45],
            701_517_265,
        ),  # 126 / sqrt(2 (127² + 1)) = 126 / 179.61069; the smallest float32
    ],
)
def test_cosine_keys_by_hand(vector: list[int], query: list[float], expected: int) -> None:
    assert keys([vector], [query]) == [[expected]]


def test_halves_go_to_the_even_key() -> None:
    """The queries' norms are 1024, so 10^9 times the cosines is 976562.5 and 2929687.5."""
    for query, expected in (([1, 1023, 45, 4, 2, 1], 976_562), ([3, 1023, 45, 3, 2, 0], 2_929_688)):
        assert sum(value * value for value in query) == 1024**2
        assert keys([[1, 0, 0, 0, 0, 0]], [query]) == [[expected]]


@pytest.mark.parametrize("width", [1, 2, 3, 8, 384, 1024])
@pytest.mark.parametrize("scale", ["plain", "small", "tiny and one", "near zero", "many scales", "large"])
def test_cosine_keys_equal_the_slow_twin(width: int, scale: str) -> None:
    generator = np.random.default_rng(width)
    vectors = generator.integers(-128, 128, (40, width), dtype=np.int8)
    vectors[0], vectors[1], vectors[2] = 0, -128, 127
    queries = generator.normal(size=(8, width))
    queries *= {
        "plain": np.ones((8, width)),
        "small": np.full((8, width), 1e-9),
        "tiny and one": generator.choice([1, 1e-9, 1e-30], (8, width)),
        "near zero": np.full((8, width), 1e-36),
        "many scales": 10.0 ** generator.integers(-37, 1, (8, width)),
        "large": np.full((8, width), 1e18),
    }[scale]
    queries = queries.astype(np.float32)
    queries[0] = 0

    assert keys(vectors, queries) == [[key(vector, query) for query in queries] for vector in vectors]


def test_neither_order_nor_copies_nor_company_change_a_key() -> None:
    generator = np.random.default_rng(1)
    vectors = generator.integers(-128, 128, (5000, 384), dtype=np.int8)
    queries = generator.normal(size=(7, 384)).astype(np.float32)
    queries[3] *= np.float32(1e-9)
    expected = np.array(keys(vectors, queries))
    rows = generator.integers(0, len(vectors), 9000)  # in another order, some twice, some not at all

    assert (np.array(keys(vectors[rows], queries)) == expected[rows]).all()
    assert (np.array(keys(vectors, queries[::-1])) == expected[:, ::-1]).all()
    for column in range(len(queries)):
        assert (np.array(keys(vectors[:50], queries[column : column + 1]))[:, 0] == expected[:50, column]).all()
    columns = generator.permutation(384)
    assert (np.array(keys(vectors[:, columns], queries[:, columns])) == expected).all()


def test_a_dot_product_is_rounded_once() -> None:
    """The second term is half a last bit of the sum, and the third, far below it, decides where that goes."""
    hexadecimal = ("0x1.f088540000000p-1", "0x1p-47", "0x1p-115", "0x1.26f6680000000p-1")
    vector, query = [95, 1, 1, 14], [float.fromhex(number) for number in hexadecimal]

    assert key(vector, query) == 924_917_526
    assert keys([vector], [query]) == [[924_917_526]]
    assert keys([vector], [query, [1e9, 1, 1, 1]])[0][0] == 924_917_526  # whatever its company


def test_vector_matrix_zeros_what_is_missing_or_of_another_width() -> None:
    vectors = pl.Series([b"\x01\xff", None, b"", b"\x01\x02\x03", b"\x80\x7f"], dtype=pl.Binary)

    assert vector_matrix(vectors, 2).tolist() == [[1, -1], [0, 0], [0, 0], [0, 0], [-128, 127]]
    assert vector_matrix(vectors[4:], 2).tolist() == [[-128, 127]]
    assert vector_matrix(vectors[:0], 2).shape == (0, 2)


@settings(max_examples=100)
@given(case=strategies.cases())
def test_pairs_equal_the_slow_twin(case: dict[str, Any]) -> None:
    """Every question with every block, whatever their agents and widths."""
    questions, _, records, stored = frames_of(case, agents=("a", "b"))
    blocks = block_sets.build(records, stored)
    pairs = questions.select("question_id").with_row_index("question").join(
        blocks.select("record_ref", "block_index", "start", "end").with_row_index("block"), how="cross"
    )  # fmt: skip
    pairs = pairs.with_columns(pl.col("question", "block").cast(pl.Int64)).sample(fraction=1, shuffle=True, seed=1)

    actual = similarity.add(pairs, questions, blocks, Corpus(records["text"])) if len(pairs) else pairs

    asked = {question["question_id"]: question for question in case["questions"]}
    for row in actual.iter_rows(named=True):
        question, record = asked[row["question_id"]], case["records"][row["record_ref"]]
        block = record["text"][row["start"] : row["end"]]
        assert row["shared"] == len(oracles.trigrams(question["question"]) & oracles.trigrams(block))
        vectors = oracles.block_vectors(record, question["query_vector"])
        query = question["query_vector"]
        assert row["cosine_key"] == (vectors and oracles.cosine_key(vectors[row["block_index"]], query))
