"""Three ranks, which the tests of a module share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def three() -> Iterator[Callable[[Callable[[int], Any]], list[Any]]]:
    """Yields a function that calls a function of the rank on all ranks; see `torch_ranks`."""
    from torch_ranks import torch_ranks  # here, because torch may be absent

    with torch_ranks(3) as on_ranks:
        yield on_ranks
