"""Sends the values of rank 0 to every rank without pickle, and copies values."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from paddle.elastic.torch.elastic.plain_data import MAPPINGS, list_forms, put_together, take_apart
from paddle_base.runtime.errors import ConfigError, DataError
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.fresh_memory import FreshMemory
from paddle_cluster.elastic.process.memory import check_fits
from paddle_cluster.elastic.process.objects import dump_object
from paddle_cluster.elastic.process.sameness import list_stale
from paddle_cluster.elastic.state import SYNC_NAME

AT_ONCE = 512  # maximum number of tensors that wait to be sent
VERSION = ".".join(torch.__version__.split(".")[:2])  # the last number, and the kind of build, change no state


def sync_value(value: object, name: str, *, root_rank: int = 0, into: bool = False, is_compared: bool = False) -> Any:
    """Return the value of rank 0, or of another root; the root gets its own value.

    Args: name: name of the value in error messages, and in the names of the collectives.  into: whether to write into
        the tensors of this rank's value if they have the types and shapes of those of rank 0.  is_compared: whether to
        send only tensors that differ among the ranks, where all ranks have had the state; the value returned may then
        have tensors of this rank's value. All ranks pass the same; only for root 0.
    Raises: TypeError: rank 0 has a value that cannot be sent.  ConfigError: rank 0 has another version of torch.
        DataError: rank 0 has sent something else, or tensors for which this machine has no memory.
    """
    if operations.size() == 1:
        return value
    is_root = operations.rank() == root_rank
    # only a rank that may use its own value takes it apart, because other values count for nothing
    own = _take_own(value, name, is_root) if is_root or into or is_compared else None
    plan, tensors = own or (None, [])
    sent = operations.broadcast_object({"torch": VERSION, "value": plan}, root_rank, f"{SYNC_NAME}.{name}")
    if not isinstance(sent, dict) or sent.keys() != {"torch", "value"}:
        raise DataError(f"rank {root_rank} sent a state that is not of a TorchState; all ranks run the same script")
    _check_version(sent["torch"], root_rank)
    dumped = dump_object(plan)
    # the same tensors under the same names in the same order
    fits = is_root or (own is not None and dumped == dump_object(sent["value"]))
    if not fits:
        tensors = allocate_tensors(sent["value"], root_rank)
    stale = set(range(len(tensors)))
    if is_compared:
        views = [_view(_stage(one)) for one in tensors]
        stale = list_stale(views, dumped, f"{SYNC_NAME}.{name}", has_same_names=fits)
    if fits and not (into or is_root):
        tensors = [torch.empty(one.shape, dtype=one.dtype) if at in stale else one for at, one in enumerate(tensors)]
    _broadcast([(number, tensors[number]) for number in sorted(stale)], name, root_rank)
    return value if is_root else put_together(sent["value"], tensors, root_rank)


def _take_own(value: object, name: str, is_root: bool) -> tuple[Any, list[torch.Tensor]] | None:
    """Return the parts of the own value; None: it cannot be sent, which matters only on the root."""
    try:
        return take_apart(value, name)
    except TypeError:
        if is_root:
            raise
        return None


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


def _broadcast(numbered: Sequence[tuple[int, torch.Tensor]], name: str, root_rank: int) -> None:
    """Write the tensors of the root into the tensors of every rank. The numbers are for the names of collectives."""
    full = [(number, tensor) for number, tensor in numbered if tensor.numel()]
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


def copy_into(kept: object, value: object, memory: FreshMemory | None = None) -> Any:
    """Return a deep copy of a value; use the memory of an earlier copy where its types and shapes still fit.

    Args: memory: has memory for the rest; None: new memory.

    New memory takes most of the time of a copy, because the system clears it and maps it page by page.
    """
    kind: Any = type(value)
    memory = memory or FreshMemory()
    if isinstance(value, torch.Tensor):
        return _copy_tensor(kept, value, memory)
    if kind is dict or kind in MAPPINGS:
        assert isinstance(value, dict)
        old = kept if type(kept) is kind else {}
        assert isinstance(old, dict)
        return kind({key: copy_into(old.get(key), one, memory) for key, one in value.items()})
    if kind is list or kind is tuple:
        assert isinstance(value, list | tuple)
        olds = kept if type(kept) is kind else ()
        assert isinstance(olds, list | tuple)
        pairs = itertools.zip_longest(value, olds[: len(value)])
        return kind(copy_into(old, one, memory) for one, old in pairs)
    return copy.deepcopy(value)


def _copy_tensor(kept: Any, value: torch.Tensor, memory: FreshMemory) -> Any:
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
    if source.layout == torch.strided and source.device.type == "cpu" and source.is_contiguous() and source.numel():
        bare = torch.from_numpy(memory.take(source.numel() * source.element_size()))
        copied = bare.view(source.dtype).view(source.shape).copy_(source)
    else:
        copied = source.clone()
    return copied.requires_grad_() if wants_gradient else copied
