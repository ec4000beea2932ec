"""From contexts to a verdict: export, import, register, judge, and what each refuses."""

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from jobs import curves, export_contexts, import_answers, judge, register
from jobs.build_sequences import app as build
from tests.workspace import SAMPLE

RULE = """
name = "mine"
why = "to see"
point = "coverage:700"
control = "items:top2"
split = "test"
metric = "accuracy"
max_context_tokens = 1000
lower_bound_above = 0.0
[interval]
resamples = 1000
"""


def call(app, *arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def good(app, *arguments):
    result = call(app, *arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def refused(app, *arguments):
    result = call(app, *arguments)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    return result.stderr


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """The sample's run with curves, for every test to copy nothing of."""
    out = tmp_path_factory.mktemp("judge") / "run"
    inputs = [
        part for name in ("questions", "windows", "evidence") for part in (f"--{name}", SAMPLE / f"{name}.parquet")
    ]
    good(build, "--store", SAMPLE / "store.db", *inputs, "--out", out, "--sequences", "items,evidence,coverage")
    result = call(curves.app, out, "--budgets", "700", "--point", "evidence:700")
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture
def place(drawn, tmp_path, monkeypatch):
    """A folder to work in, with the rule; the run is read only."""
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(RULE)
    return drawn


def exported(run, point, **more):
    path = Path(f"{point.replace(':', '-')}.jsonl")
    options = [part for name, value in more.items() for part in (f"--{name.replace('_', '-')}", value)]
    good(export_contexts.app, run, "--point", point, "--out", path, *options)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def answer(run, point, wrong=(), name="answers.jsonl", split="test", **more):
    """Made-up answers of every question of a split, all correct but some."""
    rows = [
        {"question_id": row["question_id"], "point": point, "correct": row["question_id"] not in wrong} | more
        for row in exported(run, point, split=split)
    ]
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Path(name), rows


def test_the_export_is_what_the_curves_counted(place):
    rows = exported(place, "coverage:700")
    points = pl.read_parquet(place / "points.parquet").filter(pl.col("point") == "coverage:700")
    assert [(row["question_id"], row["context_sha256"], row["cl100k_base"]) for row in rows] == (
        points.select("question_id", "sha256", "cl100k_base").rows()
    )
    assert len(exported(place, "coverage:700", split="test")) == 40
    assert rows[44]["context"].startswith("[1] mem:32 (2025-02-16T10:20:00+00:00): Nut bread")


def test_only_changed_contexts(place):
    earlier = {row["question_id"]: row["context"] for row in exported(place, "evidence:700")}
    changed = exported(place, "coverage:700", changed_from="evidence-700.jsonl")
    assert 0 < len(changed) < 60
    now = {row["question_id"]: row["context"] for row in exported(place, "coverage:700")}
    assert {row["question_id"] for row in changed} == {key for key in now if now[key] != earlier[key]}
    good(export_contexts.app, place, "--point", "evidence:700", "--out", "omni.json", "--format", "omnimemeval")
    assert exported(place, "coverage:700", changed_from="omni.json") == changed
    Path("nonsense.json").write_text("[1]")
    arguments = (export_contexts.app, place, "--point", "coverage:700", "--out", "x", "--changed-from")
    assert "nonsense.json: is no export of contexts" in refused(*arguments, "nonsense.json")
    assert not Path("x").exists()


def test_omnimemevals_search_results(place):
    good(export_contexts.app, place, "--point", "items:top2", "--out", "omni.json", "--format", "omnimemeval")
    results = json.loads(Path("omni.json").read_text(encoding="utf-8"))
    assert len(results) == 60
    (entry,) = results["q045"]
    assert (entry["question"], entry["category"]) == ("What goes into the nut bread of grandmother's notebook?", "list")
    assert (entry["status"], entry["search_duration_ms"], entry["answer_evidences"]) == ("success", 0.0, [])
    assert entry["search_context"] == exported(place, "items:top2")[44]["context"]


def test_a_rule_from_registration_to_verdict(place):
    assert "is not registered" in refused(judge.app, "mine.toml", "--run", place)
    told = good(register.app, "mine.toml", "--run", place)
    assert "mine, coverage:700 against items:top2 on 40 test questions" in told
    (entry,) = [json.loads(line) for line in Path("data/rules/registered.jsonl").read_text().splitlines()]
    assert (entry["name"], entry["point"], entry["test_questions"]) == ("mine", "coverage:700", 40)
    assert "40 of 40 test questions are not answered" in refused(judge.app, "mine.toml", "--run", place)
    assert "no answer at coverage:700" in refused(judge.app, "mine.toml", "--run", place, "--allow-missing")

    better, rows = answer(place, "coverage:700", wrong=("q001",))
    assert "40 answers at coverage:700, 39 of them correct" in good(
        import_answers.app, better, "--run", place, "--point", "coverage:700"
    )
    lost = [row["question_id"] for row in rows[:20]]
    worse, _ = answer(place, "items:top2", wrong=lost)
    good(import_answers.app, worse, "--run", place, "--point", "items:top2")

    told = good(judge.app, "mine.toml", "--run", place)
    # 39 of 40 against 20 of 40, where q001 is wrong on both sides; but one context may be both sides'.
    judgement = json.loads(Path("outputs/judgements/mine-001.json").read_text())
    verdict = judgement["verdict"]
    assert told.startswith("mine: MET\n")
    assert verdict["met"]
    assert verdict["questions"] == 40
    assert verdict["wins"] == [key for key in lost if key not in ("q001", *same_contexts(place))]
    assert judgement["registration"] == entry

    assert "was judged, see" in refused(judge.app, "mine.toml", "--run", place)
    assert "--rerun and --why TEXT go together" in refused(judge.app, "mine.toml", "--run", place, "--rerun")
    good(judge.app, "mine.toml", "--run", place, "--rerun", "--why", "to see it again")
    again = json.loads(Path("outputs/judgements/mine-002.json").read_text())
    assert (again["why"], again["verdict"]) == ("to see it again", verdict)
    assert Path("outputs/judgements/mine-001.json").exists()


def same_contexts(run):
    points = pl.read_parquet(run / "points.parquet")
    sides = [
        points.filter(pl.col("point") == name).select("question_id", "sha256")
        for name in ("coverage:700", "items:top2")
    ]
    return sides[0].join(sides[1], on=["question_id", "sha256"])["question_id"].to_list()


def test_a_context_that_was_answered_keeps_its_answer(place):
    file, _ = answer(place, "evidence:700")
    good(import_answers.app, file, "--run", place, "--point", "evidence:700")
    other, rows = answer(place, "coverage:700", wrong=[f"q{n:03}" for n in range(61)])
    told = good(import_answers.app, other, "--run", place, "--point", "coverage:700")
    changed = exported(place, "coverage:700", changed_from="evidence-700.jsonl", split="test")
    assert 0 < len(changed) < len(rows)
    assert f"{len(changed)} answers at coverage:700, 0 of them correct" in told
    assert f"{len(rows) - len(changed)} contexts were answered before, their first answer stays" in told
    kept = pl.read_parquet("data/answers.parquet")
    assert kept["correct"].sum() == len(rows)


def test_a_rule_is_registered_before_its_answers(place):
    file, _ = answer(place, "coverage:700")
    good(import_answers.app, file, "--run", place, "--point", "coverage:700")
    told = refused(register.app, "mine.toml", "--run", place)
    assert "rule mine: 40 test questions have answers at coverage:700 already" in told
    assert not Path("data/rules/registered.jsonl").exists()


def test_answers_of_development_questions_do_not_stand_in_the_way(place):
    file, rows = answer(place, "coverage:700", split="dev")
    assert len(rows) == 20
    good(import_answers.app, file, "--run", place, "--point", "coverage:700")
    good(register.app, "mine.toml", "--run", place)


def test_what_a_registration_holds_fast(place, tmp_path):
    good(register.app, "mine.toml", "--run", place)
    assert "is registered already; a changed rule needs another name" in refused(
        register.app, "mine.toml", "--run", place
    )
    Path("mine.toml").write_text(RULE.replace("1000", "1200", 1))
    assert "was changed after it was registered" in refused(judge.app, "mine.toml", "--run", place)
    Path("mine.toml").write_text(RULE)
    inputs = [
        part for name in ("questions", "windows", "evidence") for part in (f"--{name}", SAMPLE / f"{name}.parquet")
    ]
    names = ("--store", SAMPLE / "store.db", *inputs, "--sequences", "items,coverage")
    good(build, *names, "--out", "other", "--rrf-k", "5")
    assert "the run's settings are not those it was registered with" in refused(
        judge.app, "mine.toml", "--run", "other"
    )
    dev = Path("dev.json")
    dev.write_text(json.dumps({"question_ids": ["q001"]}))
    good(build, *names, "--out", "other", "--dev", dev)
    assert "the test questions are not those it was registered with" in refused(
        judge.app, "mine.toml", "--run", "other"
    )


def test_what_a_rule_cannot_be_registered_for(place, work):
    work.build()
    assert "no question has split dev" in refused(register.app, "mine.toml", "--run", work.out)
    Path("mine.toml").write_text(RULE.replace("coverage:700", "coverage:900"))
    assert "did not draw coverage:900; draw it with just curves --point coverage:900" in refused(
        register.app, "mine.toml", "--run", place
    )
    assert "data/rules/nobody.toml: cannot be read as a rule" in refused(register.app, "nobody", "--run", place)
    Path("mine.toml").write_text("name = ")
    assert "mine.toml: cannot be read as a rule" in refused(judge.app, "mine.toml", "--run", place)


def lines(*rows):
    Path("answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "answers.jsonl"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"question_id": "q999", "correct": True}], "row 1 (question_id=q999): the question is unknown to the run"),
        ([{"question_id": "q001", "correct": True}] * 2, "row 2 (question_id=q001): the question is graded twice"),
        (
            [{"question_id": "q001", "correct": True}, {"question_id": "q002", "correct": "perhaps"}],
            "row 2 (question_id=q002): correct is neither true nor false",
        ),
        ([{"question_id": "q001", "correct": True, "point": "items:top4"}], "the answer is not of items:top2"),
        ([{"question_id": "q001", "correct": True, "prompt_tokens": -4}], "prompt_tokens is negative"),
        ([{"question_id": "q001", "correct": True, "prompt_tokens": "many"}], "cannot be read as graded answers"),
        ([{"question_id": "q001", "hypothesis": "in May"}], "no answer is graded; give correct (true or false)"),
        ([], "holds no graded answer"),
        ([5], "cannot be read as graded answers"),
    ],
)
def test_answers_that_cannot_be_used(place, rows, told):
    assert told in refused(import_answers.app, lines(*rows), "--run", place, "--point", "items:top2")
    assert not Path("data/answers.parquet").exists()


def test_other_answers_that_cannot_be_used(place):
    file = lines({"question_id": "q001", "correct": True})
    arguments = ("--run", place, "--point", "items:top2")
    good(import_answers.app, file, *arguments)
    assert "an answer at items:top2 was imported before" in refused(import_answers.app, file, *arguments)
    assert "names no sequence or no cut" in refused(import_answers.app, file, "--run", place)
    assert "did not draw items:2" in refused(import_answers.app, file, "--run", place, "--point", "items:2")
    assert "none.jsonl: no such file" in refused(import_answers.app, "none.jsonl", *arguments)
    Path("x.txt").write_text("x")
    assert "x.txt: unknown kind of file" in refused(import_answers.app, "x.txt", *arguments)
    Path("data/answers.parquet").write_bytes(b"PAR1")
    assert "restore data/answers.parquet" in refused(import_answers.app, file, *arguments)


TAKEN = [("q001", True, 812), ("q002", False, None)]


def test_the_forms_answers_come_in(place):
    """Our own tables, LongMemEval's evaluation, OmniMemEval's judge: all say the same of two questions."""
    own = [{"question_id": "q001", "correct": True, "prompt_tokens": 812}, {"question_id": "q002", "correct": False}]
    questions = dict(pl.read_parquet(place / "questions.parquet").select("question_id", "question").iter_rows())
    judged = {
        "q001": {"question": "?", "llm_judgments": {"judgment_1": True}, "nlp_metrics": {"context_tokens": 812}},
        "lme_exper_user_v1_1": [
            {"question": questions["q002"], "llm_judgments": {"judgment_1": True, "judgment_2": False}}
        ],
    }
    Path("own.csv").write_text("question_id,correct,prompt_tokens\nq001,TRUE,812\nq002,0,\n")
    pl.DataFrame(own).write_parquet("own.parquet")
    Path("judged.json").write_text(json.dumps(judged))
    label = {"model": "a judge", "label": True}
    evaluated = [
        {"question_id": "q001", "hypothesis": "in May", "autoeval_label": label},
        {"question_id": "q002", "hypothesis": "no", "autoeval_label": label | {"label": False}},
    ]
    Path("hypotheses.jsonl.eval-results-a-judge").write_text("\n".join(map(json.dumps, evaluated)))
    for name in (lines(*own), "own.csv", "own.parquet", "judged.json", "hypotheses.jsonl.eval-results-a-judge"):
        good(import_answers.app, name, "--run", place, "--point", "items:top2")
        kept = pl.read_parquet("data/answers.parquet")
        tokens = pl.Series([812, None]) if "eval-results" not in name else pl.Series([None, None], dtype=pl.Int64)
        assert kept.select("question_id", "correct").rows() == [row[:2] for row in TAKEN]
        assert kept["prompt_tokens"].to_list() == tokens.to_list()
        Path("data/answers.parquet").unlink()
