"""The settings of optimisers, and the types of their arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Rows = NDArray[np.integer[Any]]  # row numbers, ascending
Steps = NDArray[np.int64]  # step numbers, one for each row of a selection


@dataclass(frozen=True)
class Optimization:
    """The settings common to all parameters, with the field names of the OptimizationConfig message.

    `max_average_window` is None if the config does not set it. Only servers use the fields from `algorithm` on. On a
    server `delta_add_rate` is the config's value divided by the number of trainers.
    """

    learning_method: str = "momentum"
    learning_rate: float = 1.0
    learning_rate_schedule: str = "constant"
    learning_rate_decay_a: float = 0.0
    learning_rate_decay_b: float = 0.0
    learning_rate_args: str = ""
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    ada_epsilon: float = 1e-6
    ada_rou: float = 0.95
    average_window: float = 0.0
    max_average_window: int | None = None
    algorithm: str = "sgd"
    async_lagged_grad_discard_ratio: float = 1.5
    delta_add_rate: float = 1.0

    @property
    def is_asynchronous(self) -> bool:
        """Whether servers take a separate step for every trainer's gradient."""
        return self.algorithm == "async_sgd"


@dataclass(frozen=True)
class ParameterSpec:
    """The properties of one parameter that a server needs, with the field names of the ParameterConfig message.

    `sparse_update` is also True if the config sets sparse_remote_update. `row_width` is the number of elements in a row
    of the gradient's matrix.
    """

    name: str
    size: int
    learning_rate: float = 1.0
    momentum: float = 0.0
    decay_rate: float = 0.0
    gradient_clipping_threshold: float = 0.0
    is_static: bool = False
    decay_rate_l1: float = 0.0
    num_batches_regularization: int = 1
    sparse_update: bool = False
    row_width: int = 0
