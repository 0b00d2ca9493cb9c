"""A view of the parameters that are updated densely, that is, as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from trainer.arrays.arguments import Array
from trainer.arrays.parameters import Parameter, ParameterTable


class DenseParameters:
    """A view of a parameter table that leaves out the parameters with sparse_update at the start of the table."""

    def __init__(self, table: ParameterTable) -> None:
        self._table, self._start = table, table.tables_size
        self._parameters = [one for one in table if one not in table.tables()]
        self.values: Array = table.values[self._start :]
        self._gradients: Array = table.peek_gradients()[self._start :]

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._parameters)

    def trained(self) -> list[Parameter]:
        """Return the parameters that are not static, in order."""
        return [one for one in self._parameters if not one.is_static]

    @property
    def gradients(self) -> Array:
        """The gradients of all parameters, one after the other."""
        return self.gradients_from(0)

    def gradients_from(self, start: int) -> Array:
        """Return all gradients; elements before `start` may be those of an earlier batch."""
        self._table.gradients_from(self._start + start)
        return self._gradients

    def peek_gradients(self) -> Array:
        """Return all gradients; some may be those of an earlier batch (see `ParameterTable.peek_gradients`)."""
        return self._gradients
