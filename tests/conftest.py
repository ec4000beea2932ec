"""One profile for all property tests: the same examples on every machine, and no clock; shared fixtures."""

import pytest
from hypothesis import HealthCheck, settings

from tests.workspace import Workspace

settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("repeatable")


@pytest.fixture
def no_pictures(monkeypatch):
    """``just curves`` without its slow part, for tests of its numbers."""
    monkeypatch.setattr("jobs.curves.charts.draw", lambda instruments: {})
    monkeypatch.setattr("jobs.curves.report.write", lambda path, *rest: path.touch())


@pytest.fixture
def work(tmp_path):
    """A good store with questions and windows, to be spoiled or run."""
    return Workspace(tmp_path / "work")
