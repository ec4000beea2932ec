"""Division at read time: every rule by example, then against the slow twin."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.divide import BLOCK_LIMIT, divide
from tests import oracles, strategies

LIMIT = 739
HALF = 369  # LIMIT // 2


def pieces(text: str) -> list[str]:
    return [text[start:end] for start, end in divide(text)]


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "an empty text has no blocks"),
        (["no end at all"], "no cut"),
        ([" \n\t"], "white space alone stays one block"),
        (["One.", " Two!", " Three?", " Four"], "half-width ends before white space"),
        (["Done."], "an end at the end of the text cuts nothing off"),
        (["一。", "二！", "三？", "四．", "五"], "full-width ends anywhere"),
        (["価格は3．", "5万円"], "a full-width stop cuts inside a number"),
        (["It costs 3.14 now.", " See v1.2.3-rc.1"], "a decimal point or version stands before no white space"),
        (["e.g.", " this"], "an abbreviation before a space is cut"),
        (["Wait?!", " Really"], "only the last of several marks stands before white space"),
        (["We waited…then left"], "an ellipsis sign is no cut"),
        (["Well...", " then"], "three full stops cut once"),
        (["one\n", "two\n", "three"], "after a line break"),
        (["one\n", "\ntwo"], "a blank line is a blank piece and joins the next one"),
        (["One.", "\nTwo."], "the break after a sentence end joins the next piece"),
        (["One.", " \n \n\u3000\nTwo."], "several blank pieces join on"),
        (["One.\n \n"], "the last blank pieces join the one before"),
        (["One.\x1c"], "an information separator is white space: the end before it cuts, and it joins back"),
        (["One.", "\u3000Two.", "\x85Three.", "\u2028Four"], "all of Python's white space"),
        (["One.\u200bTwo"], "a zero width space is no white space"),
        (["a\r\n", "b\rc"], "a carriage return alone is no line break"),
    ],
)
def test_cuts_and_blank_pieces(parts: list[str], why: str) -> None:
    assert pieces("".join(parts)) == parts, why


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (
            ["Before\n", "```\na. b\n\nc\n```\n", "After."],
            "a closed fence is one piece up to the end of its closing line",
        ),
        (["```py\na. b\n\nc. d"], "an open fence runs to the end"),
        (["```\na\n``` tail. more\n", "After.", " x"], "the closing fence's whole line belongs to it"),
        (["x\n", "  \t```\na. b\n\t```\n", "y"], "fences may stand after spaces and tabs"),
        (["x ```\n", "a.", " b\n", "```"], "back-ticks inside a line open nothing; those after it do"),
        (["```\na. b\n```\n", "c\n", "```\nd. e\n```"], "fences open and close in turn"),
        (["\u3000```\n", "a.", " b"], "a wide space is no indentation"),
        (["``\n", "a.", " b"], "two back-ticks are no fence"),
    ],
)
def test_fences(parts: list[str], why: str) -> None:
    assert pieces("".join(parts)) == parts, why


@pytest.mark.parametrize("opening", oracles.PAIRS.values())
def test_a_matched_pair_protects_what_is_inside(opening: str) -> None:
    closing = {mark: end for end, mark in oracles.PAIRS.items()}[opening]

    assert pieces(f"{opening}a。b\nc{closing}d。e") == [f"{opening}a。b\nc{closing}d。", "e"]


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (["(a.", " b"], "an opening that never closes protects nothing"),
        (["a) b.", " c"], "a stray closing mark protects nothing"),
        (["「一。二。」三"], "the end just before the closing mark is inside"),
        (["(一。)。", "二"], "a cut behind the closing mark stands"),
        (["「一。（二。」三。", "）四"], "a closing mark gives up what was opened in between"),
        (["（一。「二。）三。", "」四"], "a closing mark looks past openings of other kinds"),
        (["((一。)二。)三"], "pairs nest"),
        (["(一。(二。)三。)四。", "五"], "the outer pair protects past the inner one"),
        (["(一。", "(二。)三"], "of two openings and one closing mark, the nearer one is a pair"),
        (["[一。)二]"], "a mark of another kind closes nothing"),
        (["「外。『内。』外。」後"], "the closing mark of a pair ends no sentence"),
        (["(一\n```\n二)三\n```\n", "四"], "a pair may begin outside a fence and end inside it"),
    ],
)
def test_brackets(parts: list[str], why: str) -> None:
    assert pieces("".join(parts)) == parts, why


@pytest.mark.parametrize(
    ("lengths", "text", "why"),
    [
        ([LIMIT], "a" * LIMIT, "the limit itself is not passed"),
        ([LIMIT, 1], "a" * (LIMIT + 1), "nothing to cut at: at the limit"),
        ([LIMIT, LIMIT, 22], "a" * 1500, "and so on with what is left"),
        ([401, 400], "a" * 400 + "," + "b" * 400, "after the last clause mark"),
        ([501, 300], "a" * 400 + "," + "b" * 99 + "；" + "c" * 300, "the last of several"),
        ([401, 400], "a" * 400 + "," + "b" * 99 + " " + "c" * 300, "a mark goes before later white space"),
        ([HALF, 432], "a" * (HALF - 1) + "、" + "b" * 432, "a mark that leaves just half the allowance"),
        ([LIMIT, 61], "a" * (HALF - 2) + "、" + "b" * 432, "a mark that leaves less is passed over"),
        ([501, 300], "a" * 300 + "," + "b" * 199 + " " + "c" * 300, "then the last white space"),
        ([HALF, 432], "a" * (HALF - 1) + "\u3000" + "b" * 432, "white space that leaves just half"),
        ([LIMIT, 61], "a" * (HALF - 2) + " " + "b" * 432, "white space that leaves less"),
        ([LIMIT, 61], "a" * (LIMIT - 1) + "," + "b" * 61, "a mark as the last character of the allowance"),
        ([LIMIT, 61], "a" * LIMIT + "," + "b" * 60, "a mark just behind the allowance is not seen"),
        ([LIMIT, 261], "(" + "a." * 499 + ")", "protection does not count in a long piece"),
        ([LIMIT, 61], "😀" * 800, "characters are code points"),
    ],
)
def test_forced_splits(lengths: list[int], text: str, why: str) -> None:
    assert [end - start for start, end in divide(text)] == lengths, why


@pytest.mark.parametrize("mark", "、，,;；:：")
def test_every_clause_mark_may_end_a_forced_piece(mark: str) -> None:
    assert divide("a" * 400 + mark + "b" * 400) == [(0, 401), (401, 801)]


@pytest.mark.parametrize(
    ("lengths", "text", "why"),
    [
        ([LIMIT], "\n" * 9 + "a" * 730, "blank and next are just as long as a block may be"),
        ([9, 731], "\n" * 9 + "a" * 731, "one more: the blank piece stays"),
        ([LIMIT], "a" * 730 + "." + "\n" * 8, "the last blank piece joins back up to the limit"),
        ([731, 9], "a" * 730 + "." + "\n" * 9, "one more: it stays"),
        ([LIMIT, 61], " " * 800, "blank pieces of a long blank text"),
    ],
)
def test_blank_pieces_join_up_to_the_limit(lengths: list[int], text: str, why: str) -> None:
    assert [end - start for start, end in divide(text)] == lengths, why


@settings(max_examples=300)
@given(text=strategies.texts())
def test_blocks_partition_the_text(text: str) -> None:
    blocks = divide(text)

    assert "".join(text[start:end] for start, end in blocks) == text
    assert all(start < end for start, end in blocks)
    assert [start for start, _ in blocks] == [0, *(end for _, end in blocks)][: len(blocks)]
    assert all(end - start <= BLOCK_LIMIT for start, end in blocks)


@settings(max_examples=500)
@given(text=strategies.texts())
def test_equals_the_slow_twin(text: str) -> None:
    assert divide(text) == oracles.divide(text)


@settings(max_examples=300)
@given(text=st.text(alphabet="ab.。!,、 \n\t`()「」[]\u3000\x1c", max_size=60))
def test_dense_marks_equal_the_slow_twin(text: str) -> None:
    assert divide(text) == oracles.divide(text)


@pytest.mark.parametrize("part", ["(", ")", "(\n", "\n)", "```\n", "a.b ", "「。"])
def test_many_marks_take_linear_time(part: str) -> None:
    # Quadratic time would not end.
    text = part * 200_000

    assert "".join(pieces(text)) == text
