"""A process of paddle.v2 that has not begun yet, for each test."""

import pytest

from trainer.v2 import process
from trainer.v2.graph import COUNTS


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch):
    """Flags have their defaults, and automatic names count from 0."""
    monkeypatch.setattr(process, "_found", [])
    monkeypatch.setattr(process, "flush_denormals", lambda: None)  # other tests of this process need denormal numbers
    COUNTS.clear()
