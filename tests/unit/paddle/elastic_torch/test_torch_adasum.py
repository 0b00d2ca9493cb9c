"""Adasum against its closed form, and the optimizer that adds steps by it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="paddle.elastic.torch is an extra (make test installs torch)")

from torch_models import close, each_rank, flat, loss_of, make_batch, make_model, refused, same_on_all, sgd  # noqa: E402

import paddle.elastic.torch as hvd  # noqa: E402
from paddle.elastic.torch import adasum  # noqa: E402


@each_rank(3)
def test_adasum_refuses_ranks_that_are_no_power_of_two() -> None:
    text = "Running Adasum with non-power of 2 ranks is not supported yet"
    refused(NotImplementedError, text, lambda: adasum.reduce_([torch.ones(3)]))


@each_rank(2, 4)
def test_adasum_has_its_closed_form() -> None:
    own_ = torch.zeros(5)
    own_[hvd.rank()] = 2.0  # orthogonal: the sum
    equal = torch.tensor([3.0, -4.0], dtype=torch.float64)  # equal: the average
    parallel = torch.full((3,), float(hvd.rank() + 1), dtype=torch.float16)
    empty, scalar, nothing = torch.zeros(0), torch.tensor(1.5), torch.zeros(7)
    adasum.reduce_([own_, equal, parallel, empty, scalar, nothing])
    close(own_, torch.tensor([2.0, 2.0] + [2.0 if hvd.size() > 2 else 0.0] * 2 + [0.0]))
    close(equal, torch.tensor([3.0, -4.0], dtype=torch.float64))
    if hvd.size() == 2:  # a.b = 2, |a|^2 = 1, |b|^2 = 4 of each element: (1 - 1) * 1 + (1 - 1/4) * 2
        close(parallel, torch.full((3,), 1.5, dtype=torch.float16))
    close(scalar, torch.tensor(1.5))
    assert not nothing.any()


@each_rank(2, 4)
def test_adasum_of_random_tensors_equals_the_formula() -> None:
    shapes = ((7, 3), (100_003,), (1,))
    seeds = [torch.Generator().manual_seed(rank) for rank in range(hvd.size())]
    every = [[torch.randn(*shape, generator=seed) for shape in shapes] for seed in seeds]
    mine = [one.clone() for one in every[hvd.rank()]]
    adasum.reduce_(mine)
    handles = [
        hvd.allreduce_async(one, op=hvd.Adasum, name=f"{number}") for number, one in enumerate(every[hvd.rank()])
    ]
    waited = {number: hvd.synchronize(handles[number]) for number in ((0, 1, 2) if hvd.rank() else (2, 1, 0))}
    for number, found in enumerate(mine):
        close(waited[number], found, 1e-5)
        same_on_all(waited[number])
        level = [one[number].double() for one in every]
        while len(level) > 1:
            level = [
                (1 - (a * b).sum() / (2 * a.square().sum())) * a + (1 - (a * b).sum() / (2 * b.square().sum())) * b
                for a, b in zip(level[::2], level[1::2], strict=True)
            ]
        close(found, level[0].float(), 1e-5)
        same_on_all(found)


@each_rank(2, 4)
def test_adasum_refuses_whole_numbers() -> None:
    refused(TypeError, "not of torch.int64", lambda: adasum.reduce_([torch.ones(3, dtype=torch.int64)]))


@each_rank(2, 4)
def test_an_optimizer_with_adasum_adds_the_steps() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), op=hvd.Adasum)
    alone = make_model()
    other = sgd(alone)
    x, y = make_batch()
    for _ in range(3):  # equal steps: their average
        for one, two in ((model, optimizer), (alone, other)):
            two.zero_grad()
            loss_of(one, x, y).backward()
            two.step()
    close(flat(model), flat(alone))
    optimizer.synchronize()
    refused(AssertionError, "Skipping synchronization is not supported", optimizer.skip_synchronize)


@each_rank(2)
def test_every_all_reduce_takes_adasum() -> None:
    own = torch.tensor([float(hvd.rank()), float(not hvd.rank())])  # orthogonal
    both = torch.ones(2)
    group = [own.clone(), own.double(), own.bfloat16()]
    assert torch.equal(hvd.allreduce(own, op=hvd.Adasum, prescale_factor=2.0, postscale_factor=0.25), both / 2)
    for found in hvd.grouped_allreduce(group, op=hvd.Adasum):
        assert torch.equal(found, both.to(found.dtype))
    hvd.grouped_allreduce_(group, op=hvd.Adasum)
    for found in (hvd.allreduce_(own, op=hvd.Adasum), own, *group):
        assert torch.equal(found, both.to(found.dtype))
