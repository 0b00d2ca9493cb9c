"""A Scan over the axis of time: the states of a step come from the step before. No I/O.

Axis 0 of every tensor is the batch, and axis 1 is time. Steps behind the end of a sequence compute numbers that nothing
reads, so a state is right at the steps of its sequence only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer.export.onnx.graph import FLOAT, Graph


class Scan:
    """The steps of a Scan. `body` is the graph of a step; it may read all tensors of the graph around it.

    Args: backwards: whether the last step runs first.
    """

    def __init__(self, graph: Graph, *, backwards: bool = False) -> None:
        self.body = graph.inner()
        self._graph = graph
        self._backwards = int(backwards)
        self._boots: list[str] = []
        self._items: list[str] = []

    def state(self, boot: str, rank: int = 2, kind: int = FLOAT) -> str:
        """Return the state in a step. All states are declared before all items.

        Args: boot: its value before the first step. rank: the number of its axes.
        """
        self._boots.append(boot)
        return self.body.input(self.body.new_name("state"), kind, [None] * rank)

    def item(self, items: str, rank: int = 3, kind: int = FLOAT) -> str:
        """Return the item of a step: (batch, time, ...) -> (batch, ...). Args: rank: the number of axes of `items`."""
        self._items.append(items)
        return self.body.input(self.body.new_name("item"), kind, [None] * (rank - 1))

    def run(self, states: Sequence[str], outputs: Sequence[tuple[str, int, int]]) -> tuple[list[str], list[str]]:
        """Return the states after the last step, and the outputs of all steps, (batch, time, ...).

        Args: states: the new states of a step, in the order of the calls of `state`. outputs: of a step; each is its
            tensor, the number of its axes, and the kind of its elements.
        """
        body, graph = self.body, self._graph
        kinds = [one.type.tensor_type for one in body.inputs]
        for name, kind in zip(states, kinds, strict=False):
            rank = len(kind.shape.dim)
            body.output(body.add("Identity", name), kind.elem_type, [None] * rank)
        for name, rank, element in outputs:
            body.output(body.add("Identity", name), element, [None] * rank)
        count = len(self._items)
        results = graph.add_several(
            "Scan",
            *self._boots,
            *self._items,
            outputs=len(states) + len(outputs),
            num_scan_inputs=count,
            scan_input_axes=[1] * count,
            scan_input_directions=[self._backwards] * count,
            **_of_outputs(len(outputs), self._backwards),
            body=body.to_proto(graph.new_name("step")),
        )
        return results[: len(states)], results[len(states) :]


def _of_outputs(count: int, backwards: int) -> dict[str, Any]:
    if not count:
        return {}
    return {"scan_output_axes": [1] * count, "scan_output_directions": [backwards] * count}
