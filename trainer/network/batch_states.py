"""The states that recurrent layers carry from one batch to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from trainer.arrays.arguments import Array
from trainer.arrays.encoding import decode_array, encode_array
from trainer.layers.recurrent.state import StatefulLayer

STATES_KEY = ""  # the key of the states in the result of `carried`; it is empty, because no layer has an empty name
States = dict[str, tuple[Array, ...]]  # states by the name of the layer


class BatchStates:
    """The states of the recurrent layers. Each pass and each test begins with states of zeros.

    Before a call of `begin`, no layer carries its state from batch to batch, and `is_on` is false.

    Source: Trainer::startTrainPass and Tester::startTestPeriod of v0.10.
    """

    def __init__(self, layers: Sequence[StatefulLayer] = ()) -> None:
        self._layers = {one.name: one for one in layers}
        self.is_on = False

    def begin(self) -> None:
        """Let the layers carry their states from batch to batch. The initial states are zeros.

        Raises: ConfigError: a layer cannot carry its state; the text names the layer.
        """
        for layer in self._layers.values():
            layer.require_carrying()
            layer.goes_on = True
        self.is_on = True
        self.restart()

    def restart(self) -> None:
        """Reset all states to zero."""
        self._put({})

    @contextmanager
    def restored(self) -> Iterator[None]:
        """At the end of the context, restore the states that the layers had at its start."""
        before = self._take()
        yield
        self._put(before)

    def carried(self) -> dict[str, Any] | None:
        """Return the states in a JSON-compatible form; None if no states are carried from batch to batch."""
        if not self.is_on:
            return None
        return {name: [encode_array(one) for one in state] for name, state in self._take().items()}

    def carry_on(self, record: Mapping[str, Any]) -> None:
        """Restore the states that `carried` returned. Before `begin`, do nothing."""
        if self.is_on:
            self._put({name: tuple(map(decode_array, state)) for name, state in record.items()})

    def _take(self) -> States:
        return {name: layer.state for name, layer in self._layers.items()}

    def _put(self, states: States) -> None:
        for name, layer in self._layers.items():
            layer.state = states.get(name, ())
