"""Layers that select: a row of one of several inputs, a random id, or the ids that end a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import DataError
from trainer.arrays.arguments import Argument, Array, Ids, find_bad_id
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_ids, require_matrix, require_rows, require_same_rows
from trainer.layers.sampling import SampleStream


class MultiplexLayer(Layer):
    """Copies each row from one of several inputs.

    Inputs: first the ids, and then the candidates, which are numbered from 0. The id of row i is the number of the
    candidate from which row i is copied.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 1 << 30)
        self._ids: Ids

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the rows, with the sequences of the ids.

        Raises: DataError: an id is not the number of an input.
        """
        self._ids = require_ids(self, inputs[0])
        values = [require_matrix(self, one, self.size) for one in inputs[1:]]
        require_same_rows(self, [self._ids, *values])
        wrong = find_bad_id(self._ids, len(values))
        if wrong is not None:
            raise DataError(f"{self}: id {wrong} is not in [0, {len(values)}), the numbers of the inputs after the ids")
        result: Array = np.empty_like(values[0])
        for number, value in enumerate(values):
            is_chosen = self._ids == number
            result[is_chosen] = value[is_chosen]
        return inputs[0].with_value(result)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return, for each input, the gradient of the rows that this input provided, and zero for all other rows."""
        return [
            gradient * (self._ids == number)[:, None] if want and number >= 0 else None
            for number, want in enumerate(wanted, start=-1)
        ]


class SamplingIdLayer(Layer):
    """Draws the id of a column for each row. The row has the probabilities of the columns."""

    takes_gradient = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._samples = SampleStream()

    def carried(self) -> Any:
        """Return the state of the generator."""
        return self._samples.state

    def carry_on(self, state: Any) -> None:
        """Continue drawing from the given state."""
        self._samples = SampleStream(state)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the ids; if the probabilities sum to less than one, the last column gets the remainder."""
        one = inputs[0]
        ends = np.cumsum(require_rows(self, one), axis=1, dtype=np.float64)
        drawn = self._samples.fractions(len(ends))
        ids = np.minimum((ends <= drawn[:, None]).sum(axis=1), ends.shape[1] - 1)
        return Argument(ids=ids, starts=one.starts, sub_starts=one.sub_starts)


class EndOfSentenceLayer(Layer):
    """Returns 1 where the id of the input is eos_id, else 0; the output consists of ids."""

    takes_gradient = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the ids."""
        one = inputs[0]
        is_end = require_ids(self, one) == self.config.eos_id
        return Argument(ids=is_end.astype(np.int64), starts=one.starts, sub_starts=one.sub_starts)
