"""Runs exported networks in onnxruntime, and compares them with this project's own numbers."""

import numpy as np
import onnxruntime

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from trainer.arrays.arguments import Argument
from trainer.data.input_types import DataType, InputType
from trainer.export.model import TrainedModel
from trainer.export.onnx.files import to_onnx
from trainer.export.onnx.network import INNER, LENGTHS
from trainer.export.predictions import COSTS
from trainer.layers.recurrent.generator import SCORES
from trainer.network.network import Network

TOLERANCE = 1e-5  # of a difference, relative to the largest number of an output, at least 1
GARBAGE = np.nan  # what padding holds here; it must have no influence


def to_feeds(batch, types, longer=0):
    """The inputs of a graph that a batch stands for. longer: further padding of each level."""
    feeds = {}
    for name, one in batch.items():
        feeds |= pad(name, one, types[name], longer)
    return feeds


def pad(name, one, kind, longer=0):
    """The inputs of a data layer."""
    rows = one.ids.astype(np.int64) if one.ids is not None else one.value
    rows = one.sparse.to_dense() if rows is None else rows
    if one.starts is None:
        return {name: rows}
    garbage = 10**9 if kind.type == DataType.Index else GARBAGE
    if one.sub_starts is None:
        lengths = np.diff(one.starts)
        padded = np.full((len(lengths), lengths.max(initial=0) + longer, *rows.shape[1:]), garbage, rows.dtype)
        for target, begin, length in zip(padded, one.starts, lengths, strict=False):
            target[:length] = rows[begin : begin + length]
        return {name: padded, name + LENGTHS: lengths.astype(np.int64)}
    outer, inner = nested_lengths(one)
    padded = np.full(
        (*inner.shape[:1], inner.shape[1] + longer, inner.max(initial=0) + longer, *rows.shape[1:]), garbage, rows.dtype
    )
    at = 0
    for sample, number in enumerate(outer):
        for place in range(number):
            length = inner[sample, place]
            padded[sample, place, :length] = rows[at : at + length]
            at += length
    inner = np.pad(inner, [(0, 0), (0, longer)])
    return {name: padded, name + LENGTHS: outer, name + INNER: inner}


def nested_lengths(one):
    """The numbers of sub-sequences, (samples,), and of their frames, (samples, most sub-sequences)."""
    first = np.searchsorted(one.sub_starts, one.starts)
    first[-1] = len(one.sub_starts) - 1
    outer = np.diff(first).astype(np.int64)
    inner = np.zeros((len(outer), outer.max(initial=0)), np.int64)
    lengths = np.diff(one.sub_starts)
    for sample, (begin, number) in enumerate(zip(first, outer, strict=False)):
        inner[sample, :number] = lengths[begin : begin + number]
    return outer, inner


def rows_of(name, outputs):
    """The rows of an output without padding, as this project has them."""
    values = outputs[name]
    if name + INNER in outputs:
        return np.concatenate(
            [
                values[sample, place, :length]
                for sample, number in enumerate(outputs[name + LENGTHS])
                for place, length in enumerate(outputs[name + INNER][sample, :number])
            ]
            or [values.reshape(-1, *values.shape[3:])[:0]]
        )
    if name + LENGTHS in outputs:
        lengths = outputs[name + LENGTHS]
        return np.concatenate(
            [values[sample, :length] for sample, length in enumerate(lengths)]
            or [values.reshape(-1, *values.shape[2:])[:0]]
        )
    return values


def run_onnx(proto, feeds):
    """The outputs of a message by name."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = [one.name for one in session.get_inputs()]
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, {name: feeds[name] for name in wanted}), strict=True))


def difference(name, expected, outputs):
    """The largest difference of an output from this project's, relative to its largest number (at least 1)."""
    found = rows_of(name, outputs)
    if name + LENGTHS in outputs:
        assert expected.starts is not None, f"{name} is a sequence in ONNX alone"
        if name + INNER not in outputs:
            np.testing.assert_array_equal(outputs[name + LENGTHS], np.diff(expected.starts), name)
        else:
            outer, inner = nested_lengths(expected)
            np.testing.assert_array_equal(outputs[name + LENGTHS], outer, name)
            np.testing.assert_array_equal(outputs[name + INNER][:, : inner.shape[1]], inner, name)
    else:
        assert expected.starts is None, f"{name} is no sequence in ONNX"
    if SCORES in expected.extras:
        np.testing.assert_allclose(outputs[f"{name}.{SCORES}"], expected.extras[SCORES], rtol=1e-4, atol=1e-5)
    if expected.value is None:
        np.testing.assert_array_equal(found.reshape(-1), expected.ids, name)
        return 0.0
    wanted = expected.value
    assert found.shape == wanted.shape, (name, found.shape, wanted.shape)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted), name)
    finite = np.isfinite(wanted)
    scale = max(1.0, float(np.abs(wanted[finite]).max(initial=0)))
    return float(np.abs(found[finite].astype(np.float64) - wanted[finite]).max(initial=0)) / scale


def compare(model, table, batch, types, outputs=(), longer=0, opset=17):
    """Export a network, run a batch here and there, and return the largest difference of each output.

    Args: types: of the data layers, by name. outputs: names of layers; (): the outputs of the network.
    """
    proto = to_onnx(TrainedModel(model, table, types), outputs, opset)
    return compare_exported(proto, model, table, batch, types, longer)


def compare_exported(proto, model, table, batch, types, longer=0):
    names = [one.name for one in proto.graph.output if not one.name.endswith((LENGTHS, INNER, f".{SCORES}"))]
    expected = Network(without_costs(model, names), table, names).forward(batch)
    outputs = run_onnx(proto, to_feeds(batch, types, longer))
    return {name: difference(name, expected[name], outputs) for name in names}


def without_costs(model, outputs):
    """The network that computes some layers, without the costs outside groups, which would need labels."""
    inside = {name for one in model.sub_models if one.is_recurrent_layer_group for name in one.layer_names}
    if inside.intersection(outputs):
        return model
    pruned = ModelConfig()
    pruned.CopyFrom(model)
    pruned.output_layer_names[:] = outputs
    del pruned.evaluators[:], pruned.layers[:]
    pruned.layers.extend(one for one in model.layers if one.type not in COSTS or one.name in inside)
    return pruned


def fill(table, seed=3, scale=0.3):
    """Fill parameters with numbers that no layer refuses; variances are positive."""
    rng = np.random.default_rng(seed)
    for one in table:
        one.value[:] = rng.normal(size=one.value.shape) * scale
    return table


def make_positive(model, table):
    """Give batch norms positive moving variances."""
    for layer in model.layers:
        if layer.type.endswith("batch_norm"):
            variance = table[layer.inputs[2].input_parameter_name].value
            variance[:] = np.abs(variance) + 0.5


def random_slot(kind, samples, rng, lengths=None):
    """A slot of a batch with random content: an `Argument`. lengths: of the sequences; by default 0 to 5."""
    starts = sub_starts = None
    rows = samples
    if kind.seq_type:
        counts = rng.integers(0, 6, samples) if lengths is None else np.array(lengths)
        rows = int(counts.sum())
        starts = np.concatenate([[0], np.cumsum(counts)])
    if kind.type == DataType.Index:
        return Argument(ids=rng.integers(0, kind.dim, rows), starts=starts, sub_starts=sub_starts)
    return Argument(value=rng.normal(size=(rows, kind.dim)).astype(np.float32), starts=starts, sub_starts=sub_starts)


def dense(size):
    return InputType(size, 0, DataType.Dense)
