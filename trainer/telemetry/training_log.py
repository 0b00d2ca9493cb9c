"""Write the log lines of training, and add up the costs and measures that these lines show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle_base.runtime import glog
from trainer.arrays.arguments import Array
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.evaluators import Accumulator, Evaluator
from trainer.flags import Values
from trainer.telemetry import log_lines
from trainer.telemetry.legacy_words import AT
from trainer.telemetry.progress import TerminalBar
from trainer.telemetry.reporter import Reporter


class TrainingLog:
    """Count batches, and write the log lines that are due after a batch.

    Attributes: since_start: the sums of the pass. window: the sums since the last batch line. averaged: the sums for
        the averaged values, over the last `log_period` batches of every `average_period`. average_period: number of
        batches between two log lines about the averaged values; 0 means no such lines.

    Args: averages: whether the optimiser averages the values of its steps. is_quiet: whether the lines of batches and
        passes are only recorded, and not written to the log.
    Source: spec/trainer.md section 2.
    """

    def __init__(
        self,
        flags: Values,
        evaluators: Sequence[Evaluator],
        table: ParameterTable,
        reporter: Reporter,
        *,
        averages: bool = False,
        is_quiet: bool = False,
    ) -> None:
        self._flags, self._table, self._reporter, self._is_quiet = flags, table, reporter, is_quiet
        self.since_start, self.window, self.averaged = (Accumulator(list(evaluators)) for _ in range(3))
        self.average_period = flags.average_test_period if averages and flags.trainer_id == 0 else 0
        self._has_open_dots = False
        self._progress_line = ""  # the progress line that is due after the current batch, or ""
        self._bar = TerminalBar()

    @property
    def sums(self) -> Mapping[str, Accumulator]:
        """All sums, by the names that they have in a checkpoint."""
        return {"pass": self.since_start, "window": self.window, "averaged": self.averaged}

    def start_batch(self, batches: int) -> None:
        """Begin a batch after `batches` batches of the pass. The first batch after a batch line resets `window`."""
        if batches % self._flags.log_period == 0:
            self.window.reset()

    def measures_average(self, batches: int) -> bool:
        """Return whether the current batch counts in `averaged`. The first such batch of a period resets `averaged`."""
        if not self.average_period:
            return False
        first = self.average_period - self._flags.log_period
        offset = batches % self.average_period
        if offset == first:
            self.averaged.reset()
        return bool(offset >= first)

    def count(self, batches: int, cost: float, samples: int, measures: Sequence[Any]) -> None:
        """Count a completed batch. After it, `batches` batches of the pass are complete."""
        for one in (self.since_start, self.window):
            one.add(cost, samples, list(measures))
        self._progress_line = self._reporter.add(batches, samples)

    def write_batch(self, number: int, batches: int, rates: Callable[[Parameter], Array | None]) -> None:
        """Write the lines that are due after a batch of pass `number`.

        A dot is written without a newline, so the next log line follows on the line of the dot. A terminal shows a
        progress bar and no dots.

        Args: rates: a function that returns the learning rate of each element of a parameter in the last step, or None.
        """
        flags = self._flags
        if self._is_quiet:
            if batches % flags.log_period == 0:
                self._reporter.add_batch_line(self.since_start, self.window)
            return
        period = flags.show_parameter_stats_period
        if period and batches % period == 0 and flags.trainer_id == 0:
            for parameter in self._table:
                glog.info(log_lines.statistics_line(parameter, rates(parameter)), at=AT["stats"])
        if batches % flags.log_period == 0:
            self._write_batch_line(number, batches)
        elif self._bar.is_on:
            self._bar.show(self._reporter.snapshot.place)
        elif flags.dot_period and batches % flags.dot_period == 0:
            glog.write(".")
            self._has_open_dots = True
        if self.average_period and batches % self.average_period == 0:
            self.averaged.finish()
            glog.info(log_lines.average_line(self.averaged))
        if self._progress_line:
            self.end_dots()
            glog.info(self._progress_line)

    def _write_batch_line(self, number: int, batches: int) -> None:
        self.window.finish()
        if self._flags.dot_period and not self._bar.is_on:
            glog.write("\n")
        glog.bind(number, batches)
        record = self._reporter.add_batch_line(self.since_start, self.window)
        glog.info(log_lines.batch_line(batches, self.since_start, self.window), at=AT["batch"], record=record)
        self._has_open_dots = False

    def write_pass(self, number: int, batches: int) -> None:
        """Record the end of a pass, and write the line of the pass if it had a batch."""
        record = self._reporter.finish_pass(self.since_start)
        if batches:
            self.since_start.finish()
        if batches and not self._is_quiet:
            self.since_start.finish_pass()
            glog.info(log_lines.pass_line(number, batches, self.since_start), at=AT["pass"], record=record)
            self._has_open_dots = False

    def write_test(self, result: Accumulator) -> None:
        """Write the line of a test."""
        record = self._reporter.add_test(result)
        if not self._is_quiet:
            glog.info(log_lines.test_line(result), at=AT["test"], record=record)

    def end_dots(self) -> None:
        """End the line of dots, if there is one."""
        if self._has_open_dots:
            glog.write("\n")
            self._has_open_dots = False
