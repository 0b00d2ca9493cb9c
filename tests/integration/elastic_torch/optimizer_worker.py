"""A worker that checks `DistributedOptimizer` and what belongs to it; each check is a function `check_...`.

All ranks run all checks, in one order, because a process takes seconds to import torch.
"""

from __future__ import annotations

import copy
import gc
import os
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import paddle.elastic.torch as hvd
from paddle.elastic.torch import adasum
from paddle_cluster.elastic.errors import CollectiveMismatchError

torch.set_num_threads(1)
ROWS = 12  # of a batch of all ranks


def make_model(seed: int = 1) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))


def make_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the batch of all ranks."""
    torch.manual_seed(7)
    return torch.randn(ROWS, 6), torch.randn(ROWS, 1)


def own(rows: torch.Tensor) -> torch.Tensor:
    """Returns this rank's rows."""
    return rows[hvd.rank() :: hvd.size()]


def loss_of(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(x), y)


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([one.detach().reshape(-1) for one in model.parameters()])


def sgd(model: torch.nn.Module, **more: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, **more})


def train_alone(steps: int = 5, **more: Any) -> torch.Tensor:
    """Returns the parameters after steps of one process with the whole batch."""
    model = make_model()
    optimizer = sgd(model, **more)
    x, y = make_batch()
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
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


# ----- What equals a single process -----


def check_steps_equal_those_of_one_process_with_the_whole_batch() -> None:
    close(train(), train_alone())


def check_a_sum_equals_an_average_of_a_smaller_rate() -> None:
    model, other = make_model(), make_model()
    x, y = map(own, make_batch())
    for one, op in ((model, hvd.Sum), (other, hvd.Average)):
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(one.parameters(), lr=0.1 / (hvd.size() if op else 1)), op=op
        )
        loss_of(one, x, y).backward()
        optimizer.step()
    close(flat(model), flat(other))


def check_predivided_gradients_have_the_same_average() -> None:
    close(train(gradient_predivide_factor=2.5), train_alone())


def check_fp16_gradients_come_back_in_float32() -> None:
    close(train(compression=hvd.Compression.fp16), train_alone(), 2e-3)


def check_two_backward_passes_are_added_and_not_divided() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), backward_passes_per_step=2)
    x, y = map(own, make_batch())
    loss_of(model, x, y).backward()
    once = copy.deepcopy([one.grad for one in model.parameters()])
    loss_of(model, x, y).backward()
    optimizer.synchronize()
    average = [hvd.allreduce(one) for one in once]
    for one, before in zip(model.parameters(), average, strict=True):
        close(one.grad, 2 * before)
    close(train(backward_passes_per_step=2, lr=0.1), train(lr=0.1, op=hvd.Average), 1.0)


def check_groups_do_not_change_the_result() -> None:
    alone = train_alone()
    for groups in (1, 2, 3, 100):
        close(train(groups=groups), alone)
    with pytest.warns(DeprecationWarning, match="num_groups"):
        close(train(num_groups=2), alone)


def check_lists_of_groups_may_leave_parameters_out() -> None:
    model = make_model()
    parameters = list(model.parameters())
    optimizer = hvd.DistributedOptimizer(
        sgd(model), model.named_parameters(), groups=[[parameters[3], parameters[0]], [parameters[1]]]
    )
    x, y = map(own, make_batch())
    for _ in range(5):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
    close(flat(model), train_alone())


def check_gradients_leave_during_backward() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    seen: list[int] = []
    x, y = map(own, make_batch())
    next(iter(model.parameters())).register_hook(lambda _: seen.append(len(optimizer._exchange._round.sent)))
    loss_of(model, x, y).backward()
    assert seen >= [2], "the gradients of the last layer are on their way before the first layer has its own"
    optimizer.step()


# ----- Parameters with and without gradients -----


class TwoHeads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = torch.nn.ModuleList([torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)])

    def forward(self, x: torch.Tensor, head: int) -> torch.Tensor:
        found: torch.Tensor = self.heads[head](x)
        return found


def check_a_parameter_without_gradient_sends_zeros() -> None:
    torch.manual_seed(1)
    model = TwoHeads()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    before = flat(model)
    model(torch.ones(2, 3), hvd.rank() % 2).sum().backward()
    optimizer.step()
    close(flat(model), before - 2 * ((hvd.size() + 1) // 2) / hvd.size(), 1.1 if hvd.size() % 2 else 1e-6)
    same_on_all(flat(model))


def check_a_step_before_any_backward_sends_zeros() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    before = flat(model)
    optimizer.step()
    assert torch.equal(flat(model), before)


def check_networks_that_take_turns() -> None:
    generator, judge = torch.nn.Linear(2, 4), torch.nn.Linear(4, 1)
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD(one.parameters(), lr=0.01), one.named_parameters(f"{number}"))
        for number, one in enumerate((generator, judge))
    ]
    for turn in (0, 1, 0, 1):
        for number, one in enumerate((generator, judge)):
            one.requires_grad_(number == turn)
            optimizers[number].zero_grad()
        judge(generator(torch.ones(3, 2))).sum().backward()
        optimizers[turn].step()
    same_on_all(torch.cat([flat(generator), flat(judge)]))


def check_a_parameter_that_is_thawed_or_added_later_is_reduced() -> None:
    model = make_model()
    first = model[0]
    first.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(sgd(first), first.named_parameters())
    x, y = map(own, make_batch())
    frozen = flat(first)
    optimizer.step()
    assert torch.equal(flat(first), frozen), "no weight decay of a frozen parameter"
    first.requires_grad_(True)
    optimizer.add_param_group({"params": list(model[2].parameters())})
    for _ in range(5):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
    close(flat(model), train_alone())


def check_gradients_with_another_order_of_memory() -> None:
    torch.manual_seed(1)
    model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    alone = copy.deepcopy(model)
    x = torch.randn(2 * hvd.size(), 3, 5, 5).to(memory_format=torch.channels_last)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    model(own(x)).square().mean().backward()
    assert model.weight.grad is not None and not model.weight.grad.is_contiguous()
    optimizer.step()
    other = torch.optim.SGD(alone.parameters(), lr=0.1)
    alone(x).square().mean().backward()
    other.step()
    close(flat(model), flat(alone))


def embedding(*, as_dense: bool, first_loss: bool = True) -> None:
    torch.manual_seed(1)
    model = torch.nn.Embedding(10, 3, sparse=True)
    alone = copy.deepcopy(model)
    indices = torch.arange(hvd.size() * 2).remainder(5)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), sparse_as_dense=as_dense
    )
    other = torch.optim.SGD(alone.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        other.zero_grad()
        model(own(indices)).square().mean().backward()
        optimizer.step()
        alone(indices).square().mean().backward()
        other.step()
    assert model.weight.grad is not None and model.weight.grad.is_sparse != as_dense
    close(flat(model), flat(alone))
    optimizer.zero_grad()
    if hvd.rank() == 0:  # the others have no gradient, and send an empty sparse one
        model(own(indices)).sum().backward()
    optimizer.step()
    same_on_all(flat(model))


def check_sparse_gradients_of_an_embedding() -> None:
    embedding(as_dense=False)


def check_sparse_gradients_as_dense_ones() -> None:
    embedding(as_dense=True)


# ----- The class -----


def check_the_class_is_a_new_one_with_the_name_and_base_of_the_wrapped_one() -> None:
    model = make_model()
    inner = torch.optim.Adam(model.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(inner)
    assert type(optimizer) is not torch.optim.Adam and type(optimizer).__name__ == "Adam"
    assert isinstance(optimizer, torch.optim.Adam) and isinstance(optimizer, torch.optim.Optimizer)
    assert optimizer.param_groups is inner.param_groups
    assert list(optimizer._parameter_names.values()) == [f"allreduce.noname.0.{number}" for number in range(4)]
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def check_a_scheduler_of_the_wrapped_optimizer_goes_on() -> None:
    model = make_model()
    inner = sgd(model)
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, 0.1)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    x, y = map(own, make_batch())
    loss_of(model, x, y).backward()
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the scheduler has not seen the step
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
    same_on_all(flat(model))


def check_an_optimizer_that_was_dropped_sends_nothing_more() -> None:
    model = make_model()
    for _ in range(3):
        optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
        x, y = map(own, make_batch())
        loss_of(model, x, y).backward()  # a second hook would send the same names again
        optimizer.step()
        optimizer.zero_grad()
    twice = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    loss_of(model, x, y).backward()
    twice.step()
    gc.collect()


def check_a_closure_computes_the_gradients_of_the_step() -> None:
    for wrap in (lambda model: sgd(model), lambda model: torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)):
        model, alone = make_model(), make_model()
        optimizer, other = hvd.DistributedOptimizer(wrap(model), model.named_parameters()), wrap(alone)

        def closure(model: Any = model, optimizer: Any = optimizer, part: Any = own) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, *map(part, make_batch()))
            loss.backward()
            return loss

        for _ in range(2):
            assert isinstance(optimizer.step(closure), torch.Tensor)
            other.step(lambda closure=closure, alone=alone, other=other: closure(alone, other, lambda rows: rows))
        close(flat(model), flat(alone), 1e-5)


def check_the_norm_of_gradients_is_clipped_between_synchronize_and_step() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    x, y = map(own, make_batch())
    loss_of(model, x, y).backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    before = flat(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with optimizer.skip_synchronize():
            optimizer.step()
    assert (flat(model) - before).norm().item() == pytest.approx(0.01, rel=1e-3)
    same_on_all(flat(model))


def check_a_step_after_synchronize_warns_and_sends_nothing_again() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), op=hvd.Sum)
    x, y = map(own, make_batch())
    loss_of(model, x, y).backward()
    optimizer.synchronize()
    before = flat(model)
    gradient = torch.cat([one.grad.reshape(-1) for one in model.parameters()])  # type: ignore[union-attr]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    (text,) = (str(one.message) for one in caught)
    assert "optimizer.step() called without optimizer.skip_synchronize()" in text
    assert caught[0].filename == __file__
    close(flat(model), before - gradient)


# ----- Errors -----


def check_errors_of_the_arguments() -> None:
    model = make_model()
    names = list(model.named_parameters())

    def wrap(**more: Any) -> Callable[[], object]:
        return lambda: hvd.DistributedOptimizer(sgd(model), **more)

    refused(ValueError, "named_parameters should be a sequence of tuples", wrap(named_parameters=model.parameters()))
    refused(ValueError, "must be unique. Found duplicates: 0.bias", wrap(named_parameters=[*names, names[1]]))
    refused(ValueError, "one or more model parameters were not named", wrap(named_parameters=names[:2]))
    refused(ValueError, "backward_passes_per_step must be > 0", wrap(backward_passes_per_step=0))
    refused(
        ValueError,
        "gradient_predivide_factor not supported with op != Average",
        wrap(gradient_predivide_factor=2.0, op=hvd.Sum),
    )
    for wrong in (0, -1, "2", [1, 2]):
        refused(ValueError, "groups should be a non-negative integer or a list of list", wrap(groups=wrong))
    refused(ValueError, "groups must consist of torch.Tensor", wrap(groups=[[1]]))
    refused(ValueError, "only appear once", wrap(groups=[[names[0][1]], [names[0][1]]]))
    refused(ValueError, "bytes; give it a name of at most", wrap(named_parameters=[("x" * 600, names[0][1])]))


def check_one_backward_too_many_is_refused() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    x, y = map(own, make_batch())
    loss_of(model, x, y).backward()
    text = "Gradients were computed more than backward_passes_per_step times before call to step()"
    refused(AssertionError, text, lambda: loss_of(model, x, y).backward())
    optimizer.step()
    optimizer.set_backward_passes_per_step(2)
    for _ in range(2):
        loss_of(model, x, y).backward()
    refused(AssertionError, text, lambda: loss_of(model, x, y).backward())
    optimizer.step()


def check_zero_grad_before_the_step_is_refused() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    x, y = map(own, make_batch())
    loss_of(model, x, y).backward()
    text = "optimizer.zero_grad() was called after loss.backward() but before optimizer.step()"
    refused(AssertionError, text, optimizer.zero_grad)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(one.grad is not None and not one.grad.any() for one in model.parameters())
    optimizer.zero_grad(set_to_none=True)
    assert all(one.grad is None for one in model.parameters())


def check_gradients_of_different_shapes_fail_on_all_ranks() -> None:
    model = torch.nn.Linear(3 + hvd.rank(), 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    model(torch.ones(1, 3 + hvd.rank())).sum().backward()
    refused(CollectiveMismatchError, "gradient.weight", optimizer.step)
    optimizer.zero_grad()  # the round has ended, and the next one can begin


def check_another_number_of_parameters_in_groups_is_refused() -> None:
    model = make_model() if hvd.rank() else torch.nn.Linear(6, 1)
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), groups=2)
    refused(ValueError, "only some of them have 0.bias, 0.weight, 2.bias, 2.weight, bias, weight", optimizer.step)


# ----- Adasum -----


def check_adasum_refuses_ranks_that_are_no_power_of_two() -> None:
    if hvd.size() == 3:
        text = "Running Adasum with non-power of 2 ranks is not supported yet"
        refused(NotImplementedError, text, lambda: adasum.reduce_([torch.ones(3)]))


def check_adasum_has_its_closed_form() -> None:
    if hvd.size() == 3:
        return
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


def check_adasum_of_random_tensors_equals_the_formula() -> None:
    if hvd.size() == 3:
        return
    every = [[torch.randn(*shape, generator=torch.Generator().manual_seed(rank)) for shape in ((7, 3), (100_003,), (1,))]
             for rank in range(hvd.size())]  # fmt: skip
    mine = [one.clone() for one in every[hvd.rank()]]
    adasum.reduce_(mine, name="random")
    for number, found in enumerate(mine):
        level = [one[number].double() for one in every]
        while len(level) > 1:
            level = [
                (1 - (a * b).sum() / (2 * a.square().sum())) * a + (1 - (a * b).sum() / (2 * b.square().sum())) * b
                for a, b in zip(level[::2], level[1::2], strict=True)
            ]
        close(found, level[0].float(), 1e-5)
        same_on_all(found)


def check_adasum_refuses_whole_numbers() -> None:
    refused(TypeError, "not of torch.int64", lambda: adasum.reduce_([torch.ones(3, dtype=torch.int64)]))


def check_an_optimizer_with_adasum_adds_the_steps() -> None:
    if hvd.size() == 3:
        return
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


# ----- From one rank to all -----


def check_parameters_are_those_of_the_root() -> None:
    root = hvd.size() - 1
    for convert in (
        lambda model: model.state_dict(),
        lambda model: list(model.named_parameters()),
        lambda model: list(model.parameters()),
        lambda model: dict(reversed(list(model.named_parameters())) if hvd.rank() else model.named_parameters()),
    ):
        model = make_model(hvd.rank())
        hvd.broadcast_parameters(convert(model), root)
        assert torch.equal(flat(model), flat(make_model(root)))
    turned = torch.full((2, 3), float(hvd.rank())).t()
    hvd.broadcast_parameters({"turned": turned}, root)
    assert torch.equal(turned, torch.full((3, 2), float(root)))
    refused(
        ValueError,
        "invalid params of type: <class 'generator'>",
        lambda: hvd.broadcast_parameters(model.parameters(), 0),
    )
    refused(TypeError, "'a' is a int, not a tensor", lambda: hvd.broadcast_parameters({"a": 1}, 0))


OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.2, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    (torch.optim.SGD, {"lr": 0.2}),
    (torch.optim.Adam, {"lr": 0.2, "betas": (0.8, 0.99), "amsgrad": True}),
    (torch.optim.AdamW, {"lr": torch.tensor(0.2), "capturable": False, "foreach": False}),
    (torch.optim.RMSprop, {"lr": 0.2, "momentum": 0.9, "centered": True}),
    (torch.optim.Adagrad, {"lr": 0.2, "weight_decay": 0.1}),
    (torch.optim.Rprop, {"step_sizes": (1e-5, 100)}),
    (torch.optim.ASGD, {}),
]


def state_of(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return copy.deepcopy(optimizer.state_dict())


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and a == b


def check_optimizers_have_the_options_and_state_of_the_root() -> None:
    for kind, options in OPTIMIZERS:
        model, expected = make_model(), make_model()
        # the state of the root after two steps, which all ranks compute alike
        trained = kind(expected.parameters(), **options)
        for _ in range(2):
            trained.zero_grad()
            loss_of(expected, *make_batch()).backward()
            trained.step()
        optimizer = hvd.DistributedOptimizer(
            trained if hvd.rank() == 0 else kind(model.parameters(), lr=0.1), op=hvd.Average
        )
        before = flat(model)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert equal(state_of(optimizer), state_of(trained)), kind
        if hvd.rank():
            assert torch.equal(flat(model), before), "a worker that gets a state takes no step of its own"
        optimizer.step()


def check_an_optimizer_without_state_takes_a_step_of_zeros_on_all_ranks_alike() -> None:
    model = make_model()
    optimizer, before = sgd(model, lr=0.1 + hvd.rank()), flat(model)
    if hvd.rank() == 1:  # this one has a state, and the root has none
        loss_of(model, *make_batch()).backward()
        optimizer.step()
        model.load_state_dict(make_model().state_dict())
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    close(flat(model), before * (1 - 0.1 * 0.1))  # the weight decay of the root's rate
    same_on_all(flat(model))
    same_on_all(torch.cat([optimizer.state[one]["momentum_buffer"].reshape(-1) for one in model.parameters()]))
    assert optimizer.param_groups[0]["lr"] == 0.1


def check_a_state_is_sent_without_a_step_if_parameters_have_to_stay() -> None:
    from paddle.elastic.torch.functions import send_optimizer_state

    model = make_model()
    optimizer = sgd(model)
    if hvd.rank():
        loss_of(model, *make_batch()).backward()
        optimizer.step()
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    before = flat(model)
    send_optimizer_state(optimizer, 0, keep_parameters=True)
    assert torch.equal(flat(model), before) and not optimizer.state


def check_frozen_parameters_get_no_gradient_of_the_first_step() -> None:
    frozen, free = torch.nn.Parameter(torch.tensor([1, 3]), requires_grad=False), torch.nn.Parameter(torch.rand(4))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([frozen, free], lr=0.001, momentum=0.9))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert frozen.grad is None and free.grad is not None and not free.grad.any()


def check_states_that_cannot_be_sent() -> None:
    model = make_model()
    lbfgs = hvd.DistributedOptimizer(torch.optim.LBFGS(model.parameters()))
    refused(ValueError, "cannot broadcast torch.optim.LBFGS state", lambda: hvd.broadcast_optimizer_state(lbfgs, 0))


# ----- -----


def main() -> None:
    hvd.init()
    for name, check in list(globals().items()):
        if name.startswith("check_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
            hvd.allreduce(torch.zeros(1))  # a barrier, so that a failed check ends the others at the next one
            check()
            print(f"ok {name}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
