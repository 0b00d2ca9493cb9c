"""The test job tests saved models: it runs all test data through the network of each.

Source: spec/trainer.md sections 3.7 and 7.2.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import read_text_file
from paddle_base.runtime.errors import ConfigError, MissingInputError, UsageError
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_base.runtime.saves import pass_name
from trainer.evaluators import Accumulator
from trainer.session import read_batches
from trainer.storage.model_sources import is_complete, load_model
from trainer.storage.predictions import PredictionFile
from trainer.telemetry import log_lines
from trainer.telemetry.legacy_words import AT
from trainer.training.parts import NO_TEST_DATA, Parts

WAIT_S = 60.0  # seconds between two checks for a pass that does not exist yet


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
                for replica in parts.session.network.replicas:
                    file.write({name: replica.outputs[name] for name in replica.output_names})
            if batches % flags.log_period == 0:
                glog.info(log_lines.test_batch_line(batches, result), at=AT["test batch"])

        with file or contextlib.nullcontext(), np.errstate(all="ignore"):
            for model in self._arriving():
                self._load(model)
                batches = read_batches(self._source, parts.batch_size)
                result = parts.session.test(batches, each_batch=each_batch, with_cost=file is None)
                result.finish_pass()
                glog.info(log_lines.test_pass_line(model.number, result), at=AT["test pass"])

    def _load(self, model: TestedModel) -> None:
        flags, parts = self._flags, self._parts
        strategy = flags.load_missing_parameter_strategy
        try:
            load_model(model.path, parts.session.table, strategy, parts.session.stream, needs_done=model.is_pass)
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
