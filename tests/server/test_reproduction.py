"""The real memory server on what LoCoMo lacks: its own answers, and ours with the server policy."""

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from allocation import chain, inputs, render
from allocation.settings import Settings
from allocation.tables import Questions, Windows
from jobs import tabular
from jobs.store import open_store

pytest.importorskip("cpersona", reason="the memory server's package is not installed")

ROOT = Path(__file__).parents[2]
RANKED = ["question_id", "position", "record_ref", "start", "end", "record_rank", "inside_rank", "cosine_rank"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store the server built, and what it answered."""
    folder = tmp_path_factory.mktemp("server")
    subprocess.run(
        [sys.executable, "-m", "tests.server.record", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
        env=os.environ | {"PYTHONWARNINGS": "default"},
    )
    return folder


@pytest.fixture(scope="module")
def built(recorded: Path) -> dict[str, pl.DataFrame]:
    """Our sequences with the server policy, over the store the server built."""
    with open_store(recorded / "store.db") as store:
        questions, _ = inputs.questions(tabular.read(recorded / "questions.parquet", Questions), "questions")
        named = tabular.read(recorded / "windows.parquet", Windows)
        refs = named["record_ref"].unique().sort()
        windows, rejects = inputs.windows(
            named, "windows", questions, store.problems(refs).select("record_ref", "problem")
        )
        assert rejects.is_empty()
        shard = chain.Shard(
            questions,
            windows,
            store.records(refs),
            store.blocks(refs),
            store.nodes(refs),
            store.entities(questions["agent_id"].unique().sort()),
        )
        sequences, _ = chain.build(shard, Settings(passages="server"), ("items", "evidence", "whole"))
        return sequences | {"records": shard.records}


@pytest.mark.parametrize("name", ["evidence", "whole"])
def test_orders(recorded: Path, built: dict[str, pl.DataFrame], name: str) -> None:
    expected = pl.read_parquet(recorded / "expected_sequence.parquet").filter(pl.col("sequence") == name)
    ours = built[name].filter(pl.col("basis") == "passage").select(RANKED)
    assert len(expected) > 4000
    assert ours.to_dicts() == expected.select(RANKED).sort("question_id", "position").to_dicts()


@pytest.mark.parametrize("name", ["items", "evidence", "whole"])
def test_responses(recorded: Path, built: dict[str, pl.DataFrame], name: str) -> None:
    """Heads, ranges, quote lengths, excerpts and used budget at every budget the server was asked for."""
    items = pl.read_parquet(recorded / "expected_items.parquet").filter(pl.col("sequence") == name)
    excerpts = pl.read_parquet(recorded / "expected_excerpts.parquet").filter(pl.col("sequence") == name)
    asked = ["question_id", "budget"]
    assert items["question_id"].n_unique() == 31
    compared = 0
    for (question_id, budget), expected in items.sort(*asked, "item_position").group_by(asked, maintain_order=True):
        own = built[name].filter(pl.col("question_id") == question_id)
        shown = render.response(own, built["records"], int(expected["effective_budget"][0]))
        assert shown["used"] == expected["used_budget"][0]
        quoted = [(i["record_ref"], i["ranges"], len(i["content"]), len(i["excerpts"])) for i in shown["items"]]
        columns = expected.select("head_ref", "ranges", "quote_chars", "excerpts")
        assert quoted == list(columns.iter_rows()), (question_id, budget)
        same = (pl.col("question_id") == question_id) & pl.col("budget").eq_missing(budget)
        theirs = excerpts.filter(same).sort("item_position", "excerpt_position")
        ours = [
            (position, place, e["record_ref"], *e["ranges"][0], len(e["content"]))
            for position, item in enumerate(shown["items"])
            for place, e in enumerate(item["excerpts"])
        ]
        wanted = ("item_position", "excerpt_position", "record_ref", "start", "end", "quote_chars")
        assert ours == list(theirs.select(wanted).iter_rows()), (question_id, budget)
        if name == "items":
            assert [i["steps"][0]["basis"] for i in shown["items"]] == expected["quote_basis"].to_list()
        compared += 1
    assert compared >= 4 * 31
