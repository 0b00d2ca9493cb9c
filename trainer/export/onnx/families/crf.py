"""The best labels of each sequence under a conditional random field, in double precision as in v0.10. No I/O."""

from __future__ import annotations

import numpy as np

from trainer.arrays.arguments import Array
from trainer.export.onnx.families.pooling import require_sequences
from trainer.export.onnx.graph import BOOL, DOUBLE, FLOAT, INT64, Graph
from trainer.export.onnx.padding import count_up, flatten, unflatten, unsqueeze
from trainer.export.onnx.registry import CannotExportError, LayerExport, exports, shaped
from trainer.export.onnx.scan import Scan
from trainer.export.onnx.values import Value


@exports("crf_decoding")
def _decoding(call: LayerExport) -> Value:
    """The labels, or with a label input 1 for each frame whose label differs from the given one, and 0 for the rest."""
    graph, size = call.graph, call.size
    one = require_sequences(call)
    if one.size != size:
        raise CannotExportError(f"its input has the size {one.size} instead of {size}")
    plain = flatten(graph, one)
    found = decode(graph, plain, shaped(call.weight(0), (size + 2, size)).astype(np.float64))
    labels = unflatten(graph, Value(found, size, is_ids=True, lengths=plain.lengths), one)
    if len(call.inputs) < 2:
        return labels
    differs = graph.cast(graph.add("Not", graph.add("Equal", labels.name, call.inputs[1].name)), FLOAT)
    return Value(unsqueeze(graph, differs, -1), 1, lengths=labels.lengths, inner=labels.inner)


def decode(graph: Graph, one: Value, parameter: Array) -> str:
    """Return the labels with the largest score, (batch, time), of plain sequences.

    Shapes: parameter: (classes + 2, classes): the scores of the first label, of the last one, and of each move.
    """
    alpha, came_from = _go_forward(graph, one, parameter)
    last = graph.add("ArgMax", graph.add("Add", alpha, graph.constant(parameter[1], np.float64)), axis=1, keepdims=0)
    return _go_back(graph, last, came_from)


def _go_forward(graph: Graph, one: Value, parameter: Array) -> tuple[str, str]:
    """Return the best score of each last label, and for each frame and label the best label before it.

    Behind the end of a sequence the scores stay, and each label comes from itself.
    """
    classes, batch = one.size, graph.dim(one.name, 0)
    scan = Scan(graph)
    body = scan.body
    before = scan.state(
        graph.add("Expand", graph.constant([[0]], np.float64), _shape(graph, batch, classes)), 2, DOUBLE
    )
    frame = scan.item(graph.cast(one.name, DOUBLE), 3, DOUBLE)
    kept = scan.item(graph.is_frame(one), 2, BOOL)
    first = graph.add("Equal", count_up(graph, graph.dim(one.name, 1)), graph.integers(0))
    is_first = scan.item(graph.add("And", graph.is_frame(one), first), 2, BOOL)
    # (batch, to, from)
    ways = body.add("Add", unsqueeze(body, before, 1), graph.constant(parameter[2:].T[None], np.float64))
    best = body.add("ReduceMax", ways, axes=[2], keepdims=0)
    arrived = body.add("Where", unsqueeze(body, is_first, 1), graph.constant(parameter[:1], np.float64), best)
    kept = unsqueeze(body, kept, 1)
    after = body.add("Where", kept, body.add("Add", arrived, frame), before)
    stays = graph.integers(np.arange(classes)[None].tolist())
    pointers = body.add("Where", kept, body.add("ArgMax", ways, axis=2, keepdims=0), stays)
    states, outputs = scan.run([after], [(pointers, 2, INT64)])
    return states[0], outputs[0]


def _shape(graph: Graph, batch: str, classes: int) -> str:
    return graph.add("Concat", batch, graph.integers([classes]), axis=0)


def _go_back(graph: Graph, last: str, came_from: str) -> str:
    scan = Scan(graph, backwards=True)
    label, pointers = scan.state(last, 1, INT64), scan.item(came_from, 3, INT64)
    before = scan.body.add("GatherElements", pointers, unsqueeze(scan.body, label, 1), axis=1)
    before = scan.body.add("Squeeze", before, graph.integers([1]))
    return scan.run([before], [(label, 1, INT64)])[1][0]
