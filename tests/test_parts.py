"""The parts of a question, and which texts hold them."""

import sys
import unicodedata
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import parts
from allocation.settings import Settings
from allocation.tables import Entities, Parts, Questions, Records, Windows
from allocation.text import Corpus, normalize, normalize_one
from tests import frames, sequence_oracles

EVERY_CHAR = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point <= 0xDFFF]


def as_python(text: str) -> str:
    return unicodedata.normalize("NFKC", text).lower()


def words(question: str) -> list[str]:
    found = parts.of_question(question, [], None)
    assert [kind for _, kind in found] == ["word"] * len(found)
    return [text for text, _ in found]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Why does 2.6.5a1 fail?", ["why", "does", "2.6.5a1", "fail"]),
        ("bug-218, BUG-218 and #354.", ["bug-218", "and", "#354"]),
        ("#354abc a#1 #x C# C++", ["#354", "abc", "a#1"]),
        ("src/store_v2.py/ ends.", ["src/store_v2.py", "ends"]),
        ("Is a I 7 x, - . # a- -b", ["is"]),
        ("v1..2--3 a/b", ["v1..2--3", "a/b"]),
        ("カメラとレンズはどこ？", ["カメラ", "レンズ"]),
        ("ｶﾒﾗとﾊﾞｽ", ["カメラ", "バス"]),
        ("契約はいつ終わる", ["契約"]),
        ("佐々木さんと時々", ["佐々木", "時々"]),
        ("サーバー契約更新", ["サーバー", "契約更新"]),
        ("雨 カ は", []),
        ("ｖｅｒｓｉｏｎ２．６と＃３５４", ["version2.6", "#354"]),
        ("２．７．０への更新", ["2.7.0", "更新"]),
        ("½ ① ㍿ ﬁne", ["fine", "株式会社"]),
        ("naïve Müller", ["na", "ve", "ller"]),
        ("", []),
        ("はい、そうです。", []),
    ],
)
def test_words(question: str, expected: list[str]) -> None:
    assert sorted(words(question)) == sorted(expected)


def test_words_stand_in_order_of_first_appearance_and_once() -> None:
    assert words("the key, THE door and the key") == ["the", "key", "door", "and"]


@settings(max_examples=300)
@given(question=st.text(alphabet="ab19._/#- ＃ａ１カタｶﾞー々契約雨のΣİß", max_size=24))
def test_words_equal_a_walk_through_the_text(question: str) -> None:
    expected = [word for _, word in sequence_oracles.words(as_python(question))]
    assert words(question) == list(dict.fromkeys(expected))


def test_entities_and_aliases_are_found_where_they_begin() -> None:
    names = sorted(map(as_python, ["Old Bertha", "バーサ窯", "Kestrel", "bertha", "温室七号"]))

    found = parts.of_question("Did old  Ｂertha or OLD BERTHA fire after ケストレル?", names, None)

    assert found == [
        ("did", "word"),
        ("old", "word"),
        ("bertha", "entity"),  # also a word, at the same place
        ("or", "word"),
        ("old bertha", "entity"),
        ("fire", "word"),
        ("after", "word"),
        ("ケストレル", "word"),
    ]


def test_an_entity_needs_no_word_boundary() -> None:
    assert parts.of_question("Restart", ["art"], None) == [("restart", "word"), ("art", "entity")]


def test_entities_that_begin_together_stand_by_name_and_before_words() -> None:
    assert parts.of_question("bay 7", ["bay 7", "bay"], None) == [("bay", "entity"), ("bay 7", "entity")]


def test_recorded_parts_are_all_there_are() -> None:
    found = parts.of_question("Which key?", ["key"], ["ＫＥＹ", "door ", "", "key", "x"])

    assert found == [("key", "recorded"), ("door ", "recorded"), ("x", "recorded")]
    assert parts.of_question("Which key?", ["key"], []) == []


def test_a_missing_recorded_part_is_none() -> None:
    assert parts.of_question("Which key?", [], ["key", None]) == [("key", "recorded")]  # type: ignore[list-item]


def build(question: str, texts: list[str], names: tuple[str, ...] = (), rare_share: float = 0.5) -> list[tuple]:
    """Text, kind and records holding of each part, over records with these texts."""
    found, _ = built(question, texts, names, rare_share)
    return found.select("text", "kind", "records_holding").rows()


def built(
    question: str, texts: list[str], names: tuple[str, ...] = (), rare_share: float = 0.5
) -> tuple[pl.DataFrame, pl.DataFrame]:
    asked = frames.table(Questions, [{"question_id": "q", "agent_id": "a", "question": question}])
    refs = [f"mem:{number}" for number in range(len(texts))]
    records = frames.table(
        Records, [{"record_ref": ref, "agent_id": "a", "text": text} for ref, text in zip(refs, texts, strict=True)]
    )
    named = frames.table(Windows, [{"question_id": "q", "record_ref": ref} for ref in refs])
    window = named.with_columns(question=pl.lit(0, pl.Int64), record=pl.int_range(pl.len(), dtype=pl.Int64))
    passages = window.select(
        "question",
        "record",
        passage_start=pl.lit(0, pl.Int64),
        passage_end=pl.Series(list(map(len, texts)), dtype=pl.Int64),
    )
    entities = frames.table(Entities, [{"agent_id": "a", "name": name} for name in names])
    found, held = parts.build(
        asked, window, records, Corpus(records["text"]), passages, entities, Settings(rare_share=rare_share)
    )
    return Parts.validate(found), held


def test_a_word_that_exactly_the_rare_share_holds_is_a_part() -> None:
    texts = ["the key", "the Key", "the door", "THE gate"]

    assert build("the key door shed", texts) == [("key", "word", 2), ("door", "word", 1), ("shed", "word", 0)]
    assert build("the key", texts, rare_share=1) == [("the", "word", 4), ("key", "word", 2)]
    assert build("the key shed", texts, rare_share=0) == [("shed", "word", 0)]
    assert build("the key door", texts, rare_share=0.25) == [("door", "word", 1)]
    assert build("the key door", texts, rare_share=0.2499) == []


@pytest.mark.parametrize("records", [10, 29, 50, 100])
def test_the_rare_share_is_met_exactly_for_every_hundredth(records: int) -> None:
    for hundredths, held in product(range(101), range(records + 1)):
        holds = np.arange(records)[:, None] < held
        kept, _ = parts.choose([("key", "word")], holds, hundredths / 100)
        assert bool(kept) == (held * 100 <= hundredths * records)


def test_entities_and_recorded_parts_count_however_common() -> None:
    texts = ["old bertha", "Old Bertha", "kiln"]

    assert build("old bertha kiln", texts, ("Old Bertha",), rare_share=0) == [("old bertha", "entity", 2)]
    kept, counts = parts.choose([("a", "recorded"), ("b", "word")], np.ones((3, 2), dtype=bool), 0)
    assert (kept, counts) == ([0], [3])


def test_at_most_32_parts_the_first_of_those_that_count() -> None:
    names = [f"w{number:02}" for number in range(40)]
    found, held = built(" ".join(names), ["w00 w01 w33 w34", "w00 w39", "x", "w02 w33"])

    assert found["text"].to_list() == names[:32]
    assert found["part"].to_list() == list(range(32))
    assert held["mask"].to_list() == [0b11, 0b1, 0, 0b100]
    common, held = built(" ".join(names), ["w00 w01 w32 w34", "w00 w01 w33"], rare_share=0.5)
    assert common["text"].to_list() == names[2:34]
    assert held["mask"].to_list() == [1 << 30, 1 << 31]


def test_a_passage_holds_what_its_own_range_contains() -> None:
    found, held = built("Kestrel bay 7 keys", ["ｋｅｓｔｒｅｌ", "Bay 7's KEYS", "nothing"], ("bay 7",))

    assert found["text"].to_list() == ["kestrel", "bay 7", "bay", "keys"]
    assert parts.as_lists(held["mask"]).to_list() == [[0], [1, 2, 3], []]


def test_no_questions_and_no_records() -> None:
    assert build("", []) == []
    assert build("key", []) == [("key", "word", 0)]
    assert build("", ["key"]) == []


@settings(max_examples=300)
@given(held=st.lists(st.lists(st.booleans(), min_size=32, max_size=32), max_size=5), width=st.integers(0, 32))
def test_masks_and_lists(held: list[list[bool]], width: int) -> None:
    table = np.array(held, dtype=bool).reshape(len(held), 32)[:, :width]

    masks = parts.as_masks(table)

    assert masks.dtype == np.int64
    assert masks.tolist() == [sum(1 << i for i in range(width) if row[i]) for row in held]
    lists = parts.as_lists(pl.Series(masks))
    assert lists.to_list() == [[i for i in range(width) if row[i]] for row in held]


def test_lists_of_missing_masks() -> None:
    lists = parts.as_lists(pl.Series([None, 5, 0, None, 1 << 31], dtype=pl.Int64))

    assert lists.to_list() == [None, [0, 2], [], None, [31]]
    assert lists.dtype == pl.List(pl.Int32)
    assert parts.as_lists(pl.Series([None], dtype=pl.Int64)).to_list() == [None]
    assert parts.as_lists(pl.Series([], dtype=pl.Int64)).dtype == pl.List(pl.Int32)


def test_normalize_equals_python_for_every_code_point() -> None:
    assert normalize(pl.Series(EVERY_CHAR)).to_list() == list(map(as_python, EVERY_CHAR))


@pytest.mark.parametrize("around", ["Α{}Σ", "ΑΣ{}", "e{}\u0301", "\u1100{}\u11a8", "ｶ{}ﾞ"])
def test_normalize_equals_python_beside_what_it_changes(around: str) -> None:
    """Beside every code point that changes, combines or is a letter of these scripts."""
    changed = [char for char in EVERY_CHAR if as_python(char) != char or unicodedata.combining(char)]
    texts = [around.format(char) for char in changed + EVERY_CHAR[:0x3100]]
    assert normalize(pl.Series(texts)).to_list() == list(map(as_python, texts))


@settings(max_examples=500)
@given(
    texts=st.lists(
        st.one_of(
            st.text(max_size=8),
            st.text(alphabet="aeΑΣσςİIıßﬁ.'\u0301\u0307\u0323\u0345\u3099\u1100\u1161\u11a8가ｶﾞ＃１😀", max_size=8),
        )
    )
)
def test_normalize_equals_python(texts: list[str]) -> None:
    assert normalize(pl.Series(texts, dtype=pl.String)).to_list() == list(map(as_python, texts))


@pytest.mark.parametrize(
    "texts",
    [
        ["ΑΣ", "Α"],
        ["Α", "Σ"],
        ["e", "\u0301"],
        ["é", "\u0323", "é"],
        ["\u1100", "\u1161", "\u11a8"],
        ["가", "\u11a8"],
        ["ｶ", "ﾞ"],
        ["か", "\u3099"],
        ["İ", "", "A"],
    ],
)
def test_texts_beside_each_other_do_not_mix(texts: list[str]) -> None:
    assert normalize(pl.Series(texts)).to_list() == list(map(as_python, texts))
    assert [normalize_one(text) for text in texts] == list(map(as_python, texts))
