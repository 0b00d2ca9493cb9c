"""Tests: all test data forward, costs and evaluators added up; and the dump of predictions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from pserver.errors import ConfigError, DataError, VolumeError
from pserver.pulse import PULSE
from trainer import finite, logs
from trainer.arguments import Argument, Sparse
from trainer.data.source import DataSource
from trainer.evaluators import Accumulator, Evaluator
from trainer.evaluators.printers import GradientPrinter
from trainer.network import Network
from trainer.shares import AnyNetwork


def evaluate(
    network: AnyNetwork,
    source: DataSource,
    evaluators: list[Evaluator],
    batch_size: int,
    *,
    each_batch: Callable[[int, Accumulator], None] | None = None,
    with_cost: bool = True,
    shows_layers: bool = False,
) -> Accumulator:
    """Run all test data through the network and return what was measured.

    Args: each_batch: called with the number of batches so far and the result so far.
        with_cost: False counts every cost as 0 (the network is for prediction).
        shows_layers: whether the statistics of every layer are logged.
    Raises: DataError: if there is no sample, the provider raised, or a cost is not finite.
    """
    result = Accumulator(evaluators)
    source.start_pass()
    batches = 0
    while (batch := source.next_batch(batch_size)) is not None:
        PULSE.turn()
        slots, samples = batch
        network.forward(slots)
        if shows_layers:
            logs.log_layers(network)
        cost = network.cost() if with_cost else 0.0
        batches += 1
        if not math.isfinite(cost):
            raise DataError(
                f"the cost of layer {network.find_bad_cost()} is {cost:g} in batch {batches} of the test: "
                f"{finite.describe_source(network)}; a look at the test data and the model may help"
            )
        result.add(cost, samples, measure(network, evaluators))
        if each_batch is not None:
            each_batch(batches, result)
    if not result.samples:
        raise DataError("the test data has no sample; check the test list of define_py_data_sources2")
    result.finish()
    return result


def measure(network: AnyNetwork, evaluators: Sequence[Evaluator]) -> list[Any]:
    """Return what each evaluator makes of the last batch: of its shares, one after the other, added up."""
    measures = [_measure_share(share, evaluators) for share in network.shares]
    if len(measures) == 1:
        return measures[0]
    totals = [one.nothing() for one in evaluators]
    for of_share in measures:
        for number, one in enumerate(of_share):
            totals[number] += one
    return totals


def _measure_share(share: Network, evaluators: Sequence[Evaluator]) -> list[Any]:
    for one in evaluators:
        if isinstance(one, GradientPrinter):
            one.gradients = share.kept_gradients()
    return [one.measure(share.outputs) for one in evaluators]


class PredictionFile:
    """The rows of the output layers as text: for every output its values and a semicolon.

    Of sequences every frame is a row. An output with both values and ids shows its values.

    Raises: VolumeError: if the file cannot be written.
    """

    def __init__(self, directory: str, trainer_id: int) -> None:
        self._path = Path(directory) / f"rank-{trainer_id:05d}"
        try:
            self._path.parent.mkdir(exist_ok=True)
            self._file: TextIO = self._path.open("w")
        except OSError as error:
            raise VolumeError(f"cannot write predictions to {self._path}: {error.strerror}") from error

    def write(self, outputs: Mapping[str, Argument]) -> None:
        """Append the rows of a batch.

        Raises: ConfigError: if the outputs have different numbers of rows.
        """
        columns = [_spell_rows(one) for one in outputs.values()]
        if len(set(map(len, columns))) > 1:
            rows = ", ".join(f"{name} {len(column)}" for name, column in zip(outputs, columns, strict=True))
            raise ConfigError(f"the rows of the outputs cannot stand side by side, their numbers differ: {rows}")
        try:
            self._file.writelines("".join(row) + "\n" for row in zip(*columns, strict=True))
        except OSError as error:
            raise VolumeError(f"cannot write predictions to {self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Finish the file."""
        try:
            self._file.close()
        except OSError as error:
            raise VolumeError(f"cannot write predictions to {self._path}: {error.strerror}") from error


def _spell_rows(output: Argument) -> list[str]:
    if output.value is not None:
        return [" ".join(f"{x:g}" for x in row) + ";" for row in output.value.tolist()]
    if output.ids is not None:
        return [f"{one};" for one in output.ids.tolist()]
    return _spell_sparse(output.sparse) if output.sparse is not None else []


def _spell_sparse(x: Sparse) -> list[str]:
    ids: list[Any] = x.ids.tolist()
    words = (
        [str(i) for i in ids]
        if x.values is None
        else [f"{i}:{value:g}" for i, value in zip(ids, x.values.tolist(), strict=True)]
    )
    bounds = x.offsets.tolist()
    return [" ".join(words[start:stop]) + ";" for start, stop in itertools.pairwise(bounds)]
