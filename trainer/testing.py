"""The test job: one or several models on the test data, or the dump of their predictions.

Source: spec/trainer.md sections 3.7 and 7.2.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pserver import glog
from pserver.errors import ConfigError, MissingInputError, UsageError
from pserver.pulse import PULSE
from trainer import logs
from trainer.evaluation import PredictionFile, evaluate
from trainer.evaluators import Accumulator
from trainer.legacy import AT
from trainer.model_files import pass_name
from trainer.models import is_complete, load_model
from trainer.session import Parts

WAIT_S = 60.0  # between two looks for a pass that is awaited


@dataclass(frozen=True)
class Model:
    """One model to test; that of a pass must have the mark of a complete one."""

    number: int
    path: str
    is_pass: bool = False


class Testing:
    """The test job.

    Args: wait: waits so many seconds (a signal ends it).
    """

    def __init__(self, parts: Parts, wait: Callable[[float], None] = time.sleep) -> None:
        if parts.test is None:
            raise ConfigError("TestData is not specified: --job=test needs a test_list in define_py_data_sources2")
        self._parts, self._source, self._flags, self._wait = parts, parts.test, parts.flags, wait
        self._models = list_models(parts)

    def run(self) -> None:
        """Test every model."""
        flags, parts = self._flags, self._parts
        file = PredictionFile(flags.predict_output_dir, flags.trainer_id) if flags.predict_output_dir else None

        def each_batch(batches: int, result: Accumulator) -> None:
            if file is not None:
                for share in parts.network.shares:
                    file.write({name: share.outputs[name] for name in share.output_names})
            if batches % flags.log_period == 0:
                glog.info(logs.test_batch_line(batches, result), at=AT["test batch"])

        with np.errstate(all="ignore"):
            for model in self._arriving():
                load_model(
                    model.path,
                    parts.table,
                    flags.load_missing_parameter_strategy,
                    parts.stream,
                    needs_done=model.is_pass,
                )
                result = evaluate(
                    parts.network,
                    self._source,
                    parts.evaluators,
                    parts.batch_size,
                    each_batch=each_batch,
                    with_cost=file is None,
                    shows_layers=flags.show_layer_stat,
                )
                glog.info(logs.test_pass_line(model.number, result), at=AT["test pass"])
        if file is not None:
            file.close()

    def _arriving(self) -> Iterator[Model]:
        """Yield the models; with --test_wait each when it is there, however long that takes."""
        for model in self._models:
            while self._flags.test_wait and model.is_pass and not is_complete(model.path):
                glog.info(f"Waiting for parameters of pass {model.number}")
                PULSE.turn()
                self._wait(WAIT_S)
            yield model


def list_models(parts: Parts) -> list[Model]:
    """Return the models to test.

    Raises: UsageError: if no model is named.  MissingInputError: if the model list is missing or empty.
    """
    flags = parts.flags
    if flags.model_list:
        try:
            lines = Path(flags.model_list).read_text().splitlines()
        except OSError as error:
            raise MissingInputError(f"--model_list={flags.model_list} cannot be read: {error.strerror}") from error
        models = [Model(number, line.strip()) for number, line in enumerate(filter(str.strip, lines))]
    elif flags.init_model_path:
        models = [Model(0, flags.init_model_path)]
    elif flags.test_pass >= 0:
        numbers = [n for n in range(flags.test_pass, flags.num_passes) if n % flags.saving_period == 0]
        models = [Model(n, parts.shown_directory(pass_name(n)), is_pass=True) for n in numbers]
    else:
        raise UsageError("--job=test needs a model: --test_pass=<first pass>, --init_model_path or --model_list")
    if not models:
        raise UsageError("--job=test finds no model: check --test_pass, --num_passes, --saving_period or --model_list")
    return models
