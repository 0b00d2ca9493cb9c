"""What a trainer has counted, as metrics, and whether it is alive and ready; for the thread of `pserver.health`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pserver import glog
from pserver.environment import JobEnvironment, read_environment
from pserver.errors import ConfigError
from pserver.metrics import BUILD, Exposition, Metric, Sample, describe_build
from pserver.nics import ANY_ADDRESS, resolve_nics
from pserver.pulse import PULSE, Pulse
from trainer.flags import Values

if TYPE_CHECKING:
    from pserver.health import Health

_OF = ("trainer",)

READY = Metric("paddle_trainer_ready", "1 when the trainer has connected and begun", _OF)
TURN = Metric(
    "paddle_trainer_turn_age_seconds",
    "since it last began a batch, of training or of a test, or looked whether its peers have answered",
    _OF,
)

METRICS = (BUILD, READY, TURN)


class Readings:
    """A trainer as others see it.

    Args: job: also says how many seconds a turn may take.
    """

    def __init__(self, trainer_id: int, job: JobEnvironment, pulse: Pulse = PULSE) -> None:
        self._trainer, self._job, self._pulse = str(trainer_id), job, pulse
        self._has_begun = False

    def begin(self) -> None:
        """Note that training, or whatever the job is, begins now."""
        self._has_begun = True

    def why_stuck(self) -> str:
        """Return "" if the main thread has turned lately: see `pserver.pulse`."""
        age = self._pulse.age
        if age <= self._job.stuck_timeout:
            return ""
        return f"the trainer has begun no batch for {age:.0f} s, nor does it wait for its peers"

    def why_not_ready(self) -> str:
        """Return "" once it has begun."""
        return "" if self._has_begun else "the trainer has not begun yet"

    def read(self) -> Iterator[Sample]:
        """Yield what is known now."""
        of = (self._trainer,)
        yield describe_build("trainer", self._job.job, self._job.attempt)
        yield Sample(READY, self._has_begun, of)
        yield Sample(TURN, self._pulse.age, of)


class Watched:
    """Answers /healthz, /readyz and /metrics in this block, if --metrics_port asks for it.

    Raises: ConfigError: as `read_environment`.
    """

    def __init__(self, flags: Values) -> None:
        self.readings = Readings(flags.trainer_id, read_environment(os.environ))
        self._flags = flags
        self._health: Health | None = None

    def __enter__(self) -> Readings:
        if self._flags.metrics_port:
            self._health = self._watch(self._flags.metrics_port)
        return self.readings

    def __exit__(self, *_: object) -> None:
        if self._health is not None:
            self._health.stop()

    def _watch(self, port: int) -> Health | None:
        from pserver.health import Pages, watch  # only where it is wanted

        readings = self.readings
        try:
            hosts = resolve_nics(self._flags.nics) if "nics" in self._flags.given else [ANY_ADDRESS]
        except ConfigError as error:
            glog.warning(f"--metrics_port={port}: {error}; going on without /healthz, /readyz and /metrics")
            return None
        return watch(hosts, port, Pages(readings.why_stuck, readings.why_not_ready, Exposition(readings.read)))
