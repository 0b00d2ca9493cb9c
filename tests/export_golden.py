"""The networks of the recorded runs (tests/golden/layers), exported with random parameters; batches of their provider.

Every layer that has a value outside a recurrent group is an output, so a difference names its layer.
"""

from pathlib import Path

from exporting import compare, fill, make_positive
from small_runs import KEPT

from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.config import parse_config
from trainer.config.scripts.python2 import use_directories
from trainer.data.loading import open_source
from trainer.data.source import DataStreams
from trainer.export.model import ask_provider
from trainer.export.onnx.registry import why_refused
from trainer.layers.recurrent.subnetworks import GROUP

HELPERS = {"tiny", "tiny_provider"}  # modules that the configs import
BATCHES = (1, 7)


def list_configs():
    """The names of the configs."""
    return sorted(path.stem for path in (KEPT / "configs").glob("*.py") if path.stem not in HELPERS)


class GoldenNetwork:
    """A config of the recorded runs in the present directory, which has all of them (`small_runs.lay_out`)."""

    def __init__(self, name):
        use_directories(Path.cwd(), forget=True)
        self.config = parse_config(f"{name}.py", "")
        self.model = self.config.model_config
        self.types = ask_provider(self.config)
        self.table = fill(ParameterTable(self.model.parameters))
        make_positive(self.model, self.table)

    def layer_types(self):
        """The type of each layer."""
        return {one.name: one.type for one in self.model.layers}

    def batch(self, samples):
        sizes = {one.name: one.size for one in self.model.layers}
        source = open_source(
            self.config.data_config,
            [{name: sizes[name] for name in self.model.input_layer_names}],
            is_train=True,
            streams=DataStreams(Stream(1), mixing=Stream(1)),
            check=lambda: None,
            is_own=True,
        )
        source.start_pass()
        return source.next_batch(samples)[0]

    def outputs(self):
        """The layers with a value outside groups that can be exported."""
        groups = [one for one in self.model.sub_models if one.is_recurrent_layer_group]
        inside = {name for one in groups for name in one.layer_names} | {one.name for one in groups}
        kinds = self.layer_types()
        return [
            name
            for name, kind in kinds.items()
            if kind not in ("data", GROUP) and name not in inside and not why_refused(kind)
        ]

    def compare(self):
        """The largest difference of each output over all batches."""
        found = {}
        for samples in BATCHES:
            each = compare(self.model, self.table, self.batch(samples), self.types, self.outputs(), longer=samples % 2)
            found = {name: max(found.get(name, 0), value) for name, value in each.items()}
        return found
