"""Imports all of torch once, before workers are forked from the process of the tests."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture(scope="session", autouse=True)
def whole_torch() -> None:
    """Makes an optimizer: the first one imports as much as torch itself, and each worker would do so, too."""
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.optim.SGD([torch.zeros(1)], lr=0.1)
