"""The nightly under faults: killed, out of space, its stores deleted, replaced and written to.

FAULTS is how many times it is killed. The normal run has the short ones, ``just test-faults`` all of them.
"""

import errno
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from jobs.runs import Run
from tests.test_nightly import tables
from tests.workspace import ROOT, SAMPLE, contents

FAULTS = int(os.environ.get("FAULTS", "1"))
LIMIT = 120  # seconds a night may take


@pytest.fixture
def folder(tmp_path):
    """A folder with a copy of the sample's store."""
    shutil.copyfile(SAMPLE / "store.db", tmp_path / "store.db")
    return tmp_path


def start(folder: Path, out: str = "nights", **how) -> "subprocess.Popen[str]":
    arguments = ["--stores", str(folder / "*.db"), "--out", str(folder / out), "--shard-size", "8"]
    for name in ("questions", "windows", "evidence"):
        arguments += [f"--{name}", str(SAMPLE / f"{name}.parquet")]
    return subprocess.Popen(
        [sys.executable, "-m", "jobs.nightly", *arguments, "--sequences", "items,evidence,coverage", "--keep", "2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )


def night(folder: Path, out: str = "nights", **how) -> "tuple[int, str, str]":
    process = start(folder, out, **how)
    stdout, stderr = process.communicate(timeout=LIMIT)
    return process.returncode, stdout, stderr


def whole(folder: Path) -> "dict[str, bytes] | None":
    """The tables of the last run, which must be a whole one with its curves; None where there is no run yet."""
    (store,) = folder.glob("nights/store-*") or [None]
    if store is None or not (store / "latest").is_symlink():
        return None
    run = Run((store / "latest").resolve())
    assert "curves" in run.description
    return tables(folder / "nights")


def change(folder: Path, number: int) -> None:
    with closing(sqlite3.connect(folder / "store.db")) as store:
        store.execute("UPDATE memories SET content = content || ? WHERE id = ?", (f" Note {number}.", number % 60 + 1))
        store.commit()


def test_killed_at_random_moments_a_night_leaves_a_whole_run_and_the_next_one_repairs(folder):
    moments = random.Random(20261205)
    began = time.monotonic()
    assert night(folder)[0] in (0, 3)
    lasts = time.monotonic() - began
    killed = 0
    for number in range(FAULTS):
        before = whole(folder)
        change(folder, number)
        process = start(folder)
        time.sleep(moments.uniform(0.2, 1) * lasts)
        process.kill()
        process.communicate(timeout=LIMIT)
        killed += process.returncode < 0
        after = whole(folder)
        assert after is not None
        assert process.returncode >= 0 or after == before or after.keys() == before.keys()
    assert killed
    status, stdout, stderr = night(folder)
    assert status in (0, 3), stderr
    assert night(folder, "full")[0] == 0
    assert whole(folder) == tables(folder / "full")
    (store,) = folder.glob("nights/store-*")
    left = [path.name for path in store.iterdir() if path.name.startswith(".")]
    assert not left, f"{left}\n{stdout}"


@pytest.mark.parametrize(
    "size", [pytest.param(1_000, marks=pytest.mark.slow), 30_000, pytest.param(200_000, marks=pytest.mark.slow)]
)
def test_out_of_space_an_earlier_run_stays(folder, size):
    """A file that may not grow past a size is refused as a full disk is, whoever asks."""
    assert night(folder)[0] == 0
    before = whole(folder)
    change(folder, 1)
    status, stdout, stderr = night(folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
    assert status in (1, 2), stdout + stderr
    assert "Traceback" not in stderr, stderr
    assert whole(folder) == before
    status, _, stderr = night(folder)
    assert status in (0, 3), stderr
    assert whole(folder) != before


@pytest.mark.slow
def test_a_full_disk(folder):
    """The same on a small file system, where one may be mounted."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        (folder / "nights").symlink_to(disk)
        assert night(folder)[0] == 0
        before = whole(folder)
        (disk / "filler").write_bytes(bytes(shutil.disk_usage(disk).free - 300_000))
        change(folder, 1)
        status, stdout, stderr = night(folder)
        assert status in (1, 2), stdout + stderr
        assert "Traceback" not in stderr, stderr
        assert os.strerror(errno.ENOSPC).lower() in stderr.lower()
        assert whole(folder).keys() == before.keys()
        (disk / "filler").unlink()
        assert night(folder)[0] in (0, 3)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["deleted", "replaced", "written"])
def test_a_store_that_goes_or_changes_while_it_is_read(folder, what):
    assert night(folder)[0] == 0
    process = start(folder)
    moments = random.Random(7)
    for number in range(200):
        if process.poll() is not None:
            break
        time.sleep(moments.uniform(0, 0.05))
        if what == "written":
            change(folder, number)
        elif what == "deleted" and number == 25:
            (folder / "store.db").unlink()
        elif what == "replaced" and number % 10 == 5:
            shutil.copyfile(SAMPLE / "store.db", folder / "new")
            (folder / "new").replace(folder / "store.db")
    _, stderr = process.communicate(timeout=LIMIT)
    assert "Traceback" not in stderr, stderr
    assert process.returncode in (0, 1, 2, 3), stderr
    assert whole(folder) is not None
    shutil.copyfile(SAMPLE / "store.db", folder / "store.db")
    assert night(folder)[0] in (0, 3)
    assert night(folder, "full")[0] == 0
    assert whole(folder) == tables(folder / "full")


def test_two_nightlies_at_once(folder):
    first, second = start(folder), start(folder)
    told = [process.communicate(timeout=LIMIT)[1] for process in (first, second)]
    statuses = sorted((first.returncode, second.returncode))
    assert statuses in ([0, 2], [0, 0]), told
    assert "Traceback" not in "".join(told)
    if statuses == [0, 2]:
        (line,) = [text for text in told if "another nightly is at work here" in text]
        assert len(line.splitlines()) == 1
    assert whole(folder) is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(folder):
    (folder / "nights").mkdir(mode=0o555)
    status, _, stderr = night(folder)
    assert (status, len(stderr.splitlines())) == (1, 1), stderr
    assert contents(folder / "nights") == {}
