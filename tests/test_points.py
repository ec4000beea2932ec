"""Points: their names, and what is refused."""

import pytest

from allocation import points
from allocation.errors import InputError
from allocation.points import Point


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("coverage:2800", Point("coverage", budget=2800)),
        ("items:top4", Point("items", count=4)),
        ("items@320/160:all", Point("items@320/160")),
        ("items@320/160:1", Point("items@320/160", budget=1)),
        (" evidence:999999999 ", Point("evidence", budget=999_999_999)),
    ],
)
def test_names_round_trip(text, point):
    assert points.of(text) == point
    assert point.name == text.strip()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("coverage:28oo", "point 'coverage:28oo': the budget '28oo' is not a whole number of characters above 0"),
        ("coverage:0", "the budget '0' is not"),
        ("coverage:-5", "the budget '-5' is not"),
        ("coverage:1.5", "the budget '1.5' is not"),
        ("coverage:٣", "the budget '٣' is not"),
        ("coverage:1000000000", "the budget '1000000000' is not"),
        ("coverage:", "the budget '' is not"),
        ("items:top0", "the budget 'top0' is not"),
        ("items:top", "the budget 'top' is not"),
        (
            "coverage",
            "point 'coverage' names no sequence or no cut; write it as SEQUENCE:CHARACTERS, SEQUENCE:topITEMS",
        ),
        (":2800", "point ':2800' names no sequence or no cut"),
        ("", "point '' names no sequence or no cut"),
        ("nonsense:100", "sequence 'nonsense' is unknown"),
    ],
)
def test_what_is_no_point(text, told):
    with pytest.raises(InputError) as refused:
        points.of(text)
    assert told in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_budgets():
    assert points.budgets_of("2800, 500,2800") == (500, 2800)
    for text in ("500,abc", "", "500,", "-5", "0", "1e3", "9" * 12):
        with pytest.raises(InputError, match="is not a whole number of characters above 0"):
            points.budgets_of(text)


def test_the_standard_points():
    names = [point.name for point in points.standard(("items", "evidence", "items@320/160"), (500, 700))]
    assert names == [
        *("items:500", "items:700", "evidence:500", "evidence:700", "items@320/160:500", "items@320/160:700"),
        *(f"items:top{count}" for count in (1, 2, 3, 4, 5, 6, 8, 10)),
        *("items:all", "items@320/160:all"),
    ]
    assert [point.name for point in points.standard(("coverage",), (9,))] == ["coverage:9"]
    assert points.BUDGETS == (500, 700, 1000, 1400, 2000, 2800, 4000, 5600, 8000)
