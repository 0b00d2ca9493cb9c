"""Sends the values of rank 0 to every rank without pickle, and copies values."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from paddle.elastic.torch.elastic.plain_data import MAPPINGS, list_forms, put_together, take_apart
from paddle_base.runtime.errors import ConfigError, DataError
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.memory import check_fits
from paddle_cluster.elastic.process.objects import dump_object
from paddle_cluster.elastic.state import SYNC_NAME

AT_ONCE = 512  # maximum number of tensors that wait to be sent
VERSION = ".".join(torch.__version__.split(".")[:2])  # the last number, and the kind of build, change no state


def sync_value(value: object, name: str, *, root_rank: int = 0, into: bool = False) -> Any:
    """Return the value of rank 0, or of another root; the root gets its own value.

    Args: name: name of the value in error messages, and in the names of the collectives.  into: whether to write into
        the tensors of this rank's value if they have the types and shapes of those of rank 0.
    Raises: TypeError: rank 0 has a value that cannot be sent.  ConfigError: rank 0 has another version of torch.
        DataError: rank 0 has sent something else, or tensors for which this machine has no memory.
    """
    if operations.size() == 1:
        return value
    is_root = operations.rank() == root_rank
    # only a rank that may write into its own value takes it apart, because other values count for nothing
    plan, tensors = take_apart(value, name) if is_root or into else (None, [])
    sent = operations.broadcast_object({"torch": VERSION, "value": plan}, root_rank, f"{SYNC_NAME}.{name}")
    if not isinstance(sent, dict) or sent.keys() != {"torch", "value"}:
        raise DataError(f"rank {root_rank} sent a state that is not of a TorchState; all ranks run the same script")
    _check_version(sent["torch"], root_rank)
    if is_root:
        _broadcast(tensors, name, root_rank)
        return value
    # the same tensors under the same names in the same order
    if not into or dump_object(plan) != dump_object(sent["value"]):
        tensors = allocate_tensors(sent["value"], root_rank)
    _broadcast(tensors, name, root_rank)
    return put_together(sent["value"], tensors, root_rank)


def _check_version(version: object, root_rank: int) -> None:
    if version != VERSION:
        raise ConfigError(
            f"this worker has torch {VERSION}, and rank {root_rank} has torch {str(version)[:20]}: they would compute "
            "different models; install the same version of torch on all hosts"
        )


def allocate_tensors(plan: object, sender: int) -> list[torch.Tensor]:
    """Return memory for the tensors that a rank will send. Args: plan: plain data of `take_apart` from this rank.

    Raises: DataError: the data are not of `take_apart`, or this machine has no memory for the tensors.
    """
    forms = list_forms(plan, sender)
    check_fits(sum(form.nbytes for form in forms), sender, "a state")
    return [torch.empty(form.shape, dtype=form.dtype) for form in forms]


@contextlib.contextmanager
def loading(what: str, root_rank: int = 0) -> Iterator[None]:
    """Name what cannot load the state of another rank.

    Raises: ConfigError: an error inside the context of an object that gets a state of another shape or other names.
    """
    try:
        yield
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as exc:
        raise ConfigError(
            f"{what} of this worker cannot take the state of rank {root_rank}'s; all workers run the same script with "
            f"the same model: {exc}"
        ) from exc


def _broadcast(tensors: Sequence[torch.Tensor], name: str, root_rank: int) -> None:
    """Write the tensors of the root into the tensors of every rank."""
    full = [(number, tensor) for number, tensor in enumerate(tensors) if tensor.numel()]
    for begin in range(0, len(full), AT_ONCE):
        some = [(number, tensor, _stage(tensor)) for number, tensor in full[begin : begin + AT_ONCE]]
        pending = [
            operations.broadcast_async_(_view(stage), root_rank, f"{SYNC_NAME}.{name}.{number}")
            for number, _, stage in some
        ]
        for one in pending:
            operations.synchronize(one)
        for _, tensor, stage in some:
            if stage is not tensor and operations.rank() != root_rank:
                tensor.copy_(stage)


def _stage(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself if its bytes can be sent as they are, or else a copy of it."""
    if tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)


def _view(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """Return the bytes of a tensor, because the collectives do not know all types of torch."""
    found: npt.NDArray[np.uint8] = tensor.reshape(-1).view(torch.uint8).numpy()
    return found


def copy_into(kept: object, value: object) -> Any:
    """Return a deep copy of a value; use the memory of an earlier copy where its types and shapes still fit.

    New memory takes most of the time of a copy, because the system clears it and maps it page by page.
    """
    kind: Any = type(value)
    if isinstance(value, torch.Tensor):
        return _copy_tensor(kept, value)
    if kind is dict or kind in MAPPINGS:
        assert isinstance(value, dict)
        old = kept if type(kept) is kind else {}
        assert isinstance(old, dict)
        return kind({key: copy_into(old.get(key), one) for key, one in value.items()})
    if kind is list or kind is tuple:
        assert isinstance(value, list | tuple)
        olds = kept if type(kept) is kind else ()
        assert isinstance(olds, list | tuple)
        return kind(copy_into(olds[number] if number < len(olds) else None, one) for number, one in enumerate(value))
    return copy.deepcopy(value)


def _copy_tensor(kept: Any, value: torch.Tensor) -> Any:
    if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
        return copy.deepcopy(value)
    wants_gradient = value.requires_grad and value.is_leaf
    source = value.detach()
    fits = (
        type(kept) is torch.Tensor
        and kept.layout == source.layout == torch.strided
        and (kept.shape, kept.dtype, kept.device) == (source.shape, source.dtype, source.device)
        and kept.requires_grad == wants_gradient
    )
    if fits:
        kept.detach().copy_(source)
        return kept
    return source.clone().requires_grad_(wants_gradient) if wants_gradient else source.clone()
