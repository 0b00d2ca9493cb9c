"""The state that a recurrent layer carries from one batch to the next with --prev_batch_state.

Source: resetState, getState and setState of gserver/layers/RecurrentLayer.cpp and LstmLayer.cpp of v0.10.
"""

from __future__ import annotations

from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Array
from trainer.layers.base import Layer


class StatefulLayer(Layer):
    """A recurrent layer whose sequences can continue in the next batch.

    Attributes: goes_on: whether the sequences continue. state: the states at the end of the last batch; empty before
        the first batch.
    """

    can_go_on = True
    goes_on = False
    state: tuple[Array, ...] = ()

    def require_carrying(self) -> None:
        """Check that the layer can carry its state from batch to batch.

        Raises: ConfigError: the layer runs from the last frame to the first, or its type carries no state.
        """
        if self.config.reversed:
            raise ConfigError(f"{self} runs from the last frame to the first, so it cannot use --prev_batch_state")
        if not self.can_go_on:
            raise ConfigError(f"{self} cannot be used with --prev_batch_state; lstmemory and recurrent_layer can")

    def require_sequences(self, count: int) -> None:
        """Check that there is no state yet, or that there are states of `count` sequences.

        Raises: DataError: the batch has a different number of sequences.
        """
        if self.state and len(self.state[0]) != count:
            raise DataError(
                f"{self} has the states of {len(self.state[0])} sequences, but this batch has {count}: with "
                "--prev_batch_state all batches of a pass must have the same number of sequences"
            )
