"""The network of some layers, as a ModelConfig message."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from trainer.config.scripts.python2 import binary
from trainer.data.input_types import InputType
from trainer.network.pictures import Shapes
from trainer.v2.errors import WrongValueError
from trainer.v2.functions import Data
from trainer.v2.graph import COUNTS, LayerCall, Made, check_layers, job_parse, make_layers

Initializer = Callable[[str], "np.ndarray[Any, Any]"]


class Topology:
    """The layers that some outputs need, in the order of v0.10's walk: from the outputs to the data.

    Args: layers: the outputs, one layer or several. extra_layers: further layers to compute, which are no outputs.
        shapes: see `resized`.

    Attributes: layers: the outputs. initializers: the functions that give initial values, by the name of the parameter.
    Raises: ValueError: an argument is no layer. ConfigError: a layer has wrong arguments.
    """

    def __init__(self, layers: Any, extra_layers: Any = None, *, shapes: Shapes | None = None) -> None:
        self.layers = check_layers(layers, "the topology")
        self._extra = [] if extra_layers is None else check_layers(extra_layers, "extra_layers")
        made = Made(shapes)
        with job_parse() as parse:
            make_layers(self.layers, made)
            make_layers(self._extra, made)
            parse.finish()
        self._made = made
        self._data = {one.name: one for one in made if isinstance(one, Data)}
        self._model: ModelConfig = parse.model
        for owner in (parse.model, parse.root):
            owner.input_layer_names.extend(self._data)
            owner.output_layer_names.extend(dict.fromkeys(made[one].full_name for one in self.layers))
        self.initializers: Mapping[str, Initializer] = parse.initializers
        COUNTS.clear()

    def proto(self) -> ModelConfig:
        """Return the message of the network."""
        return self._model

    def resized(self, shapes: Shapes) -> ModelConfig:
        """Return the message of the network for pictures of other sizes; this object does not change.

        Raises: ConfigError: a layer cannot take them.
        """
        counts = Counter(COUNTS)
        try:
            return Topology(self.layers, self._extra, shapes=shapes).proto()
        finally:
            COUNTS.clear()
            COUNTS.update(counts)

    def get_layer(self, name: str) -> LayerCall:
        """Return the layer of this name.

        Raises: ValueError: there is none.
        """
        for layer in self._made:
            if layer.name == name:
                return layer
        raise WrongValueError(f"No such layer {name}")

    def get_layer_proto(self, name: str) -> LayerConfig | None:
        """Return the message of a layer, or None if there is none of this name."""
        return next((one for one in self._model.layers if one.name == name), None)

    def output_names(self) -> list[str]:
        """Return the name of each output in the message."""
        return [str(self._made[one].full_name) for one in self.layers]

    def extra_names(self) -> list[str]:
        """Return the name of each extra layer in the message. Evaluators and print layers are none."""
        return [made.full_name for made in map(self._made.get, self._extra) if made is not None]

    def data_layers(self) -> dict[str, LayerCall]:
        """Return the data layers by name, in the order of the walk."""
        return dict(self._data)

    def data_type(self) -> list[tuple[str, InputType]]:
        """Return the name and the type of each data layer, in the order of the walk."""
        return [(name, one.type) for name, one in self._data.items()]

    def use_sparse_updater(self) -> bool:
        """Return whether a parameter is updated sparsely."""
        return any(one.sparse_update or one.sparse_remote_update for one in self._model.parameters)

    def serialize_for_inference(self, stream: IO[Any]) -> None:
        """Write the network and the types of its data, for Inference(fileobj=...)."""
        types = [(name, (kind.dim, kind.seq_type, kind.type)) for name, kind in self.data_type()]
        pickle.dump({"protobin": self._model.SerializeToString(), "data_type": types}, binary(stream), protocol=4)


def parse_network(output_layers: Any, extra_layers: Any = None) -> ModelConfig:
    """Return the message of a network."""
    return Topology(output_layers, extra_layers).proto()
