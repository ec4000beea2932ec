"""The sweep: what it reuses must not change what it finds."""

import tomllib

import polars as pl
import pytest
from typer.testing import CliRunner

from allocation import chain, curves, points, queries, sweep
from allocation.errors import InputError
from allocation.settings import Settings
from jobs import sweep as job
from tests import sample

GRID = """
sequences = ["items", "items@320/160", "evidence", "coverage", "whole"]
budgets = [400, 2800]

[settings]
step_up = 3

[grid]
rrf_k = [60, 1]
cosine_weight = [1, 0.5]
rare_share = [0.5, 0.2]
coverage_base = ["evidence", "whole"]
passages = ["merge", "server"]
"""


def grid(text=GRID):
    return sweep.grid_of(tomllib.loads(text), "grid.toml")


def test_the_grid():
    found = grid()
    assert len(found.variants) == 2**5
    assert found.variants[0] == found.base == Settings(step_up=3)
    assert found.budgets == (400, 2800)
    assert len(sweep.cuts(found)) == 32 * 3 * 2 + 2 * 2  # quotes once
    assert grid("").variants == (Settings(),)
    assert grid("[grid]\nrrf_k = [1, 5]").variants == (Settings(), Settings(rrf_k=1), Settings(rrf_k=5))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seqences = []", "'seqences' is no key of a sweep"),
        ('split = "test"', "split = 'test': a sweep tunes, and so reads dev questions only"),
        ("sequences = []", "give sequences as a list of names"),
        ('sequences = ["evidnce"]', "sequence 'evidnce' is unknown"),
        ("budgets = [0]", "give sequences as a list of names and budgets as a list of characters"),
        ('budgets = ["500"]', "budgets as a list of characters"),
        ("[grid]\nrrf_k = 5", "[grid] a list of values for each setting"),
        ("[grid]\nrrf_k = []", "[grid] a list of values for each setting"),
        ("[grid]\nrrf_kk = [5]", "setting 'rrf_kk' does not exist"),
        ("[grid]\nrrf_k = [-5]", "setting rrf_k=-5: give a whole number"),
        ("[settings]\nrare_share = 2", "setting rare_share=2: give a number from 0 to 1"),
        (
            "[grid]\nrrf_k = [1, 2, 3]\nstep_up = [" + ",".join(map(str, range(700))) + "]",
            "2,100 variants; a sweep tries 2,000",
        ),
    ],
)
def test_a_typo(text, told):
    with pytest.raises(InputError) as refused:
        grid(text)
    assert told in str(refused.value)


def whole_chain(shard, settings, names, budgets):
    """The measures by building every sequence whole and drawing its curves."""
    built, _ = chain.build(shard, settings, names)
    batch = curves.Batch(shard.questions, shard.windows, shard.evidence, shard.records, shard.blocks, built)
    cuts = [points.Point(name, budget=budget) for name in names for budget in budgets]
    drawn = curves.measure(batch, cuts)
    measures = queries.run("measures", points=drawn[0], metrics=drawn[1])
    return measures.filter(pl.col("metric").is_in(sweep.METRICS)).with_columns(pl.col("part", "whole").cast(pl.Int64))


@pytest.mark.parametrize("shard", ["sample", "turn"])
def test_each_variant_measures_what_the_whole_chain_does(shard):
    """``turn`` has items with several claims, whose excerpts follow the quotes."""
    if shard == "turn" and not sample.LOCOMO.is_dir():
        pytest.skip("no LoCoMo")
    given = sample.shard() if shard == "sample" else sample.locomo("turn", 20)
    found = grid()
    measured = sweep.measure(given, found)
    for variant in (0, 5, 10, 22, 31):
        names = [name for name in found.sequences if variant == 0 or not name.startswith("items")]
        expected = whole_chain(given, found.variants[variant], names, found.budgets)
        own = measured.filter(pl.col("point").str.starts_with(f"{variant} "))
        own = own.with_columns(pl.col("point").str.strip_prefix(f"{variant} "))
        order = ["question_id", "point", "metric"]
        assert own.sort(order).equals(expected.select(own.columns).sort(order))


def test_the_table_by_hand():
    """Two questions of one turn each: the base touches one, the variant both."""
    found = grid('sequences = ["evidence"]\nbudgets = [100]\n[grid]\nrrf_k = [1]')
    names = [cut.name for cut in sweep.cuts(found)]
    rows = [
        {"question_id": question, "point": name, "metric": metric, "part": part, "whole": 10**9}
        for name, parts in zip(names, [(10**9, 0), (10**9, 10**9)], strict=True)
        for question, part in zip(("q1", "q2"), parts, strict=True)
        for metric in sweep.METRICS
    ]
    table = sweep.table(pl.DataFrame(rows).sample(fraction=1, shuffle=True, seed=1), found)
    touched = table.filter(pl.col("metric") == "turns_touched")
    columns = ("variant", "rrf_k", "rate", "base_rate", "difference", "low", "high", "clear")
    assert touched.select(columns).rows() == [
        (0, 60, 0.5, 0.5, 0, 0, 0, False),
        (1, 1, 1, 0.5, 0.5, 0, 1, False),  # 1/2 of the resamples hold each question once, 1/4 one of them twice
    ]


def test_other_quote_sizes_are_compared_with_items():
    table = sweep.table(sweep.measure(sample.shard(), grid()), grid())
    own = table.filter(pl.col("sequence") == "items@320/160", pl.col("budget") == 400)
    items = table.filter(pl.col("sequence") == "items", pl.col("budget") == 400)
    assert own["base_rate"].to_list() == items["rate"].to_list()


def run(*arguments):
    return CliRunner().invoke(job.app, [str(argument) for argument in arguments])


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text('sequences = ["evidence"]\nbudgets = [1000]\n[grid]\nrrf_k = [1, 60]\n')
    return path


def test_the_command_reads_dev_questions_only(settings, tmp_path):
    result = run(settings, "--out", tmp_path / "sweep")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("20 development questions, 2 variants")
    table = pl.read_parquet(tmp_path / "sweep" / "sweep.parquet")
    assert table["rrf_k"].unique().sort().to_list() == [1, 60]
    assert (tmp_path / "sweep" / "charts" / "sweep.svg").is_file()
    dev = sample.shard().questions.filter(pl.col("split") == "dev")
    own = chain.Shard(
        dev,
        sample.shard().windows.join(dev, on="question_id", how="semi"),
        *(getattr(sample.shard(), name) for name in ("records", "blocks", "nodes", "entities")),
        sample.shard().evidence.join(dev, on="question_id", how="semi"),
    )
    found = grid(settings.read_text())
    assert table.equals(sweep.table(sweep.measure(own, found), found))
    assert run(settings, "--out", tmp_path / "sweep").exit_code == 0  # replaces the earlier one


def test_what_the_command_refuses(settings, tmp_path, work):
    work.build()
    cases = [
        ((tmp_path / "none.toml",), "none.toml: cannot be read as TOML"),
        ((settings, *work.arguments()[:6]), "a sweep is judged by evidence labels; give --evidence"),
        ((settings, "--out", work.out), "is the output of a run, which a sweep does not replace"),
    ]
    labels = work.folder / "evidence.csv"
    labels.write_text("question_id,record_ref\nq1,mem:1\n")
    cases.append(((settings, *work.arguments()[:6], "--evidence", labels), "no question has split dev"))
    for arguments, told in cases:
        result = run(*arguments)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.stderr
        assert told in result.stderr
