"""Small models of torch, and tests that run on ranks, which are threads of one process."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
from torch_ranks import torch_ranks

import paddle.elastic.torch as hvd

T = TypeVar("T")
torch.set_num_threads(1)
ROWS = 12  # of a batch of all ranks
_SEEDING = threading.Lock()


def each_rank(*sizes: int) -> Callable[[Callable[[], None]], Callable[[int], None]]:
    """Makes a test of a function that runs on each of some ranks at the same time, for these numbers of ranks."""

    def make(work: Callable[[], None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("size", sizes)
        def test(size: int) -> None:
            with torch_ranks(size) as on_ranks:
                on_ranks(lambda _: work())

        test.__name__, test.__doc__ = work.__name__, work.__doc__
        return test

    return make


def seeded(make: Callable[[], T], seed: int = 1) -> T:
    """Returns what a function makes with the random numbers of a seed, which is the same on all ranks."""
    with _SEEDING:
        torch.manual_seed(seed)
        return make()


def make_model(seed: int = 1) -> torch.nn.Module:
    def make() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))

    return seeded(make, seed)


def make_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the batch of all ranks."""
    generator = torch.Generator().manual_seed(7)
    return torch.randn(ROWS, 6, generator=generator), torch.randn(ROWS, 1, generator=generator)


def own(rows: torch.Tensor) -> torch.Tensor:
    """Returns this rank's rows."""
    return rows[hvd.rank() :: hvd.size()]


def loss_of(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(x), y)


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([one.detach().reshape(-1) for one in model.parameters()])


def sgd(model: torch.nn.Module, **more: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, **more})


def take_steps(model: torch.nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor, count: int = 5) -> None:
    """Takes steps with a batch."""
    for _ in range(count):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()


def train_alone(steps: int = 5, **more: Any) -> torch.Tensor:
    """Returns the parameters after steps of one process with the whole batch."""
    model = make_model()
    take_steps(model, sgd(model, **more), *make_batch(), steps)
    return flat(model)


def train(steps: int = 5, *, lr: float = 0.1, **more: Any) -> torch.Tensor:
    """Returns the parameters after steps of all ranks with their parts of the batch."""
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model, lr=lr), named_parameters=model.named_parameters(), **more)
    x, y = map(own, make_batch())
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(more.get("backward_passes_per_step", 1)):
            loss_of(model, x, y).backward()
        optimizer.step()
    same_on_all(flat(model))
    return flat(model)


def same_on_all(tensor: torch.Tensor) -> None:
    found = hvd.allgather(tensor.reshape(1, -1))
    assert all(torch.equal(one, found[0]) for one in found), "the ranks differ"


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def refused(kind: type[BaseException], text: str, call: Callable[[], object]) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        call()
