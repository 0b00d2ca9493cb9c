"""The time job: how long batches take, after ten that warm up.

Source: spec/trainer.md 7.4 and 2.9; trainer/TrainerBenchmark.cpp of v0.10.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from pserver import glog
from pserver.errors import DataError
from trainer.arguments import Argument
from trainer.session import Training

WARM_UP_BATCHES = 10


class Timing(Training):
    """The time job: `--test_period` training batches of the same data, or of new data with --feed_data.

    Raises (run): DataError: if the data has not even one full batch, or a number is not finite.
    """

    def run(self) -> None:
        """Train and log the table of times; nothing is tested or saved."""
        clock = Stopwatch()
        size = self._parts.batch_size
        with np.errstate(all="ignore"):
            self._updater.start_pass()
            slots = self._fetch(size)
            glog.info("Burning time...")
            for _ in range(WARM_UP_BATCHES):
                self._train(slots, size)
            glog.info("Burning time end.")
            for _ in range(self._flags.test_period):
                if self._flags.feed_data:
                    with clock.measure("GetData"):
                        slots = self._fetch(size)
                with clock.measure("FwdBwd"):
                    self._train(slots, size)
        for line in clock.table():
            glog.info(line)
        self._updater.finish()

    def _fetch(self, size: int) -> Mapping[str, Argument]:
        """Return a full batch; behind the last one of the data the data begins anew."""
        for _ in range(2):
            batch = self._source.next_batch(size)
            if batch is not None and batch[1] == size:
                return batch[0]
            self._source.start_pass()
        raise DataError(f"--job=time needs a full batch of {size} samples; the data has fewer")

    def _train(self, slots: Mapping[str, Argument], size: int) -> None:
        self._run_batch(slots, size)
        self._report_batch(size)


class Stopwatch:
    """Times by name, each as a list of milliseconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._times: dict[str, list[float]] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add how long the block takes."""
        start = self._clock()
        yield
        self._times.setdefault(name, []).append((self._clock() - start) * 1e3)

    def table(self) -> list[str]:
        """Return the lines of the table."""
        lines = ["======= StatSet: [GlobalStatInfo] status ======"]
        for name, times in self._times.items():
            numbers = {
                "total": sum(times),
                "avg": sum(times) / len(times),
                "max": max(times),
                "min": min(times),
                "count": len(times),
            }
            columns = " ".join(f"{key}={f'{number:g}':<10}" for key, number in numbers.items())
            lines.append(f"Stat={name:<30} {columns}")
        return [*lines, "-" * 50]
