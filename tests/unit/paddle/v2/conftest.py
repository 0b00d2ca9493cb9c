"""A process that has not called `paddle.init` yet, for each test."""

import pytest

from trainer.v2 import process
from trainer.v2.graph import COUNTS


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch):
    """Flags have their defaults, random numbers begin with the seed, and automatic names count from 0."""
    monkeypatch.setattr(process, "_found", [])
    monkeypatch.setattr(process, "_said", [])
    monkeypatch.setattr(process, "flush_denormals", lambda: None)  # other tests of this process need denormal numbers
    COUNTS.clear()
