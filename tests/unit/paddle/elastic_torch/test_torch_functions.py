"""The parameters and the optimizer of one rank are sent to all ranks."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="paddle.elastic.torch is an extra (make test installs torch)")

from torch_models import close, each_rank, flat, loss_of, make_batch, make_model, refused, same_on_all, sgd  # noqa: E402

import paddle.elastic.torch as hvd  # noqa: E402
from paddle_base.runtime.errors import ConfigError  # noqa: E402


@each_rank(2, 3)
def test_parameters_are_those_of_the_root() -> None:
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


@each_rank(2)
def test_a_parameter_that_cannot_be_sent_is_named_and_no_other_one_waits() -> None:
    """The parameters before it were requested already, and waited under their names for ever."""
    good = torch.full((2,), float(hvd.rank()))
    for wrong, text in (
        (torch.empty(2, device="meta"), "broadcast_parameters: 'b': a tensor of the device meta has no values"),
        (torch.ones(2, dtype=torch.complex64), "broadcast_parameters: 'b': Tensor type torch.ComplexFloatTensor"),
        (torch.eye(2).to_sparse(), "broadcast_parameters: 'b': a tensor of the layout torch.sparse_coo"),
    ):
        if hvd.rank() == 0:
            refused(ValueError, text, partial(hvd.broadcast_parameters, {"a": good, "b": wrong}, 0))
    hvd.broadcast_parameters({"a": good}, 1)
    assert good.tolist() == [1.0, 1.0]


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


@each_rank(2, 3)
def test_optimizers_have_the_options_and_state_of_the_root() -> None:
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


@each_rank(2, 3)
def test_an_optimizer_without_state_takes_a_step_of_zeros_on_all_ranks_alike() -> None:
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


@each_rank(2, 3)
def test_frozen_parameters_get_no_gradient_of_the_first_step() -> None:
    frozen, free = torch.nn.Parameter(torch.tensor([1, 3]), requires_grad=False), torch.nn.Parameter(torch.rand(4))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([frozen, free], lr=0.001, momentum=0.9))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert frozen.grad is None and free.grad is not None and not free.grad.any()


@each_rank(2, 3)
def test_states_that_cannot_be_sent() -> None:
    model = make_model()
    lbfgs = hvd.DistributedOptimizer(torch.optim.LBFGS(model.parameters()))
    refused(ValueError, "cannot broadcast torch.optim.LBFGS state", lambda: hvd.broadcast_optimizer_state(lbfgs, 0))
    if hvd.rank() == 0:
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        plain.param_groups[0]["own"] = open
        with pytest.raises(TypeError, match=r"^broadcast_optimizer_state: .*'own'\] is a .*function.* can be sent$"):
            hvd.broadcast_optimizer_state(plain, 0)


@each_rank(2)
def test_an_optimizer_of_another_model_is_refused() -> None:
    model = torch.nn.Linear(2, 1, bias=not hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if hvd.rank():
        text = "the optimizer of this worker cannot take the state of rank 0's; all workers run the same script"
        refused(ConfigError, text, lambda: hvd.broadcast_optimizer_state(optimizer, 0))
    else:
        hvd.broadcast_optimizer_state(optimizer, 0)
