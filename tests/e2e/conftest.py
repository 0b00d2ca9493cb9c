"""What the tests start does not outlive them, also where pytest itself is killed."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from reaper import MARK


@pytest.fixture(scope="session", autouse=True)
def reaper() -> Iterator[None]:
    """A process that kills all marked processes when this one has ended."""
    os.environ[MARK] = value = uuid.uuid4().hex
    environ = {name: text for name, text in os.environ.items() if name != MARK}
    command = [sys.executable, "-I", "-S", Path(__file__).with_name("reaper.py"), value]
    # in a session of its own, because a time limit may kill the process group of pytest
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environ, start_new_session=True)
    yield
    process.stdin.close()
    process.wait(60)
    del os.environ[MARK]
