"""A real memory server asked over MCP, as its users start it: on stdin and stdout, and over HTTP."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from jobs import curves, import_windows, record_windows
from jobs.build_sequences import app as build_app
from tests.server.embedding import EmbeddingService
from tests.server.record import window_rows
from tests.server.test_reproduction import recorded  # noqa: F401

pytest.importorskip("cpersona", reason="the memory server's package is not installed")

PLACE = ("question_id", "item_position", "claim_position")


@pytest.fixture
def server(recorded, tmp_path, monkeypatch):  # noqa: F811
    """The environment of a server over a copy of the recorded store."""
    shutil.copyfile(recorded / "store.db", tmp_path / "store.db")
    for name in list(os.environ):
        if name.upper().startswith(("CPERSONA_", "EMBEDDING_")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    with EmbeddingService() as service:
        values = {
            "DB_PATH": str(tmp_path / "store.db"),
            "EMBEDDING_MODE": "http",
            "EMBEDDING_URL": service.url,
            "UPDATE_CHECK": "false",
            "BLOCK_INDEX": "false",
            "CALIBRATE_ON_MODEL_CHANGE": "false",
        }
        for name, value in values.items():
            monkeypatch.setenv(f"CPERSONA_{name}", value)
        monkeypatch.setenv("PYTHONWARNINGS", "default")
        yield recorded


def run(app, *arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result


def test_on_stdin_and_stdout_from_questions_to_curves(server, tmp_path):
    answers, questions = tmp_path / "answers.jsonl", server / "questions.parquet"
    command = f"{sys.executable} -m cpersona"
    few = tmp_path / "few.parquet"
    asked = pl.read_parquet(questions)
    asked.head(3).write_parquet(few)
    run(record_windows.app, few, "--out", answers, "--command", command, "--deep")
    with answers.open("a") as file:
        file.write('{"question_id": "cut sh')  # by a kill
    result = run(record_windows.app, questions, "--out", answers, "--command", command, "--deep")
    assert f"{len(asked) - 3} questions asked, 3 were there already" in result.stdout
    assert len(answers.read_text().splitlines()) == len(asked)
    result = run(import_windows.app, answers, "--questions", questions, "--out", tmp_path / "imported")
    assert result.stderr == ""
    found = pl.read_parquet(tmp_path / "imported" / "windows.parquet")
    answered = [json.loads(line) for line in answers.read_text().splitlines()]
    plain = [row for line in answered for row in window_rows(line["question_id"], line["response"])]
    assert found.sort(PLACE).rows() == pl.DataFrame(plain).select(found.columns).sort(PLACE).rows()
    # What the block arm reserves depends on what the process has indexed; what recall admits does not.
    admitted = pl.read_parquet(server / "windows.parquet").filter(admission="window", claim_position=0)
    same = found.join(admitted, on=[*PLACE, "record_ref"], how="semi")
    assert len(same) == len(admitted) > 250
    parts = pl.read_parquet(server / "expected_parts.parquet").group_by("question_id").len()
    recorded_parts = pl.read_parquet(tmp_path / "imported" / "questions.parquet").select(
        "question_id", count=pl.col("parts").list.len()
    )
    both = recorded_parts.join(parts, on="question_id", how="left")
    assert both["count"].fill_null(0).to_list() == both["len"].fill_null(0).to_list()
    evidence = found.filter(item_position=0, claim_position=0).select("question_id", "record_ref")
    evidence.write_parquet(tmp_path / "evidence.parquet")
    inputs = (
        "--questions",
        tmp_path / "imported" / "questions.parquet",
        "--windows",
        tmp_path / "imported/windows.parquet",
    )
    store = ("--store", server / "store.db", "--evidence", tmp_path / "evidence.parquet")
    run(build_app, *store, *inputs, "--out", tmp_path / "run")
    run(curves.app, tmp_path / "run")
    rates = pl.read_parquet(tmp_path / "run" / "curves.parquet").filter(point="items:top1", breakdown="all")
    assert rates["sessions_shown"].to_list() == [1]


@contextmanager
def over_http(log: Path, port: int):
    environment = os.environ | {"CPERSONA_TRANSPORT": "streamable-http", "CPERSONA_HTTP_PORT": str(port)}
    with log.open("w") as errors:
        process = subprocess.Popen([sys.executable, "-m", "cpersona"], env=environment, stdout=errors, stderr=errors)
    try:
        for _ in range(400):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def test_over_http_one_bad_question_is_noted_and_passed_over(server, tmp_path, monkeypatch):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("CPERSONA_AUTH_TOKEN", "s3cr3t-token")
    monkeypatch.setenv(record_windows.TOKEN, "s3cr3t-token")
    questions, answers = tmp_path / "questions.parquet", tmp_path / "answers.jsonl"
    asked = (
        pl.read_parquet(server / "questions.parquet").head(3).with_columns(agent_id=pl.Series(["alder", None, "alder"]))
    )
    asked.write_parquet(questions)
    with over_http(tmp_path / "log", port) as url:
        result = run(record_windows.app, questions, "--out", answers, "--server", url, "--deep")
        rows = [json.loads(line) for line in answers.read_text().splitlines()]
        assert "s3cr3t" not in answers.read_text() + result.output
        monkeypatch.setenv(record_windows.TOKEN, "another")
        refused = CliRunner().invoke(
            record_windows.app, [str(questions), "--out", str(tmp_path / "other.jsonl"), "--server", url]
        )
    assert ["error" in row for row in rows] == [False, True, False], rows[1]
    assert "1 questions failed" in result.stderr
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1), refused.output
