"""Points and metrics against the slow twin, which renders each context and counts its characters one by one."""

from functools import cache
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import chain, curves, points, queries
from allocation.settings import POLICIES, Settings
from allocation.tables import Evidence, Metrics, Points
from tests import curve_oracles, frames, sample, strategies
from tests.curve_oracles import Row

NAMES = (*chain.COMPARED, *chain.QUOTE_CURVE, "oracle")
COUNTED = ("question_id", "point", "characters", "items", "passages", "omitted")


def batch_of(given_shard: chain.Shard, policy: str = "merge", names: tuple[str, ...] = NAMES) -> curves.Batch:
    built, _ = chain.build(given_shard, Settings(passages=policy), names)
    own = (given_shard.questions, given_shard.windows, given_shard.evidence, given_shard.records, given_shard.blocks)
    return curves.Batch(*own, built)


def expected(batch: curves.Batch, cuts: list[points.Point]) -> tuple[list[Row], list[Row]]:
    """Points (but for tokens and hashes) with their contexts, and Metrics, by the twin."""
    case = frames.case_of(batch.questions, batch.windows, batch.records, batch.blocks)
    times = dict(batch.records.select("record_ref", "recorded_at").iter_rows())
    texts = {ref: (record["text"], times[ref]) for ref, record in case["records"].items()}
    blocks = curve_oracles.blocks_of(case["records"])
    labels: dict[str, dict[str, list[Any]]] = {}
    for question, ref, start, end in batch.evidence.iter_rows():
        labels.setdefault(question, {}).setdefault(ref, []).append(None if start is None else (start, end))
    steps = {
        name: {key[0]: rows.to_dicts() for key, rows in own.partition_by("question_id", as_dict=True).items()}
        for name, own in batch.sequences.items()
    }
    shown, counted = [], []
    for question in sorted(case["questions"], key=lambda question: question["question_id"]):
        key = question["question_id"]
        heads = {row["item_position"]: row["record_ref"] for row in question["window"] if row["claim_position"] == 0}
        window = {row["record_ref"] for row in question["window"]}
        for cut in cuts:
            own = curve_oracles.taken(steps[cut.sequence].get(key, []), {"budget": cut.budget, "count": cut.count})
            items = {step["item_position"] for step in own}
            context, searched = curve_oracles.rendered(own, texts, heads)
            shown.append(
                {
                    "question_id": key,
                    "point": cut.name,
                    "characters": sum(step["cost"] for step in own),
                    "items": len(items),
                    "passages": sum(len(step["ranges"]) for step in own),
                    "omitted": len(heads) - len(items),
                    "context": context,
                }
            )
            answer = curve_oracles.answer_shown(question["answer"], searched)
            metrics = curve_oracles.metrics(own, labels.get(key, {}), window, blocks)
            counted.append({"question_id": key, "point": cut.name, **metrics, "answer_in_context": answer})
    return shown, counted


def compare(batch: curves.Batch, cuts: list[points.Point]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both, which must be equal in every row and column; returns the product's."""
    found, metrics = curves.measure(batch, cuts)
    shown, counted = expected(batch, cuts)
    assert found.select(COUNTED).to_dicts() == [{name: row[name] for name in COUNTED} for row in shown]
    hashes = [curves.contexts.hashes(pl.Series([row["context"]]))[0] for row in shown]
    assert found["sha256"].to_list() == hashes
    assert metrics.to_dicts() == counted
    return found, metrics


@cache
def sample_measured() -> tuple[pl.DataFrame, pl.DataFrame]:
    return compare(batch_of(sample.shard()), points.standard(NAMES))


def test_the_sample_at_every_point() -> None:
    found, metrics = sample_measured()
    Points.validate(found)
    Metrics.validate(metrics)
    assert len(found) == 60 * (7 * 9 + 8 + 3)
    # What would be missed if the sample did not hold it.
    totals = metrics.select(pl.col("^turns.*$", "repeated_characters").sum()).row(0, named=True)
    assert min(totals.values()) > 0
    assert metrics["answer_in_context"].value_counts()["count"].min() > 0


def test_the_servers_policy() -> None:
    """Its excerpts follow the passages; episodes are quoted from their start, behind a label."""
    cuts = [points.Point(name, budget=budget) for name in chain.COMPARED for budget in (0 + 1, 900, 2800, 10**6)]
    compare(batch_of(sample.shard(), "server", chain.COMPARED), cuts)


@st.composite
def labelled(draw: st.DrawFn) -> tuple[dict[str, Any], list[Row]]:
    """A drawn case with evidence of any kind: overlapping, repeated, without a span, outside the window."""
    case = draw(strategies.cases())
    rows = []
    for question in case["questions"]:
        for _ in range(draw(st.integers(0, 5))):
            ref = draw(st.sampled_from([*case["records"], "mem:987654"]))
            row: Row = {"question_id": question["question_id"], "record_ref": ref, "start": None, "end": None}
            length = len(case["records"][ref]["text"]) if ref in case["records"] else 9
            if length and draw(st.integers(0, 5)):
                row["start"] = draw(st.integers(0, length - 1))
                row["end"] = draw(st.integers(row["start"] + 1, length))
            rows.append(row)
    return case, rows


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30)
@given(drawn=labelled(), answer=st.sampled_from([None, "ends", "The", "日本", "no", "a b"]))
def test_generated_cases(policy: str, drawn: tuple[dict[str, Any], list[Row]], answer: str | None) -> None:
    case, rows = drawn
    questions, windows, records, blocks = frames.frames_of(case)
    questions = questions.with_columns(answer=pl.lit(answer, dtype=pl.String))
    records = records.with_columns(recorded_at=pl.lit(None, dtype=pl.String))
    none = (frames.StoredNodes.create_empty(), frames.Entities.create_empty())
    evidence = frames.table(Evidence, rows).sort("question_id", "record_ref", "start", "end")
    given_shard = chain.Shard(questions, windows, records, blocks, *none, evidence)
    names = ("items", "evidence", "coverage", "items@20/9")
    cuts = [points.Point(name, budget=budget) for name in names for budget in (1, 30, 200, 10**6)]
    cuts += [points.Point(name, count=count) for name in names for count in (1, 2)]
    compare(batch_of(given_shard, policy, names), [*cuts, points.Point("items"), points.Point("evidence")])


def test_questions_without_window_or_labels() -> None:
    given_shard = sample.shard()
    without = pl.col("question_id") != "q001"
    batch = batch_of(given_shard)
    bare = curves.Batch(
        batch.questions,
        batch.windows.filter(without),
        batch.evidence.filter(pl.col("question_id") != "q002"),
        batch.records,
        batch.blocks,
        {name: rows.filter(without) for name, rows in batch.sequences.items()},
    )
    found, metrics = compare(bare, [points.Point("items"), points.Point("coverage", budget=700)])
    lost = metrics.filter(pl.col("question_id") == "q001").row(0, named=True)
    assert (lost["answer_records"], lost["turns"], lost["turns_not_recalled"]) == (1, 1, 1)
    assert found.filter(pl.col("question_id") == "q001")["cl100k_base"].to_list() == [0, 0]
    assert metrics.filter(pl.col("question_id") == "q002")["answer_records"].to_list() == [0, 0]


def test_batches_one_by_one_equal_one_call() -> None:
    batch, cuts = batch_of(sample.shard()), points.standard(("items", "coverage"))
    whole = curves.measure(batch, cuts)
    halves = []
    for part in (batch.questions[:25], batch.questions[25:]):
        own = pl.col("question_id").is_in(part["question_id"].implode())
        sequences = {name: rows.filter(own) for name, rows in batch.sequences.items() if name in ("items", "coverage")}
        windows, evidence = batch.windows.filter(own), batch.evidence.filter(own)
        records, blocks = (
            rows.join(windows, on="record_ref", how="semi", maintain_order="left")
            for rows in (batch.records, batch.blocks)
        )
        halves.append(curves.measure(curves.Batch(part, windows, evidence, records, blocks, sequences), cuts))
    for number in range(2):
        assert pl.concat([half[number] for half in halves]).equals(whole[number])


# Rates

MEANS = {
    "sessions_shown": lambda m, p: (m["answer_records_shown"], m["answer_records"]),
    "all_shown": lambda m, p: (
        int(0 < m["answer_records"] == m["answer_records_shown"]),
        int(m["answer_records"] > 0),
    ),
    "turns_touched": lambda m, p: (m["turns_in_part"] + m["turns_whole"], m["turns"]),
    "turn_characters": lambda m, p: (m["turn_characters_shown"], m["turn_characters"]),
    "answer_in_context": lambda m, p: (int(m["answer_in_context"] is True), int(m["answer_in_context"] is not None)),
    "first_item_is_answer": lambda m, p: (int(m["first_item"] == 0), int(m["answer_records"] > 0)),
}
POOLED = {
    "evidence_share": lambda m, p: (m["answer_record_characters"], m["quoted_characters"] * (m["answer_records"] > 0)),
    "turn_characters_per_1k_tokens": lambda m, p: (
        1000 * m["turn_characters_shown"],
        p["cl100k_base"] * (m["turns"] > 0),
    ),
    "duplicate_share": lambda m, p: (m["repeated_characters"], m["quoted_characters"]),
    "first_item": lambda m, p: (m["first_item"] or 0, int(m["first_item"] is not None)),
    **{
        f"turns_{fate}": lambda m, p, fate=fate: (m[f"turns_{fate}"], m["turns"])
        for fate in ("not_recalled", "not_quoted", "outside", "in_part", "whole")
    },
    **{
        size: lambda m, p, size=size: (p[size], 1)
        for size in ("characters", "items", "passages", "omitted", "cl100k_base", "o200k_base")
    },
}


@cache
def sample_curves() -> pl.DataFrame:
    return curves.over_groups(*sample_measured(), sample.shard().questions)


def test_rates_are_those_of_exact_fractions() -> None:
    found, metrics = (frame.to_dicts() for frame in sample_measured())
    questions = {row["question_id"]: row for row in sample.shard().questions.to_dicts()}
    groups: dict[tuple[str, str, str], list[tuple[Row, Row]]] = {}
    for point, metric in zip(found, metrics, strict=True):
        own = questions[point["question_id"]]
        for group in (("all", "all"), ("question_type", own["question_type"]), ("split", own["split"])):
            groups.setdefault((point["point"], *group), []).append((metric, point))
    curve_rows = sample_curves().to_dicts()
    assert len(curve_rows) == len(groups)
    for row in curve_rows:
        own = groups[row["point"], row["breakdown"], row["value"]]
        assert row["questions"] == len(own)
        assert row["labelled"] == sum(metric["answer_records"] > 0 for metric, _ in own)
        for name, fraction in MEANS.items():
            parts = [fraction(*pair) for pair in own]
            assert row[name] == curve_oracles.mean(parts), (name, row["point"])
            known = [part / whole for part, whole in parts if whole]
            assert not known or row[name] == pytest.approx(sum(known) / len(known), abs=1e-9)
        for name, fraction in POOLED.items():
            assert row[name] == curve_oracles.pooled([fraction(*pair) for pair in own]), (name, row["point"])


def test_every_metric_is_in_the_curves() -> None:
    columns = ("point", "breakdown", "value", "sequence", "budget", "count", "questions", "labelled")
    assert sorted(set(sample_curves().columns) - set(columns)) == sorted([*MEANS, *POOLED])


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_neither_threads_nor_row_order_change_a_bit(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = queries.duckdb.connect

    def connected() -> Any:
        connection = connect()
        connection.execute(f"SET threads = {threads}")
        return connection

    monkeypatch.setattr(queries.duckdb, "connect", connected)
    shuffled = [frame.sample(fraction=1, shuffle=True, seed=threads) for frame in sample_measured()]
    again = curves.over_groups(*shuffled, sample.shard().questions.sample(fraction=1, shuffle=True, seed=threads))
    assert again.equals(sample_curves())


def test_groups_without_a_name() -> None:
    questions = sample.shard().questions.with_columns(
        question_type=pl.lit(None, dtype=pl.String), split=pl.when(pl.col("question_id") == "q001").then(pl.lit("dev"))
    )
    rows = curves.over_groups(*sample_measured(), questions)
    counts = rows.filter(pl.col("point") == "items:all").select("breakdown", "value", "questions").rows()
    assert counts == [("all", "all", 60), ("question_type", "(none)", 60), ("split", "(none)", 59), ("split", "dev", 1)]
