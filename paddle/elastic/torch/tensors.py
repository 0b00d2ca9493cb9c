"""Tensors as arrays of the collectives, and their results as tensors; both share the memory of a CPU tensor.

Tensors of a GPU go through the memory of the host. This was never run on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from paddle_cluster.elastic.collectives.dtypes import BFLOAT16

AnyArray = npt.NDArray[Any]
DTYPES = frozenset((
    torch.bfloat16, torch.float16, torch.float32, torch.float64,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
))  # fmt: skip


def read_tensor(tensor: torch.Tensor) -> AnyArray:
    """Return the values of a tensor as an array, which is the memory of the tensor if that is on the CPU.

    Raises: see `check_tensor`.
    """
    check_tensor(tensor)
    host = tensor.detach() if is_on_host(tensor) else tensor.detach().to("cpu", copy=True)
    if host.dtype == torch.bfloat16:  # numpy has no such type
        return host.view(torch.int16).numpy().view(np.uint16).view(BFLOAT16)
    return host.numpy()  # type: ignore[no-any-return]


def check_tensor(tensor: torch.Tensor) -> None:
    """Raises: TypeError: the value is no tensor.  ValueError: no collective takes a tensor of this kind."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a collective takes tensors, and not a {type(tensor).__name__}; use torch.as_tensor")
    if tensor.layout != torch.strided:
        raise ValueError(
            f"a tensor of the layout {tensor.layout} cannot take part in this collective; use "
            "hvd.sparse_allreduce_async, or its to_dense()"
        )
    if tensor.device.type == "meta":
        raise ValueError(
            f"a tensor of the device meta has no values to send; its shape is {tuple(tensor.shape)}: give it memory, "
            "for example with model.to_empty(device='cpu')"
        )
    if tensor.dtype not in DTYPES:
        types = ", ".join(sorted(str(one).removeprefix("torch.") for one in DTYPES))
        raise ValueError(f"Tensor type {tensor.type()} is not supported. Convert it into one of {types}")
    if not tensor.is_contiguous():  # the first sentences are Horovod's
        raise ValueError(
            f"Tensor is required to be contiguous. The strides of one of shape {tuple(tensor.shape)} are "
            f"{tensor.stride()}; send its contiguous()"
        )


def is_on_host(tensor: torch.Tensor) -> bool:
    """Return whether the collectives can use the memory of a tensor."""
    return tensor.device.type == "cpu"


def make_tensor(array: AnyArray, like: torch.Tensor) -> torch.Tensor:
    """Return an array that `read_tensor` could have made as a tensor of the type and on the device of `like`."""
    if like.dtype == torch.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(like.device)
    return torch.from_numpy(array).to(like.device)


def write_tensor(array: AnyArray, tensor: torch.Tensor) -> torch.Tensor:
    """Write the array of `read_tensor`, which has the result now, into its tensor; return the tensor."""
    if not is_on_host(tensor):
        with torch.no_grad():
            tensor.copy_(make_tensor(array, tensor))
    return tensor
