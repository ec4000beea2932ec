"""The report: one page that loads nothing, whatever the texts in it say."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import polars as pl
import pytest

from allocation import charts
from allocation.points import standard
from jobs import report
from tests.test_charts import HOSTILE, instruments

EVIL = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>"
ZIPPED = {"records": [["mem:1", None]], "spans": [[0, 0, 2, "🙂語"]], "questions": [{"question": EVIL}]}
DESCRIPTION: dict[str, Any] = {
    "inputs": {"store": {"path": f"{EVIL}.db", "bytes": 1234, "sha256": "ab12"}},
    "settings": {"passages": "merge", "rrf_k": 60},
    "counts": {"questions": 2000, "records": 3},
    "steps": {"items": 7},
    "warnings": [f"skipped {EVIL}"],
    "versions": {"python": "3.11"},
    "finished_at": "2026-01-01T00:00:00+00:00",
    "seconds": 1.0,
    "curves": {"warnings": ["none labelled"], "versions": {"altair": "6"}, "finished_at": "2026-01-02", "seconds": 2.0},
}


class Page(HTMLParser):
    """The tags with their attributes, and the text of scripts and of the rest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script" and self.lasttag == "script" and self.cdata_elem:
            self.scripts[-1] += data
        else:
            self.words.append(data)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    given = instruments(types=(*HOSTILE, EVIL))
    questions = pl.DataFrame({"question_id": ["q1", EVIL], "question": [EVIL, "日本🙂"], "question_type": [EVIL, None]})
    paths = [tmp_path_factory.mktemp("report") / name for name in ("one.html", "two.html")]
    for path in paths:
        points = standard(["items", "evidence"])
        report.write(
            path, f"out/{EVIL}", DESCRIPTION, given, charts.draw(given), points, [questions], [report.pack(ZIPPED)]
        )
    return [path.read_text(encoding="utf-8") for path in paths]


def test_same_bytes(written):
    assert written[0] == written[1]


def test_the_page_loads_nothing(written):
    page = Page(written[0])
    for tag, attributes in page.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base"}
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    css = written[0].partition("<style>")[2].partition("</style>")[0]
    assert "@import" not in css
    assert "url(" not in css
    (policy,) = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.partition("style-src")[0]


def test_only_the_scripts_of_the_page_are_scripts(written):
    page = Page(written[0])
    kinds = [attributes.get("type") for tag, attributes in page.tags if tag == "script"]
    assert kinds == ["application/json", "text/plain", None, None]
    for script in page.scripts[2:]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in written[0].replace("&#39;", "'")
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_hostile_text_is_text(written):
    page = Page(written[0])
    data = json.loads(page.scripts[0])
    assert [row["id"] for row in data["questions"]] == ["q1", EVIL]
    assert data["questions"][0] == {"id": "q1", "question": EVIL, "type": EVIL, "page": 0}
    words = "".join(page.words)
    for shown in (f"out/{EVIL}", f"{EVIL}.db", f"skipped {EVIL}", *HOSTILE):
        assert shown in words
    assert "alert(1)</script>" not in written[0]


def test_pages_come_back_as_they_were(written):
    packed = Page(written[0]).scripts[1]
    assert json.loads(gzip.decompress(base64.b64decode(packed))) == ZIPPED
    assert report.pack(ZIPPED) == packed


def test_tables_read_well(written):
    page = written[0]
    for words in ("evidence turns touched", "store", "ab12", "1,234 bytes", "rrf k", "none labelled", "2026-01-02"):
        assert words in page
    assert re.search(r'<td class="number">\d+\.\d %</td>', page)
    assert "Of 2,000 questions 2 are here" in page
    assert report._cell(None, "percent") == "–"
    assert report._cell(0.12345, "percent") == "12.3 %"
    assert report._cell(1234.5, "number") == "1,234"


def test_a_run_with_little_in_it_has_a_report(tmp_path):
    given = {name: frame.clear() for name, frame in instruments().items()}
    report.write(tmp_path / "bare.html", "bare", DESCRIPTION, given, {}, standard(["evidence"]), [], [])
    assert "data-chart=" not in (tmp_path / "bare.html").read_text(encoding="utf-8")


def test_charts_are_saved_as_both_kinds(tmp_path):
    report.save_charts(tmp_path / "charts", charts.draw(instruments()))
    names = {path.name for path in (tmp_path / "charts").iterdir()}
    assert {"budget_curve.svg", "budget_curve.png", "losses.svg", "by_type.png"} <= names
    assert len(names) == 10
