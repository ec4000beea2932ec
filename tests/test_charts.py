"""The pictures of the instruments: their data, what is missing, and names that look like syntax."""

from typing import Any

import polars as pl
import pytest
import vl_convert

from allocation import charts

HOSTILE = [
    "a'b\"c",
    "<b>bold</b>",
    "x.y[0]",
    "datum['z']",
    "日本語の質問",
    "very long " * 30,
    "back\\slash",
    "null",
    "2024-01-01",
]
METRICS = ("sessions_shown", "all_shown", "turns_touched", "turn_characters", "evidence_share", "answer_in_context")
FATES = ("turns_whole", "turns_in_part", "turns_outside", "turns_not_quoted", "turns_not_recalled")
EVERYTHING = ("items", "evidence", "whole", "coverage", "items@500/250", "items@320/160", "oracle")


def rates(count: int) -> dict[str, pl.Series]:
    rising = pl.Series([(place + 1) / (count + 1) for place in range(count)], dtype=pl.Float64)
    return dict.fromkeys((*METRICS, "cl100k_base"), rising)


def instruments(
    sequences: tuple[str, ...] = EVERYTHING,
    budgets: tuple[int, ...] = (500, 2800),
    types: tuple[str, ...] = ("one", "two"),
) -> dict[str, pl.DataFrame]:
    cuts = [(name, budget) for name in sequences for budget in budgets]
    named = [f"{name}:{budget}" for name, budget in cuts] + [f"{name}:all" for name in sequences if name[:5] == "items"]
    if "items" in sequences:
        named.append("items:top4")
    sizes = [{"items": "800/400"}.get(name, name[6:]) for name in sequences if name[:5] == "items"]
    counts = ["1", "2", "all"] if "items" in sequences else []
    places = ["best", "second", "third", "fourth or fifth", "later"]
    by_type = [(kind, *cut) for kind in types for cut in cuts]
    return {
        "budget_curve": pl.DataFrame(
            {"sequence": [c[0] for c in cuts], "budget": [c[1] for c in cuts], **rates(len(cuts))}
        ),
        "count_curve": pl.DataFrame({"items_shown": pl.Series(counts, dtype=pl.String), **rates(len(counts))}),
        "quote_curve": pl.DataFrame({"quote_size": pl.Series(sizes, dtype=pl.String), **rates(len(sizes))}),
        "quoted_text": pl.DataFrame(
            {"point": named, "cl100k_base": [1.0] * len(named), "evidence_share": [0.5] * len(named)}
        ),
        "losses": pl.DataFrame(
            {"point": named, "cl100k_base": [1.0] * len(named), **{name: [0.2] * len(named) for name in FATES}}
        ),
        "evidence_rank": pl.DataFrame(
            {"inside_rank": places, "turns": [4, 3, 2, 1, 0], "share": [0.4, 0.3, 0.2, 0.1, 0.0]}
        ),
        "by_type": pl.DataFrame(
            {
                "question_type": [row[0] for row in by_type],
                "sequence": [row[1] for row in by_type],
                "budget": [row[2] for row in by_type],
                "labelled": [1] * len(by_type),
                **rates(len(by_type)),
            }
        ),
    }


def specs(given: dict[str, pl.DataFrame]) -> dict[str, dict[str, Any]]:
    return {name: chart.to_dict() for name, chart in charts.draw(given).items()}


def values(spec: dict[str, Any], column: str) -> set[Any]:
    return {row[column] for rows in spec["datasets"].values() for row in rows if column in row}


def test_every_chart_is_drawn_and_can_be_rendered():
    drawn = specs(instruments())
    assert list(drawn) == ["budget_curve", "count_and_quote_curves", "losses", "evidence_rank", "by_type"]
    assert all(vl_convert.vegalite_to_svg(spec).startswith("<svg") for spec in drawn.values())


def test_budget_curve_has_every_sequence_and_the_oracle_dashed():
    given = instruments()
    spec = specs(given)["budget_curve"]
    assert len(spec["concat"]) == 4
    rows = spec["datasets"][spec["concat"][1]["layer"][0]["data"]["name"]]
    expected = given["budget_curve"].filter(pl.col("sequence") != "oracle")
    assert [(r["sequence"], r["budget"], r["rate"]) for r in rows] == list(
        expected.select("sequence", "budget", "turns_touched").iter_rows()
    )
    best = spec["concat"][1]["layer"][1]
    assert best["mark"]["strokeDash"]
    assert {row["sequence"] for row in spec["datasets"][best["data"]["name"]]} == {"oracle"}
    assert spec["concat"][0]["layer"][0]["encoding"]["x"]["axis"]["values"] == [500, 2800]


def colours(spec: dict[str, Any]) -> dict[str, str]:
    panel = spec["concat"][0]
    scale = panel.get("layer", [panel])[0]["encoding"]["color"]["scale"]
    return dict(zip(scale["domain"], scale["range"], strict=True))


def test_a_sequence_has_one_colour_everywhere():
    drawn = specs(instruments())
    few = specs(instruments(("evidence", "coverage")))
    whole = colours(drawn["budget_curve"])
    assert len(set(whole.values())) == len(EVERYTHING)
    for other in (drawn["by_type"], few["budget_curve"], few["by_type"]):
        assert colours(other).items() <= whole.items()


def test_count_and_quote_points_are_labelled():
    spec = specs(instruments())["count_and_quote_curves"]
    assert values(spec, "label") == {"1", "2", "all", "800/400", "500/250", "320/160"}


def test_labels_on_one_place_are_left_out_but_the_last():
    assert charts._apart(pl.Series([1.0, 9.0, 9.0]), pl.Series([0.1, 0.5, 0.5])) == [True, False, True]


def test_losses_have_the_points_that_are_compared():
    spec = specs(instruments())["losses"]
    assert values(spec, "shown") == {
        *("items, first 4 only", "items, all", "items@500/250, all", "items@320/160, all"),
        *(f"{name} at 2,800" for name in ("items", "evidence", "whole", "coverage", "oracle")),
    }
    assert len(values(spec, "fate")) == 5


def test_types_are_compared_at_the_nearest_budget():
    spec = specs(instruments(budgets=(700, 2000, 4000)))["by_type"]
    assert "at 2,000 characters" in spec["concat"][0]["title"]
    assert values(spec, "sequence") == {"items", "evidence", "whole", "coverage"}


@pytest.mark.parametrize(
    "sequences",
    [
        ("items", "evidence"),
        ("evidence",),
        ("oracle",),
        ("items@30/20",),
        ("cosine", "recall"),
        ("items@1/1", "items@2/2"),
    ],
)
def test_missing_sequences_leave_out_what_has_nothing_to_show(sequences):
    drawn = specs(instruments(sequences))
    assert ("by_type" in drawn) == any(name[:6] not in {"items@", "oracle"} for name in sequences)
    assert ("count_and_quote_curves" in drawn) == any(name.startswith("items") for name in sequences)
    for spec in drawn.values():
        vl_convert.vegalite_to_svg(spec)


def test_a_single_budget_is_drawn():
    for spec in specs(instruments(("items",), budgets=(1000,))).values():
        vl_convert.vegalite_to_svg(spec)


def test_nothing_to_show_draws_nothing():
    nothing = {
        name: frame.with_columns(
            pl.lit(None, dtype=pl.Float64).alias(c) for c in frame.columns if frame[c].dtype.is_float()
        )
        for name, frame in instruments().items()
    }
    nothing["evidence_rank"] = nothing["evidence_rank"].with_columns(turns=0)
    assert charts.draw(nothing) == {}
    assert charts.draw({name: frame.clear() for name, frame in instruments().items()}) == {}


def test_questions_without_types_have_no_chart_by_type():
    assert "by_type" not in specs(instruments(types=("(none)",)))


def test_names_from_data_show_as_they_are():
    spec = specs(instruments(types=tuple(HOSTILE)))["by_type"]
    assert values(spec, "kind") == set(HOSTILE)
    picture = vl_convert.vegalite_to_svg(spec)
    for shown in (
        "a'b\"c",
        "&lt;b&gt;bold&lt;/b&gt;",
        "x.y[0]",
        "datum['z']",
        "日本語の質問",
        "back\\slash",
        "null",
        "2024-01-01",
    ):
        assert f">{shown}<" in picture.replace("&quot;", '"').replace("&apos;", "'").replace("&#39;", "'")
