"""Every table of the chain: columns, dtypes, units, key and row order, declared once (DESIGN.md, "Tables").

Offsets and lengths are Unicode code points, ranges are half open, ranks and positions are 0-based. A column
with ``metadata=OPTIONAL`` may be missing from a file; it is then read as null.
"""

from typing import TypeVar

import dataframely as dy
import polars as pl

from allocation.errors import InputError

OPTIONAL = {"optional": True}


class Questions(dy.Schema):
    """The question set. Key and row order: question_id."""

    question_id = dy.String(primary_key=True)
    agent_id = dy.String(nullable=False)
    question = dy.String(nullable=False)
    question_type = dy.String(nullable=True, metadata=OPTIONAL)
    answer = dy.String(nullable=True, metadata=OPTIONAL)
    split = dy.String(nullable=True, metadata=OPTIONAL)  # dev or test
    question_date = dy.String(nullable=True, metadata=OPTIONAL)  # when it is asked, handed on to the answering model
    query_vector = dy.List(dy.Float32(nullable=True), nullable=True, metadata=OPTIONAL)
    parts = dy.List(dy.String(nullable=True), nullable=True, metadata=OPTIONAL)  # recorded by a server's trace


class Windows(dy.Schema):
    """What recall returned. Key and row order: question_id, item_position, claim_position (0 = head)."""

    question_id = dy.String(primary_key=True)
    item_position = dy.Int32(primary_key=True)
    claim_position = dy.Int32(primary_key=True)
    record_ref = dy.String(nullable=False)
    recall_rank = dy.Int32(nullable=False)


class Evidence(dy.Schema):
    """Evidence labels; a row without a span marks an answer session. Row order: all columns."""

    question_id = dy.String(nullable=False)
    record_ref = dy.String(nullable=False)
    start = dy.Int32(nullable=True, metadata=OPTIONAL)
    end = dy.Int32(nullable=True, metadata=OPTIONAL)


class Records(dy.Schema):
    """Stored texts. Key and row order: record_ref. ``node_ends`` are offsets no block may cross."""

    record_ref = dy.String(primary_key=True)
    agent_id = dy.String(nullable=False)
    text = dy.String(nullable=False)
    recorded_at = dy.String(nullable=True, metadata=OPTIONAL)  # as stored, shown beside a quote
    node_ends = dy.List(dy.Int64(nullable=True), nullable=True, metadata=OPTIONAL)


class StoredBlocks(dy.Schema):
    """Block sets as stored, current or not. Key and row order: record_ref, block_index."""

    record_ref = dy.String(primary_key=True)
    block_index = dy.Int64(primary_key=True)
    start = dy.Int64(nullable=True)
    end = dy.Int64(nullable=True)
    embedding_model = dy.String(nullable=True)
    vector = dy.Binary(nullable=True)  # one signed byte a dimension; null or empty: no vector


class StoredNodes(dy.Schema):
    """Longer spans of a record with a float32 vector, as stored. Key and row order: record_ref, node_index."""

    record_ref = dy.String(primary_key=True)
    node_index = dy.Int64(primary_key=True)
    start = dy.Int64(nullable=True)
    end = dy.Int64(nullable=True)
    embedding_model = dy.String(nullable=True)
    embedding = dy.Binary(nullable=True)  # little-endian float32; null or empty: none


class Entities(dy.Schema):
    """Declared names and aliases. Key and row order: all columns."""

    agent_id = dy.String(primary_key=True)
    name = dy.String(primary_key=True)


class Parts(dy.Schema):
    """The parts of each question. Key and row order: question_id, part."""

    question_id = dy.String(primary_key=True)
    part = dy.Int32(primary_key=True)
    text = dy.String(nullable=False)  # after NFKC and lower case
    kind = dy.String(nullable=False)  # word, entity or recorded
    records_holding = dy.Int32(nullable=False)  # records of the window; 0: the window failed to bring it


class Sequences(dy.Schema):
    """A question's steps in spending order. Key and row order: question_id, position.

    A step is a passage, a head quote or an excerpt; ``ranges`` are the spans it shows, one or several, in text
    order, and start and end are the extent of them.
    """

    question_id = dy.String(primary_key=True)
    position = dy.Int32(primary_key=True)
    item_position = dy.Int32(nullable=False)
    claim_position = dy.Int32(nullable=False)  # 0: content of the item; others: its excerpts
    record_ref = dy.String(nullable=False)
    start = dy.Int32(nullable=False)
    end = dy.Int32(nullable=False)
    ranges = dy.List(
        dy.Struct({"start": dy.Int32(nullable=False), "end": dy.Int32(nullable=False)}, nullable=False),
        nullable=False,
    )
    basis = dy.String(nullable=False)  # passage; a quote: whole, blocks, lexical, start; an excerpt: block, node, start
    cost = dy.Int32(nullable=False)  # characters the step adds to what is shown
    used = dy.Int64(nullable=False)  # running sum of cost
    record_rank = dy.Int32(nullable=False)
    inside_rank = dy.Int32(nullable=True)  # null for a quote or an excerpt
    cosine_rank = dy.Int32(nullable=True)  # null there too, and where the question has no cosine at all
    parts = dy.List(dy.Int32(), nullable=True)  # null where the order has no coverage step
    new_parts = dy.List(dy.Int32(), nullable=True)


class RunRecords(dy.Schema):
    """The records a run's windows name, as they were when it was built. Key and row order: record_ref."""

    record_ref = dy.String(primary_key=True)
    length = dy.Int64(nullable=False)
    blocks = dy.Int64(nullable=False)
    divided = dy.Bool(nullable=False)  # it had no current block set
    sha256 = dy.String(nullable=False)  # of its time and text


class Points(dy.Schema):
    """What each question shows at each point. Key: question_id, point; row order: question_id, place.

    A point is a sequence with a budget, with a count of items, or whole.
    """

    question_id = dy.String(primary_key=True)
    point = dy.String(primary_key=True)  # SEQUENCE:BUDGET, SEQUENCE:topITEMS or SEQUENCE:all
    place = dy.Int64(nullable=False)  # of the point among the points
    sequence = dy.String(nullable=False)
    budget = dy.Int64(nullable=True)  # characters
    count = dy.Int64(nullable=True)  # items
    characters = dy.Int64(nullable=False)  # of quoted text with separators, what a budget counts
    items = dy.Int64(nullable=False)  # with something shown
    passages = dy.Int64(nullable=False)  # ranges taken
    omitted = dy.Int64(nullable=False)  # items of the window with nothing shown
    cl100k_base = dy.Int64(nullable=False)  # tokens of the rendered context
    o200k_base = dy.Int64(nullable=False)
    sha256 = dy.String(nullable=False)  # of the rendered context


class Metrics(dy.Schema):
    """What each point shows of a question's evidence, as counts. Key and row order: as Points.

    A turn is an evidence span. ``turns`` = not recalled + not quoted + outside + in part + whole.
    """

    question_id = dy.String(primary_key=True)
    point = dy.String(primary_key=True)
    answer_records = dy.Int64(nullable=False)
    answer_records_shown = dy.Int64(nullable=False)
    turns = dy.Int64(nullable=False)
    turns_not_recalled = dy.Int64(nullable=False)  # its record is not in the window
    turns_not_quoted = dy.Int64(nullable=False)  # nothing of its record is shown
    turns_outside = dy.Int64(nullable=False)  # its record is shown, it is not
    turns_in_part = dy.Int64(nullable=False)
    turns_whole = dy.Int64(nullable=False)
    turn_characters = dy.Int64(nullable=False)  # a character in several turns counts once
    turn_characters_shown = dy.Int64(nullable=False)
    quoted_characters = dy.Int64(nullable=False)  # of records: without separators and labels
    answer_record_characters = dy.Int64(nullable=False)  # of these, from answer records
    repeated_characters = dy.Int64(nullable=False)  # of these, in blocks whose text is quoted before
    first_item = dy.Int64(nullable=True)  # item position of the first item that quotes an answer record
    answer_in_context = dy.Bool(nullable=True)  # null: the question has no short gold answer


class Curves(dy.Schema):
    """Every metric of every point over groups of questions, from the query ``curves``. Key: point, breakdown, value.

    Rates are 0 to 1; null where no question of the group has the metric. Its further columns are the metrics.
    """

    point = dy.String(primary_key=True)
    breakdown = dy.String(primary_key=True)  # all, question_type or split
    value = dy.String(primary_key=True)  # the type or split; all
    sequence = dy.String(nullable=False)
    budget = dy.Int64(nullable=True)
    count = dy.Int64(nullable=True)
    questions = dy.Int64(nullable=False)
    labelled = dy.Int64(nullable=False)  # of these, with evidence


class Answers(dy.Schema):
    """Graded answers of an answering model. Key and row order: question_id, context_sha256.

    An answer belongs to the bytes of the context it was given for, whatever point they were shown at.
    """

    question_id = dy.String(primary_key=True)
    context_sha256 = dy.String(primary_key=True)
    point = dy.String(nullable=False)  # it was imported for
    correct = dy.Bool(nullable=False)
    prompt_tokens = dy.Int64(nullable=True, metadata=OPTIONAL)  # what the model was sent, as it reports
    source = dy.String(nullable=False)  # file it was imported from
    source_sha256 = dy.String(nullable=False)


class Rejects(dy.Schema):
    """Input rows that could not be used. Row order: source, row, reason."""

    source = dy.String(nullable=False)  # name of the input
    row = dy.Int64(nullable=False)  # counted from 1
    key = dy.String(nullable=False)
    reason = dy.String(nullable=False)


Schema = TypeVar("Schema", bound=dy.Schema)


def conform(frame: pl.DataFrame, table: type[dy.Schema], source: str) -> pl.DataFrame:
    """``frame`` with the columns and dtypes of ``table``; further columns are dropped, row order is kept.

    Optional columns that are missing become null. Integers and floats may come in another width.

    Raises:
        InputError: a required column is missing, or a column holds values of another type.
    """
    columns = table.columns()
    missing = [name for name, column in columns.items() if name not in frame.columns and not _optional(column)]
    if missing:
        raise InputError(
            f"{source}: {len(missing)} of {len(columns)} columns missing: {', '.join(missing)}; "
            f"it has {', '.join(frame.columns) or 'none'}"
        )
    casts = []
    for name, column in columns.items():
        if name not in frame.columns:
            casts.append(pl.lit(None, dtype=column.dtype).alias(name))
            continue
        actual = frame.schema[name]
        if not _same_kind(actual, column.dtype):
            raise InputError(f"{source}: column {name} is {actual}, expected {column.dtype}; convert it and run again")
        casts.append(pl.col(name).cast(column.dtype))
    try:
        return frame.select(casts)
    except pl.exceptions.InvalidOperationError as error:
        raise InputError(f"{source}: a value does not fit its column: {str(error).splitlines()[0]}") from error


def _optional(column: dy.Column) -> bool:
    return bool((column.metadata or {}).get("optional"))


def _same_kind(actual: pl.DataType, expected: pl.DataType) -> bool:
    if actual == pl.Null:
        return True
    if isinstance(expected, pl.List):
        return isinstance(actual, (pl.List, pl.Array)) and _same_kind(actual.inner, expected.inner)  # type: ignore[arg-type]
    if expected.is_integer():
        return actual.is_integer()
    if expected.is_float():
        return actual.is_numeric()
    return actual == expected or (expected == pl.String and isinstance(actual, (pl.Categorical, pl.Enum)))
