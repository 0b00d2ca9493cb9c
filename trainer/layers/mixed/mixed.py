"""Layers made of projections: mixed adds up projections and operators, concat2 puts projections side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array, Flowing
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.bias import Bias
from trainer.layers.checks import require_same_rows
from trainer.layers.mixed import conv_projections, operators, projections
from trainer.layers.mixed.operators import Operator
from trainer.layers.mixed.projections import Projection

PROJECTIONS: dict[str, type[Projection]] = {**projections.PROJECTIONS, **conv_projections.PROJECTIONS}
OPERATORS: dict[str, type[Operator]] = {**operators.OPERATORS, **conv_projections.OPERATORS}


class MixedLayer(Layer):
    """y is the sum of the projections and operators, applied to the inputs, plus a bias."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self._projections = make_projections(self)
        self._operators = [self._make_operator(number) for number in range(len(config.operator_confs))]
        if not self._projections and not self._operators:
            raise ConfigError(f"{self} has no projection and no operator")
        made: list[Projection | Operator] = [*self._projections.values(), *self._operators]
        for part in made:
            if part.output_size != self.size:
                raise ConfigError(f"{part}: its result has width {part.output_size} instead of {self.size}")
        self._bias = Bias(self)
        self._inputs = 0

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the sum, with the sequences of the first input."""
        self._inputs = len(inputs)
        parts = [one.forward(inputs[position]) for position, one in self._projections.items()]
        parts += [one.forward([inputs[index] for index in one.config.input_indices]) for one in self._operators]
        require_same_rows(self, parts)
        if len(parts) == 1:
            is_fresh = not any(one.returns_view for one in self._projections.values())
            return inputs[0].with_value(self._bias.add_to(parts[0], is_fresh=is_fresh))
        total: Array = parts[0] + parts[1]
        for part in parts[2:]:
            total += part
        return inputs[0].with_value(self._bias.add_to(total, is_fresh=True))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> Sequence[Flowing]:
        """Return the gradients that flow back through the projections and operators."""
        self._bias.backward(gradient)
        results: list[Array | None] = [None] * self._inputs
        is_passed_on = False
        for position, one in self._projections.items():
            part = one.backward(gradient, wanted[position])
            if part is gradient:
                part, is_passed_on = part.copy() if is_passed_on else part, True
            results[position] = part
        for operator in self._operators:
            indices = operator.config.input_indices
            for index, part in zip(indices, operator.backward(gradient, [wanted[i] for i in indices]), strict=True):
                if part is not None:
                    before = results[index]
                    results[index] = part if before is None else before + part
        return results

    def _make_operator(self, number: int) -> Operator:
        config = self.config.operator_confs[number]
        if config.type not in OPERATORS:
            supported = ", ".join(sorted(OPERATORS))
            raise ConfigError(f"{self}: operator '{config.type}' is not supported yet; supported are {supported}")
        if any(not 0 <= index < len(self.config.inputs) for index in config.input_indices):
            raise ConfigError(f"{self}: operator {number} has inputs {list(config.input_indices)}; not all exist")
        return OPERATORS[config.type](config, str(self))


class JoinedProjectionsLayer(Layer):
    """y consists of the projections of the inputs, side by side, plus a bias."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self._projections = make_projections(self)
        if not self._projections or len(self._projections) != len(config.inputs):
            raise ConfigError(f"{self} needs a projection for every input")
        widths = [one.output_size for one in self._projections.values()]
        if sum(widths) != self.size:
            raise ConfigError(f"{self}: its projections together have width {sum(widths)} instead of {self.size}")
        self._ends = np.cumsum(widths).tolist()
        self._bias = Bias(self)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the joined rows, with the sequences of the first input."""
        parts = [self._projections[position].forward(one) for position, one in enumerate(inputs)]
        require_same_rows(self, parts)
        joined: Array = np.concatenate(parts, axis=1)
        return inputs[0].with_value(self._bias.add_to(joined, is_fresh=True))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients that flow back through the projections."""
        self._bias.backward(gradient)
        columns = zip([0, *self._ends], self._ends, strict=False)
        return [
            self._projections[position].backward(gradient[:, begin:end], wanted[position])
            for position, (begin, end) in enumerate(columns)
        ]


def make_projections(layer: Layer) -> dict[int, Projection]:
    """Return the projections of a layer by the position of their input.

    Raises: ConfigError: a projection is not supported or is wrong; the message names the projection.
    """
    projections = {}
    for position, one in enumerate(layer.config.inputs):
        if not one.HasField("proj_conf"):
            continue
        if one.proj_conf.type not in PROJECTIONS:
            supported = ", ".join(sorted(PROJECTIONS))
            raise ConfigError(
                f"{layer}: projection '{one.proj_conf.type}' is not supported yet; supported are {supported}"
            )
        make = PROJECTIONS[one.proj_conf.type]
        projections[position] = make(one.proj_conf, layer.weights[position], f"{layer}, input {one.input_layer_name}")
    return projections
