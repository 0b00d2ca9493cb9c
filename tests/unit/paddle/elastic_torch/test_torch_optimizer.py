"""`DistributedOptimizer`: its steps equal those of one process with the whole batch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="paddle.elastic.torch is an extra (make test installs torch)")

from torch_models import (  # noqa: E402
    close,
    each_rank,
    flat,
    loss_of,
    make_batch,
    make_model,
    own,
    refused,
    same_on_all,
    seeded,
    sgd,
    take_steps,
    train,
    train_alone,
)  # fmt: skip
from torch_ranks import torch_ranks  # noqa: E402

import paddle.elastic.torch as hvd  # noqa: E402
from paddle_cluster.elastic.errors import CollectiveMismatchError  # noqa: E402
from paddle_cluster.elastic.process.membership import WORKER  # noqa: E402
from paddle_cluster.elastic.process.placement import WorkerSettings  # noqa: E402

# ----- What equals a single process -----


@each_rank(2, 3)
def test_steps_equal_those_of_one_process_with_the_whole_batch() -> None:
    close(train(), train_alone())


@each_rank(2, 3)
def test_a_sum_equals_an_average_of_a_smaller_rate() -> None:
    model, other = make_model(), make_model()
    x, y = map(own, make_batch())
    for one, op in ((model, hvd.Sum), (other, hvd.Average)):
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(one.parameters(), lr=0.1 / (hvd.size() if op else 1)), op=op
        )
        loss_of(one, x, y).backward()
        optimizer.step()
    close(flat(model), flat(other))


@each_rank(2, 3)
def test_predivided_gradients_have_the_same_average() -> None:
    close(train(gradient_predivide_factor=2.5), train_alone())


@each_rank(2, 3)
def test_fp16_gradients_come_back_in_float32() -> None:
    close(train(compression=hvd.Compression.fp16), train_alone(), 2e-3)


@each_rank(2, 3)
def test_two_backward_passes_are_added_and_not_divided() -> None:
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


@each_rank(2, 3)
def test_groups_do_not_change_the_result() -> None:
    alone = train_alone()
    for groups in (1, 2, 3, 100):
        close(train(groups=groups), alone)


@each_rank(2, 3)
def test_lists_of_groups_may_leave_parameters_out() -> None:
    model = make_model()
    parameters = list(model.parameters())
    optimizer = hvd.DistributedOptimizer(
        sgd(model), model.named_parameters(), groups=[[parameters[3], parameters[0]], [parameters[1]]]
    )
    take_steps(model, optimizer, *map(own, make_batch()))
    close(flat(model), train_alone())


@each_rank(2, 3)
def test_gradients_leave_during_backward() -> None:
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


@each_rank(2, 3)
def test_a_parameter_without_gradient_sends_zeros() -> None:
    model = seeded(TwoHeads)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    before = flat(model)
    model(torch.ones(2, 3), hvd.rank() % 2).sum().backward()
    optimizer.step()
    close(flat(model), before - 2 * ((hvd.size() + 1) // 2) / hvd.size(), 1.1 if hvd.size() % 2 else 1e-6)
    same_on_all(flat(model))


@each_rank(2, 3)
def test_a_step_before_any_backward_sends_zeros() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    before = flat(model)
    optimizer.step()
    assert torch.equal(flat(model), before)


@each_rank(2, 3)
def test_networks_that_take_turns() -> None:
    generator, judge = seeded(lambda: (torch.nn.Linear(2, 4), torch.nn.Linear(4, 1)))
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


@each_rank(2, 3)
def test_a_parameter_that_is_thawed_or_added_later_is_reduced() -> None:
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
    take_steps(model, optimizer, x, y)
    close(flat(model), train_alone())


@each_rank(2, 3)
def test_gradients_with_another_order_of_memory() -> None:
    model, x = seeded(lambda: (torch.nn.Conv2d(3, 4, 3), torch.randn(2 * hvd.size(), 3, 5, 5)))
    model, x = (one.to(memory_format=torch.channels_last) for one in (model, x))
    alone = copy.deepcopy(model)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    model(own(x)).square().mean().backward()
    assert model.weight.grad is not None and not model.weight.grad.is_contiguous()
    optimizer.step()
    other = torch.optim.SGD(alone.parameters(), lr=0.1)
    alone(x).square().mean().backward()
    other.step()
    close(flat(model), flat(alone))


def embedding(*, as_dense: bool, first_loss: bool = True) -> None:
    model = seeded(lambda: torch.nn.Embedding(10, 3, sparse=True))
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


@each_rank(2, 3)
def test_sparse_gradients_of_an_embedding() -> None:
    embedding(as_dense=False)


@each_rank(2, 3)
def test_sparse_gradients_as_dense_ones() -> None:
    embedding(as_dense=True)


# ----- The class -----


@each_rank(2, 3)
def test_the_class_is_a_new_one_with_the_name_and_base_of_the_wrapped_one() -> None:
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


@each_rank(2)
def test_hooks_of_steps_run_once() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    optimizer.load_state_dict(optimizer.state_dict())
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.step()
    assert calls == ["before", "after"]


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # it has not seen the step
@each_rank(2, 3)
def test_a_scheduler_of_the_wrapped_optimizer_goes_on() -> None:
    model = make_model()
    inner = sgd(model)
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, 0.1)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    x, y = map(own, make_batch())
    loss_of(model, x, y).backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
    same_on_all(flat(model))


@each_rank(2, 3)
def test_an_optimizer_that_was_dropped_sends_nothing_more() -> None:
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


@each_rank(2, 3)
def test_a_closure_computes_the_gradients_of_the_step() -> None:
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


@each_rank(2, 3)
def test_the_norm_of_gradients_is_clipped_between_synchronize_and_step() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    x, y = map(own, make_batch())
    loss_of(model, x, y).backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    before = flat(model)
    with optimizer.skip_synchronize():  # a warning would be an error
        optimizer.step()
    assert (flat(model) - before).norm().item() == pytest.approx(0.01, rel=1e-3)
    same_on_all(flat(model))


@pytest.mark.filterwarnings("ignore:optimizer.step")
@each_rank(2)
def test_a_step_after_synchronize_sends_nothing_again() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), op=hvd.Sum)
    x, y = map(own, make_batch())
    loss_of(model, x, y).backward()
    optimizer.synchronize()
    before = flat(model)
    gradient = torch.cat([one.grad.reshape(-1) for one in model.parameters()])  # type: ignore[union-attr]
    optimizer.step()
    close(flat(model), before - gradient)


def test_warnings_name_the_line_of_the_script() -> None:
    """With one rank, because the filters of warnings are those of all threads."""
    model = make_model()
    with torch_ranks(1) as on_ranks, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        def work(_: int) -> None:
            optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), num_groups=2)
            optimizer.synchronize()
            optimizer.step()

        on_ranks(work)
    texts = [str(one.message) for one in caught]
    assert "`num_groups` has been replaced by `groups`" in texts[0]
    assert "optimizer.step() called without optimizer.skip_synchronize()" in texts[1]
    assert [one.filename for one in caught] == [__file__] * 2


# ----- Ranks -----


@pytest.mark.parametrize("more", [{}, {"groups": 2}, {"op": hvd.Adasum}], ids=["single", "groups", "adasum"])
def test_only_the_ranks_of_the_process_set_reduce(more: dict[str, Any]) -> None:
    def work(rank: int) -> tuple[Any, Any]:
        process_set = hvd.add_process_set([0, 2])
        model, alone = make_model(), make_model()
        optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), process_set=process_set, **more)
        other = sgd(alone)
        x, y = make_batch()
        rows = slice(rank * 4, rank * 4 + 4)
        for one, two in ((model, optimizer), (alone, other)):
            loss_of(one, x[rows], y[rows]).backward()
            two.step()
        return flat(model), flat(alone)

    with torch_ranks(3) as on_ranks:
        (first, of_first), (outside, of_outside), (last, of_last) = on_ranks(work)
    assert torch.equal(outside, of_outside) and torch.equal(first, last) and not torch.equal(first, of_first)
    if "op" not in more:  # the first step is linear in the gradients
        close(first, (of_first + of_last) / 2)


@each_rank(2)
def test_a_process_set_that_is_not_registered_is_refused() -> None:
    model = make_model()
    refused(
        ValueError,
        "the process set of the ranks [0] is not registered",
        lambda: hvd.DistributedOptimizer(sgd(model), process_set=hvd.ProcessSet([0])),
    )


@pytest.mark.parametrize("is_elastic", [False, True])
def test_one_rank_has_hooks_only_in_an_elastic_job(monkeypatch: pytest.MonkeyPatch, is_elastic: bool) -> None:
    monkeypatch.setattr(WORKER, "settings", WorkerSettings(is_elastic=is_elastic))

    def work(_: int) -> tuple[bool, Any]:
        model = make_model()
        optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
        loss_of(model, *make_batch()).backward()
        has_begun = optimizer._exchange.has_begun
        optimizer.step()
        return has_begun, flat(model)

    with torch_ranks(1) as on_ranks:
        ((has_begun, found),) = on_ranks(work)
    assert has_begun == is_elastic
    close(found, train_alone(1))


def test_gradients_of_a_lost_generation_are_forgotten_in_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may fail between backward and step of another one, and `TorchState` need not hold the optimizer."""
    monkeypatch.setattr(WORKER, "settings", WorkerSettings(is_elastic=True))
    model = make_model()
    kept: list[Any] = []

    def begin(_: int) -> None:
        kept.append(hvd.DistributedOptimizer(sgd(model), model.named_parameters()))
        loss_of(model, *make_batch()).backward()

    def go_on(_: int) -> None:
        kept[0].zero_grad()  # was refused, because the round of the lost generation had begun
        loss_of(model, *make_batch()).backward()
        kept[0].step()

    for work in (begin, go_on):
        with torch_ranks(1) as on_ranks:
            on_ranks(work)
    close(flat(model), train_alone(1))


# ----- Errors -----


@each_rank(2, 3)
def test_errors_of_the_arguments() -> None:
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


@each_rank(2, 3)
def test_one_backward_too_many_is_refused() -> None:
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


@each_rank(2, 3)
def test_zero_grad_before_the_step_is_refused() -> None:
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


@each_rank(2, 3)
def test_gradients_of_different_shapes_fail_on_all_ranks() -> None:
    model = torch.nn.Linear(3 + hvd.rank(), 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    model(torch.ones(1, 3 + hvd.rank())).sum().backward()
    refused(CollectiveMismatchError, "gradient.weight", optimizer.step)
    optimizer.zero_grad()  # the round has ended, and the next one can begin


@each_rank(2, 3)
def test_another_number_of_parameters_in_groups_is_refused() -> None:
    model = make_model() if hvd.rank() else torch.nn.Linear(6, 1)
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), groups=2)
    refused(ValueError, "only some of them have 0.bias, 0.weight, 2.bias, 2.weight, bias, weight", optimizer.step)
