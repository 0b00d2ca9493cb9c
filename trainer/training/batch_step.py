"""Train on a mini-batch: the forward and the backward pass, a check for infinite numbers, and the optimiser's step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from paddle_base.runtime.errors import DataError
from paddle_base.runtime.health.liveness import LIVENESS
from trainer.arrays.arguments import Argument
from trainer.evaluators.printers import GradientPrinter
from trainer.telemetry import log_lines
from trainer.telemetry.time_breakdown import COMPUTE, EXCHANGE, OTHER
from trainer.telemetry.training_log import TrainingLog
from trainer.training import nan_checks
from trainer.training.parts import Parts
from trainer.training.position import Position
from trainer.training.stopping import Stopper
from trainer.training.testing import measure
from trainer.updaters.local import Updater


class BatchResult(NamedTuple):
    """The result of one batch.

    Attributes: cost: the cost, summed over the samples. samples: the number of samples. measures: the result of each
        evaluator.
    """

    cost: float
    samples: int
    measures: list[Any]


class BatchStep:
    """Train on successive batches. Other code advances the position.

    Attributes: is_open: whether an exchange with the updater has begun and has not ended. The values may then contain
        half of a step, and must not be saved.
    """

    def __init__(self, parts: Parts, updater: Updater, stopper: Stopper, log: TrainingLog) -> None:
        self._parts, self._updater, self._stopper, self._log = parts, updater, stopper, log
        self._breakdown = parts.reporter.breakdown
        self._gradients = nan_checks.GradientCheck(parts.table)
        self.is_open = False
        printers = [one for one in parts.evaluators if isinstance(one, GradientPrinter)]
        parts.network.watch(
            gradients_of={name for one in printers for name in one.config.input_layers},
            clipping=parts.flags.log_error_clipping,
        )

    def compute(self, slots: Mapping[str, Argument], samples: int, position: Position) -> BatchResult:
        """Run the forward and the backward pass of a batch.

        When this method returns, the gradients are in the table, or are being sent to the servers.

        Raises: DataError: the cost or a gradient is not finite.
        """
        LIVENESS.turn()
        self._log.start_batch(position.batches)
        if self._log.measures_average(position.batches):
            self._measure_average(slots, samples)
        parts, network = self._parts, self._parts.network
        parts.table.clear_gradients()
        self._breakdown.switch(EXCHANGE)
        self._updater.prefetch(slots)
        self._breakdown.switch(COMPUTE)
        network.forward(slots, parts.stream)
        if parts.flags.show_layer_stat:
            log_lines.log_layers(network)
        cost = network.cost()
        if not math.isfinite(cost):
            raise DataError(
                f"the cost of layer {network.find_bad_cost()} is {cost:g} in {position.where()}: "
                f"{nan_checks.describe_source(network)}; a lower learning_rate or corrected data may help"
            )
        network.backward(self._updater.begin_step(samples))
        wrong = self._gradients.find()
        if wrong:
            raise DataError(
                f"the gradient of parameter {wrong} is not finite in {position.where()}: "
                f"{nan_checks.describe_users(network, wrong)}; a lower learning_rate may help"
            )
        return BatchResult(cost, samples, measure(network, parts.evaluators))

    def step(self, samples: int, *, checkpoint: bool = False) -> bool:
        """Take the optimiser's step for a batch of `samples` samples.

        Args: checkpoint: whether this trainer requests a checkpoint after the step.
        Returns: whether any trainer has requested a checkpoint after the step.
        """
        with self.exchange():
            return self._updater.step(samples, checkpoint)

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """A context for an exchange with the updater. `is_open` is true in the context.

        After an exception in the context, `is_open` remains true.
        """
        self.is_open = True
        self._breakdown.switch(EXCHANGE)
        yield
        self._breakdown.switch(OTHER)
        self.is_open = False

    def _measure_average(self, slots: Mapping[str, Argument], samples: int) -> None:
        """Evaluate the averaged values on a batch, before the training step of the batch."""
        network = self._parts.network
        with self._stopper.hold_at_ends(self._updater.averaged()), network.states.restored():
            network.forward(slots)
            self._log.averaged.add(network.cost(), samples, measure(network, self._parts.evaluators))
