"""Sends the parameters of a model, and the options and state of an optimizer, from one rank to all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from paddle.elastic.torch import mpi_ops
from paddle.elastic.torch.elastic.sending import sync_value
from paddle.elastic.torch.gradients import make_empty
from paddle.elastic.torch.optimizer import ExchangingOptimizer
from paddle_base.runtime.errors import DataError
from paddle_cluster.elastic.collectives.requests import check_name

__all__ = ["broadcast_optimizer_state", "broadcast_parameters"]

STATE_NAME = "optimizer state"  # of the collectives, and in errors


def broadcast_parameters(params: object, root_rank: int) -> None:
    """Write the tensors of one rank into the tensors of all ranks.

    Args: params: `model.state_dict()`, or a list of parameters or of pairs (name, parameter).
    Raises: ValueError: params is something else, or two ranks have different names.  TypeError: a value is no tensor.
    """
    if isinstance(params, Mapping):
        pairs = sorted(params.items())
    elif isinstance(params, list):
        pairs = [one if isinstance(one, tuple) else (None, one) for one in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    for name, tensor in pairs:  # before the first request, because an error must leave no waiting request
        check_name(f"broadcast.{name}")
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"broadcast_parameters: '{name}' is a {type(tensor).__name__}, not a tensor; leave it out")
    sent = []
    for name, tensor in pairs:
        own = tensor.detach()
        wire = own.contiguous()
        handle = mpi_ops.broadcast_async_(wire, root_rank, name=None if name is None else f"broadcast.{name}")
        sent.append((own, wire, handle))
    for own, wire, handle in sent:
        mpi_ops.synchronize(handle)
        if wire is not own and wire.data_ptr() != own.data_ptr():
            own.copy_(wire)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: object = None) -> None:
    """Give the optimizers of all ranks the options and the state of one rank.

    If the root's optimizer has no state yet, all ranks take a step with gradients of zero, as in Horovod; the step
    creates the state. With weight decay such a step changes the parameters, on all ranks alike.

    Args: model: not used; scripts of Horovod may pass it.
    Raises: ValueError: the optimizer is LBFGS.  TypeError: the options or the state have a part that cannot be sent.
        DataError: the root has another number of parameters.
    """
    send_optimizer_state(optimizer, root_rank, keep_parameters=False)


def send_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, keep_parameters: bool) -> None:
    """Give the optimizers of all ranks the options and the state of one rank; see `broadcast_optimizer_state`.

    Args: keep_parameters: whether an optimizer without state stays without it, so that no step changes parameters.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    takes_step = mpi_ops.rank() == root_rank and not optimizer.state and not keep_parameters
    if takes_step:
        _take_empty_step(optimizer)
    own = {"takes_step": takes_step, **_describe(optimizer)}
    received = sync_value(own, STATE_NAME, root_rank=root_rank, into=True)
    if mpi_ops.rank() == root_rank:
        return
    parameters = _check(received, optimizer)
    for group, options in zip(optimizer.param_groups, received["groups"], strict=True):
        members = group["params"]
        group.clear()
        group.update(options, params=members)
    if received["takes_step"]:
        optimizer.state.clear()
        _take_empty_step(optimizer)
    optimizer.state.clear()
    for key, state, near in received["state"]:
        place = parameters[key] if isinstance(key, int) else key
        for name in near:
            state[name] = state[name].to(place.device)
        optimizer.state[place] = state


def _describe(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the options and the state of an optimizer; the number of a parameter stands in its place.

    The options of a group have the number of its parameters as "params". An item of the state has the parameter, its
    state, and those names of its tensors that are on the device of the parameter.
    """
    numbers = {one: number for number, one in enumerate(_list_parameters(optimizer))}
    state = []
    for key, value in optimizer.state.items():
        tensors = {name: one for name, one in value.items() if isinstance(one, torch.Tensor)}
        is_parameter = isinstance(key, torch.Tensor)
        near = [name for name, one in tensors.items() if is_parameter and one.device == key.device]
        state.append([numbers[key] if is_parameter else key, dict(value), near])
    groups = [{**group, "params": len(group["params"])} for group in optimizer.param_groups]
    return {"groups": groups, "state": state}


def _check(received: Any, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the parameters of this rank. Raises: DataError: the root has other ones."""
    parameters = _list_parameters(optimizer)
    counts = [len(group["params"]) for group in optimizer.param_groups]
    try:
        theirs = [group["params"] for group in received["groups"]]
        numbers = [key for key, state, near in received["state"] if isinstance(key, int) and set(near) <= state.keys()]
        is_known = all(0 <= number < len(parameters) for number in numbers)
    except (TypeError, KeyError, ValueError, AttributeError) as exc:
        raise DataError(f"another rank sent an optimizer that cannot be read ({type(exc).__name__}: {exc})") from exc
    if theirs != counts or not is_known:
        raise DataError(
            f"the optimizer of the sender has groups of {theirs} parameters, and this rank's has groups of {counts}; "
            "make the same optimizer on all ranks"
        )
    return parameters


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
