"""Batch normalisation over the batches of all ranks together."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from paddle.elastic.torch.asynchronous import Sum, allreduce_async, synchronize
from paddle_cluster.elastic.process import operations

__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """The BatchNorm of torch with the mean and the variance of all ranks' batches, whose sizes may differ.

    Its result, its gradient of the input and its running averages are those of BatchNorm of the whole batch. The
    gradients of weight and bias are the parts of this rank. In training mode `forward` runs one all-reduce, and
    `backward` another one. Horovod's works on GPUs only.

    Shapes: the input is (batch, num_features, ...).
    Raises (forward): ValueError: the input has fewer than two dimensions, or the ranks have one value per channel.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the normalised input."""
        self._check_input_dim(input)
        if not self.training or operations.size() == 1:  # only some ranks may test
            return super().forward(input)
        mean, variance, count = _measure_all(input.detach())
        if self.track_running_stats:
            self._track(mean, variance * (count / (count - 1)))
        scale = torch.rsqrt(variance + self.eps)
        return SyncBatchNormFunction.apply(input, self.weight, self.bias, (mean, scale, count))

    def _track(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        self.num_batches_tracked.add_(1)
        factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        with torch.no_grad():
            for running, new in ((self.running_mean, mean), (self.running_var, variance)):
                running.lerp_(new.to(running.dtype), factor)


def _measure_all(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return mean and variance of each channel, and the number of values of a channel, of all ranks together."""
    count = values.numel() // values.shape[1] if values.shape[1] else 0
    sums = torch.zeros(2, values.shape[1], dtype=torch.float64, device=values.device)
    if count:
        variance, mean = torch.var_mean(_widen(values), _other_dimensions(values), correction=0)
        mean, variance = mean.double(), variance.double()
        sums[0], sums[1] = mean * count, (variance + mean * mean) * count
    everything = torch.cat((sums.reshape(-1), sums.new_tensor([count])))
    everything = synchronize(allreduce_async(everything, op=Sum))
    total = float(everything[-1])
    if total <= 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {tuple(values.shape)} on this rank, "
            "and no value on the others"
        )
    mean, square = everything[:-1].reshape(2, -1) / total
    return mean, (square - mean * mean).clamp_(min=0), total


def _widen(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _other_dimensions(values: torch.Tensor) -> list[int]:
    return [0, *range(2, values.dim())]


class SyncBatchNormFunction(torch.autograd.Function):
    """Normalises with given means and scales, of which it knows that they depend on the inputs of all ranks."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: Any, bias: Any, measures: Any) -> torch.Tensor:
        """Return the normalised values. Args: measures: mean, reciprocal of the deviation, number of values."""
        mean, scale, ctx.count = measures
        ctx.save_for_backward(values, weight, mean, scale)
        normal = _normalise(values, mean, scale)
        if weight is not None:
            normal = normal * _spread(weight, normal)
        if bias is not None:
            normal = normal + _spread(bias, normal)
        return normal.to(values.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of values, weight and bias."""
        values, weight, mean, scale = ctx.saved_tensors
        gradient = _widen(gradient)
        normal = _normalise(values, mean, scale)
        other = _other_dimensions(values)
        sums = torch.stack((gradient.sum(other), (gradient * normal).sum(other)))
        needs_values, needs_weight, needs_bias, _ = ctx.needs_input_grad
        of_values = None
        if needs_values:
            averages = synchronize(allreduce_async(sums.double(), op=Sum)) / ctx.count
            of_values = gradient - _spread(averages[0], gradient) - normal * _spread(averages[1], gradient)
            of_values *= _spread(scale if weight is None else scale * weight, gradient)
            of_values = of_values.to(values.dtype)
        return (
            of_values,
            sums[1].to(weight.dtype) if needs_weight else None,
            sums[0].to(weight.dtype) if needs_bias else None,
            None,
        )


def _normalise(values: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    values = _widen(values)
    return (values - _spread(mean, values)) * _spread(scale, values)


def _spread(channels: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return one value per channel in the type of `like`, with a dimension for each of it."""
    return channels.to(like.dtype).view(1, -1, *[1] * (like.dim() - 2))
