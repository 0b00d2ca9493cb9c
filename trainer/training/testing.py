"""Test a model: run all test data through the network, and add up costs and measures. The test job tests saved models.

Source: spec/trainer.md sections 3.7 and 7.2.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import read_text_file
from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError, UsageError
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_base.runtime.saves import pass_name
from trainer.data.source import BatchSource
from trainer.evaluators import Accumulator, Evaluator
from trainer.evaluators.printers import GradientPrinter
from trainer.network.data_parallel import AnyNetwork
from trainer.network.network import Network
from trainer.storage.model_sources import is_complete, load_model
from trainer.storage.predictions import PredictionFile
from trainer.telemetry import log_lines
from trainer.telemetry.legacy_words import AT
from trainer.telemetry.time_breakdown import TEST
from trainer.telemetry.training_log import TrainingLog
from trainer.training import nan_checks
from trainer.training.parts import NO_TEST_DATA, Parts

WAIT_S = 60.0  # seconds between two checks for a pass that does not exist yet


def evaluate(
    network: AnyNetwork,
    source: BatchSource,
    evaluators: list[Evaluator],
    batch_size: int,
    *,
    each_batch: Callable[[int, Accumulator], None] | None = None,
    with_cost: bool = True,
    shows_layers: bool = False,
) -> Accumulator:
    """Run all test data through the network and return the result.

    Args: each_batch: a function that is called after each batch, with the number of batches and the result so far.
        with_cost: whether the network has a cost; a network for prediction has none, and its cost counts as 0.
        shows_layers: whether the statistics of every layer are logged.
    Raises: DataError: there is no sample, the provider raised an error, or a cost is not finite.
    """
    result = Accumulator(evaluators)
    source.start_pass()
    network.states.restart()
    batches = 0
    while (batch := source.next_batch(batch_size)) is not None:
        LIVENESS.turn()
        slots, samples = batch
        network.forward(slots)
        if shows_layers:
            log_lines.log_layers(network)
        cost = network.cost() if with_cost else 0.0
        batches += 1
        if not math.isfinite(cost):
            raise DataError(
                f"the cost of layer {network.find_bad_cost()} is {cost:g} in batch {batches} of the test: "
                f"{nan_checks.describe_source(network)}; check the test data and the model"
            )
        result.add(cost, samples, measure(network, evaluators))
        if each_batch is not None:
            each_batch(batches, result)
    if not result.samples:
        raise DataError("the test data has no sample; check the list of the test data")
    result.finish()
    return result


def run_test(
    parts: Parts,
    log: TrainingLog,
    values: contextlib.AbstractContextManager[None],
    each_batch: Callable[[int, Accumulator], None] | None = None,
) -> None:
    """Test the model of a training job, and log the result. Do nothing if the config has no test data.

    Args: values: a context in which the parameters have the values to test. each_batch: see `evaluate`.
    """
    if parts.test is None:
        return
    before = parts.reporter.breakdown.switch(TEST)
    with values, parts.network.states.restored():
        result = evaluate(
            parts.network,
            parts.test,
            parts.evaluators,
            parts.batch_size,
            each_batch=each_batch,
            shows_layers=parts.flags.show_layer_stat,
        )
    parts.reporter.breakdown.switch(before)
    log.write_test(result)


def measure(network: AnyNetwork, evaluators: Sequence[Evaluator]) -> list[Any]:
    """Return the result of each evaluator for the last batch, summed over the parts of the batch."""
    measures = [_measure_replica(replica, evaluators) for replica in network.replicas]
    if len(measures) == 1:
        return measures[0]
    totals = [one.nothing() for one in evaluators]
    for of_share in measures:
        for number, one in enumerate(of_share):
            totals[number] += one
    return totals


def _measure_replica(replica: Network, evaluators: Sequence[Evaluator]) -> list[Any]:
    for one in evaluators:
        if isinstance(one, GradientPrinter):
            one.gradients = replica.kept_gradients()
    return [one.measure(replica.outputs) for one in evaluators]


@dataclass(frozen=True)
class TestedModel:
    """A model to test. `is_pass` is whether the path must be a pass directory with the mark of a complete pass."""

    number: int
    path: str
    is_pass: bool = False


class Testing:
    """The test job.

    Args: wait: a function that waits for a number of seconds, or until a signal arrives.
    """

    def __init__(self, parts: Parts, wait: Callable[[float], None] = time.sleep) -> None:
        if parts.test is None:
            raise ConfigError(NO_TEST_DATA)
        self._parts, self._source, self._flags, self._wait = parts, parts.test, parts.flags, wait
        self._models = list_models(parts)
        absent = [model.path for model in self._models if not os.path.exists(model.path)]  # noqa: PTH110
        if parts.flags.model_list and absent:  # known before the models above it are tested
            raise MissingInputError(f"--model_list={parts.flags.model_list} names {absent[0]}, which does not exist")

    def run(self) -> None:
        """Test every model."""
        flags, parts = self._flags, self._parts
        file = PredictionFile(flags.predict_output_dir, flags.trainer_id) if flags.predict_output_dir else None

        def each_batch(batches: int, result: Accumulator) -> None:
            if file is not None:
                for replica in parts.network.replicas:
                    file.write({name: replica.outputs[name] for name in replica.output_names})
            if batches % flags.log_period == 0:
                glog.info(log_lines.test_batch_line(batches, result), at=AT["test batch"])

        with file or contextlib.nullcontext(), np.errstate(all="ignore"):
            for model in self._arriving():
                self._load(model)
                result = evaluate(
                    parts.network,
                    self._source,
                    parts.evaluators,
                    parts.batch_size,
                    each_batch=each_batch,
                    with_cost=file is None,
                    shows_layers=flags.show_layer_stat,
                )
                result.finish_pass()
                glog.info(log_lines.test_pass_line(model.number, result), at=AT["test pass"])

    def _load(self, model: TestedModel) -> None:
        flags, parts = self._flags, self._parts
        strategy = flags.load_missing_parameter_strategy
        try:
            load_model(model.path, parts.table, strategy, parts.stream, needs_done=model.is_pass)
        except MissingInputError as error:
            if not model.is_pass or model is self._models[0]:
                raise
            raise MissingInputError(
                f"{error}; --job=test takes every pass below --num_passes={flags.num_passes}: give "
                f"--num_passes={model.number} to end before this one, or --test_wait=1 to wait for it"
            ) from error

    def _arriving(self) -> Iterator[TestedModel]:
        """Yield the models. With --test_wait, wait for each model without a time limit."""
        for model in self._models:
            while self._flags.test_wait and model.is_pass and not is_complete(model.path):
                glog.info(f"Waiting for parameters of pass {model.number}")
                LIVENESS.turn()
                self._wait(WAIT_S)
            yield model


def list_models(parts: Parts) -> list[TestedModel]:
    """Return the models to test.

    Raises: UsageError: no model is given.  MissingInputError: the model list is missing or empty.
    """
    flags = parts.flags
    if flags.model_list:
        try:
            lines = os.fsdecode(read_text_file(Path(flags.model_list))).split("\n")
        except OSError as error:
            raise MissingInputError(f"--model_list={flags.model_list} cannot be read: {error.strerror}") from error
        models = [TestedModel(number, line.strip()) for number, line in enumerate(filter(str.strip, lines))]
    elif flags.init_model_path:
        models = [TestedModel(0, flags.init_model_path)]
    elif flags.test_pass >= 0:
        numbers = [n for n in range(flags.test_pass, flags.num_passes) if n % flags.saving_period == 0]
        models = [TestedModel(n, parts.shown_directory(pass_name(n)), is_pass=True) for n in numbers]
    else:
        raise UsageError("--job=test needs a model: --test_pass=<first pass>, --init_model_path or --model_list")
    if not models:
        raise UsageError("--job=test finds no model: check --test_pass, --num_passes, --saving_period or --model_list")
    return models
