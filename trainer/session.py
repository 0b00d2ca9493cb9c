"""Passes and batches: the training loop and the test job, with the legacy's log lines.

Tests and saves come at the legacy's moments.

Source: spec/trainer.md sections 2, 3 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pserver import glog
from pserver.errors import ConfigError, DataError, MissingInputError, UsageError
from trainer import logs
from trainer.arguments import Argument
from trainer.data.source import DataSource
from trainer.evaluation import PredictionFile, evaluate
from trainer.evaluators import Accumulator, Evaluator
from trainer.flags import Values
from trainer.legacy import AT
from trainer.model_files import load_pass, pass_name, remove_pass, save_pass
from trainer.network import Network
from trainer.parameters import ParameterTable
from trainer.rng import Stream
from trainer.updater import Updater


@dataclass(frozen=True)
class Parts:
    """What a session is made of.

    `configs` are the files copied into every pass directory; `save_dir` is where these go; `train` and `test` are the
    data sources, where there are such data.
    """

    flags: Values
    batch_size: int
    network: Network
    table: ParameterTable
    evaluators: list[Evaluator]
    stream: Stream
    train: DataSource | None
    test: DataSource | None
    configs: Mapping[str, bytes]
    save_dir: str

    def pass_directory(self, name: str) -> Path:
        """Return the path of a pass directory, or of a save inside a pass."""
        return Path(self.save_dir) / name

    def shown_directory(self, name: str) -> str:
        """Return that path as the log shows it: with `./` before a plain name."""
        return f"{self.save_dir if '/' in self.save_dir else './' + self.save_dir}/{name}"


class Training:
    """The training job.

    Raises (run): DataError: the provider raised, or the cost is no number.  LostPeerError, PeerUnreachableError: the
        servers or other trainers are gone.  VolumeError: a save failed.
    """

    def __init__(self, parts: Parts, updater: Updater) -> None:
        if parts.train is None:
            raise ConfigError("the config has no training data; define_py_data_sources2 needs a train_list")
        self._parts, self._updater, self._source = parts, updater, parts.train
        self._flags, self._network, self._table = parts.flags, parts.network, parts.table
        self._since_start, self._window = Accumulator(parts.evaluators), Accumulator(parts.evaluators)
        self._number = parts.flags.start_pass
        self._batches = self._saves = 0

    def run(self) -> None:
        """Train all passes."""
        with np.errstate(all="ignore"):  # a cost that is no number ends the run by name, without numpy's warnings
            for number in range(self._flags.start_pass, self._flags.start_pass + self._flags.num_passes):
                self._run_pass(number)
        self._updater.finish()

    def _run_pass(self, number: int) -> None:
        self._number, self._batches, self._saves = number, 0, 0
        self._since_start.reset()
        self._updater.start_pass()
        self._source.start_pass()
        while (batch := self._source.next_batch(self._parts.batch_size)) is not None:
            self._run_batch(*batch)
            self._report_batch()
            self._test_and_save_inside()
        self._updater.finish_pass()
        if self._batches:
            glog.info(logs.pass_line(number, self._batches, self._since_start), at=AT["pass"])
        elif self._flags.local:
            raise DataError(f"the data provider delivers no sample in pass {number}; check train_list and its files")
        else:
            glog.warning(f"the data provider delivers no sample in pass {number}; the other trainers' steps count")
        self._test()
        if number % self._flags.saving_period == 0:
            self._save(pass_name(number))

    def _run_batch(self, slots: Mapping[str, Argument], samples: int) -> None:
        if self._batches % self._flags.log_period == 0:
            self._window.reset()
        self._table.clear_gradients()
        outputs = self._network.forward(slots, self._parts.stream)
        cost = self._network.cost()
        if not math.isfinite(cost):
            raise DataError(
                f"the cost of layer {self._network.find_bad_cost()} is {cost:g} in batch {self._batches + 1} of pass "
                f"{self._number}; a lower learning_rate or a look at the data may help"
            )
        self._network.backward()
        measures = [one.measure(outputs) for one in self._parts.evaluators]
        self._updater.step(samples)
        self._since_start.add(cost, samples, measures)
        self._window.add(cost, samples, measures)
        self._batches += 1

    def _report_batch(self) -> None:
        """Write what is due after this batch; a dot stands without newline, and the next line follows it."""
        flags = self._flags
        period = flags.show_parameter_stats_period
        if period and self._batches % period == 0 and flags.trainer_id == 0:
            for parameter in self._table:
                glog.info(logs.statistics_line(parameter, self._updater.rates(parameter)), at=AT["stats"])
        if self._batches % flags.log_period == 0:
            if flags.dot_period:
                glog.write("\n")
            glog.info(logs.batch_line(self._batches, self._since_start, self._window), at=AT["batch"])
        elif flags.dot_period and self._batches % flags.dot_period == 0:
            glog.write(".")

    def _test_and_save_inside(self) -> None:
        period = self._flags.test_period
        if period and self._batches % period == 0:
            self._test()
        by_batches = self._flags.saving_period_by_batches
        # strictly more: the first save comes after batch P + 1
        if by_batches and self._flags.trainer_id == 0 and self._batches > by_batches * (self._saves + 1):
            self._saves += 1
            self._test()
            self._save(pass_name(self._number, self._saves))

    def _test(self) -> None:
        if self._parts.test is not None:
            with self._updater.averaged():
                result = evaluate(self._network, self._parts.test, self._parts.evaluators, self._parts.batch_size)
            glog.info(logs.test_line(result), at=AT["test"])

    def _save(self, name: str) -> None:
        """Save on trainer 0; nothing may be logged between a test's line and this one."""
        if self._flags.trainer_id != 0:
            return
        parts = self._parts
        glog.info(f"Saving parameters to {parts.shown_directory(name)}", at=AT["save"])
        with self._updater.averaged():
            save_pass(parts.pass_directory(name), self._table, parts.configs)
        older = self._number - self._flags.saving_period
        if self._flags.save_only_one and older >= 0:
            remove_pass(parts.pass_directory(pass_name(older)))


class Testing:
    """The test job: one or several models on the test data, or the dump of their predictions."""

    def __init__(self, parts: Parts) -> None:
        if parts.test is None:
            raise ConfigError("TestData is not specified: --job=test needs a test_list in define_py_data_sources2")
        self._parts, self._source, self._flags = parts, parts.test, parts.flags
        self._models = list_models(parts)

    def run(self) -> None:
        """Test every model."""
        flags, parts = self._flags, self._parts
        file = PredictionFile(flags.predict_output_dir, flags.trainer_id) if flags.predict_output_dir else None

        def each_batch(batches: int, result: Accumulator) -> None:
            if file is not None:
                file.write([parts.network.outputs[name] for name in parts.network.output_names])
            if batches % flags.log_period == 0:
                glog.info(logs.test_batch_line(batches, result), at=AT["test batch"])

        with np.errstate(all="ignore"):
            for number, directory, needs_done in self._models:
                load_pass(
                    directory, parts.table, flags.load_missing_parameter_strategy, parts.stream, needs_done=needs_done
                )
                result = evaluate(
                    parts.network,
                    self._source,
                    parts.evaluators,
                    parts.batch_size,
                    each_batch=each_batch,
                    with_cost=file is None,
                )
                glog.info(logs.test_pass_line(number, result), at=AT["test pass"])
        if file is not None:
            file.close()


def list_models(parts: Parts) -> list[tuple[int, str, bool]]:
    """Return (pass number, directory, whether it must be marked as done) of the models to test.

    Raises: UsageError: if no model is named.  MissingInputError: if the model list is missing or empty.
    """
    flags = parts.flags
    if flags.model_list:
        try:
            lines = Path(flags.model_list).read_text().splitlines()
        except OSError as error:
            raise MissingInputError(f"--model_list={flags.model_list} cannot be read: {error.strerror}") from error
        models = [(number, line.strip(), False) for number, line in enumerate(filter(str.strip, lines))]
    elif flags.init_model_path:
        models = [(0, flags.init_model_path, False)]
    elif flags.test_pass >= 0:
        numbers = [n for n in range(flags.test_pass, flags.num_passes) if n % flags.saving_period == 0]
        models = [(n, parts.shown_directory(pass_name(n)), True) for n in numbers]
    else:
        raise UsageError("--job=test needs a model: --test_pass=<first pass>, --init_model_path or --model_list")
    if not models:
        raise UsageError("--job=test finds no model: check --test_pass, --num_passes, --saving_period or --model_list")
    return models
