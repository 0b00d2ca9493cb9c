"""Inference: the outputs of layers for samples.

Source: spec/v2.md section 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.data.input_types import InputType
from trainer.network.network import Network
from trainer.network.pictures import PictureNetworks, Resize, Shapes
from trainer.session import Session
from trainer.v2.errors import WrongKeyError, WrongValueError, advising
from trainer.v2.feeder import Feeding, FrameFeeder
from trainer.v2.fields import FIELDS, fields_of, select
from trainer.v2.parameters import Parameters
from trainer.v2.process import process
from trainer.v2.serialized import read_topology
from trainer.v2.topology import Topology

Batch = Sequence[Any]


class Predictor:
    """A network that computes some layers for batches, without labels and costs.

    Args: outputs: the names of the layers. table: the parameters with their values. resize: returns the model for
        pictures of other sizes than those of its data layers; None: there are none.
    Raises: ConfigError: the network is not supported.
    """

    def __init__(
        self, model: ModelConfig, outputs: Sequence[str], table: ParameterTable, resize: Resize | None = None
    ) -> None:
        # the matrix from which a layer takes the columns of the largest numbers
        chosen = {one.name: one.inputs[0].input_layer_name for one in model.layers if one.type == "maxid"}
        self._needed = [(name, chosen.get(name)) for name in outputs]
        network = Network(self._without_costs(model), table)
        self._session = Session(network, [], process().stream)
        self._networks = PictureNetworks(network, lambda shapes: self._without_costs((resize or _refuse)(shapes)))

    def _without_costs(self, model: ModelConfig) -> ModelConfig:
        """Return a model that computes only what is needed."""
        computed = ModelConfig()
        computed.CopyFrom(model)
        computed.output_layer_names[:] = list(dict.fromkeys(name for pair in self._needed for name in pair if name))
        del computed.evaluators[:]
        return computed

    def take_pictures(self, shapes: Shapes) -> None:
        """Compute the next batch with the network for pictures of these shapes.

        Raises: ConfigError: there can be none.
        """
        self._session.use_network(self._networks.find(shapes))

    def compute(self, batch: Mapping[str, Argument]) -> list[tuple[Argument, Argument | None]]:
        """Return, for each output, what `fields_of` takes: the output, and the matrix that its ids were chosen from.

        Raises: DataError: the network cannot compute this batch.
        """
        outputs = self._session.infer(dict(batch))
        return [(outputs[name], None if matrix is None else outputs[matrix]) for name, matrix in self._needed]


class Inference:
    """A network that computes outputs, with a copy of the parameters.

    Args: parameters, output_layer: in this order (v0.11) or in the other (v0.10). fileobj: in place of output_layer,
        what Topology.serialize_for_inference wrote.
    Raises: ValueError: neither a layer nor a file is given, or a parameter is missing.
    """

    def __init__(self, parameters: Any = None, output_layer: Any = None, fileobj: IO[Any] | None = None) -> None:
        if isinstance(output_layer, Parameters):
            parameters, output_layer = output_layer, parameters
        if output_layer is not None:
            topology = Topology(output_layer)
            self._open(topology.proto(), topology.data_type(), topology.output_names(), parameters, topology.resized)
        elif fileobj is not None:
            model, types = read_topology(fileobj)
            self._open(model, types, list(model.output_layer_names), parameters)
        else:
            raise WrongValueError("Either output_layer or fileobj must be set")

    def _open(
        self,
        model: ModelConfig,
        types: list[tuple[str, InputType]],
        outputs: list[str],
        parameters: Parameters,
        resize: Resize | None = None,
    ) -> None:
        self._types, self._outputs = types, outputs
        self._predictor = Predictor(model, outputs, parameters.make_table(model), resize)

    def iter_infer(self, input: Any, feeding: Feeding = None) -> Iterator[list[dict[str, npt.NDArray[Any]]]]:
        """Yield the fields of each output for all samples: one batch. See `infer`."""
        samples = list(input)
        if not samples:
            return
        feeder = FrameFeeder(self._types, feeding, self._predictor.take_pictures)
        computed = self._predictor.compute(feeder(samples))
        yield [fields_of(*one) for one in computed]

    def iter_infer_field(self, field: str | Sequence[str], **kwargs: Any) -> Iterator[list[npt.NDArray[Any]]]:
        """Yield the given fields of each output, output by output.

        Raises: KeyError: there is no field of this name. ValueError: an output does not have the field.
        """
        fields = [field] if isinstance(field, str) else list(field)
        for name in fields:
            if name not in FIELDS:
                raise WrongKeyError(f"{name}: the fields of an output are {', '.join(FIELDS)}")
        for outputs in self.iter_infer(**kwargs):
            found = [select(name, output, fields) for name, output in zip(self._outputs, outputs, strict=True)]
            yield [array for arrays in found for array in arrays]

    def infer(
        self, input: Any, field: str | Sequence[str] = "value", flatten_result: bool = True, feeding: Feeding = None
    ) -> Any:
        """Return the outputs for samples.

        Args: input: a list of samples. field: "value", "id" or "prob", or a list of them: then, if there are
            several, the result is a list. flatten_result: whether the arrays of a field of several outputs are put
            below one another, as in v0.10; otherwise there is a list of them for each field. feeding: see `DataFeeder`.
        Returns: one array, or a list with an array for each field.
        Raises: DataError: a sample is wrong.
        """
        width = 1 if isinstance(field, str) else len(field)
        columns: list[list[npt.NDArray[Any]]] = [[] for _ in range(width)]
        for arrays in self.iter_infer_field(field=field, input=input, feeding=feeding):
            for number, array in enumerate(arrays):
                columns[number % width].append(array)
        if not any(columns):
            return []
        found = [_join(column) for column in columns] if flatten_result else columns
        return found[0] if width == 1 else found


def _join(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    try:
        return np.concatenate(arrays)
    except ValueError as error:
        shapes = ", ".join(str(one.shape) for one in arrays)
        raise DataError(
            f"the outputs have the shapes {shapes} and cannot be put below one another; infer with flatten_result=False"
        ) from error


@advising
def infer(output_layer: Any, parameters: Parameters, input: Any, feeding: Feeding = None, field: Any = "value") -> Any:
    """Return the outputs of layers for samples; see `Inference.infer`."""
    return Inference(output_layer=output_layer, parameters=parameters).infer(field=field, input=input, feeding=feeding)


def _refuse(_: Shapes) -> ModelConfig:
    raise ConfigError("the file has the network for the sizes of its data layers alone")
