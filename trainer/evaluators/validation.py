"""The measures of the layers auc-validation and pnpair-validation, which are logged at the end of a pass.

Source: spec/trainer.md section 7.2; gserver/layers/ValidationLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig, LayerConfig
from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import write_whole_file
from trainer.arrays.arguments import Argument
from trainer.arrays.encoding import decode_array, encode_array
from trainer.evaluators.base import EVALUATORS, Evaluator, Measure, Numbers

# type of layer -> type of the evaluator
MEASURES: Mapping[str, str] = {"auc-validation": "last-column-auc", "pnpair-validation": "pnpair"}


class Predictions:
    """The measure of some batches, and the rows of these batches for the prediction file.

    A row has the score, the label and, for pnpair-validation, the query.
    """

    def __init__(self, measure: Measure, *rows: Numbers) -> None:
        self.measure, self._parts = measure, list(rows)

    def __iadd__(self, other: Predictions) -> Self:
        self.measure += other.measure
        self._parts += other._parts
        return self

    def state(self) -> Any:
        """Return the state of the measure, and the rows."""
        return [self.measure.state(), encode_array(self._rows())]

    def put_back(self, state: Any) -> None:
        """Restore the measure and the rows."""
        measure, rows = state
        self.measure.put_back(measure)
        self._parts = [decode_array(rows)]

    def lines(self) -> str:
        """Return the rows as text, in the order in which they were measured."""
        return "".join(f"{score:g} {' '.join(str(int(x)) for x in ids)}\n" for score, *ids in self._rows().tolist())

    def _rows(self) -> Numbers:
        return np.concatenate(self._parts) if self._parts else np.zeros((0, 2))


class Validation(Evaluator):
    """Measure the inputs of a validation layer with another evaluator. The result is logged only at the end of a pass.

    Args: predict_file: the name of the file to which the rows of a pass are written, or "" for no file. A line has the
        score, the label and, for pnpair-validation, the query of a row.
    """

    most_inputs = 4
    is_quiet = True

    def __init__(self, layer: LayerConfig, predict_file: str = "") -> None:
        kind = MEASURES[layer.type]
        names = [one.input_layer_name for one in layer.inputs]
        config = EvaluatorConfig(name=layer.name, type=kind, input_layers=names)
        super().__init__(config)
        self._evaluator = EVALUATORS[kind](config)
        self._path = Path(predict_file) if predict_file else None
        self._has_query = kind == "pnpair"

    def nothing(self) -> Measure:
        """Return the measure of no batch."""
        return self._evaluator.nothing() if self._path is None else Predictions(self._evaluator.nothing())

    def measure(self, outputs: Mapping[str, Argument]) -> Measure:
        """Return the batch's measure."""
        measured = self._evaluator.measure(outputs)
        return measured if self._path is None else Predictions(measured, self._rows_of(outputs))

    def _rows_of(self, outputs: Mapping[str, Argument]) -> Numbers:
        inputs = self.inputs(outputs)
        columns = [self.numbers(inputs[0], "score")[:, -1], self.label_numbers(inputs[1])]
        if self._has_query:
            columns.append(self.label_numbers(inputs[2], "query id"))
        return np.stack([np.asarray(column, np.float64) for column in columns], axis=1)

    def metrics(self, total: Any) -> dict[str, float]:
        """Return the numbers of the other evaluator."""
        return self._evaluator.metrics(total if self._path is None else total.measure)

    def finish_pass(self, total: Any) -> None:
        """Write the prediction file, and log the result.

        Raises: VolumeError: the file cannot be written.
        """
        if self._path is not None:
            write_whole_file(self._path, [total.lines().encode()], "--predict_file")
            total = total.measure
        self._evaluator.finish(total)
        glog.info(self._evaluator.text(total))


def make_validations(layers: Sequence[LayerConfig], predict_file: str = "") -> list[Evaluator]:
    """Return the evaluators for the validation layers of a model, in order.

    As in v0.10, all evaluators write to the same file.
    """
    return [Validation(layer, predict_file) for layer in layers if layer.type in MEASURES]
