"""Takes values with tensors apart into plain data and tensors, and puts them together again. No I/O.

The plain data have nothing that names code: a part of torch becomes a dictionary with the single key `MARK`, whose
value begins with the kind of the part. `paddle_cluster.elastic.process.objects` encodes them.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from paddle_base.runtime.errors import DataError
from paddle_cluster.elastic.process.objects import dump_object

MARK = "paddle.elastic.torch"
MAX_DIMENSIONS = 64  # as in torch
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(getattr(torch, name) for name in ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2")
          if hasattr(torch, name)),
    )
}  # fmt: skip
MAPPINGS: dict[type, str] = {
    collections.OrderedDict: "ordered",
    collections.Counter: "counter",
}  # they can be sent, and their names
_KINDS = {name: kind for kind, name in MAPPINGS.items()}


class TensorForm(NamedTuple):
    """The type, the shape and the number of bytes of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of the tensor's elements."""
        return math.prod(self.shape) * int(torch.empty(0, dtype=self.dtype).element_size())


def take_apart(value: object, where: str = "the object") -> tuple[Any, list[torch.Tensor]]:
    """Return the plain data of a value, and its tensors without their history.

    Args: where: name of the value in error messages.
    Raises: TypeError: a part cannot be sent; the message names the place.
    """
    tensors: list[torch.Tensor] = []
    try:
        return _take(value, tensors, where), tensors
    except RecursionError as exc:
        raise TypeError(f"{where} contains itself, or is nested too deeply") from exc


def list_forms(plan: object, sender: int) -> list[TensorForm]:
    """Return the forms of the tensors in the plain data of `take_apart`, in their order.

    Args: sender: the rank that has sent the data, for errors.
    Raises: DataError: the data are not of `take_apart`.
    """
    forms: list[TensorForm] = []
    try:
        _put(plan, None, forms)
    except (ArithmeticError, KeyError, TypeError, ValueError, RuntimeError) as exc:
        raise _refuse_plan(exc, sender) from exc
    return forms


def put_together(plan: object, tensors: Sequence[torch.Tensor], sender: int) -> Any:
    """Return the value whose plain data and tensors are given; see `list_forms`.

    Raises: DataError: the data are not of `take_apart`.
    """
    try:
        return _put(plan, iter(tensors), [])
    except (ArithmeticError, KeyError, TypeError, ValueError, RuntimeError, StopIteration) as exc:
        raise _refuse_plan(exc, sender) from exc


def _refuse_plan(exc: Exception, sender: int) -> DataError:
    return DataError(f"rank {sender} sent a state that cannot be read ({type(exc).__name__}: {exc})")


def _take(value: object, tensors: list[torch.Tensor], where: str) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str, bytes):
        return value
    if kind is torch.Tensor:
        assert isinstance(value, torch.Tensor)
        return {MARK: _take_tensor(value, tensors, where)}
    if kind is list or kind is tuple:
        assert isinstance(value, list | tuple)
        return kind(_take(one, tensors, f"{where}[{number}]") for number, one in enumerate(value))
    if kind is dict or kind in MAPPINGS:
        assert isinstance(value, dict)
        if MARK in value:
            raise TypeError(f"{where} has the key '{MARK}', which is reserved; choose another key")
        found = {
            _take(key, tensors, f"a key of {where}"): _take(one, tensors, f"{where}[{key!r}]")
            for key, one in value.items()
        }
        return {MARK: [MAPPINGS[kind], found]} if kind in MAPPINGS else found
    if isinstance(value, torch.Size):
        return {MARK: ["size", list(value)]}
    if isinstance(value, torch.dtype) and _name(value) in _DTYPES:
        return {MARK: ["dtype", _name(value)]}
    if isinstance(value, torch.device):
        return {MARK: ["device", str(value)]}
    dump_object(value, where)  # arrays of numpy can be sent as they are; anything else is refused by its name
    return value


def _take_tensor(value: torch.Tensor, tensors: list[torch.Tensor], where: str) -> list[Any]:
    wants_gradient = value.requires_grad and value.is_leaf
    tensor = value.detach()
    if tensor.layout == torch.sparse_coo:
        parts = (tensor._indices(), tensor._values())
        inner = [_take_tensor(part, tensors, where) for part in parts]
        return ["sparse", list(tensor.shape), tensor.is_coalesced(), wants_gradient, *inner]
    if tensor.is_quantized or tensor.layout != torch.strided or tensor.device.type == "meta":
        what = "a quantised tensor" if tensor.is_quantized else f"a tensor of {tensor.layout} on {tensor.device}"
        raise TypeError(f"{where} is {what}, which cannot be sent; tensors with data that are dense or sparse_coo can")
    if _name(tensor.dtype) not in _DTYPES:
        raise TypeError(f"{where} is a tensor of {tensor.dtype}; these types can be sent: {', '.join(_DTYPES)}")
    tensors.append(tensor)
    return ["tensor", _name(tensor.dtype), list(tensor.shape), wants_gradient]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _put(plan: Any, tensors: Iterator[torch.Tensor] | None, forms: list[TensorForm]) -> Any:
    """Return the value; add the forms of its tensors to `forms`. `tensors`: None: the value has no tensors yet."""
    if isinstance(plan, list | tuple):
        return type(plan)(_put(one, tensors, forms) for one in plan)
    if not isinstance(plan, dict):
        return plan
    if MARK not in plan:
        return {key: _put(one, tensors, forms) for key, one in plan.items()}
    ((kind, *fields),) = plan.values()
    if kind in _KINDS:
        (inner,) = fields
        return _KINDS[kind](_put(inner, tensors, forms))
    if kind in ("tensor", "sparse"):
        return _put_tensor([kind, *fields], tensors, forms)
    (field,) = fields
    if kind == "size":
        return torch.Size(_read_shape(field))
    return {"dtype": _DTYPES.__getitem__, "device": torch.device}[kind](field)


def _put_tensor(plan: Any, tensors: Iterator[torch.Tensor] | None, forms: list[TensorForm]) -> Any:
    kind, *fields = plan
    if kind == "sparse":
        shape, is_coalesced, wants_gradient, *inner = fields
        indices, values = (_put_tensor(one, tensors, forms) for one in inner)
        if tensors is None:
            return None
        tensor: torch.Tensor = torch.sparse_coo_tensor(indices, values, _read_shape(shape), check_invariants=True)
        tensor._coalesced_(bool(is_coalesced))
    elif kind == "tensor":
        name, shape, wants_gradient = fields
        forms.append(TensorForm(_DTYPES[name], _read_shape(shape)))
        if tensors is None:
            return None
        tensor = next(tensors)
    else:
        raise ValueError(f"a part of the kind {kind}")
    return tensor.requires_grad_() if wants_gradient else tensor


def _read_shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise ValueError("a shape that is no list, or too long")
    if not all(type(one) is int and 0 <= one < 1 << 60 for one in shape):
        raise ValueError("a shape with a dimension that is no length")
    return tuple(shape)
