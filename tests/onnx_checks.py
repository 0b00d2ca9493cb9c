"""Networks run by onnxruntime and by this project on the same random batches, whose padding is garbage."""

from __future__ import annotations

import functools

import numpy as np
import onnxruntime

from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.config import parse_config
from trainer.data.input_types import DataType
from trainer.export.model import TrainedModel
from trainer.export.onnx.files import to_onnx
from trainer.layers.ragged import starts_of
from trainer.layers.recurrent.generator import SCORES
from trainer.network.network import Network

GARBAGE = 1 << 40  # the padding of ids


def read_script(tmp_path, text):
    """The ModelConfig of a config script."""
    path = tmp_path / "config.py"
    path.write_text("from paddle.trainer_config_helpers import *\nsettings(batch_size=4, learning_rate=0.1)\n" + text)
    return parse_config(str(path), "").model_config


def make_model(config, types, seed=1, scale=0.7):
    """A model with random parameters. types: of the data layers, by name."""
    table = ParameterTable(config.parameters)
    table.values[:] = np.random.default_rng(seed).normal(size=table.values.size) * scale
    return TrainedModel(config, table, types)


def open_session(proto):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(proto.SerializeToString(), options)


def draw(kind, rng, lengths):
    """A random batch of a slot as an Argument. lengths: of the samples; for nested ones a list for each sample."""
    flat = lengths
    starts = sub_starts = None
    if kind.seq_type == 2:
        flat = [one for sample in lengths for one in sample]
        starts, sub_starts = starts_of([sum(one) for one in lengths]), starts_of(flat)
    elif kind.seq_type == 1:
        starts = starts_of(lengths)
    rows = len(lengths) if not kind.seq_type else int(sum(flat))
    if kind.type == DataType.Index:
        return Argument(ids=rng.integers(kind.dim, size=rows), starts=starts, sub_starts=sub_starts)
    value = rng.normal(size=(rows, kind.dim)).astype(np.float32)
    if kind.type != DataType.Dense:
        value = (value > 0.8).astype(np.float32) * (1 if kind.type == DataType.SparseNonValue else value)
    return Argument(value=value, starts=starts, sub_starts=sub_starts)


def pad(name, kind, argument, lengths, more=0):
    """The inputs of the graph for a slot. more: how many places the padding has beyond the longest sequence."""
    rows = argument.ids if kind.type == DataType.Index else argument.value
    garbage = GARBAGE if kind.type == DataType.Index else np.nan
    if not kind.seq_type:
        return {name: rows}
    tail = rows.shape[1:]
    if kind.seq_type == 1:
        time = max(lengths, default=0) + more
        padded = np.full((len(lengths), time, *tail), garbage, rows.dtype)
        for sample, (begin, length) in enumerate(zip(argument.starts, lengths, strict=False)):
            padded[sample, :length] = rows[begin : begin + length]
        return {name: padded, f"{name}.lengths": np.array(lengths, np.int64)}
    outer = max(map(len, lengths), default=0) + more
    inner = max((one for sample in lengths for one in sample), default=0) + more
    padded = np.full((len(lengths), outer, inner, *tail), garbage, rows.dtype)
    counts = np.zeros((len(lengths), outer), np.int64)
    begin = 0
    for sample, parts in enumerate(lengths):
        for number, length in enumerate(parts):
            padded[sample, number, :length] = rows[begin : begin + length]
            counts[sample, number] = length
            begin += length
    return {name: padded, f"{name}.lengths": np.array(list(map(len, lengths))), f"{name}.inner_lengths": counts}


def unpad(name, found):
    """The rows of an output of the graph, and their starts and sub_starts."""
    rows, lengths = found[name], found.get(f"{name}.lengths")
    if lengths is None:
        return rows, None, None
    inner = found.get(f"{name}.inner_lengths")
    if inner is None:
        parts = [one[:length] for one, length in zip(rows, lengths, strict=True)]
        return np.concatenate(parts) if parts else rows[:0, 0], starts_of(lengths), None
    parts = [
        rows[sample, number, : inner[sample, number]]
        for sample, length in enumerate(lengths)
        for number in range(length)
    ]
    flat = np.array([len(one) for one in parts], np.int64)
    starts = starts_of([int(inner[sample, :length].sum()) for sample, length in enumerate(lengths)])
    return np.concatenate(parts) if parts else rows[:0, 0, 0], starts, starts_of(flat)


class Compared:
    """A model, exported once and run on several batches by both programs."""

    def __init__(self, config, types, outputs=(), opset=17, **drawn):
        self.types = types
        self.model = make_model(config, types, **drawn)
        self.outputs = list(outputs or config.output_layer_names)
        self.proto = to_onnx(self.model, self.outputs, opset)
        self.session = open_session(self.proto)
        self.network = Network(config, self.model.parameters, self.outputs)
        self.difference = 0.0

    def check(self, lengths, seed=0, more=0):
        """Run a random batch; lengths: of every slot, or by its name. Keep the largest relative difference."""
        rng = np.random.default_rng(seed)
        of = {name: lengths[name] if isinstance(lengths, dict) else lengths for name in self.types}
        batch = {name: draw(kind, rng, of[name]) for name, kind in self.types.items()}
        feeds = {}
        for name, kind in self.types.items():
            feeds |= pad(name, kind, batch[name], of[name], more)
        wanted = self.network.forward(batch, is_training=False)
        known = {one.name for one in self.session.get_inputs()}
        names = [one.name for one in self.session.get_outputs()]
        found = dict(zip(names, self.session.run(None, {k: v for k, v in feeds.items() if k in known}), strict=True))
        for name in self.outputs:
            self.compare(name, wanted[name], found)

    def compare(self, name, wanted, found):
        rows, starts, sub_starts = unpad(name, found)
        ours = wanted.value if wanted.value is not None else wanted.ids
        # a group that runs no step does not know that its items are sequences
        sub_starts = sub_starts if wanted.rows else None
        if wanted.starts is not None:
            assert starts.tolist() == wanted.starts.tolist(), name
        if wanted.sub_starts is not None and sub_starts is not None:
            assert sub_starts.tolist() == wanted.sub_starts.tolist(), name
        assert rows.shape == ours.shape, (name, rows.shape, ours.shape)
        if wanted.value is None:
            assert rows.tolist() == ours.tolist(), name
            return
        scale = max(1.0, float(np.abs(ours).max(initial=0)))
        difference = float(np.abs(rows - ours).max(initial=0)) / scale
        assert difference <= 1e-5, (name, difference, rows, ours)
        self.difference = max(self.difference, difference)
        if SCORES in wanted.extras and f"{name}.{SCORES}" in found:
            np.testing.assert_allclose(found[f"{name}.{SCORES}"], wanted.extras[SCORES], rtol=1e-4, atol=1e-5)


LENGTHS = functools.reduce(lambda found, one: [*found, one], ([3, 1, 4], [2], [0, 3, 0, 5, 1, 2, 7], [0, 0]), [])
