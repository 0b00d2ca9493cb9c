"""Functions that load the parameters saved by `paddle train` into torch, and a fully connected layer."""

from __future__ import annotations

import numpy as np
import torch
from numpy_baseline.parameters import Parameters
from torch import Tensor, nn
from torch.nn import functional


def load(values: np.ndarray) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(values.copy()))


def load_matrix(parameters: Parameters, name: str, width: int) -> nn.Parameter:
    """Returns a parameter with rows of this width."""
    return load(parameters.matrix(name, width)[0])


class Connected(nn.Module):
    """A fully connected layer with tanh; several inputs are concatenated, and their matrices are stacked."""

    def __init__(self, parameters: Parameters, name: str, width: int, *, inputs: int = 1) -> None:
        super().__init__()
        weights = [parameters.matrix(f"{name}.w{number}", width)[0] for number in range(inputs)]
        self.weight = load(np.concatenate(weights))
        self.bias = load(parameters.vector(f"{name}.wbias")[0])

    def add_up(self, x: Tensor) -> Tensor:
        """Returns the outputs before tanh."""
        return torch.addmm(self.bias, x, self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.add_up(x))


def pad_row(rows: Tensor) -> Tensor:
    """Returns the rows, followed by a row of zeros."""
    return functional.pad(rows, (0, 0, 0, 1))
