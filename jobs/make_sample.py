"""Write the committed sample: a small store, its questions, their windows and the evidence.

The texts, fragments, questions, entities and table definitions are files in ``data/sample/source``. What is
drawn comes from hashes of names, and vectors come from whole counts, so a rerun writes the same content.
"""

import hashlib
import json
import math
import re
import sqlite3
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer
from numpy.typing import NDArray

from allocation.divide import divide

SAMPLE = Path(__file__).resolve().parent.parent / "data" / "sample"
SOURCE = SAMPLE / "source"
AGENTS = ("garden-club", "kiln-team", "home")
EPOCH = "2025-12-01 00:00:00"  # of rows that have no time of their own

SCHEMA_VERSION = 19
MODEL = "hashed-ngrams-96"
OLD_MODEL = "hashed-ngrams-64"  # the label in the set that mixes two models
DIMENSIONS = 96
GRAM_SIZES = (2, 3, 4)
NODE_CHARACTERS = 1024
CHARACTERS_PER_TOKEN = 4  # a rough guess; nothing reads token counts
NODE_WINDOW = 256

ITEMS = (6, 10)
CLAIMS_BESIDE_HEAD = 2
WORD_WEIGHT = 0.7  # of a word that one record alone holds, against a cosine
DEV_EVERY = 3

_WORD = re.compile(r"[a-z0-9][a-z0-9._/#-]*[a-z0-9]|[ァ-ヺー]{2,}|[一-龯々]{2,}")
_SLOT = re.compile(r"\{([^}]+)\}")

Counts = NDArray[np.int64]
Span = tuple[int, int]


@dataclass
class Section:
    """A headed part of a source file: ``#### name word key=value`` and the lines below it."""

    name: str
    words: list[str]
    options: dict[str, str]
    lines: list[str]


@dataclass
class Record:
    """A stored text with the block set that was built for it."""

    key: str
    agent_id: str
    text: str
    time: datetime
    options: dict[str, str]
    words: list[str]
    blocks: list[Span] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=list)  # of the blocks
    ref: str = ""

    @property
    def kind(self) -> str:
        """The parent kind of the store's tables."""
        return "ep" if "episode" in self.words else "mem"

    @property
    def id(self) -> int:
        """The row id in the record's own table."""
        return int(self.ref.partition(":")[2])


# ---------------------------------------------------------------------------------------------------------
# Texts
# ---------------------------------------------------------------------------------------------------------


def sections(path: Path) -> Iterator[Section]:
    """The sections of a source file in order, without blank lines at their ends."""
    for part in re.split(r"^#### ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        name, *rest = head.split()
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        words = [word for word in rest if "=" not in word]
        yield Section(name, words, options, body.strip("\n").split("\n"))


def draw(limit: int, *names: object) -> int:
    """A number below ``limit`` that depends on the names alone."""
    text = "/".join(map(str, names))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) % limit


def fill(line: str, fragments: dict[str, Section], last: dict[str, str], *names: object) -> str:
    """The line with its ``{list}`` and ``{low-high}`` slots filled; a list gives no entry twice running."""

    def replacement(slot: re.Match[str]) -> str:
        name = slot[1]
        if limits := re.fullmatch(r"(\d+)-(\d+)", name):
            low, high = map(int, limits.groups())
            return str(low + draw(high - low + 1, *names, slot.start()))
        entries = [entry for entry in fragments[name].lines if entry != last.get(name)]
        last[name] = entries[draw(len(entries), *names, slot.start())]
        return last[name]

    return _SLOT.sub(replacement, line)


def compose(group: Section, fragments: dict[str, Section], length: str, key: str) -> str:
    """Fragments of the group, filled and joined, until the text has the length (``900`` or ``60-330``)."""
    low, _, high = length.partition("-")
    target = int(low) + draw(int(high or low) - int(low) + 1, key, "length")
    joint = {"line": "\n", "space": " ", "none": ""}[group.options["join"]]
    size = len(group.lines)
    text, last = "", dict[str, str]()
    for position in count():
        turn, place = divmod(position, size)
        if "order" in group.options:  # answers follow their questions
            chosen = (draw(size, key) + place) % size
        else:
            chosen = sorted(range(size), key=lambda line: draw(2**32, key, turn, line))[place]
        text += (joint if text else "") + fill(group.lines[chosen], fragments, last, key, position)
        if len(text) >= target:
            break
    return text


def read_records() -> list[Record]:
    """Every record of the source files with its reference, oldest first."""
    fragments = {section.name: section for section in sections(SOURCE / "fragments.txt")}
    records = []
    for agent_id in AGENTS:
        for section in sections(SOURCE / f"{agent_id}.txt"):
            start, *words = section.words
            copies = int(section.options.get("repeat", 1))
            for copy in range(copies):
                key = section.name if copies == 1 else f"{section.name}-{copy + 1}"
                lines = list[str]()
                for number, line in enumerate(section.lines):
                    if line.startswith("%% "):
                        _, name, length = line.split()
                        line = compose(fragments[name], fragments, length, f"{key}.{number}")
                    lines.append(line)
                time = datetime.fromisoformat(start).replace(tzinfo=UTC)
                time += timedelta(days=copy * int(section.options.get("every", 0)))
                records.append(Record(key, agent_id, "\n".join(lines), time, section.options, words))
    records.sort(key=lambda record: (record.time, record.key))
    seen = {"mem": 0, "ep": 0}
    for record in records:
        seen[record.kind] += 1
        record.ref = f"{record.kind}:{seen[record.kind]}"
    return records


# ---------------------------------------------------------------------------------------------------------
# Vectors and block sets
# ---------------------------------------------------------------------------------------------------------


def normalize(text: str) -> str:
    """Compatibility form and lower case, as names and words are compared."""
    return unicodedata.normalize("NFKC", text).lower()


@cache
def gram_place(gram: str) -> tuple[int, int]:
    """The bucket of a character gram and the sign it counts with."""
    number = int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=8).digest())
    return number // 2 % DIMENSIONS, 1 - number % 2 * 2


def gram_counts(text: str) -> Counts:
    """Signed counts of the text's grams. Whole numbers, so that cosines are the same everywhere."""
    padded = f" {normalize(text)} "  # so that one character has grams as well
    counts = np.zeros(DIMENSIONS, dtype=np.int64)
    for size in GRAM_SIZES:
        for start in range(len(padded) - size + 1):
            bucket, sign = gram_place(padded[start : start + size])
            counts[bucket] += sign
    if not counts.any():
        raise ValueError(f"the grams of {text!r} cancel out; zero vectors are never stored: change the text")
    return counts


def unit_vector(counts: Counts) -> NDArray[np.float32]:
    """The L2-normalised float32 vector of the counts."""
    return (counts / math.sqrt(int(counts @ counts))).astype(np.float32)


def packed(vector: NDArray[np.float32]) -> bytes:
    """One signed byte a dimension, scaled so that the largest is 127; the scale is not kept."""
    scaled: NDArray[np.float32] = vector * np.float32(127 / np.abs(vector).max())
    return np.round(scaled).astype(np.int8).tobytes()


def sign_bits(vector: NDArray[np.float32]) -> bytes:
    """One bit a dimension, the most significant first."""
    return np.packbits(vector > 0).tobytes()


def add_block_set(record: Record) -> None:
    """Divide the record as it was when its blocks were built; one block is no set."""
    text = record.text
    if record.options.get("stale") == "edited":  # its last line was added afterwards
        text = text.rpartition("\n")[0]
    spans = divide(text)
    if "no-blocks" not in record.words and len(spans) > 1:
        record.blocks = spans
        record.counts = [gram_counts(text[start:end]) for start, end in spans]


def node_spans(blocks: list[Span]) -> list[Span]:
    """Runs of whole blocks of at most ``NODE_CHARACTERS``."""
    ends = [0]
    for start, end in blocks:
        if end - ends[-1] > NODE_CHARACTERS and start > ends[-1]:
            ends.append(start)
    return list(pairwise([*ends, blocks[-1][1]]))


# ---------------------------------------------------------------------------------------------------------
# Store
# ---------------------------------------------------------------------------------------------------------


def insert(store: sqlite3.Connection, table: str, **values: object) -> None:
    """Insert one row; the other columns take their defaults."""
    marks = ", ".join("?" * len(values))
    sql = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"  # noqa: S608 - names are this module's own
    store.execute(sql, tuple(values.values()))


def write_record(store: sqlite3.Connection, record: Record) -> None:
    """The record's row in ``memories`` or ``episodes``."""
    lost = "blank-vector" in record.words
    row: dict[str, object] = {
        "id": record.id,
        "agent_id": record.agent_id,
        "embedding": None if lost else unit_vector(gram_counts(record.text)).tobytes(),
        "embedding_model": "" if lost else MODEL,
        "created_at": record.time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    time = record.time.isoformat()
    if record.kind == "ep":
        insert(store, "episodes", **row, summary=record.text, start_time=time, end_time=time)
    else:
        row["source"] = json.dumps({"type": "User", "id": record.agent_id, "name": ""})
        insert(store, "memories", **row, msg_id=record.key, content=record.text, timestamp=time)


def write_block_set(store: sqlite3.Connection, record: Record) -> None:
    """The record's blocks, their vectors and its nodes, with the flaw that its source asks for."""
    stale = record.options.get("stale")
    middle = len(record.blocks) // 2
    for index, ((start, end), counts) in enumerate(zip(record.blocks, record.counts, strict=True)):
        key = {"parent_kind": record.kind, "parent_id": record.id, "block_index": index}
        vector = unit_vector(counts)
        insert(
            store,
            "record_blocks",
            **key,
            agent_id=record.agent_id,
            start_char=start,
            end_char=end,
            embedding_bits=sign_bits(vector),
            embedding_model=OLD_MODEL if stale == "model" and index == middle else MODEL,
        )
        if not (stale == "vector" and index == middle):
            insert(store, "record_block_vectors", **key, embedding_i8=packed(vector))
    if "nodes" in record.words:
        for index, (start, end) in enumerate(node_spans(record.blocks)):
            insert(
                store,
                "record_nodes",
                parent_kind=record.kind,
                parent_id=record.id,
                node_index=index,
                start_char=start,
                end_char=end,
                token_count=-(-(end - start) // CHARACTERS_PER_TOKEN),
                window=NODE_WINDOW,
                embedding=unit_vector(gram_counts(record.text[start:end])).tobytes(),
                embedding_model=MODEL,
            )


def write_entities(store: sqlite3.Connection) -> None:
    """The declared entities and their aliases."""
    for number, entity in enumerate(read_lines("entities.jsonl"), start=1):
        insert(
            store,
            "entities",
            id=number,
            agent_id=entity["agent_id"],
            name=entity["name"],
            normalized=normalize(entity["name"]),
            declared_by=entity["agent_id"],
            created_at=EPOCH,
        )
        for alias in entity["aliases"]:
            insert(store, "entity_aliases", entity_id=number, alias=alias, normalized=normalize(alias))


def write_store(path: Path, records: list[Record]) -> None:
    """The store as one SQLite file, without a journal beside it."""
    path.unlink(missing_ok=True)
    store = sqlite3.connect(path)
    try:
        store.execute("PRAGMA journal_mode = delete")
        store.executescript((SOURCE / "schema.sql").read_text(encoding="utf-8"))
        insert(store, "schema_version", version=SCHEMA_VERSION, applied_at=EPOCH)
        for record in records:
            write_record(store, record)
            write_block_set(store, record)
        write_entities(store)
        store.commit()
        store.execute("VACUUM")
    finally:
        store.close()


# ---------------------------------------------------------------------------------------------------------
# Questions, windows and evidence
# ---------------------------------------------------------------------------------------------------------


def read_lines(name: str) -> list[dict[str, Any]]:
    """The objects of a JSONL source file."""
    return [json.loads(line) for line in (SOURCE / name).read_text(encoding="utf-8").splitlines()]


def read_questions() -> list[dict[str, Any]]:
    """The question set in file order with ids, splits and gram counts (none where it has no vector)."""
    questions = read_lines("questions.jsonl")
    for number, question in enumerate(questions, start=1):
        question["question_id"] = f"q{number:03}"
        question["split"] = "dev" if number % DEV_EVERY == 0 else "test"
        question["counts"] = None if question.get("no_vector") else gram_counts(question["question"])
    return questions


def cosine(left: Counts, right: Counts) -> float:
    """Exact up to one rounding each of the root and of the quotient."""
    return int(left @ right) / math.sqrt(int(left @ left) * int(right @ right))


def recall(question: dict[str, Any], records: list[Record]) -> list[Record]:
    """The agent's records, best first: the best cosine of a block (or the record) and rare shared words."""
    own = [record for record in records if record.agent_id == question["agent_id"]]
    held = {record.ref: set(_WORD.findall(normalize(record.text))) for record in own}
    words = sorted(set(_WORD.findall(normalize(question["question"]))))
    holders = {word: sum(word in held[record.ref] for record in own) for word in words}

    def score(record: Record) -> float:
        parts = [WORD_WEIGHT / holders[word] for word in words if word in held[record.ref]]
        if question["counts"] is not None:
            candidates = record.counts or [gram_counts(record.text)]
            parts.append(max(cosine(question["counts"], counts) for counts in candidates))
        return math.fsum(parts)

    return sorted(own, key=lambda record: (-score(record), record.ref))


def window_rows(question: dict[str, Any], records: list[Record]) -> Iterator[dict[str, object]]:
    """The window: heads in recall order, each with the other records of its thread as further claims."""
    ranked = recall(question, records)
    wanted = ITEMS[0] + draw(ITEMS[1] - ITEMS[0] + 1, question["question_id"], "items")
    items = list[list[Record]]()
    threads = set[str]()
    for record in ranked:
        thread = record.options.get("thread", record.key)
        if thread not in threads and len(items) < wanted:
            threads.add(thread)
            mates = [other for other in ranked if other.options.get("thread") == thread]  # itself is first
            items.append([record, *mates[1 : 1 + CLAIMS_BESIDE_HEAD]])
    taken = {record.ref for item in items for record in item}
    ranks = {ref: rank for rank, ref in enumerate(record.ref for record in ranked if record.ref in taken)}
    for item_position, item in enumerate(items):
        for claim_position, record in enumerate(item):
            yield {
                "question_id": question["question_id"],
                "item_position": item_position,
                "claim_position": claim_position,
                "record_ref": record.ref,
                "recall_rank": ranks[record.ref],
                "admission": "window",
            }


def evidence_rows(question: dict[str, Any], records: list[Record]) -> Iterator[dict[str, object]]:
    """One row for each marked sentence, where it stands in its record."""
    by_key = {record.key: record for record in records}
    for key, sentence in question["evidence"]:
        record = by_key[key]
        found = record.text.count(sentence) if record.agent_id == question["agent_id"] else 0
        if found != 1:
            raise ValueError(
                f"{question['question_id']}: evidence must stand once in '{key}', a record of its agent; "
                f"found {found} times: {sentence!r}"
            )
        start = record.text.index(sentence)
        yield {
            "question_id": question["question_id"],
            "record_ref": record.ref,
            "start": start,
            "end": start + len(sentence),
        }


def question_row(question: dict[str, Any]) -> dict[str, object]:
    """The question as it is published."""
    names = ("question_id", "agent_id", "question", "question_type", "answer", "split")
    counts = question["counts"]
    vector = None if counts is None else unit_vector(counts).tolist()
    return {**{name: question[name] for name in names}, "query_vector": vector}


def write_parquet(path: Path, rows: list[dict[str, object]], key: list[str], **dtypes: Any) -> None:
    """Sort the rows by their key and write them; columns without a dtype are text."""
    schema = {name: dtypes.get(name, pl.String) for name in rows[0]}
    pl.DataFrame(rows, schema=schema).sort(key).write_parquet(path, compression="zstd")


def main(out: Annotated[Path, typer.Option(help="Folder to write the sample to.")] = SAMPLE) -> None:
    """Write the sample's store, questions, windows and evidence."""
    records = read_records()
    for record in records:
        add_block_set(record)
    questions = read_questions()
    windows = [row for question in questions for row in window_rows(question, records)]
    evidence = [row for question in questions for row in evidence_rows(question, records)]

    out.mkdir(parents=True, exist_ok=True)
    write_store(out / "store.db", records)
    write_parquet(
        out / "questions.parquet",
        [question_row(question) for question in questions],
        ["question_id"],
        query_vector=pl.List(pl.Float32),
    )
    write_parquet(
        out / "windows.parquet",
        windows,
        ["question_id", "item_position", "claim_position"],
        item_position=pl.Int32,
        claim_position=pl.Int32,
        recall_rank=pl.Int32,
    )
    write_parquet(
        out / "evidence.parquet",
        evidence,
        ["question_id", "record_ref", "start"],
        start=pl.Int32,
        end=pl.Int32,
    )
    print(f"{len(records)} records, {len(questions)} questions, {len(windows)} window rows")


if __name__ == "__main__":
    typer.run(main)
