"""Smaller messages: gradients travel as numbers of two bytes, and get their type back after the collective."""

from __future__ import annotations

import torch

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
