"""Passes and batches: the training loop with the legacy's log lines; tests and saves come at the legacy's moments.

Source: spec/trainer.md sections 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pserver import glog
from pserver.errors import ConfigError, DataError, StoppedError
from pserver.pulse import PULSE
from trainer import finite, logs
from trainer.arguments import Argument
from trainer.checkpointing import AFTER, BEFORE, INSIDE, Checkpointing, Place, name_inside, wants_checkpoints
from trainer.data.source import DataSource
from trainer.evaluation import evaluate, measure
from trainer.evaluators import Accumulator, Evaluator
from trainer.evaluators.printers import GradientPrinter
from trainer.flags import Values
from trainer.legacy import AT
from trainer.model_files import SaveTables, pass_name, remove_pass, save_pass
from trainer.parameters import ParameterTable
from trainer.reporter import Reporter
from trainer.rng import Stream
from trainer.shares import AnyNetwork
from trainer.stopping import Stopper
from trainer.updater import Updater
from trainer.usage import COMPUTE, DATA, EXCHANGE, OTHER, SAVE, TEST


@dataclass(frozen=True)
class Parts:
    """What a session is made of.

    `configs` are the files copied into every pass directory; `save_dir` is where these go; `train` and `test` are the
    data sources, where there are such data. `averages` says whether the optimiser averages the values of its steps.
    `save_tables` lets the parameter servers save the tables, where they do. `reporter` tells the owner how it goes.
    """

    flags: Values
    batch_size: int
    network: AnyNetwork
    table: ParameterTable
    evaluators: list[Evaluator]
    stream: Stream
    train: DataSource | None
    test: DataSource | None
    configs: Mapping[str, bytes]
    save_dir: str
    averages: bool = False
    save_tables: SaveTables | None = None
    reporter: Reporter = field(default_factory=Reporter)

    def pass_directory(self, name: str) -> Path:
        """Return the path of a pass directory, or of a save inside a pass."""
        return Path(self.save_dir) / name

    def shown_directory(self, name: str) -> str:
        """Return that path as the log shows it: with `./` before a plain name."""
        return f"{self.save_dir if '/' in self.save_dir else './' + self.save_dir}/{name}"


STEP_LIMIT_S = 5  # a signal waits so long for a step of the servers: the grace period of the pod is running
CHECKPOINT_LIMIT_S = 15  # and so long for the end of the batch after which a checkpoint can be made


class Training:
    """The training job.

    A signal ends it after the batch in hand, and what there is becomes a checkpoint; where no checkpoints are made,
    trainer 0 saves a save inside the pass. With parameter servers and no checkpoints it ends at once, but for a step
    that is under way.

    Raises (run): DataError: the provider raised, or a number is not finite.  LostPeerError, PeerUnreachableError: the
        servers or other trainers are gone.  VolumeError: a save failed.  StoppedError: a signal came.
    """

    def __init__(self, parts: Parts, updater: Updater, stopper: Stopper) -> None:
        if parts.train is None:
            raise ConfigError("the config has no training data; define_py_data_sources2 needs a train_list")
        self._parts, self._updater, self._source = parts, updater, parts.train
        self._flags, self._network, self._table = parts.flags, parts.network, parts.table
        self._since_start, self._window = Accumulator(parts.evaluators), Accumulator(parts.evaluators)
        self._averaged = Accumulator(parts.evaluators)
        self._average_period = parts.flags.average_test_period if parts.averages and parts.flags.trainer_id == 0 else 0
        self._number = parts.flags.start_pass
        self._batches = self._saves = self._unsaved = 0  # unsaved: steps since the last save, or checkpoint
        self._is_pass_complete = self._is_stepping = self._has_open_dots = False
        self._stage, self._made, self._is_due = BEFORE, 0, False  # see Place
        self._is_resumed = False  # the next pass goes on from a checkpoint
        self._progress_line = ""  # that is due after this batch
        self._may_leave = False  # the checkpoint that a signal waits for has been made
        self._gradients = finite.GradientCheck(self._table)
        self._reporter, self._usage = parts.reporter, parts.reporter.usage
        printers = [one for one in parts.evaluators if isinstance(one, GradientPrinter)]
        self._network.watch(
            gradients_of={name for one in printers for name in one.config.input_layers},
            clipping=parts.flags.log_error_clipping,
        )
        self._stopper = stopper
        self._whole_batch: AbstractContextManager[Any] = stopper if parts.flags.local else nullcontext()
        self._whole_run: AbstractContextManager[Any] = nullcontext()
        self._checkpoints: Checkpointing | None = None
        if wants_checkpoints(parts.flags):
            sums = {"pass": self._since_start, "window": self._window, "averaged": self._averaged}
            self._checkpoints = Checkpointing(parts, updater, sums)
        if not parts.flags.local:
            stopper.limit(STEP_LIMIT_S if self._checkpoints is None else CHECKPOINT_LIMIT_S)
            if self._checkpoints is not None:  # all trainers make one together, after a step: no other place will do
                self._whole_run = stopper

    @property
    def reporter(self) -> Reporter:
        """What knows how far this is."""
        return self._reporter

    def resume(self, own: Mapping[str, Any] | None) -> None:
        """Go on from a checkpoint, of which the updater has the parameters; to be called before `run`.

        Args: own: what this trainer said of itself.
        Raises: ConfigError: if it said nothing.  DataError, MissingInputError: as of a pass.
        """
        if own is None or self._checkpoints is None:
            raise ConfigError(
                f"the checkpoint knows nothing of trainer {self._flags.trainer_id}: go on with as many trainers as "
                "made it, or without --resume_from"
            )
        place = self._checkpoints.resume(own)
        self._number, self._stage, self._batches = place.number, place.stage, place.batches
        self._saves, self._made, self._is_due = place.saves, place.checkpoints, place.is_due
        self._is_pass_complete = place.stage == AFTER
        self._is_resumed = place.stage != BEFORE
        last = self._flags.start_pass + self._flags.num_passes - 1
        if place.number > last:
            glog.info(
                f"nothing is left to do: the last pass is {last} (--start_pass + --num_passes - 1), and it is done"
            )

    def place(self) -> dict[str, int]:
        """Return {pass, batch}: where training begins or goes on."""
        return {"pass": self._number, "batch": self._batches}

    def run(self) -> None:
        """Train all passes."""
        with np.errstate(all="ignore"):  # a cost that is no number ends the run by name, without numpy's warnings
            try:
                with self._whole_run:
                    for number in range(self._number, self._flags.start_pass + self._flags.num_passes):
                        self._run_pass(number)
            except StoppedError:
                self._save_what_there_is()
                raise
        self._updater.finish()

    def end(self, status: int, message: str = "") -> None:
        """Tell the owner how it ended: with an exit status, and why if not by itself."""
        self._reporter.end(status, message)

    def _run_pass(self, number: int) -> None:
        glog.bind(number, self._batches)
        self._reporter.start_pass(number, self._batches, self._since_start.samples if self._is_resumed else 0)
        if self._stage != AFTER:
            self._start_pass(number)
            while (batch := self._next_batch()) is not None:
                with self._whole_batch:
                    self._run_batch(*batch)
                self._finish_batch(batch[1])
            self._finish_batches()
        self._is_resumed = False
        self._report_pass(number)
        self._test()
        is_saved = number % self._flags.saving_period == 0
        if is_saved:
            self._save(pass_name(number))
        with self._stopper:
            self._number, self._stage, self._batches, self._saves, self._made = number + 1, BEFORE, 0, 0, 0
            self._is_pass_complete = self._is_due = False
            if self._checkpoints is not None:
                self._checkpoints.mark()
                if is_saved:
                    self._make_checkpoint(pass_name(number))
        self._reporter.show()

    def _next_batch(self) -> tuple[Mapping[str, Argument], int] | None:
        self._usage.switch(DATA)
        batch = self._source.next_batch(self._parts.batch_size)
        self._usage.switch(OTHER)
        return batch

    def _start_pass(self, number: int) -> None:
        """Begin a pass, or go on inside of one."""
        self._usage.switch(EXCHANGE)
        self._updater.start_pass(self._batches)
        self._usage.switch(OTHER)
        self._leave_if_told()
        if self._is_resumed:
            if self._is_due:
                self._finish_batch(0)
            return
        with self._stopper:
            self._number, self._stage = number, INSIDE
            self._since_start.reset()
            self._source.start_pass()
            if self._checkpoints is not None:
                self._checkpoints.mark()

    def _finish_batch(self, samples: int) -> None:
        """Do what is due after a step: lines of the log, tests and saves."""
        self._report_batch(samples)
        self._test_and_save_inside()
        self._is_due = False

    def _finish_batches(self) -> None:
        """End the pass together with the other trainers."""
        with self._whole_batch:
            own = self._checkpoints.describe(self._place()) if self._checkpoints is not None else None
            self._is_stepping = True
            self._usage.switch(EXCHANGE)
            self._updater.finish_pass(own)
            self._usage.switch(OTHER)
            self._leave_if_told()
            self._is_stepping, self._is_pass_complete, self._stage = False, True, AFTER

    def _report_pass(self, number: int) -> None:
        record = self._reporter.finish_pass(self._since_start)
        if self._batches:
            self._since_start.finish()
            glog.info(logs.pass_line(number, self._batches, self._since_start), at=AT["pass"], record=record)
            self._has_open_dots = False
        elif self._flags.local:
            raise DataError(f"the data provider delivers no sample in pass {number}; check train_list and its files")
        else:
            glog.warning(f"the data provider delivers no sample in pass {number}; the other trainers' steps count")

    def _run_batch(self, slots: Mapping[str, Argument], samples: int) -> None:
        PULSE.turn()
        if self._batches % self._flags.log_period == 0:
            self._window.reset()
        if self._average_period:
            self._measure_average(slots, samples)
        self._table.clear_gradients()
        self._usage.switch(EXCHANGE)
        self._updater.prefetch(slots)
        self._usage.switch(COMPUTE)
        self._network.forward(slots, self._parts.stream)
        if self._flags.show_layer_stat:
            logs.log_layers(self._network)
        cost = self._network.cost()
        if not math.isfinite(cost):
            raise DataError(
                f"the cost of layer {self._network.find_bad_cost()} is {cost:g} in {self._where()}: "
                f"{finite.describe_source(self._network)}; a lower learning_rate or a look at the data may help"
            )
        self._network.backward(self._updater.begin_step(samples))
        wrong = self._gradients.find()
        if wrong:
            raise DataError(
                f"the gradient of parameter {wrong} is not finite in {self._where()}: "
                f"{finite.describe_users(self._network, wrong)}; a lower learning_rate may help"
            )
        measures = measure(self._network, self._parts.evaluators)
        with self._stopper:
            self._is_stepping = True
            self._usage.switch(EXCHANGE)
            is_wanted = self._updater.step(samples, self._wants_checkpoint())
            self._usage.switch(OTHER)
            self._is_stepping = False
            self._leave_if_told()  # trainer 0 has written the checkpoint when it takes part in the step after that
            self._batches += 1
            self._unsaved += 1
            self._since_start.add(cost, samples, measures)
            self._window.add(cost, samples, measures)
            self._progress_line = self._reporter.add(self._batches, samples, cost / samples)
            self._is_due = True
            if self._checkpoints is not None:
                self._checkpoints.mark()
                if is_wanted:
                    self._made += 1
                    self._make_checkpoint(name_inside(self._place()))

    # ----- Checkpoints -----

    def _place(self) -> Place:
        return Place(self._number, self._stage, self._batches, self._saves, self._made, self._is_due)

    def _wants_checkpoint(self) -> bool:
        """Return whether this trainer asks for a checkpoint after the step; without servers a signal makes its own."""
        if self._checkpoints is None:
            return False
        return self._checkpoints.is_wanted(self._batches + 1) or (not self._flags.local and self._stopper.is_waiting)

    def _make_checkpoint(self, name: str) -> None:
        """Make one together with the other trainers; what a signal waits for is then done."""
        if self._checkpoints is None:
            return
        if self._flags.trainer_id == 0:
            self._check_values()
            self._end_dots()
        self._stopper.ignore_limit()  # peers that are gone are noticed, and what is written now is worth waiting for
        before = self._usage.switch(SAVE)
        self._checkpoints.make(self._place(), name)
        self._usage.switch(before)
        self._reporter.add_checkpoint(name)
        self._unsaved = 0
        self._may_leave = not self._flags.local and self._stopper.is_waiting
        if self._flags.trainer_id == 0:
            self._leave_if_told()

    def _leave_if_told(self) -> None:
        """End here if a signal waits for a checkpoint that was made.

        Raises: StoppedError.
        """
        if self._may_leave:
            self._stopper.leave()

    def _measure_average(self, slots: Mapping[str, Argument], samples: int) -> None:
        """Run the averaged values on the last `log_period` batches of the period, each before its training step."""
        first = self._average_period - self._flags.log_period
        position = self._batches % self._average_period
        if position < first:
            return
        if position == first:
            self._averaged.reset()
        with self._averaged_values():
            self._network.forward(slots)
            self._averaged.add(self._network.cost(), samples, measure(self._network, self._parts.evaluators))

    @contextmanager
    def _averaged_values(self) -> Iterator[None]:
        """Within it the table has the values to test; a signal waits while it gets them and gives them back.

        What is saved after the signal would else have half of a decay, or values of training in place of averages.
        """
        with ExitStack() as stack:
            with self._stopper:
                stack.enter_context(self._updater.averaged())
            try:
                yield
            finally:
                with self._stopper:
                    stack.close()

    @property
    def _awaited(self) -> str:
        return "its step was done" if self._is_stepping or self._checkpoints is None else "a checkpoint could be made"

    def _where(self) -> str:
        return f"batch {self._batches + 1} of pass {self._number}"

    def _report_batch(self, samples: int) -> None:
        """Write what is due after this batch; a dot stands without newline, and the next line follows it."""
        flags = self._flags
        period = flags.show_parameter_stats_period
        if period and self._batches % period == 0 and flags.trainer_id == 0:
            for parameter in self._table:
                glog.info(logs.statistics_line(parameter, self._updater.rates(parameter)), at=AT["stats"])
        if self._batches % flags.log_period == 0:
            self._window.finish()
            if flags.dot_period:
                glog.write("\n")
            glog.bind(self._number, self._batches)
            record = self._reporter.add_batch_line(self._since_start, self._window)
            glog.info(logs.batch_line(self._batches, self._since_start, self._window), at=AT["batch"], record=record)
            self._has_open_dots = False
        elif flags.dot_period and self._batches % flags.dot_period == 0:
            glog.write(".")
            self._has_open_dots = True
        if self._average_period and self._batches % self._average_period == 0:
            self._averaged.finish()
            glog.info(logs.average_line(self._averaged))
        if self._progress_line:
            self._end_dots()
            glog.info(self._progress_line)

    def _end_dots(self) -> None:
        if self._has_open_dots:
            glog.write("\n")
            self._has_open_dots = False

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
        if self._parts.test is None:
            return
        before = self._usage.switch(TEST)
        with self._averaged_values():
            result = evaluate(
                self._network,
                self._parts.test,
                self._parts.evaluators,
                self._parts.batch_size,
                shows_layers=self._flags.show_layer_stat,
            )
        self._usage.switch(before)
        glog.info(logs.test_line(result), at=AT["test"], record=self._reporter.add_test(result))

    def _save(self, name: str) -> None:
        """Save on trainer 0; nothing may be logged between a test's line and this one."""
        if self._flags.trainer_id != 0:
            return
        parts = self._parts
        with self._stopper, self._updater.averaged():
            self._check_values()
            glog.info(f"Saving parameters to {parts.shown_directory(name)}", at=AT["save"])
            before = self._usage.switch(SAVE)
            save_pass(parts.pass_directory(name), self._table, parts.configs, parts.save_tables)
            self._usage.switch(before)
            self._reporter.add_save(parts.shown_directory(name))
            older = self._number - self._flags.saving_period
            if self._flags.save_only_one and older >= 0:
                remove_pass(parts.pass_directory(pass_name(older)))
            self._unsaved = 0

    def _check_values(self) -> None:
        wrong = finite.find_bad_value(self._table)
        if wrong:
            raise DataError(
                f"parameter {wrong} has values that are not finite after batch {self._batches} of pass {self._number}; "
                f"they are not saved: {finite.describe_users(self._network, wrong)}; a lower learning_rate may help"
            )

    def _save_what_there_is(self) -> None:
        """Save the batches since the last save, unless a step of the optimiser was cut in two."""
        if not self._unsaved:
            return
        if self._is_stepping or not self._stopper.is_clean:
            glog.warning(f"stopped in {self._where()} before {self._awaited}; nothing is saved")
            return
        self._end_dots()
        if self._checkpoints is not None:
            if self._flags.local:
                self._made += 1
                self._make_checkpoint(name_inside(self._place()))
            return
        if self._is_pass_complete:
            self._save(pass_name(self._number))
        elif self._batches:
            self._save(pass_name(self._number, self._saves + 1))
        else:  # the pass before was not due to be saved
            self._save(pass_name(self._number - 1))
