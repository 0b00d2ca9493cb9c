"""The parameter table of a network: one flat array of values and one of gradients, and a view per parameter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from proto.ParameterConfig_pb2 import ParameterConfig
from pserver.errors import ConfigError
from pserver.rules import ParameterSpec
from trainer.arguments import Array
from trainer.initializers import NORMAL, UNIFORM, fill_normal, fill_uniform
from trainer.rng import Stream

_NO_FILE_NAMES = ("", ".", "..", "done", "path.txt")  # a pass directory has files of its own


class Parameter:
    """One parameter: its record of the message, and views of its value and (unless static) of its gradient."""

    def __init__(self, config: ParameterConfig) -> None:
        self.config = config
        self.name: str = config.name
        self.size: int = config.size
        self.is_static: bool = config.is_static
        self.value: Array
        self.gradient: Array

    def matrix(self, rows: int, columns: int) -> Array:
        """Return the value as a matrix."""
        return self.value.reshape(rows, columns)

    def gradient_matrix(self, rows: int, columns: int) -> Array:
        """Return the gradient as a matrix; writing to it writes to the gradient."""
        return self.gradient.reshape(rows, columns)

    def randomize(self, stream: Stream) -> None:
        """Draw first values as the record says."""
        mean, std = self.config.initial_mean, self.config.initial_std
        if self.config.initial_strategy == UNIFORM:
            fill_uniform(self.value, mean - std, mean + std, stream)
        else:
            fill_normal(self.value, mean, std, stream)

    def spec(self) -> ParameterSpec:
        """Return what an optimiser needs to know of this parameter."""
        config = self.config
        return ParameterSpec(
            name=config.name,
            size=config.size,
            learning_rate=config.learning_rate,
            momentum=config.momentum,
            decay_rate=config.decay_rate,
            gradient_clipping_threshold=config.gradient_clipping_threshold,
            is_static=config.is_static,
        )


class ParameterTable:
    """All parameters of a network, in the order of the message.

    The trained ones lie one after the other in `values` and, summed over the samples of a batch, in `gradients`;
    an optimiser works on these two. Static ones have an array of their own and no gradient.
    """

    def __init__(self, configs: Sequence[ParameterConfig], dtype: npt.DTypeLike = np.float32) -> None:
        self._parameters = {config.name: Parameter(config) for config in configs}
        _refuse_unsupported(configs)
        size = sum(p.size for p in self.trained())
        self.values: Array = np.zeros(size, dtype)
        self.gradients: Array = np.zeros(size, dtype)
        for parameter in self:
            if parameter.is_static:
                parameter.value = np.zeros(parameter.size, dtype)
        self._make_views()

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._parameters.values())

    def __getitem__(self, name: str) -> Parameter:
        return self._parameters[name]

    def __len__(self) -> int:
        return len(self._parameters)

    def trained(self) -> list[Parameter]:
        """Return the parameters that are not static, in order."""
        return [parameter for parameter in self if not parameter.is_static]

    def adopt(self, values: npt.NDArray[np.float32]) -> None:
        """Move the trained values into another array of the same length, and work there from now on.

        So that an optimiser which owns its array updates the network's values in place.
        """
        values[:] = self.values
        self.values = values
        self._make_views()

    def randomize(self, stream: Stream) -> None:
        """Draw first values for all parameters in order, static ones too, from the one stream."""
        for parameter in self:
            parameter.randomize(stream)

    def clear_gradients(self) -> None:
        """Set all gradients to zero."""
        self.gradients.fill(0)

    def _make_views(self) -> None:
        start = 0
        for parameter in self.trained():
            stop = start + parameter.size
            parameter.value, parameter.gradient = self.values[start:stop], self.gradients[start:stop]
            start = stop


def _refuse_unsupported(configs: Sequence[ParameterConfig]) -> None:
    for config in configs:
        if "/" in config.name or config.name in _NO_FILE_NAMES:
            raise ConfigError(
                f"parameter {config.name!r} cannot be saved: its name is that of its file, so it must not hold a '/' "
                f"nor be one of {', '.join(map(repr, _NO_FILE_NAMES))}; rename the layer or the ParamAttr"
            )
        asked: dict[str, Any] = {
            "L1 decay (l1_rate)": config.decay_rate_l1,
            "sparse storage (is_sparse)": config.is_sparse,
            "sparse_update": config.sparse_update or config.sparse_remote_update,
            "update hooks (pruning)": len(config.update_hooks),
            "num_batches_regularization over 1": config.num_batches_regularization > 1,
            f"initial_strategy {config.initial_strategy}": config.initial_strategy not in (NORMAL, UNIFORM),
        }
        for what in (name for name, given in asked.items() if given):
            raise ConfigError(f"parameter {config.name}: {what} is not supported yet; use a dense parameter without it")
