"""A model that is served: samples as JSON has them become batches, and outputs are divided among the samples."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.bounded_json import show_value
from paddle_base.runtime.errors import ConfigError, DataError, UsageError
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.config.building.names import closest
from trainer.data.input_types import InputType
from trainer.export.model import read_saved
from trainer.layers.recurrent.generator import SCORES
from trainer.v2.feeder import DataFeeder, Encoded
from trainer.v2.fields import fields_of, select
from trainer.v2.inference import Predictor

Arrays = list[npt.NDArray[Any]]  # the outputs for one sample: each field of each output


class ServedModel:
    """A network with its parameters.

    Args: types: the name and the type of each data layer. fields: the fields of each output that an answer has.
    Raises: ConfigError: the network is not supported.
    Thread safety: any thread may use `read`; one thread uses `compute`.
    """

    def __init__(
        self, model: ModelConfig, types: Sequence[tuple[str, InputType]], table: ParameterTable, fields: Sequence[str]
    ) -> None:
        self.types = dict(types)
        self.outputs = list(model.output_layer_names)
        self._fields = fields
        self._feeder = DataFeeder(types)
        self._predictor = Predictor(model, self.outputs, table)

    def read(self, samples: Sequence[Any]) -> Encoded:
        """Return samples as arrays.

        Args: samples: each is {name of a data layer: its value}; other names are left out.
        Raises: DataError: a value is missing or wrong; the text names the sample and the data layer.
        """
        return self._feeder.encode([self._pick(sample, number) for number, sample in enumerate(samples)])

    def compute(self, parts: Sequence[Encoded], samples: int) -> list[Arrays]:
        """Return the outputs for each of the samples in `parts`, which are results of `read`.

        Raises: DataError: the network cannot compute them, or cannot compute several at once. ConfigError: an output
            does not have a field.
        """
        computed = self._predictor.compute(self._feeder.join(parts))
        found: list[Arrays] = [[] for _ in range(samples)]
        for name, (output, matrix) in zip(self.outputs, computed, strict=True):
            try:
                arrays = select(name, fields_of(output, matrix), self._fields)
            except ValueError as error:
                raise ConfigError(f"--field: {error}") from error
            for field, array in zip(self._fields, arrays, strict=True):
                bounds = _find_bounds(output, field, len(array), samples)
                if bounds is None:
                    raise DataError(f"the layer {name} has {len(array)} rows for {samples} samples")
                for number, part in enumerate(found):
                    part.append(array[bounds[number] : bounds[number + 1]])
        return found

    def _pick(self, sample: Any, number: int) -> list[Any]:
        if not isinstance(sample, Mapping):
            raise DataError(
                f"sample {number} is {show_value(sample)}; it must be an object with {', '.join(self.types)}"
            )
        for name in self.types:
            if name not in sample:
                # a client may send thousands of long names
                near = closest(
                    name, [one for one in itertools.islice(sample, len(self.types)) if len(one) < 2 * len(name)]
                )
                hint = f"; is {near} meant?" if near else ""
                raise DataError(f"sample {number} has no value for the data layer {name} ({self.types[name]}){hint}")
        return [sample[name] for name in self.types]


def _find_bounds(output: Argument, field: str, rows: int, samples: int) -> npt.NDArray[Any] | None:
    """Return the first row of each sample in an array of an output, and the number of rows; None if it is not known."""
    if samples == 1:
        return np.array([0, rows])
    is_sequence = output.starts is not None and not (field == "prob" and SCORES in output.extras)
    bounds = output.starts if is_sequence and output.starts is not None else np.arange(samples + 1)
    if len(bounds) != samples + 1 or (rows % bounds[-1] if bounds[-1] else rows):
        return None
    return bounds * (rows // bounds[-1] if bounds[-1] else 1)  # a row may have several ids


def open_served(model: str, topology: str, input_types: str, fields: Sequence[str]) -> ServedModel:
    """Return the model of `paddle serve`.

    Args: model: a tar file of parameters, or a merged model. topology: the network of a tar file. input_types: of the
        data layers of a merged model: "name:integer_value_sequence,..."; dense_vector is the type of the others.
    Raises: UsageError: a flag is missing, or says nothing here. MissingInputError, DataError, ConfigError: a file is
        missing or damaged, or the network is not supported.
    """
    if topology and input_types:
        raise UsageError("--input_types: the file of --topology has the types; leave --input_types out")
    read = read_saved(model, topology).with_types(input_types)
    return ServedModel(read.config, list(read.find_types(topology or model).items()), read.parameters, fields)
