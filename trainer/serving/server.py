"""Assembles the parts of `paddle serve` from its flags."""

from __future__ import annotations

import time
from collections.abc import Sequence

from paddle_base.runtime import glog
from paddle_base.runtime.command import FlagValues
from paddle_base.runtime.errors import UsageError
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_base.runtime.health.metrics import Exposition
from paddle_base.runtime.network.front import Front, FrontHandlers, FrontLimits
from paddle_base.runtime.network.pages import Pages, listen
from trainer.serving.batcher import Batcher, BatchLimits
from trainer.serving.model import open_served
from trainer.serving.service import RequestLimits, Service
from trainer.serving.tally import Tally
from trainer.v2.fields import FIELDS

STUCK_S = 120.0  # seconds of one batch after which /healthz says that the program is stuck
WAIT_S = 0.1  # seconds between two looks whether the last answers are sent


class ModelServer:
    """The program: a model, its batches, and the service.

    Attributes: batcher: the caller runs it. port: of the service, after `listen`.
    Raises: UsageError: a flag is wrong. See `open_served` for the errors of the files.
    """

    def __init__(self, flags: FlagValues) -> None:
        fields = list(dict.fromkeys(flags.items("field")))
        if not fields or set(fields) - set(FIELDS):
            raise UsageError(f"--field is {flags.text('field')!r}; write some of {', '.join(FIELDS)}")
        self._model = open_served(flags.text("model"), flags.text("topology"), flags.text("input_types"), fields)
        self._tally = Tally()
        samples, values = flags.number("batch_size"), flags.number("max_values")
        wait_s = float(flags.values["batch_wait_ms"]) / 1000
        limits = BatchLimits(samples, values, wait_s, flags.seconds("request_timeout"))
        self.batcher = Batcher(self._model, limits, self._tally)
        pages = Pages(self._why_stuck, lambda: "", Exposition(self._tally.read))
        self._requests = flags.number("max_requests")
        of_request = RequestLimits(self._requests, flags.number("max_body_bytes"), values, samples)
        self._service = Service(self.batcher, pages, of_request, self._tally)
        self._front: Front | None = None
        self.port = 0

    def listen(self, hosts: Sequence[str], port: int) -> None:
        """Accept requests; they are answered while the caller runs the batcher.

        Raises: OSError: the port is not available.
        """
        listeners = listen(hosts, port)
        self.port = listeners[0].getsockname()[1]
        limits = FrontLimits(proven=2 * self._requests)  # what is above --max_requests learns so by an answer
        self._front = Front(listeners, FrontHandlers(self._service.judge, self._service.serve), limits)
        inputs = ", ".join(f"{name} {kind}" for name, kind in self._model.types.items())
        glog.info(
            f"serving on {', '.join(hosts)}, port {self.port}: POST / with {inputs} is answered with "
            f"{', '.join(self._model.outputs)}; /healthz, /readyz and /metrics are there, too"
        )

    def end(self, deadline: float) -> bool:
        """Close the port, and answer the requests that have arrived; return whether all were answered in time.

        Args: deadline: of `time.monotonic`.
        """
        if self._front is None:
            return True
        is_done = self._front.close()
        while not is_done and time.monotonic() < deadline:
            self.batcher.compute_batch(WAIT_S)
            is_done = self._front.close()
        return is_done

    def _why_stuck(self) -> str:
        return LIVENESS.why_stuck("service", STUCK_S) if self.batcher.is_computing else ""
