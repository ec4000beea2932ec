import polars as pl
import pytest
from rich.console import Console

from allocation import block_sets
from jobs import bench
from jobs.store import open_store


@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
def test_generated_work(tmp_path, kind):
    work = bench.generate(tmp_path, 2, kind)

    refs = pl.read_parquet(work.windows)["record_ref"]
    with open_store(work.store) as store:
        records, blocks = store.records(refs), store.blocks(refs)
    assert len(records) == refs.n_unique() == records["text"].n_unique() == 2 * bench.RECORDS
    assert records["text"].str.len_chars().mean() == pytest.approx(10_000, rel=0.1)
    built = block_sets.build(records, blocks)
    assert len(built) == len(blocks)  # every set is current: none was divided again
    assert built["width"].unique().to_list() == [bench.DIMENSIONS]


def test_the_same_seed_gives_the_same_store(tmp_path):
    contents = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        work = bench.generate(tmp_path / name, 1, "parquet")
        contents.append([path.read_bytes() for path in sorted(work.store.iterdir())])
    assert contents[0] == contents[1]


def test_measure(tmp_path):
    work = bench.generate(tmp_path, 2, "sqlite")

    figures = bench.measure(work, runs=1, shard_size=1, jobs=1, sequences="items,evidence")

    assert list(figures["whole"]) == ["job", "floor", "start"]
    steps = figures["steps"]
    assert steps["read inputs"]["rows_out"] == 2 * bench.RECORDS
    assert steps["write"]["rows_in"] == steps["write"]["rows_out"]
    assert steps["write"]["rows_out"] == steps["items_costs"]["rows_out"] + steps["evidence_costs"]["rows_out"]
    assert steps["ranks"]["rows_out"] < steps["similarity"]["rows_out"]
    console = Console(record=True, width=120)
    for table in bench.tables(figures):
        console.print(table)
    text = console.export_text()
    assert "job / floor" in text
    assert "block_places" in text
