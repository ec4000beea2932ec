"""A sequence cut at a budget, as an answering model would see it (DESIGN.md, "Rendering")."""

from typing import Any

import polars as pl

from allocation.costs import SEPARATOR
from allocation.quotes import EPISODE_LABEL


def cut(sequence: pl.DataFrame, budget: int) -> pl.DataFrame:
    """The steps a budget takes: of each question the longest prefix none of whose totals passes it.

    The first step is always taken. Totals may fall where a step closes a gap, so it is the highest that counts.

    Args:
        sequence: Sequences, ordered by question_id, position; row order is kept.
        budget: Characters of quoted text.
    """
    return sequence.filter(needed() <= budget)


def needed() -> pl.Expr:
    """The smallest budget that takes each step, over such rows."""
    highest = pl.col("used").cum_max().over("question_id")
    return pl.when(pl.col("position") == 0).then(0).otherwise(highest)


def response(sequence: pl.DataFrame, records: pl.DataFrame, budget: int) -> dict[str, Any]:
    """What one question's sequence shows at a budget.

    Args:
        sequence: Sequences of one question, whole.
        records: Records of its window.
        budget: Characters of quoted text.

    Returns:
        ``budget``, ``used``, ``items`` in recall order and ``omitted`` (items, excerpts, characters). An item has
        the quote of its head record, empty where none of it was taken, and its other claims' ``excerpts``; a
        quote has record_ref, time, content, ranges, and the steps it is made of with their ranks and parts.
    """
    steps = cut(sequence, budget)
    texts = {ref: (text, time) for ref, text, time in records.select("record_ref", "text", "recorded_at").iter_rows()}
    heads = dict(sequence.filter(pl.col("claim_position") == 0).select("item_position", "record_ref").iter_rows())
    items: dict[int, dict[str, Any]] = {}
    key = ("item_position", "claim_position", "record_ref")
    for (item, claim, ref), rows in steps.sort(*key, "position").group_by(key, maintain_order=True):
        head = heads[item]
        bare = {"item_position": item, "record_ref": head, "time": texts[head][1], "content": "", "ranges": []}
        entry = items.setdefault(item, bare | {"steps": [], "excerpts": []})
        quote = _quote(ref, rows, *texts[ref])
        if claim == 0:
            entry |= quote
        else:
            entry["excerpts"].append(quote)
    other_claims = pl.col("claim_position") > 0
    left_out = {
        "items": sequence["item_position"].n_unique() - len(items),
        "excerpts": sequence.filter(other_claims).n_unique(key) - steps.filter(other_claims).n_unique(key),
    }
    used, whole = int(steps["cost"].sum()), int(sequence["cost"].sum())
    return {
        "budget": budget,
        "used": used,
        "items": [items[item] for item in sorted(items)],
        "omitted": left_out | {"characters": whole - used},
    }


def _quote(ref: str, steps: pl.DataFrame, text: str, time: str | None) -> dict[str, Any]:
    ranges = joined([(span["start"], span["end"]) for spans in steps["ranges"] for span in spans])
    at_start = steps["basis"][0] == "start" and steps["claim_position"][0] > 0
    label = EPISODE_LABEL if at_start and ref.startswith("ep:") else ""
    columns = ("position", "basis", "start", "end", "cost", "record_rank", "inside_rank", "cosine_rank")
    return {
        "record_ref": ref,
        "time": time,
        "content": label + SEPARATOR.join(text[start:end] for start, end in ranges),
        "ranges": [list(span) for span in ranges],
        "steps": steps.select(*columns, "parts", "new_parts").to_dicts(),
    }


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in text order, those that touch made one."""
    out: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if out and out[-1][1] == start:
            out[-1] = (out[-1][0], end)
        else:
            out.append((start, end))
    return out
