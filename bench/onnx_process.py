"""Time onnxruntime on the batches of a config's provider: what bench/export.py starts in the directory of the config.

usage: onnx_process.py CONFIG MODEL FILE --batch-size N --threads N --passes N

The first line of the output has two numbers about the outputs of the first batch, relative to an output's largest
number, at least 1: the largest difference between onnxruntime and this project, and the rounding of this project, which
is its largest difference from numbers of double precision. Each further line is the number of seconds of a pass over
all batches. A pass makes padded arrays of each batch, as a service with onnxruntime has to, and computes the outputs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

import numpy as np
import onnxruntime

from tests.exporting import difference, to_feeds
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.config import parse_config
from trainer.data.loading import open_source
from trainer.data.source import DataStreams
from trainer.export.model import ask_provider
from trainer.export.onnx.network import LENGTHS
from trainer.network.network import Network
from trainer.storage.model_sources import load_model


class Model:
    """The network of a config with its parameters, and all batches of its training data in the order of the file."""

    def __init__(self, config: str, model: str, batch_size: int) -> None:
        parsed = parse_config(config, "")
        self.network = parsed.model_config
        self.types = ask_provider(parsed)
        self.table = ParameterTable(self.network.parameters)
        load_model(model, self.table, "never", Stream(0))
        sizes = {one.name: one.size for one in self.network.layers}
        source = open_source(
            parsed.data_config,
            [{name: sizes[name] for name in self.network.input_layer_names}],
            is_train=False,
            streams=DataStreams(Stream(1), mixing=Stream(1)),
            check=lambda: None,
            shuffles=False,
            is_own=True,
        )
        source.start_pass()
        self.batches: list[dict[str, Argument]] = []
        while (found := source.next_batch(batch_size)) is not None:
            self.batches.append(found[0])
        source.close()

    def compute_rounding(self, layers: list[str], computed: Mapping[str, Argument]) -> float:
        """Returns the largest difference between outputs of the first batch and those in double precision."""
        table = ParameterTable(self.network.parameters, np.float64)
        for one in table:
            one.value[:] = self.table[one.name].value
        batch = {
            name: one if one.value is None else one.with_value(one.value.astype(np.float64))
            for name, one in self.batches[0].items()
        }
        exact = Network(self.network, table, layers).forward(batch)
        pairs = [(computed[name].value, exact[name].value) for name in layers]
        return max(
            float(np.abs(ours - its).max() / max(1.0, np.abs(its).max()))
            for ours, its in pairs
            if ours is not None and its is not None
        )


def main() -> None:
    """Prints the difference, and the seconds of each pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("config", "model", "file"):
        parser.add_argument(name)
    for name in ("--batch-size", "--threads", "--passes"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args()
    model = Model(options.config, options.model, options.batch_size)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = options.threads, 1
    session = onnxruntime.InferenceSession(options.file, settings, providers=["CPUExecutionProvider"])
    inputs, outputs = ([one.name for one in part] for part in (session.get_inputs(), session.get_outputs()))

    def run(batch: dict[str, Argument]) -> dict:
        feeds = to_feeds({name: one for name, one in batch.items() if name in inputs}, model.types)
        return dict(zip(outputs, session.run(outputs, {name: feeds[name] for name in inputs}), strict=True))

    layers = [name for name in outputs if not name.endswith(LENGTHS)]
    expected = Network(model.network, model.table, layers).forward(model.batches[0])
    found, own = run(model.batches[0]), model.compute_rounding(layers, expected)
    print(max(difference(name, expected[name], found) for name in layers), own)
    for _ in range(options.passes):
        begun = time.perf_counter()
        for batch in model.batches:
            run(batch)
        print(time.perf_counter() - begun, flush=True)


if __name__ == "__main__":
    main()
