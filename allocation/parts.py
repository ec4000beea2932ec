"""The parts of a question, and which passages hold them (DESIGN.md, "Parts")."""

import re

import numpy as np
import numpy.typing as npt
import polars as pl

from allocation.settings import Settings
from allocation.tables import Parts
from allocation.text import Corpus, normalize, normalize_one

MOST_PARTS = 32  # a question's parts fit one 64-bit mask

_WORD = re.compile(
    r"#[0-9]+|[a-z0-9](?:[a-z0-9._/#-]*[a-z0-9])"  # an identifier of two or more characters
    r"|[\u30a0-\u30ff]{2,}"  # a run of katakana
    r"|[\u4e00-\u9fff\u3005]{2,}"  # a run of kanji
)

Part = tuple[str, str]  # text, kind


def build(
    questions: pl.DataFrame,
    window: pl.DataFrame,
    records: pl.DataFrame,
    corpus: Corpus,
    passages: pl.DataFrame,
    entities: pl.DataFrame,
    settings: Settings,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The parts of every question, and which of them each passage holds.

    Args:
        questions: Questions of the shard.
        window: Numbered window rows.
        records: Records, in the order ``window`` numbers them.
        corpus: The records' texts.
        passages: Steps with question, record, passage_start, passage_end.
        entities: Entities of the questions' agents.
        settings: ``rare_share``.

    Returns:
        Parts, and ``passages`` with ``mask``, whose bit i is set where the passage holds part i.
    """
    declared = entities.with_columns(normalize(entities["name"]).alias("name")).unique()
    names = dict(declared.group_by("agent_id").agg(pl.col("name").sort()).iter_rows())
    whole_texts = normalize(records["text"])
    texts, text_of = _distinct_texts(passages, corpus)
    rows: list[tuple[str, int, str, str, int]] = []
    masks = np.zeros(len(passages), dtype=np.int64)
    asked = questions.select("question_id", "agent_id", "question", "parts").with_row_index("number")
    of_question_rows = _rows_by(passages["question"].to_numpy(), len(questions))
    window_rows = _rows_by(window["question"].to_numpy(), len(questions))
    record = window["record"].to_numpy()
    for number, question_id, agent_id, question, recorded in asked.iter_rows():
        candidates = of_question(question, names.get(agent_id, []), recorded)
        in_records = holding(whole_texts[record[window_rows[number]]], [text for text, _ in candidates])
        kept, records_holding = choose(candidates, in_records, settings.rare_share)
        chosen = [candidates[i] for i in kept]
        own = of_question_rows[number]
        held = holding(texts[text_of[own]], [text for text, _ in chosen])
        masks[own] = as_masks(held)
        rows += [
            (question_id, part, text, kind, count)
            for part, ((text, kind), count) in enumerate(zip(chosen, records_holding, strict=True))
        ]
    found = pl.DataFrame(rows, schema={name: column.dtype for name, column in Parts.columns().items()}, orient="row")
    return found, passages.with_columns(mask=pl.Series(masks))


def _rows_by(question: npt.NDArray[np.int64], questions: int) -> list[npt.NDArray[np.int64]]:
    """The row numbers of each question."""
    by_question = np.argsort(question, kind="stable")
    return np.split(by_question, np.searchsorted(question[by_question], np.arange(1, questions)))


def _distinct_texts(passages: pl.DataFrame, corpus: Corpus) -> tuple[pl.Series, npt.NDArray[np.int64]]:
    """The normalized texts of the distinct passages, and which of them each row is."""
    span = ["record", "passage_start", "passage_end"]
    distinct = passages.select(span).unique().sort(span).with_row_index("text")
    base = corpus.base[distinct["record"].to_numpy()]
    texts = corpus.cut(base + distinct["passage_start"].to_numpy(), base + distinct["passage_end"].to_numpy())
    text_of = passages.select(span).join(distinct, on=span, how="left", maintain_order="left")["text"]
    return normalize(texts), text_of.cast(pl.Int64).to_numpy()


def of_question(question: str, names: list[str], recorded: list[str] | None) -> list[Part]:
    """The distinct parts of a question in order of first appearance, each with its kind.

    Args:
        question: The question as asked.
        names: Names and aliases of the scope's declared entities, normalized.
        recorded: Parts a server's trace recorded; they are then all there are. Missing and empty ones are none.
    """
    if recorded is not None:
        return [(text, "recorded") for text in dict.fromkeys(map(normalize_one, filter(None, recorded))) if text]
    asked = normalize_one(question)
    found = [(match.start(), match.group(), "word") for match in _WORD.finditer(asked)]
    found += [(asked.find(name), name, "entity") for name in names if name and name in asked]
    kinds: dict[str, str] = {}
    for _, text, kind in sorted(found, key=lambda part: (part[0], part[2] == "word", part[1])):
        kinds.setdefault(text, kind)
    return list(kinds.items())


def holding(texts: pl.Series, parts: list[str]) -> npt.NDArray[np.bool_]:
    """Whether each normalized text contains each part; bool [texts, parts]."""
    if not parts:
        return np.zeros((len(texts), 0), dtype=bool)
    contains = [pl.col("text").str.contains(part, literal=True).alias(str(i)) for i, part in enumerate(parts)]
    return texts.to_frame("text").select(contains).to_numpy()


def choose(
    candidates: list[Part], held_by_records: npt.NDArray[np.bool_], rare_share: float
) -> tuple[list[int], list[int]]:
    """The candidates that count, and how many records hold each.

    A word that more than ``rare_share`` of the window's records hold is no part; entities and recorded parts
    always count. At most MOST_PARTS, the first ones.

    Args:
        candidates: Parts in order.
        held_by_records: Whether each record of the window holds each candidate; bool [records, candidates].
        rare_share: Share of the records, 0 to 1.
    """
    records_holding = held_by_records.sum(axis=0)
    # NOTE: the quotient is the double nearest to the share; a product may fall short of a whole count.
    share = records_holding / max(len(held_by_records), 1)
    kept = [i for i, (_, kind) in enumerate(candidates) if kind != "word" or share[i] <= rare_share]
    kept = kept[:MOST_PARTS]
    return kept, [int(records_holding[i]) for i in kept]


def as_masks(held: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Bit i of a text's mask is set where it holds part i; int64 [texts]."""
    return held @ (np.int64(1) << np.arange(held.shape[1], dtype=np.int64))


def as_lists(masks: pl.Series) -> pl.Series:
    """The indices of the bits set in each mask, ascending, as a list column; null where the mask is."""
    lists = {mask: [i for i in range(MOST_PARTS) if mask >> i & 1] for mask in masks.drop_nulls().unique()}
    table = pl.DataFrame(
        {"mask": list(lists), "parts": list(lists.values())}, schema={"mask": pl.Int64, "parts": pl.List(pl.Int32)}
    )
    return masks.to_frame("mask").join(table, on="mask", how="left", maintain_order="left")["parts"]
