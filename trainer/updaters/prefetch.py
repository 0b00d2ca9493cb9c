"""Find the rows of tables that a batch uses, from the slots of the batch, before the forward pass.

If a parameter has sparse_update and is on parameter servers, only the rows of the batch are fetched. Only these rows
have the servers' values during the batch. Every layer that uses such a parameter must therefore take its rows from a
data layer. A table projection takes the rows from ids; a fully connected layer or projection takes the rows from a
sparse slot. Inside recurrent groups, the input of a step must be a data layer of the enclosing network.

Source: spec/distributed.md 3.12; GradientMachine::prefetch of v0.10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paddle_base.kernels.tables import RowIds
from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Ids, find_bad_id, list_distinct
from trainer.arrays.parameters import Parameter

_ADVICE = "leave sparse_update out of its ParamAttr"


@dataclass(frozen=True)
class _Use:
    """The use of a parameter by a layer that takes its rows from a slot."""

    parameter: Parameter
    layer: str
    slot: str
    takes_ids: bool  # whether the slot has ids; False: the slot has sparse vectors

    @property
    def rows(self) -> int:
        """The number of rows of the parameter."""
        return self.parameter.size // self.parameter.row_width

    def find(self, batch: Mapping[str, Argument]) -> Ids:
        """Return the used rows, in any order and with repetitions. -1 means no row.

        Raises: ConfigError: the slot does not have the kind that the layer needs. DataError: a row is not in the table.
        """
        given = batch[self.slot]
        ids = given.ids if self.takes_ids else given.sparse.ids if given.sparse is not None else None
        if ids is None:
            wanted = "ids (integer_value)" if self.takes_ids else "sparse vectors (sparse_binary_vector, ...)"
            raise ConfigError(
                f"layer {self.layer} uses parameter {self.parameter.name}, which has sparse_update, with data layer "
                f"{self.slot}, which does not give {wanted}; correct the type of the slot, or {_ADVICE}"
            )
        least = -1 if self.takes_ids else 0
        bad = find_bad_id(ids - least, self.rows - least) if ids.size else None
        if bad is not None:
            raise DataError(
                f"data layer {self.slot} gives row {bad + least}, but layer {self.layer} takes rows {least} to "
                f"{self.rows - 1} of parameter {self.parameter.name}{' (-1: none)' if least else ''}"
            )
        return ids


class RowFinder:
    """Finds, for some parameters, the rows that a batch uses.

    Raises: ConfigError: the rows of a parameter that a layer uses are not known before the forward pass; the text names
        the layer.
    """

    def __init__(self, config: ModelConfig, parameters: Sequence[Parameter]) -> None:
        self._parameters = list(parameters)
        self._uses = _find_uses(config, {one.name: one for one in parameters})

    def find(self, batch: Mapping[str, Argument]) -> list[RowIds]:
        """Return, for each parameter, the ascending numbers of the rows that a batch uses.

        Raises: ConfigError: a slot does not have the kind that its layer needs.  DataError: a row is not in the table.
        """
        return [self._find_rows(one, batch) for one in self._parameters]

    def _find_rows(self, parameter: Parameter, batch: Mapping[str, Argument]) -> RowIds:
        given: dict[tuple[str, bool], Ids] = {}
        for use in self._uses:
            # a slot that is not in the batch is skipped, because no layer reads it
            if use.parameter is parameter and use.slot in batch and (use.slot, use.takes_ids) not in given:
                given[use.slot, use.takes_ids] = use.find(batch)
        ids = list(given.values())
        return sort_rows(ids[0] if len(ids) == 1 else np.concatenate([*ids, np.zeros(0, np.int64)]), parameter)


def sort_rows(ids: Ids, parameter: Parameter) -> RowIds:
    """Return the distinct ids of a parameter's rows in ascending order. Negative ids are omitted."""
    if ids.size and ids.min() < 0:
        ids = ids[ids >= 0]
    return list_distinct(ids.astype(np.uint32), parameter.size // parameter.row_width).astype(np.uint32)


def _find_uses(config: ModelConfig, parameters: Mapping[str, Parameter]) -> list[_Use]:
    layers = {one.name: one for one in config.layers}
    given = _find_givers(config)
    uses = []
    for record in config.sub_models:
        for memory in record.memories:
            _refuse_whole(parameters, memory.boot_bias_parameter_name, f"memory {memory.link_name}")
    for layer in config.layers:
        _refuse_whole(parameters, layer.bias_parameter_name, f"layer {layer.name} ({layer.type})")
        for one in layer.inputs:
            parameter = parameters.get(one.input_parameter_name)
            if parameter is None:
                continue
            kind = one.proj_conf.type if layer.type in ("mixed", "concat2") else layer.type
            width = one.proj_conf.output_size if layer.type in ("mixed", "concat2") else layer.size
            if kind not in ("fc", "table") or width != parameter.row_width:
                _refuse_whole(parameters, parameter.name, f"layer {layer.name} ({layer.type})")
            slot = _trace(one.input_layer_name, given, layers)
            if layers[slot].type != "data":
                raise ConfigError(
                    f"parameter {parameter.name} has sparse_update, but the rows that layer {layer.name} uses depend "
                    f"on layer {slot} ({layers[slot].type}); the rows must come from a data layer, so that they are "
                    f"known before the batch: {_ADVICE}"
                )
            uses.append(_Use(parameter, layer.name, slot, kind == "table"))
    return uses


def _refuse_whole(parameters: Collection[str], name: str, user: str) -> None:
    if name in parameters:
        raise ConfigError(
            f"parameter {name} has sparse_update, but {user} uses all of it; only a parameter of an embedding, or of a "
            f"fully connected layer of sparse input, is used row by row: {_ADVICE}"
        )


def _find_givers(config: ModelConfig) -> dict[str, str]:
    """Return {agent in a group: the outer layer whose output the agent passes on, as a whole or row by row}."""
    found = {}
    for record in config.sub_models:
        found.update({link.link_name: link.layer_name for link in record.in_links})
        for memory in record.memories:
            if memory.layer_name == memory.link_name and memory.boot_layer_name:
                found[memory.link_name] = memory.boot_layer_name
    return found


def _trace(name: str, given: Mapping[str, str], layers: Mapping[str, LayerConfig]) -> str:
    """Return the name of the layer whose output a layer reads under `name`. Outside of groups, both names are equal.

    Raises: ConfigError: the layer is not in the config.
    """
    while name in given and given[name] != name:
        name = given[name]
    if name not in layers:
        raise ConfigError(f"the config names {name} as the input of a layer, but has no such layer")
    return name
