"""What the recurrent layers of a network take from one batch to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from trainer.arrays.arguments import Array
from trainer.arrays.encoding import decode_array, encode_array
from trainer.layers.recurrent.state import StatefulLayer

STATES_KEY = ""  # the key of `carried` among what layers carry: no layer has an empty name
States = dict[str, tuple[Array, ...]]  # by the name of the layer


class BatchStates:
    """The states of the layers; off until `begin`. A pass begins with zeros, and so does every test.

    Source: Trainer::startTrainPass and Tester::startTestPeriod of v0.10.
    """

    def __init__(self, layers: Sequence[StatefulLayer] = ()) -> None:
        self._layers = {one.name: one for one in layers}
        self._is_on = False

    def begin(self) -> None:
        """Let the layers take their states from batch to batch, from zeros on.

        Raises: ConfigError: naming the layer that cannot.
        """
        for layer in self._layers.values():
            layer.require_carrying()
            layer.goes_on = True
        self._is_on = True
        self.restart()

    def restart(self) -> None:
        """Begin with zeros."""
        self._put({})

    @contextmanager
    def restored(self) -> Iterator[None]:
        """After this block the layers go on from the states before it."""
        before = self._take()
        yield
        self._put(before)

    def carried(self) -> dict[str, Any] | None:
        """Return the states, as JSON can hold them; None where they are not taken from batch to batch."""
        if not self._is_on:
            return None
        return {name: [encode_array(one) for one in state] for name, state in self._take().items()}

    def carry_on(self, record: Mapping[str, Any]) -> None:
        """Go on from such a record, where states are taken from batch to batch."""
        if self._is_on:
            self._put({name: tuple(map(decode_array, state)) for name, state in record.items()})

    def _take(self) -> States:
        return {name: layer.state for name, layer in self._layers.items()}

    def _put(self, states: States) -> None:
        for name, layer in self._layers.items():
            layer.state = states.get(name, ())
