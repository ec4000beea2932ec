"""Builds a memory store with the real server package and records what its ``reconstruct`` answers from it.

Run ``python -m tests.server.record OUT_DIR`` from the project root, in an interpreter that has the package
``cpersona``, ``numpy`` and ``pyarrow``. The texts are generated here, the embedding service is the one of
``tests.server.embedding``, and nothing outside 127.0.0.1 is asked. Equal code gives equal rows.

Files written to ``OUT_DIR`` (offsets are code points of the stored text, ranges half open, ranks 0-based;
``budget`` null means that none was named; besides the budgets of ``BUDGETS``, every sequence is asked with
one that takes all of it and with one character less than it costs):

* ``store.db``: the store as the server leaves it when it stops.
* ``questions.parquet``: the questions and the vectors their recalls used. One question has none.
* ``windows.parquet``: every claim of every item of the full response, heads first, then in quoting order.
* ``expected_sequence.parquet``: the whole order of the sequences ``evidence`` and ``whole``.
* ``expected_items.parquet``: the items each call returned. ``quote_chars`` counts the separators.
* ``expected_excerpts.parquet``: the other claims' quotes. An episode that is quoted without a block or a node
  shows ten characters of label before its text: its ``quote_chars`` is ten more than its range.
* ``expected_parts.parquet``: the parts of each question and the records of the full response that hold them.
* ``records.parquet``: what each record was made for, by ``record_ref``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import traceback
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.server.embedding import REFUSED, EmbeddingService

FULL_BUDGET = 1_000_000
BUDGETS: dict[str, tuple[int | None, ...]] = {
    "items": (None, 1000, 2000),
    "evidence": (1000, 2800),
    "whole": (1000, 2800),
}
#: Stands for one character less than the whole sequence costs, which leaves out its last step alone.
ALL_BUT_LAST = -1
BASE = datetime(2024, 4, 1, 9, 0, tzinfo=UTC)
DAY = 86_400
ALDER, KAEDE = "alder", "kaede"
LABEL = "[Episode] "

# ---------------------------------------------------------------------------------------------------------
# Texts
# ---------------------------------------------------------------------------------------------------------

ENGLISH_NOUNS: dict[str, tuple[str, ...]] = {
    "ferry": (
        "ferry timetable",
        "harbour gate",
        "ticket machine",
        "tide table",
        "night crossing",
        "deck crew",
    ),
    "oven": (
        "bread oven",
        "sourdough starter",
        "flour delivery",
        "proofing basket",
        "crust test",
        "rye loaf",
    ),
    "index": ("migration script", "search index", "backup job", "replica lag", "release 2.6.5a1", "bug-218"),
    "orchard": ("apple orchard", "pruning plan", "cider press", "frost alarm", "bee hive", "ladder repair"),
}
JAPANESE_NOUNS: dict[str, tuple[str, ...]] = {
    "garden": ("庭の手入れ", "柿の木", "水やり当番", "剪定ばさみ", "落ち葉の袋", "苗の注文"),
    "server": (
        "データベース移行",
        "バックアップ手順",
        "検索インデックス",
        "夜間ジョブ",
        "監視アラート",
        "鍵の更新",
    ),
    "festival": ("夏祭りの屋台", "太鼓の練習", "提灯の配線", "会場の地図", "雨天の予備日", "寄付の帳簿"),
}
WHO = ("Mira", "the older team", "a neighbour", "our contractor", "Tobias", "the night shift")
DID = ("checked", "moved", "repaired", "measured", "photographed", "wrote down", "asked about", "replaced")
WHEN = (
    "before the rain started",
    "on the second Tuesday of May",
    "with 14 spare parts left over",
    "after version 3.14 arrived",
    "while the office was closed",
    "because nobody else had the key",
)
DARE = ("真理さん", "隣の班", "新しい担当者", "健太さん", "夜勤の人", "組合の役員")
ITSU = (
    "雨が降る前に",
    "五月の第二火曜日に",
    "部品が14個余ったので",
    "三時の休憩のあとで",
    "鍵がなかったため",
    "朝のうちに",
)
SHITA = ("確認した", "移した", "修理した", "測り直した", "写真に撮った", "書き留めた", "交換した")
ENGLISH_QUALIFIERS = (
    "However, ",
    "but ",
    "Although late, ",
    "Unless told otherwise, ",
    "Instead ",
    "That said, ",
    "Note that ",
    "In fact ",
    "Actually ",
    "On the other hand ",
    "Provided that it held, ",
    "Caveat: ",
    "Except for one day, ",
    "Though tired, ",
)
JAPANESE_QUALIFIERS = (
    "ただし、",
    "しかし、",
    "なお、",
    "一方、",
    "とはいえ、",
    "でも、",
    "但し、",
    "その代わり、",
    "だが、",
    "代わりに、",
    "他方、",
    "しかしながら、",
    "ただ、",
    "ですが、",
)


def pick(options: Sequence[str], *key: object) -> str:
    """One of the options, always the same one for the same key."""
    return options[zlib.crc32(repr(key).encode()) % len(options)]


def english(topic: str, number: int) -> str:
    """One English sentence about a topic, with its full stop and no space around it."""
    noun = pick(ENGLISH_NOUNS[topic], topic, number, "noun")
    did, when = pick(DID, topic, number, "did"), pick(WHEN, topic, number, "when")
    return f"{pick(WHO, topic, number, 'who')} {did} the {noun} {when}."


def japanese(topic: str, number: int) -> str:
    """One Japanese sentence about a topic, with its full stop."""
    noun = pick(JAPANESE_NOUNS[topic], topic, number, "noun")
    itsu, shita = pick(ITSU, topic, number, "itsu"), pick(SHITA, topic, number, "shita")
    return f"{pick(DARE, topic, number, 'dare')}は{itsu}、{noun}を{shita}。"


def prose(topic: str, first: int, count: int, between: str = " ") -> str:
    """Sentences of a topic by number, English or Japanese as the topic is."""
    write, joined = (english, between) if topic in ENGLISH_NOUNS else (japanese, between.strip(" "))
    return joined.join(write(topic, number) for number in range(first, first + count))


def chain(topic: str, first: int, count: int) -> str:
    """Sentences each of which begins with a qualifier, so that each is read with the one before."""
    if topic in ENGLISH_NOUNS:
        parts = [ENGLISH_QUALIFIERS[n % len(ENGLISH_QUALIFIERS)] + english(topic, first + n) for n in range(count)]
        return " ".join(parts)
    return "".join(JAPANESE_QUALIFIERS[n % len(JAPANESE_QUALIFIERS)] + japanese(topic, first + n) for n in range(count))


def bullets(topic: str, first: int, count: int) -> str:
    """Lines that end no sentence, so that every line is read with the next one."""
    nouns = (ENGLISH_NOUNS | JAPANESE_NOUNS)[topic]
    lines = [
        f"- {pick(nouns, 'bullet', first + n)} / {pick(nouns, 'second', first + n)} ({first + n})" for n in range(count)
    ]
    return "\n".join(lines)


def clauses(topic: str, first: int, count: int, comma: str) -> str:
    """One long sentence of many clauses: ``comma`` between them and a full stop at the end only."""
    write = english if topic in ENGLISH_NOUNS else japanese
    return comma.join(write(topic, first + n).rstrip(".。") for n in range(count)) + (
        "." if topic in ENGLISH_NOUNS else "。"
    )


def code(lines: int, first: int) -> str:
    """Lines of code with blank lines and sentence ends inside, without a fence."""
    rows = [
        f"def step_{first + n}(rows):\n    # Keep the index. Drop the lag!\n\n    return rows[{n}:]"
        for n in range(lines)
    ]
    return "\n".join(rows)


def unbroken(count: int, seed: int) -> str:
    """A run of letters and digits without white space or comma."""
    return "".join(format(zlib.crc32(f"{seed}/{n}".encode()), "08x") for n in range(-(-count // 8)))[:count]


def sized(text: str, size: int) -> str:
    """The text cut to exactly ``size`` characters, ending in a full stop."""
    return text[: size - 1].rstrip().ljust(size - 1, "x") + "."


# ---------------------------------------------------------------------------------------------------------
# Records and questions
# ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """One text to store: what it exercises, whose it is, who said it and when, what is built for it."""

    feature: str
    agent: str
    text: str
    speaker: str
    seconds: int
    kind: str = "mem"
    span: int = 0
    blocks: bool = True
    nodes: bool = True


def _alone(agent: str, day: int, feature: str, text: str, **how: Any) -> Record:
    return Record(feature, agent, text, f"{agent}:{feature}", day * DAY, **how)


def alder_records() -> list[Record]:
    """The first agent's records: English prose, code, brackets, forced splits, edits."""
    spare = "\n\n".join(prose("orchard", 40 + 3 * n, 3) for n in range(5))
    texts: list[tuple[str, str, dict[str, Any]]] = [
        ("short", prose("ferry", 0, 4), {}),
        ("short", prose("oven", 0, 5), {}),
        ("one_block", english("index", 3), {}),
        ("one_block_over_tail", clauses("orchard", 10, 7, ", and "), {}),
        ("exactly_800", sized(prose("ferry", 20, 12), 800), {}),
        ("exactly_801", sized(prose("ferry", 21, 12), 801), {}),
        ("exactly_400", sized(prose("oven", 20, 6), 400), {}),
        ("long", prose("oven", 30, 13), {}),
        ("long_with_nodes", prose("ferry", 40, 22), {}),
        ("chain_cut", prose("index", 5, 3) + " " + chain("index", 20, 11) + " " + prose("index", 40, 4), {}),
        ("chain_over_limit", prose("orchard", 5, 2) + "\n\n" + chain("orchard", 20, 19), {}),
        ("bullets_over_limit", "Stock list for the ferry and the oven:\n" + bullets("ferry", 100, 60), {}),
        (
            "fence_closed",
            f"{prose('index', 50, 3)}\n```python\n{code(4, 1)}\n```\n{prose('index', 60, 4)}\n\n"
            f"  ```\n{code(3, 9)}\n  ``` trailing words. More words.\n{prose('index', 70, 3)}",
            {},
        ),
        ("fence_forced", f"{prose('index', 80, 2)}\n```\n{code(16, 20)}\n```\n{prose('index', 84, 2)}", {}),
        ("fence_unclosed", f"{prose('index', 90, 4)}\n\n```sql\n{code(6, 50)}\n{prose('index', 95, 5)}", {}),
        (
            "brackets",
            f"{prose('oven', 50, 2)} (A note. [Inner one! 「Quoted? Yes.」 End.] Still inside.) "
            f"{prose('oven', 55, 3)} (never closed. {prose('oven', 60, 2)} Crossed ( one. [ two. ) three. ] "
            f"four. {prose('oven', 65, 4)} Stray ] here. {prose('oven', 70, 2)}",
            {},
        ),
        ("forced_commas", f"{clauses('ferry', 60, 30, ', ')} {prose('ferry', 95, 2)}", {}),
        ("forced_spaces", f"{clauses('oven', 80, 24, ' then ')} {prose('oven', 110, 2)}", {}),
        ("forced_hard", f"Key: {unbroken(1700, 1)} ends. {prose('index', 100, 3)}", {}),
        (
            "forced_early_marks",
            f"One, two, three; four: five {unbroken(600, 2)} six seven {unbroken(900, 3)} eight. "
            f"{' '.join(['wide'] * 130)}, {' '.join(['narrow'] * 90)}. {prose('orchard', 70, 2)}",
            {},
        ),
        (
            "white_space",
            f"{prose('orchard', 80, 2)}\n\n\n \t\n{prose('orchard', 83, 2)}\r\n\r\n{prose('orchard', 86, 2)}"
            f"\n{' ' * 760}\n{prose('orchard', 90, 2)}\u3000\u00a0 {english('orchard', 95)}\x1f "
            f"{english('orchard', 97)}\u2028{english('orchard', 98)}\n\n{english('orchard', 99)}",
            {},
        ),
        (
            "emoji",
            " ".join(
                f"{english('orchard', 110 + n)} 🍎🧑\u200d🌾 {chr(0x1F340 + n)} İstanbul STRASSE ﬁg." for n in range(11)
            ),
            {},
        ),
        ("equal_blocks", "\n".join([english("ferry", 7), "OK", english("ferry", 8), "OK"] * 7), {}),
        ("edited", prose("oven", 120, 14), {}),
        ("edited_without_blocks", prose("ferry", 130, 14), {}),
        ("stale_vector_missing", prose("index", 120, 13), {}),
        ("stale_gap", prose("orchard", 130, 13), {}),
        ("stale_model", prose("oven", 140, 12), {}),
        ("stale_node_end", prose("ferry", 150, 22), {}),
        ("stale_past_end", prose("index", 140, 13), {}),
        ("one_row_set", prose("orchard", 150, 14), {}),
        ("no_set", prose("index", 160, 13), {"blocks": False}),
        ("no_set_bullets", bullets("oven", 300, 50), {"blocks": False, "nodes": False}),
        ("no_set_nodes", prose("oven", 180, 24), {"blocks": False}),
        ("no_set_margins", spare, {"blocks": False, "nodes": False}),
    ]
    records = [_alone(ALDER, day, feature, text, **how) for day, (feature, text, how) in enumerate(texts)]
    burst: list[tuple[str, int, str, dict[str, Any]]] = [
        ("ferry", 0, prose("ferry", 200, 2), {}),
        ("ferry", 20, prose("ferry", 203, 9), {}),
        ("ferry", 40, prose("ferry", 213, 3), {}),
        ("ferry", 60, chain("ferry", 217, 8), {}),
        ("index", 0, prose("index", 200, 3), {}),
        ("index", 20, prose("index", 204, 20), {"blocks": False}),
        ("index", 45, prose("index", 226, 8), {"blocks": False, "nodes": False}),
        ("oven", 0, english("oven", 200), {}),
        ("oven", 30, prose("oven", 202, 4), {}),
    ]
    records += [
        Record(
            "turn",
            ALDER,
            text,
            f"{ALDER}:{who}",
            60 * DAY + 3600 * list(ENGLISH_NOUNS).index(who) + at,
            **how,
        )
        for who, at, text, how in burst
    ]
    return records


def kaede_records() -> list[Record]:
    """The second agent's records: Japanese prose and brackets, and episodes."""
    quoted = "「" + prose("garden", 60, 2) + "まだ終わらない！」"
    texts: list[tuple[str, str, dict[str, Any]]] = [
        ("short", prose("garden", 0, 6), {}),
        ("short", prose("festival", 0, 5, "\n"), {}),
        ("one_block", japanese("server", 2), {}),
        ("tiny", "柿。", {}),
        ("long", prose("server", 10, 36), {}),
        ("long_with_nodes", prose("garden", 20, 50, "\n\n"), {}),
        ("chain_cut", prose("server", 50, 3) + chain("server", 60, 27) + prose("server", 90, 5), {}),
        ("chain_over_limit", prose("festival", 20, 2) + chain("festival", 30, 58), {}),
        ("bullets_over_limit", "持ち物と当番：\n" + bullets("garden", 400, 90), {}),
        (
            "brackets",
            f"{japanese('garden', 70)}{quoted}と真理さんは言った。{prose('garden', 72, 3)}"
            f"（注：『{japanese('garden', 76)}』【{japanese('garden', 77)}】。）"
            f"{prose('garden', 80, 4)}「閉じない引用。{prose('garden', 85, 6)}"
            f"《交差する〈例。》。〉{prose('garden', 92, 14)}",
            {},
        ),
        (
            "bracket_forced",
            f"{prose('server', 100, 2)}「{prose('server', 103, 34)}」{prose('server', 130, 3)}",
            {},
        ),
        ("forced_commas", f"{clauses('festival', 80, 40, '、')}{prose('festival', 122, 2)}", {}),
        ("forced_hard", f"鍵は{'庭' * 900}です。{prose('server', 140, 4)}", {}),
        (
            "fence_closed",
            f"{prose('server', 150, 6)}\n```\n{code(5, 70)}\n```\n{prose('server', 160, 12)}",
            {},
        ),
        (
            "emoji",
            "".join(f"{japanese('festival', 130 + n)}🎆🏮{chr(0x20000 + n)}ﾊﾝｶｸ！" for n in range(26)),
            {},
        ),
        (
            "mixed_marks",
            f"{prose('server', 170, 9)}v2.6.10は速い．{prose('server', 180, 9)}本当？いいえ…{prose('server', 190, 16)}",
            {},
        ),
        ("edited", prose("server", 200, 36), {}),
        ("stale_vector_missing", prose("garden", 140, 36), {}),
        ("no_set", prose("festival", 160, 34), {"blocks": False}),
        ("no_set_nodes", prose("garden", 180, 50), {"blocks": False}),
    ]
    records = [_alone(KAEDE, day, feature, text, **how) for day, (feature, text, how) in enumerate(texts)]
    burst: list[tuple[int, str, dict[str, Any]]] = [
        (0, prose("festival", 200, 3), {}),
        (20, prose("festival", 204, 18), {}),
        (40, chain("festival", 224, 5), {}),
    ]
    records += [Record("turn", KAEDE, text, f"{KAEDE}:mari", 60 * DAY + at, **how) for at, text, how in burst]
    # Episodes: two cover a turn or a record in time and share its item, the others stand alone.
    episodes: list[tuple[str, str, int, int, dict[str, Any]]] = [
        ("episode", prose("festival", 240, 4), 60 * DAY - 60, 300, {}),
        ("episode_one_block", japanese("garden", 230), -60, 300, {}),
        ("episode_long", prose("server", 230, 35), 70 * DAY, 600, {}),
        ("episode_no_set", prose("garden", 240, 34), 71 * DAY, 600, {"blocks": False, "nodes": False}),
        ("episode_no_set_claim", prose("server", 260, 9), 4 * DAY - 60, 300, {"blocks": False}),
    ]
    records += [
        Record(feature, KAEDE, text, "", start, kind="ep", span=span, **how)
        for feature, text, start, span, how in episodes
    ]
    return records


QUESTIONS: tuple[tuple[str, str], ...] = (
    (ALDER, "Who repaired the ticket machine at the harbour gate?"),
    (ALDER, "When did the ferry timetable change for the night crossing?"),
    (ALDER, "What happened to the bread oven and the sourdough starter?"),
    (ALDER, "Which flour delivery was late, and who checked the rye loaf crust test?"),
    (ALDER, "What does the migration script do about bug-218 in release 2.6.5a1?"),
    (ALDER, "Show me the code that returns rows and drops the index lag"),
    (ALDER, "Is the backup job affected by replica lag while the office was closed?"),
    (ALDER, "apple orchard pruning plan and the frost alarm"),
    (ALDER, "Who moved the cider press and the bee hive before the rain started? 🍎"),
    (ALDER, "However, was the ladder repair finished on the second Tuesday of May?"),
    (ALDER, "stock list: deck crew / tide table"),
    (ALDER, "STRASSE İstanbul fig"),
    (ALDER, "rye loaf / crust test (301) proofing basket (302)"),
    (ALDER, f"Is it true that {english('index', 3)}"),
    (ALDER, f"Key: {unbroken(60, 1)}"),
    (ALDER, "wide wide wide narrow narrow narrow"),
    (ALDER, "def step_21(rows): # Keep the index. Drop the lag! return rows[2:]"),
    (ALDER, "OK"),
    (KAEDE, "庭の手入れと柿の木について誰が書き留めましたか"),
    (KAEDE, "水やり当番と落ち葉の袋の当番表"),
    (KAEDE, "データベース移行のバックアップ手順を教えて"),
    (KAEDE, "検索インデックスと夜間ジョブの監視アラートはどうなった？"),
    (KAEDE, "夏祭りの屋台と太鼓の練習の予定"),
    (KAEDE, "提灯の配線を修理したのは誰？雨天の予備日は？"),
    (KAEDE, "寄付の帳簿 会場の地図 🎆"),
    (KAEDE, "柿"),
    (KAEDE, "「まだ終わらない！」と言ったのは誰ですか"),
    (KAEDE, "ただし、鍵の更新は本番で有効にしない"),
    (KAEDE, "v2.6.10 は本当に速い？ def step rows"),
    (KAEDE, "真理さんが五月の第二火曜日に苗の注文を交換した話"),
    (ALDER, f"What did Tobias write down about the search index? {REFUSED}"),
)

#: Names declared for an agent: name, other spellings.
ENTITIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (ALDER, "Tobias", ("Toby", "T. Brandt")),
    (ALDER, "search index", ("release 2.6.5a1",)),
    (KAEDE, "真理さん", ("真理", "マリ")),
    (KAEDE, "夏祭り", ("祭り",)),
)


# ---------------------------------------------------------------------------------------------------------
# The store
# ---------------------------------------------------------------------------------------------------------


def stamp(seconds: int) -> str:
    """A time of the record, UTC, in the form the server stores."""
    return (BASE + timedelta(seconds=seconds)).isoformat()


async def settle(timeout: float = 20.0) -> None:
    """Wait until the server's queue has built what was asked of it."""
    from cpersona import tasks

    for _ in range(int(timeout / 0.005)):
        if (await tasks._task_queue.get_status())["pending"] == 0:
            return
        await asyncio.sleep(0.005)
    raise RuntimeError(f"the server's task queue was not empty after {timeout} seconds")


async def store_record(record: Record) -> str:
    """Store one record by the server's own handler, with only what it should have built, and give its ref."""
    from cpersona import config, memory_handlers, tasks

    queue = tasks._task_queue
    config.BLOCK_BUILD_ENABLED = record.blocks
    tasks._task_queue = queue if record.nodes else None
    try:
        if record.kind == "ep":
            times = [{"timestamp": stamp(record.seconds + at)} for at in (0, record.span)]
            answer = await memory_handlers.do_archive_episode(record.agent, times, summary=record.text)
            number = answer.get("episode_id")
        else:
            message = {
                "id": f"{record.feature}-{record.seconds}",
                "content": record.text,
                "source": {"type": "User", "id": record.speaker, "name": record.speaker.partition(":")[2]},
                "timestamp": stamp(record.seconds),
            }
            answer = await memory_handlers.do_store(record.agent, message)
            number = answer.get("id") if answer.get("result") == "stored" else None
    finally:
        tasks._task_queue = queue
    if not number:
        raise RuntimeError(f"the server did not store the record '{record.feature}' of {record.agent}: {answer}")
    await settle()
    config.BLOCK_BUILD_ENABLED = True
    return f"{record.kind}:{number}"


#: What is done to the stored sets of a feature's records, by SQL of one parameter set (kind, id).
DAMAGE: dict[str, tuple[str, ...]] = {
    "stale_vector_missing": (
        "DELETE FROM record_block_vectors WHERE parent_kind = :kind AND parent_id = :id AND block_index = 1",
    ),
    "stale_gap": (
        "UPDATE record_blocks SET start_char = start_char + 1 "
        "WHERE parent_kind = :kind AND parent_id = :id AND block_index = 2",
    ),
    "stale_model": (
        "UPDATE record_blocks SET embedding_model = 'another' "
        "WHERE parent_kind = :kind AND parent_id = :id AND block_index = 0",
    ),
    "stale_node_end": (
        "UPDATE record_nodes SET end_char = end_char - 1 "
        "WHERE parent_kind = :kind AND parent_id = :id AND node_index = 0",
        "UPDATE record_nodes SET start_char = start_char - 1 "
        "WHERE parent_kind = :kind AND parent_id = :id AND node_index = 1",
    ),
    "stale_past_end": (
        "UPDATE record_blocks SET end_char = end_char + 5 WHERE parent_kind = :kind AND parent_id = :id "
        "AND block_index = (SELECT max(block_index) FROM record_blocks "
        "WHERE parent_kind = :kind AND parent_id = :id)",
    ),
    "one_row_set": (
        "UPDATE record_blocks SET end_char = (SELECT length(content) FROM memories WHERE id = :id) "
        "WHERE parent_kind = :kind AND parent_id = :id AND block_index = 0",
        "DELETE FROM record_blocks WHERE parent_kind = :kind AND parent_id = :id AND block_index > 0",
        "DELETE FROM record_nodes WHERE parent_kind = :kind AND parent_id = :id",
    ),
    "no_set_margins": (
        "UPDATE memories SET content = char(10, 32, 32) || content || char(32, 10, 10, 32) WHERE id = :id",
    ),
}


async def build_store(records: Sequence[Record]) -> list[str]:
    """Store every record, edit some, damage some sets, and give the refs in the order of the records."""
    from cpersona import admin_handlers, associations, config
    from cpersona.database import transaction

    refs = [await store_record(record) for record in records]
    for record, ref in zip(records, refs, strict=True):
        if record.feature.startswith("edited"):
            config.BLOCK_BUILD_ENABLED = record.feature == "edited"
            text = f"Corrected. {record.text[40:]}" if record.agent == ALDER else f"訂正する。{record.text[9:]}"
            answer = await admin_handlers.do_update_memory(int(ref.partition(":")[2]), text, agent_id=record.agent)
            if not answer.get("ok"):
                raise RuntimeError(f"the server did not edit {ref}: {answer}")
            await settle()
            config.BLOCK_BUILD_ENABLED = True
    for agent, name, aliases in ENTITIES:
        await associations.declare(agent, {"entities": [{"name": name, "aliases": list(aliases)}]})
    async with transaction() as db:
        for record, ref in zip(records, refs, strict=True):
            for statement in DAMAGE.get(record.feature, ()):
                await db.execute(statement, {"kind": record.kind, "id": int(ref.partition(":")[2])})
        # The server writes the time of day into these columns; no answer reads them.
        for table, column in (
            ("schema_version", "applied_at"),
            ("memories", "created_at"),
            ("episodes", "created_at"),
            ("entities", "created_at"),
        ):
            await db.execute(f"UPDATE {table} SET {column} = '2024-01-01 00:00:00'")
    return refs


# ---------------------------------------------------------------------------------------------------------
# The answers
# ---------------------------------------------------------------------------------------------------------

STRING, INT = pa.string(), pa.int32()
RANGES = pa.list_(pa.list_(INT))
TABLES: dict[str, pa.Schema] = {
    "questions": pa.schema(
        {
            "question_id": STRING,
            "agent_id": STRING,
            "question": STRING,
            "query_vector": pa.list_(pa.float32()),
        }
    ),
    "windows": pa.schema(
        {
            "question_id": STRING,
            "item_position": INT,
            "claim_position": INT,
            "record_ref": STRING,
            "recall_rank": INT,
            "admission": STRING,
        }
    ),
    "expected_sequence": pa.schema(
        {
            "sequence": STRING,
            "question_id": STRING,
            "position": INT,
            "record_ref": STRING,
            "start": INT,
            "end": INT,
            "record_rank": INT,
            "inside_rank": INT,
            "cosine_rank": INT,
        }
    ),
    "expected_items": pa.schema(
        {
            "sequence": STRING,
            "budget": INT,
            "question_id": STRING,
            "item_position": INT,
            "head_ref": STRING,
            "quote_basis": STRING,
            "ranges": RANGES,
            "quote_chars": INT,
            "excerpts": INT,
            "excerpts_omitted": INT,
            "context_incomplete": pa.bool_(),
            "used_budget": INT,
            "effective_budget": INT,
        }
    ),
    "expected_excerpts": pa.schema(
        {
            "sequence": STRING,
            "budget": INT,
            "question_id": STRING,
            "item_position": INT,
            "excerpt_position": INT,
            "record_ref": STRING,
            "start": INT,
            "end": INT,
            "quote_chars": INT,
            "basis": STRING,
            "context_incomplete": pa.bool_(),
        }
    ),
    "expected_parts": pa.schema(
        {
            "question_id": STRING,
            "part_index": INT,
            "start": INT,
            "end": INT,
            "kind": STRING,
            "held_by": pa.list_(STRING),
        }
    ),
    "records": pa.schema({"record_ref": STRING, "agent_id": STRING, "feature": STRING}),
}
Rows = dict[str, list[dict[str, Any]]]


def window_rows(question_id: str, response: dict[str, Any]) -> list[dict[str, Any]]:
    """The window of a full response: heads first, then the other claims, best recalled first."""
    pool = response["trace"]["candidate_refs"]
    lost = response["reconstruction"]["excluded_without_provenance"]
    ranks = {ref: len(pool) + lost - 1 - place for place, ref in enumerate(pool)}
    rows = []
    for position, item in enumerate(response["items"]):
        others = sorted({claim["ref"] for claim in item["claims"]} - {item["head_ref"]}, key=ranks.__getitem__)
        rows += [
            {
                "question_id": question_id,
                "item_position": position,
                "claim_position": claim,
                "record_ref": ref,
                "recall_rank": ranks[ref],
                "admission": "reserved" if item.get("admission") == "reservation" else "window",
            }
            for claim, ref in enumerate([item["head_ref"], *others])
        ]
    return rows


def sequence_rows(question_id: str, response: dict[str, Any]) -> list[dict[str, Any]]:
    """The order of a full response, which takes every passage."""
    trace = response["trace"]["sequence"]
    if trace["candidates"] != len(trace["taken"]):
        raise RuntimeError(f"{question_id}: the full budget took {len(trace['taken'])} of {trace['candidates']}")
    return [
        {
            "sequence": trace["mode"],
            "question_id": question_id,
            "position": position,
            "record_ref": step["ref"],
            "start": step["span"][0],
            "end": step["span"][1],
            **{f"{name}_rank": step["ranks"][name] for name in ("record", "inside", "cosine")},
        }
        for position, step in enumerate(trace["taken"])
    ]


def excerpt_range(excerpt: dict[str, Any]) -> tuple[int, int, str]:
    """The range of an excerpt in its record's stored text, and what it was chosen by."""
    for basis in ("block", "node"):
        if basis in excerpt:
            start, end = excerpt[basis]["span"]
            return start, end, basis
    shown = excerpt["content"]
    label = len(LABEL) if excerpt["ref"].startswith("ep:") and shown.startswith(LABEL) else 0
    return 0, len(shown) - label, "start"


def item_rows(key: dict[str, Any], response: dict[str, Any], rows: Rows) -> None:
    """Add the items of one response and their excerpts."""
    for position, item in enumerate(response["items"]):
        excerpts = item.get("excerpts", [])
        rows["expected_items"].append(
            {
                **key,
                "item_position": position,
                "head_ref": item["head_ref"],
                "quote_basis": item["quote_basis"],
                "ranges": item["ranges"],
                "quote_chars": len(item["content"]),
                "excerpts": len(excerpts),
                "excerpts_omitted": item.get("excerpts_omitted", 0),
                "context_incomplete": item.get("context_incomplete", False),
                "used_budget": response["used_budget"],
                "effective_budget": response["effective_budget"],
            }
        )
        for place, excerpt in enumerate(excerpts):
            start, end, basis = excerpt_range(excerpt)
            rows["expected_excerpts"].append(
                {
                    **key,
                    "item_position": position,
                    "excerpt_position": place,
                    "record_ref": excerpt["ref"],
                    "start": start,
                    "end": end,
                    "quote_chars": len(excerpt["content"]),
                    "basis": basis,
                    "context_incomplete": excerpt.get("context_incomplete", False),
                }
            )


def part_rows(question_id: str, response: dict[str, Any]) -> list[dict[str, Any]]:
    """The question's parts as the trace names them; spans are offsets into the normalized question."""
    ledger = response["trace"]["coverage"]
    return [
        {
            "question_id": question_id,
            "part_index": index,
            "start": part["span"][0],
            "end": part["span"][1],
            "kind": part["kind"],
            "held_by": ledger["covered_by"][index],
        }
        for index, part in enumerate(ledger["parts"])
    ]


async def ask(questions: Iterable[tuple[str, str]], rows: Rows) -> None:
    """Ask every question under every sequence and budget and add what came back."""
    from cpersona import config, reconstruct, vector

    for number, (agent, question) in enumerate(questions):
        question_id = f"{agent}_q{number:03d}"
        for sequence, budgets in BUDGETS.items():
            config.RECONSTRUCT_SEQUENCE = sequence
            whole_cost = 0
            for named in (FULL_BUDGET, *budgets, ALL_BUT_LAST):
                budget = whole_cost - 1 if named == ALL_BUT_LAST else named
                response = await reconstruct.do_reconstruct(agent, question, budget=budget, deep=True, trace=True)
                key = {"sequence": sequence, "budget": budget, "question_id": question_id}
                item_rows(key, response, rows)
                if budget != FULL_BUDGET:
                    continue
                whole_cost = response["used_budget"]
                if sequence == "items":
                    rows["windows"] += window_rows(question_id, response)
                    rows["expected_parts"] += part_rows(question_id, response)
                else:
                    rows["expected_sequence"] += sequence_rows(question_id, response)
        # The client kept the vector it got for the recalls above and gives the same one again.
        vectors = None if REFUSED in question else await vector._embedding_client.embed([question])
        rows["questions"].append(
            {
                "question_id": question_id,
                "agent_id": agent,
                "question": question,
                "query_vector": vectors[0] if vectors else None,
            }
        )


# ---------------------------------------------------------------------------------------------------------
# The run
# ---------------------------------------------------------------------------------------------------------


def set_environment(out: Path, url: str) -> None:
    """Give the server package its settings; it reads them once, when it is imported."""
    for name in list(os.environ):
        if name.upper().startswith(("CPERSONA_", "EMBEDDING_")) or name.upper().endswith("_PROXY"):
            del os.environ[name]
    os.environ |= {
        "CPERSONA_DB_PATH": str(out / "store.db"),
        "CPERSONA_EMBEDDING_MODE": "http",
        "CPERSONA_EMBEDDING_URL": url,
        "CPERSONA_RECONSTRUCT_MAX_BUDGET": str(FULL_BUDGET),
        "CPERSONA_BLOCK_INDEX": "false",
        "CPERSONA_UPDATE_CHECK": "false",
        "NO_PROXY": "127.0.0.1",
        "TZ": "UTC",
    }


async def run(out: Path) -> None:
    """Start the parts of the server that store and answer, record, and stop them."""
    from cpersona import block_index, config, database, generation, tasks, vector
    from cpersona._vendored_mcp_common.embedding_client import EmbeddingClient

    vector._embedding_client = EmbeddingClient(mode="http", http_url=config.EMBEDDING_URL)
    await vector._embedding_client.initialize()
    rows: Rows = {name: [] for name in TABLES}
    try:
        await generation.refresh(vector._embedding_client)
        await database.init_db()
        tasks._task_queue = tasks.MemoryTaskQueue()
        await tasks._task_queue.start()
        await block_index.on_startup()
        records = [*alder_records(), *kaede_records()]
        refs = await build_store(records)
        rows["records"] = [
            {"record_ref": ref, "agent_id": record.agent, "feature": record.feature}
            for record, ref in zip(records, refs, strict=True)
        ]
        await ask(QUESTIONS, rows)
    finally:
        if tasks._task_queue is not None:
            await tasks._task_queue.stop()
        await database.close_db()
        await vector._embedding_client.close()
    for name, schema in TABLES.items():
        pq.write_table(pa.Table.from_pylist(rows[name], schema=schema), out / f"{name}.parquet", compression="zstd")


def main(arguments: Sequence[str], leave: Callable[[int], None] = os._exit) -> None:
    """Record into the directory named by the only argument, then leave the process at once."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tests.server.record OUT_DIR\n")
        leave(2)
        return
    out = Path(arguments[0]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    for left in out.glob("store.db*"):
        left.unlink()
    status = 0
    with EmbeddingService() as service:
        set_environment(out, service.url)
        logging.getLogger("cpersona").setLevel(logging.CRITICAL)
        try:
            asyncio.run(run(out))
        except Exception:
            traceback.print_exc()
            status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # A connection the server left open would keep its thread, and so the process, alive.
    leave(status)


if __name__ == "__main__":
    main(sys.argv[1:])
