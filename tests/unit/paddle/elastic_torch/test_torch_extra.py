"""PyTorch is an extra: what is said where it is missing, and that nothing else needs it."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest


def test_without_torch_the_import_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("paddle.elastic.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it raises ModuleNotFoundError
    for name in ("paddle.elastic.torch", "paddle.elastic.torch.mpi_ops"):
        with pytest.raises(
            ImportError, match=r"^paddle\.elastic\.torch needs torch: pip install '\.\[torch\]' in the project's d"
        ) as caught:
            import_module(name)
        assert type(caught.value) is ImportError
    assert import_module("paddle.elastic").allreduce is not None
