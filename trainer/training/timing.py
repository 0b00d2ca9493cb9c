"""The time job measures the duration of a batch and of the parts of a batch, after ten batches that are not measured.

Builds of v0.10 with timers print tables of the same form.

Source: spec/trainer.md 7.4 and 2.9; trainer/TrainerBenchmark.cpp of v0.10.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from paddle_base.runtime import glog
from paddle_base.runtime.errors import DataError
from trainer.arrays.arguments import Argument
from trainer.telemetry.stopwatch import Measured, Stopwatch
from trainer.training.loop import STEP_LIMIT_S, BatchLoop
from trainer.training.parts import Parts
from trainer.training.position import Position
from trainer.training.stopping import Stopper

WARM_UP_BATCHES = 10  # number of batches before the measured batches
TIMED_BATCHES = 100  # maximum number of measured batches with --test_period=0, with which v0.10 measured no batch
TIMED_S = 20.0  # maximum seconds for TIMED_BATCHES batches; at least one batch is measured
DATA, BATCH, FORWARD, BACKWARD, UPDATE = "GetData", "FwdBwd", "ForwardTimer", "BackwardTimer", "UpdateTimer"


class Timing(BatchLoop):
    """The time job. It measures `--test_period` training batches, which all have the same data without --feed_data.

    Raises (run): DataError: the data does not have one full batch, or a number is not finite.
    """

    def __init__(self, parts: Parts, stopper: Stopper) -> None:
        self._source = parts.training_data()
        super().__init__(parts, stopper, Position(parts.flags.start_pass))
        if not parts.flags.local:
            stopper.limit(STEP_LIMIT_S)

    def run(self) -> None:
        """Train, and log the tables of times. Test nothing, and save nothing."""
        size = self._parts.batch_size
        with np.errstate(all="ignore"):
            self._session.start_pass()
            slots = self._fetch(size)
            glog.info("Burning time...")
            for _ in range(WARM_UP_BATCHES):
                self._train(slots, size)
            glog.info("Burning time end.")
            clock, layers = Stopwatch(), Stopwatch()
            self._attach(clock, layers)
            began = time.perf_counter()
            batches = self._time_batches(clock, slots, size)
            elapsed = time.perf_counter() - began
        self._log.end_dots()
        lines = [*clock.table(), *self._layer_table(layers, batches)]
        for line in [*lines, summary_line(clock, batches, size, elapsed)]:
            glog.info(line)
        self._session.updater.finish()

    def _time_batches(self, clock: Stopwatch, slots: Mapping[str, Argument], size: int) -> int:
        """Train and measure batches, and return their number."""
        wanted = self._flags.test_period
        end = time.perf_counter() + TIMED_S
        batches = 0
        while batches < (wanted or TIMED_BATCHES):
            if self._flags.feed_data:
                with clock.measure(DATA):
                    slots = self._fetch(size)
            with clock.measure(BATCH):
                self._train(slots, size)
            batches += 1
            if not wanted and time.perf_counter() > end:
                break
        return batches

    def _attach(self, clock: Stopwatch, layers: Stopwatch) -> None:
        """Begin to measure the parts of a batch."""
        self._session.network.time_layers(layers.measure)
        session: Any = self._session
        session.network = Measured(session.network, clock, {"forward": FORWARD, "backward": BACKWARD})
        session.updater = Measured(session.updater, clock, {"step": UPDATE})

    def _layer_table(self, layers: Stopwatch, batches: int) -> list[str]:
        """Return a line for each layer, with its milliseconds per batch and its share of the time of all layers.

        The slowest layer comes first.
        """
        rows: dict[str, dict[str, float]] = {}
        for name, times in layers.times.items():
            way, _, layer = name.partition(" ")
            rows.setdefault(layer, {})[way] = sum(times) / batches
        whole = sum(sum(row.values()) for row in rows.values()) or 1.0
        threads = len(self._session.network.replicas)
        lines = [f"======= Layers, ms a batch{f' of the first of {threads} threads' * (threads > 1)} ======"]
        for layer, row in sorted(rows.items(), key=lambda item: -sum(item[1].values())):
            forward, backward = (f"{row.get(way, 0.0):.4g}" for way in ("forward", "backward"))
            share = 100 * sum(row.values()) / whole
            lines.append(f"Layer={layer:<46} forward={forward:<10} backward={backward:<10} share={share:.1f}%")
        return [*lines, "-" * 50]

    def _fetch(self, size: int) -> Mapping[str, Argument]:
        """Return a full batch. After the last batch, begin again with the first batch of the data."""
        for _ in range(2):
            batch = self._source.next_batch(size)
            if batch is not None and batch[1] == size:
                return batch[0]
            self._source.start_pass()
        raise DataError(f"--job=time needs a full batch of {size} samples; the data has fewer")

    def _train(self, slots: Mapping[str, Argument], size: int) -> None:
        result = self._compute(slots, size)
        with self._stopper:
            self._session.update(size)
            self._count(result)
        self._write()


def summary_line(clock: Stopwatch, batches: int, size: int, elapsed: float) -> str:
    """Return the line with the most important numbers.

    Args: size: number of samples of a batch.  elapsed: seconds that all batches took.
    """
    each = elapsed * 1e3 / batches
    named = {"forward": FORWARD, "backward": BACKWARD, "update": UPDATE, "data": DATA}
    parts = {what: clock.mean(name, batches) for what, name in named.items() if name in clock.times}
    parts["other"] = max(0.0, each - sum(parts.values()))
    spelt = ", ".join(f"{what} {number:.4g}" for what, number in parts.items())
    return (
        f"{each:.4g} ms a batch, {size * batches / elapsed:.6g} samples/s: {batches} batches of {size} samples; ms a "
        f"batch: {spelt}"
    )
