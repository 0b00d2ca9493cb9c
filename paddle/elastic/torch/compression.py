"""Smaller messages: gradients travel as numbers of two bytes, and get their type back after the collective."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from paddle_cluster.elastic.collectives.dtypes import BFLOAT16

__all__ = ["Compression"]


class Compressor:
    """Converts tensors before a collective, and their results after it."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """Return the tensor that is sent, and what `decompress` needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype | None) -> torch.Tensor:
        """Return the result in the type that the tensor had before `compress`."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Changes nothing."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype | None) -> torch.Tensor:
        """Return the tensor itself."""
        return tensor


class CastingCompressor(Compressor):
    """Sends tensors of real numbers in another type. Attributes: dtype: the type that is sent."""

    dtype = torch.float16

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """Return the tensor in the smaller type, and its own type; integers stay as they are."""
        return (tensor.to(cls.dtype) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype | None) -> torch.Tensor:
        """Return the tensor in its own type."""
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(CastingCompressor):
    """Sends real numbers as float16."""


class BF16Compressor(CastingCompressor):
    """Sends real numbers as bfloat16, which has the range of float32."""

    dtype = torch.bfloat16


class Compression:
    """The values of the argument `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


_WIRE_TYPES: dict[torch.dtype, np.dtype[Any]] = {torch.float16: np.dtype(np.float16), torch.bfloat16: BFLOAT16}


def is_conversion(compression: Any) -> bool:
    """Return whether a compression does nothing, or converts numbers to a type of `_WIRE_TYPES` and back.

    A script may have a compression of its own, also one that is derived from these.
    """
    if compression is NoneCompressor:
        return True
    names = ("compress", "decompress")
    is_casting = all(_function(compression, name) is _function(CastingCompressor, name) for name in names)
    return is_casting and compression.dtype in _WIRE_TYPES


def wire_type_of(compression: Any) -> np.dtype[Any] | None:
    """Return the type of the numbers that a conversion sends; None: they are not converted."""
    return None if compression is NoneCompressor else _WIRE_TYPES[compression.dtype]


def _function(owner: Any, name: str) -> Any:
    method = getattr(owner, name, None)
    return getattr(method, "__func__", method)
