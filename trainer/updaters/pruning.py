"""Static pruning: the smallest initial values of a parameter become zero and stay zero.

Source: ParameterUpdaterHook.cpp of v0.11, the hook of `HookAttr('pruning', sparsity_ratio)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Array
from trainer.arrays.encoding import decode_array, encode_array
from trainer.arrays.parameters import Parameter
from trainer.layers.ties import mark_largest

Mask = npt.NDArray[np.bool_]


class Pruning:
    """The masks of the parameters with a pruning hook.

    Attributes: is_on: whether there is such a parameter.

    Raises: ConfigError: a hook has an unknown type, or its ratio is invalid.
    """

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self._pruned = [parameter for parameter in parameters if _is_pruned(parameter)]
        self._masks: dict[str, Mask] = {}
        self.is_on = bool(self._pruned)

    def start(self) -> None:
        """Choose the present values to keep, and set all other values to zero."""
        for parameter in self._pruned:
            mask = choose_kept(parameter.value, parameter.config.update_hooks[0].sparsity_ratio)
            self._masks[parameter.name] = mask
            parameter.value[~mask] = 0

    def state(self) -> dict[str, Any]:
        """Return the masks in a JSON-compatible form."""
        return {name: encode_array(np.packbits(mask)) for name, mask in self._masks.items()}

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Restore the masks of an earlier run.

        The masks are not chosen again from the present values, because kept values may have become zero.
        """
        for parameter in self._pruned:
            bits = np.unpackbits(decode_array(state[parameter.name]), count=parameter.size)
            self._masks[parameter.name] = bits.astype(np.bool_)

    def mask_gradients(self) -> None:
        """Set the gradients of pruned values to zero."""
        for parameter in self._pruned:
            if not parameter.is_static:
                parameter.gradient[~self._masks[parameter.name]] = 0


def choose_kept(values: Array, sparsity_ratio: float) -> Mask:
    """Return a mask of the floor(size * (1 - ratio)) values with the largest magnitudes, ties as in v0.11."""
    return mark_largest(np.abs(values), int(values.size * (1 - sparsity_ratio)))


def _is_pruned(parameter: Parameter) -> bool:
    hooks = parameter.config.update_hooks
    for hook in hooks:
        if hook.type != "pruning":
            raise ConfigError(
                f"parameter {parameter.name}: Unknown Hook type: {hook.type}; known is HookAttr('pruning', ratio)"
            )
        if not 0 <= hook.sparsity_ratio <= 1:
            raise ConfigError(
                f"parameter {parameter.name}: the sparsity_ratio of its HookAttr is {hook.sparsity_ratio:g}; "
                "it must lie in [0, 1]"
            )
    return bool(hooks)
