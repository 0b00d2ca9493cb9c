"""What the tests with processes share."""

import contextlib
from collections.abc import Iterator

import pytest
from forked import ForkServer


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Starts programs of ours without a start of Python for each."""
    with contextlib.closing(ForkServer()) as server:
        yield server
