"""Exchanges parameters of a model, the options and state of an optimizer, and objects of plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from paddle.elastic.torch import mpi_ops
from paddle.elastic.torch.elastic.sending import loading, sync_value
from paddle.elastic.torch.gradients import make_empty
from paddle.elastic.torch.optimizer import ExchangingOptimizer
from paddle.elastic.torch.tensors import check_tensor
from paddle_cluster.elastic.collectives.requests import check_name
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.objects import drop_advice
from paddle_cluster.elastic.process.process_sets import ProcessSet, global_process_set

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]

STATE_NAME = "optimizer state"  # of the collectives, and in errors


def broadcast_parameters(params: object, root_rank: int) -> None:
    """Write the tensors of one rank into the tensors of all ranks.

    Args: params: `model.state_dict()`, or a list of parameters or of pairs (name, parameter).
    Raises: ValueError: params is something else, or a value cannot be sent.  TypeError: a value is no tensor.
    """
    if isinstance(params, Mapping):
        pairs = sorted(params.items())
    elif isinstance(params, list):
        pairs = [one if isinstance(one, tuple) else (None, one) for one in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    staged = []
    for name, tensor in pairs:  # before the first request, because an error must leave no waiting request
        check_name(f"broadcast.{name}")
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"broadcast_parameters: '{name}' is a {type(tensor).__name__}, not a tensor; leave it out")
        own = tensor.detach()
        wire = own.contiguous() if own.layout == torch.strided else own
        try:
            check_tensor(wire)
        except ValueError as exc:
            raise ValueError(f"broadcast_parameters: '{name}': {exc}") from exc
        staged.append((own, wire, None if name is None else f"broadcast.{name}"))
    sent = [(own, wire, mpi_ops.broadcast_async_(wire, root_rank, name)) for own, wire, name in staged]
    for own, wire, handle in sent:
        mpi_ops.synchronize(handle)
        if wire is not own and wire.data_ptr() != own.data_ptr():
            own.copy_(wire)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: object = None) -> None:
    """Give the optimizers of all ranks the options and the state of one rank.

    If the root's optimizer has no state yet, all ranks take a step with gradients of zero, as in Horovod; the step
    creates the state. With weight decay such a step changes the parameters, on all ranks alike. `TorchState` takes no
    step when it sends an optimizer.

    Args: model: not used; scripts of Horovod may pass it.
    Raises: ValueError: the optimizer is LBFGS.  TypeError: the options or the state have a part that cannot be sent.
        ConfigError: the state of the root does not fit the optimizer of this rank.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    is_root = mpi_ops.rank() == root_rank
    takes_step = is_root and not optimizer.state
    if takes_step:
        _take_empty_step(optimizer)
    own = {"takes_step": takes_step, "optimizer": optimizer.state_dict()}
    try:
        received = sync_value(own, STATE_NAME, root_rank=root_rank, into=True)
    except TypeError as exc:
        raise TypeError(f"broadcast_optimizer_state: {drop_advice(exc)}") from exc
    with loading("the optimizer", root_rank):
        if received["takes_step"] and not is_root:
            optimizer.load_state_dict({**received["optimizer"], "state": {}})
            _take_empty_step(optimizer)
        # on the root as well, because an optimizer may convert what it loads
        optimizer.load_state_dict(received["optimizer"])


def _list_parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [one for group in optimizer.param_groups for one in group["params"]]


def _take_empty_step(optimizer: torch.optim.Optimizer) -> None:
    """Take a step with gradients of zero; a parameter without a gradient keeps that of zero, as in Horovod."""
    kept = []
    for one in _list_parameters(optimizer):
        if one.requires_grad:
            kept.append((one, one.grad))
            if isinstance(optimizer, torch.optim.SparseAdam):
                one.grad = make_empty(torch.zeros_like(one).to_sparse(1))
            else:
                one.grad = torch.zeros_like(one)
    if isinstance(optimizer, ExchangingOptimizer):
        optimizer.step_alone()
    else:
        type(optimizer).step(optimizer)  # not that of the instance, which may count the steps of a scheduler
    for one, gradient in kept:
        if gradient is not None:
            one.grad = gradient


def broadcast_object(
    obj: object,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    unsafe_pickle: bool = False,
) -> Any:
    """Send an object from the root to all ranks of the set; return the object.

    Args: obj: only the object of the root counts.  unsafe_pickle: send any object by pickle; the root can then run any
        code on every rank.
    Raises: TypeError: the object has a part that cannot be sent without pickle; the message names the part.
    """
    return operations.broadcast_object(obj, root_rank, name, process_set=process_set, unsafe_pickle=unsafe_pickle)


def allgather_object(obj: object, name: str | None = None, *, unsafe_pickle: bool = False) -> list[Any]:
    """Return the objects of all ranks, by rank; see `broadcast_object`."""
    return operations.allgather_object(obj, name, unsafe_pickle=unsafe_pickle)
