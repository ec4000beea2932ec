"""What each question's sequences show, step by step, as plain values for the question browser of a report."""

from typing import Any

import polars as pl

from allocation import render
from allocation.curves import Batch
from allocation.text import Corpus

QUESTIONS = 1000  # that one report shows at most

_SPAN = ("record", "start", "end")
_COLUMNS = ("item_position", "claim_position", "spans", "basis", "cost", "needed", "record_rank")
_WHERE_RANKED = ("inside_rank", "cosine_rank", "parts", "new_parts")  # left out where the sequence has none


def picked(question_ids: pl.Series, most: int = QUESTIONS) -> pl.Series:
    """At most so many of the questions, evenly over their order."""
    ordered, count = question_ids.sort(), len(question_ids)
    if count <= most:
        return ordered
    return ordered.gather([place * count // most for place in range(most)])


def page(batch: Batch, question_ids: pl.Series, budget: int) -> dict[str, Any]:
    """Everything the browser shows of some questions of a batch.

    Args:
        batch: Questions with their sequences.
        question_ids: The questions to show.
        budget: Steps that need more characters than this are left out.

    Returns:
        JSON-able. ``records``: [record_ref, time]. ``spans``, each once: [record, start, end, text]. ``questions``:
        question_id, question, type, answer, split; ``items``: [item, claim, record] as recalled; ``parts``: [text,
        kind, records that hold it]; ``evidence``: [record_ref, start, end, span], the latter three null for a record
        as a whole and span null where the text is not at hand; ``sequences``: by name the steps, column by column,
        and ``later``, how many steps the budget leaves out.
    """
    wanted = question_ids.implode()
    own = pl.col("question_id").is_in(wanted)
    questions = batch.questions.filter(own)
    records = batch.records.join(batch.windows.filter(own), on="record_ref", how="semi", maintain_order="left")
    numbered = records.select("record_ref", record=pl.int_range(pl.len(), dtype=pl.Int64))
    steps = {name: _steps(rows.filter(own), numbered, budget) for name, rows in batch.sequences.items()}
    evidence = _evidence(batch.evidence.filter(own), numbered)
    spans = _spans([_ranges(rows) for rows in steps.values()] + [evidence], records)
    listed = {name: _columns(_with_spans(rows, spans)) for name, rows in steps.items()}
    later = {name: _later(batch.sequences[name].filter(own), rows) for name, rows in steps.items()}
    items = _lists(
        batch.windows.join(numbered, on="record_ref", how="left").sort(
            "question_id", "item_position", "claim_position"
        ),
        ("item_position", "claim_position", "record"),
    )
    named = _lists(batch.parts.filter(own).sort("question_id", "part"), ("text", "kind", "records_holding"))
    found = _lists(
        evidence.join(spans.select(*_SPAN, "span"), on=_SPAN, how="left", maintain_order="left"),
        ("record_ref", "start", "end", "span"),
    )
    shown = []
    for key, text, kind, answer, split in questions.select(
        "question_id", "question", "question_type", "answer", "split"
    ).iter_rows():
        sequences = {
            name: columns.get(key, {}) | {"later": later[name].get(key, 0)} for name, columns in listed.items()
        }
        shown.append(
            {"question_id": key, "question": text, "type": kind, "answer": answer, "split": split}
            | {"items": items.get(key, []), "parts": named.get(key, []), "evidence": found.get(key, [])}
            | {"sequences": sequences}
        )
    return {
        "records": [list(row) for row in records.select("record_ref", "recorded_at").iter_rows()],
        "spans": [list(row) for row in spans.select(*_SPAN, "text").iter_rows()],
        "questions": shown,
    }


def _steps(sequence: pl.DataFrame, numbered: pl.DataFrame, budget: int) -> pl.DataFrame:
    """The steps the budget takes, with needed, record and row."""
    return (
        sequence.with_columns(needed=render.needed())
        .filter(pl.col("needed") <= budget)
        .join(numbered, on="record_ref", how="left", maintain_order="left")
        .with_row_index("row")
    )


def _ranges(steps: pl.DataFrame) -> pl.DataFrame:
    return steps.select("row", "record", "ranges").explode("ranges", empty_as_null=True).unnest("ranges")


def _evidence(evidence: pl.DataFrame, numbered: pl.DataFrame) -> pl.DataFrame:
    """Evidence in text order, each label once, with record; null where no window has the record."""
    return (
        evidence.unique()
        .join(numbered, on="record_ref", how="left")
        .sort("question_id", "record_ref", "start", "end", nulls_last=True)
    )


def _spans(ranges: list[pl.DataFrame], records: pl.DataFrame) -> pl.DataFrame:
    """Each span once, with its text and its number: record, start, end, text, span."""
    spans = pl.concat([rows.select(pl.col(_SPAN).cast(pl.Int64)) for rows in ranges]).drop_nulls().unique().sort(_SPAN)
    corpus = Corpus(records["text"])
    base = corpus.base[spans["record"].to_numpy()]
    text = corpus.cut(base + spans["start"].to_numpy(), base + spans["end"].to_numpy())
    return spans.with_columns(text, span=pl.int_range(pl.len()))


def _with_spans(steps: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    numbers = (
        _ranges(steps)
        .with_columns(pl.col(_SPAN).cast(pl.Int64))
        .join(spans.select(*_SPAN, "span"), on=_SPAN, how="inner", maintain_order="left")
        .group_by("row", maintain_order=True)
        .agg(spans="span")
    )
    return steps.join(numbers, on="row", how="left", maintain_order="left")


def _columns(steps: pl.DataFrame) -> dict[str, dict[str, list[Any]]]:
    """The steps of each question, column by column."""
    names = [*_COLUMNS, *(name for name in _WHERE_RANKED if steps[name].null_count() < len(steps))]
    columns = {name: steps[name].to_list() for name in names}
    found, first = {}, 0
    for key, count in steps.group_by("question_id", maintain_order=True).len().iter_rows():
        found[key] = {name: values[first : first + count] for name, values in columns.items()}
        first += count
    return found


def _later(sequence: pl.DataFrame, steps: pl.DataFrame) -> dict[str, int]:
    whole, shown = sequence.group_by("question_id").len(), steps.group_by("question_id").len("shown")
    return dict(whole.join(shown, on="question_id").select("question_id", pl.col("len") - pl.col("shown")).iter_rows())


def _lists(rows: pl.DataFrame, names: tuple[str, ...]) -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = {}
    for key, *values in rows.select("question_id", *names).iter_rows():
        found.setdefault(key, []).append(values)
    return found
