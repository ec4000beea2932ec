"""The algorithm: ``rank``, one step a line, and ``build``, each sequence from it (DESIGN.md, "The chain")."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from allocation import block_sets, costs, fusion, parts, passages, quotes, ranges, ranks, server, similarity, steps
from allocation.errors import InputError
from allocation.settings import Settings
from allocation.tables import Parts, Sequences
from allocation.text import Corpus

Watch = Callable[[str, pl.DataFrame], pl.DataFrame]

COMPARED = ("items", "evidence", "whole", "coverage")
QUOTE_CURVE = ("items@500/250", "items@320/160")
YARDSTICKS = ("oracle", "cosine", "recall")
_ITEMS = re.compile(r"items(?:@([1-9][0-9]{0,5})/([1-9][0-9]{0,5}))?")
_QUOTE_SIZES = (800, 400)


@dataclass(frozen=True)
class Shard:
    """Some questions with all that their sequences are made from."""

    questions: pl.DataFrame  # Questions
    windows: pl.DataFrame  # Windows of these questions
    records: pl.DataFrame  # Records the windows name
    blocks: pl.DataFrame  # StoredBlocks of these records
    nodes: pl.DataFrame  # StoredNodes of these records
    entities: pl.DataFrame  # Entities of these agents
    evidence: pl.DataFrame | None = None  # Evidence; what only the oracle reads


@dataclass(frozen=True)
class Ranked:
    """A shard after everything that does not depend on the sequence."""

    questions: pl.DataFrame
    window: pl.DataFrame  # window rows, numbered
    records: pl.DataFrame
    corpus: Corpus
    pairs: pl.DataFrame  # question x block of every window row, with the block's place in its record
    passages: pl.DataFrame  # with the three ranks, in fused order
    # Found once, when first needed: the Parts and the mask of each step to cover, by what they depend on; excerpts.
    held: dict[tuple[str, float], tuple[pl.DataFrame, pl.DataFrame]] = field(default_factory=dict)
    quoted: list[pl.DataFrame] = field(default_factory=list)


def _unwatched(_step: str, frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def names_of(text: str) -> list[str]:
    """The sequences named in a list by commas.

    Raises:
        InputError: a name that is no sequence.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in COMPARED + YARDSTICKS and not _ITEMS.fullmatch(name):
            known = ", ".join(COMPARED + YARDSTICKS)
            raise InputError(f"sequence {name!r} is unknown; choose from {known}, items@FIRST/REST")
    if not names:
        raise InputError("no sequence named; choose one at least")
    return list(dict.fromkeys(names))


def build(
    shard: Shard, settings: Settings, names: Sequence[str] = COMPARED, watch: Watch = _unwatched
) -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    """Every named sequence of every question, and the questions' parts.

    Args:
        shard: Questions and what they are answered from.
        settings: How passages are made and ordered.
        names: What to build, as ``names_of`` gives them.
        watch: Called with the name and the table of each step; returns the table.

    Returns:
        Sequences by name, each ordered by question_id, position; and Parts (empty unless coverage is built).

    Raises:
        ValueError: ``oracle`` without evidence.
    """
    ranked = rank(shard, settings, watch)
    built = {}
    for name in names:
        ordered = watch(name, order(name, ranked, shard, settings))
        later = excerpts(name, ranked, shard, settings)
        built[name] = watch(f"{name}_costs", sequence(ordered, later, ranked.window))
    found = [parts_found for parts_found, _ in ranked.held.values()]
    return built, found[0] if found else Parts.create_empty()


def reordered(ranked: Ranked, settings: Settings) -> Ranked:
    """The same passages in the fused order of other settings, of which only k and the weights may differ."""
    passages = fusion.order(ranked.passages.drop("position"), settings.rrf_k, settings.weights)
    return replace(ranked, passages=passages)


def rank(shard: Shard, settings: Settings, watch: Watch = _unwatched) -> Ranked:
    """Passages of every question with their three ranks, in fused order."""
    own = settings.passages == "server"
    questions, records = shard.questions.sort("question_id"), shard.records.sort("record_ref")
    corpus = Corpus(records["text"])
    window = _numbered(shard.windows, questions, records, corpus)
    window = ranks.of_records(window, "item_position" if own else "recall_rank")

    blocks = watch("blocks", block_sets.build(records, shard.blocks))
    blocks = watch("ranges", ranges.governing(blocks, corpus))
    if not own:
        blocks = watch("passages", passages.merge(blocks, corpus, settings.passage_limit))
    pairs = _pairs(window, blocks)
    pairs = watch("similarity", similarity.add(pairs, questions, blocks, corpus))
    if own:
        pairs = watch("server_cosines", server.add_cosines(pairs, questions, blocks))
    pairs = watch("block_places", ranks.block_places(pairs))
    folded = server.passages(_of_heads(pairs, window), questions, blocks, corpus.lengths) if own else ranks.fold(pairs)
    ranked = watch("ranks", ranks.add(folded.join(window, on="window_row")))
    ordered = watch("fused_order", fusion.order(ranked, settings.rrf_k, settings.weights))
    return Ranked(questions, window, records, corpus, pairs, ordered.drop("place", "cosine_key", "recall_rank"))


def _numbered(windows: pl.DataFrame, questions: pl.DataFrame, records: pl.DataFrame, corpus: Corpus) -> pl.DataFrame:
    """Window rows with window_row, question and record: row numbers, quicker to group by than names."""
    numbered_records = records.select("record_ref", length=pl.Series(corpus.lengths)).with_row_index("record")
    return (
        windows.sort("question_id", "item_position", "claim_position")
        .join(questions.select("question_id").with_row_index("question"), on="question_id", maintain_order="left")
        .join(numbered_records, on="record_ref", maintain_order="left")
        .with_row_index("window_row")
        .with_columns(pl.col("window_row", "question", "record", "item_position", "claim_position").cast(pl.Int64))
    )


def _pairs(window: pl.DataFrame, blocks: pl.DataFrame) -> pl.DataFrame:
    """A row for each question and block of its window, ordered by window_row, block_index."""
    numbered_blocks = blocks.select(
        pl.exclude("record_ref", "start", "end", "vector", "width"),
        stored=pl.col("vector").is_not_null(),
        block=pl.int_range(pl.len(), dtype=pl.Int64),
    )
    return window.select("window_row", "question", "record").join(
        numbered_blocks, on="record", maintain_order="left_right"
    )


def _of_heads(pairs: pl.DataFrame, window: pl.DataFrame) -> pl.DataFrame:
    heads = window.filter(pl.col("claim_position") == 0).select("window_row")
    return pairs.join(heads, on="window_row", how="semi", maintain_order="left")


def order(name: str, ranked: Ranked, shard: Shard, settings: Settings) -> pl.DataFrame:
    """The steps of one sequence in their order, without the excerpts behind them; passages still without their costs.

    Raises:
        ValueError: ``oracle`` without evidence.
    """
    fused = ranked.passages
    sizes = _ITEMS.fullmatch(name)
    if sizes:
        first, rest = (int(size) for size in sizes.groups()) if sizes[1] else _QUOTE_SIZES
        return quotes.heads(ranked.pairs, ranked.window, first, rest)
    if name == "evidence":
        return fused
    if name == "whole":
        return steps.whole(fused)
    if name == "coverage":
        return _covered(ranked, shard, settings)
    if name == "oracle":
        if shard.evidence is None:
            raise ValueError("oracle needs evidence")
        return steps.oracle(fused, shard.evidence)
    if name == "recall":
        return steps.recall(fused)
    return fusion.order(fused, settings.rrf_k, {"cosine_rank": 1})


def excerpts(name: str, ranked: Ranked, shard: Shard, settings: Settings) -> pl.DataFrame | None:
    """The excerpts behind the steps of a sequence, where it has any: behind head quotes and the server's passages."""
    if not _ITEMS.fullmatch(name) and settings.passages != "server":
        return None
    if not ranked.quoted:
        found = quotes.excerpts(ranked.pairs, ranked.window, shard.nodes, ranked.questions, ranked.corpus)
        ranked.quoted.append(found)
    return ranked.quoted[0]


def _covered(ranked: Ranked, shard: Shard, settings: Settings) -> pl.DataFrame:
    """The covered order. What a step holds depends on neither k nor weights nor steps, and is found once."""
    base = steps.whole(ranked.passages) if settings.coverage_base == "whole" else ranked.passages
    step = ("window_row", "passage_start", "passage_end")
    key = (settings.coverage_base, settings.rare_share)
    if key not in ranked.held:
        found, held = parts.build(
            ranked.questions, ranked.window, ranked.records, ranked.corpus, base, shard.entities, settings
        )
        ranked.held[key] = found, held.select(*step, "mask")
    masked = base.join(ranked.held[key][1], on=step, how="left", maintain_order="left")
    return steps.covered(masked, settings.step_up, settings.step_down, settings.keep_records)


def sequence(ordered: pl.DataFrame, later: pl.DataFrame | None, window: pl.DataFrame) -> pl.DataFrame:
    """Steps by position (``order``), and the ``excerpts`` behind them in rounds, as Sequences."""
    if "ranges" not in ordered.columns:
        span = pl.struct(start="passage_start", end="passage_end").cast(quotes.Range)
        ordered = costs.add(ordered).with_columns(ranges=pl.concat_list(span), basis=pl.lit("passage"))
    fields = ("question_id", "item_position", "claim_position", "record_ref", "record_rank")
    may_be_missing = pl.DataFrame(
        schema=dict.fromkeys(("inside_rank", "cosine_rank", "mask", "new_mask", "round"), pl.Int64)
    )
    tail = [] if later is None else [later]
    rows = (
        pl.concat([may_be_missing, ordered, *tail], how="diagonal_relaxed")
        .select(pl.exclude("question", *fields))
        .join(window.select("window_row", "question", *fields), on="window_row")
        .sort("question", pl.col("round").fill_null(-1), "position", "item_position")
        .pipe(fusion.numbered)
    )
    columns = Sequences.columns()
    return rows.with_columns(
        start=pl.col("ranges").list.first().struct.field("start"),
        end=pl.col("ranges").list.last().struct.field("end"),
        used=pl.col("cost").cum_sum().over("question", order_by="position"),
        parts=parts.as_lists(rows["mask"]),
        new_parts=parts.as_lists(rows["new_mask"]),
    ).select(pl.col(name).cast(column.dtype) for name, column in columns.items())
