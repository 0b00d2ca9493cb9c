"""Layers whose rows are computed one by one. No I/O."""

from __future__ import annotations

from functools import reduce

from trainer.export.onnx.registry import CannotExportError, LayerExport, exports
from trainer.export.onnx.values import Value


def total(call: LayerExport, parts: list[str]) -> str:
    """Return the sum of tensors."""
    return reduce(lambda left, right: call.graph.add("Add", left, right), parts)


def multiply(call: LayerExport, position: int, value: Value) -> str:
    """Return the product of an input and its weight."""
    if value.is_ids:
        raise CannotExportError("it has an input of ids; the slot must be sparse_binary_vector or dense_vector")
    return call.graph.add("MatMul", value.name, call.matrix(position, value.size, call.size))


@exports("fc")
def _fc(call: LayerExport) -> Value:
    parts = [multiply(call, position, one) for position, one in enumerate(call.inputs)]
    return call.inputs[0].with_name(call.add_bias(total(call, parts)), call.size)


@exports("addto")
def _addto(call: LayerExport) -> Value:
    return call.inputs[0].with_name(call.add_bias(total(call, [one.name for one in call.inputs])), call.size)
