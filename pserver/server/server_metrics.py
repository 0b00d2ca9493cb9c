"""The metrics of a server process, and whether the process is alive and ready, for the thread of its health pages."""

from __future__ import annotations

from collections.abc import Iterator

from paddle_base.runtime.health.liveness import LIVENESS, Liveness
from paddle_base.runtime.health.metrics import BUILD, MOST_TRAINERS, Metric, Sample, describe_build, label_of
from pserver.server.event_loop import Server
from pserver.server.listener import Listener
from pserver.server.service import Service

_OF = ("pserver",)  # address:port of a service of the server
_BY = ("pserver", "trainer")

READY = Metric("paddle_pserver_ready", "1 when the service has values of its parameters", _OF)
WANTED = Metric("paddle_pserver_wanted_trainers", "trainers of the job, if the job is not elastic", _OF)
JOINED = Metric("paddle_pserver_joined_trainers", "trainers that have joined and have not left", _OF)
CONNECTIONS = Metric(
    "paddle_pserver_connections",
    "open connections: two for each trainer, and connections of peers that have not joined",
    _OF,
)
QUEUE = Metric("paddle_pserver_queue_messages", "parts of messages that wait to be sent", _OF)
RECEIVED = Metric("paddle_pserver_received_bytes_total", "bytes read from connections, not from shared memory", _OF)
SENT = Metric("paddle_pserver_sent_bytes_total", "bytes written to connections, not to shared memory", _OF)
DROPPED = Metric(
    "paddle_pserver_dropped_messages_total", "messages and handshakes that are invalid or belong to other jobs", _OF
)
FAILED = Metric(
    "paddle_pserver_failed_messages_total", "messages whose handling raised an error and closed the connection", _OF
)
ROUNDS = Metric("paddle_pserver_rounds_total", "complete rounds of synchronous training", _OF)
ROUND_SECONDS = Metric(
    "paddle_pserver_round_seconds_total",
    "seconds from the first piece of a round to its end, added up over all complete rounds",
    _OF,
)
STEP_SECONDS = Metric("paddle_pserver_step_seconds_total", "seconds in which the optimiser computed steps", _OF)
PASSES = Metric("paddle_pserver_passes_total", "passes that all trainers have finished; not counted in a task job", _OF)
WAITED = Metric(
    "paddle_pserver_wait_seconds_total",
    "seconds that other trainers waited for this trainer, in rounds in which this trainer was the last",
    _BY,
)
SILENCE = Metric("paddle_pserver_silence_seconds", "seconds since the trainer's last gradient, inside a pass", _BY)
GRADIENTS = Metric("paddle_pserver_async_gradients_total", "received gradients of asynchronous training", _BY)
DISCARDED = Metric(
    "paddle_pserver_discarded_gradients_total", "asynchronous gradients that were discarded as too old", _BY
)
STALENESS = Metric(
    "paddle_pserver_lag_steps_total",  # the metric's name in earlier releases, which users' dashboards read
    "sum of the staleness of asynchronous gradients, in steps; the mean is this sum divided by "
    "paddle_pserver_async_gradients_total",
    _OF,
)
BUSY = Metric("paddle_pserver_busy_seconds_total", "seconds in which the server's loop had work")
TURN = Metric(
    "paddle_pserver_turn_age_seconds",
    "seconds since the server last checked its connections; above 1 if the work between two checks takes long",
)

METRICS = (
    BUILD,
    READY,
    WANTED,
    JOINED,
    CONNECTIONS,
    QUEUE,
    RECEIVED,
    SENT,
    DROPPED,
    FAILED,
    ROUNDS,
    ROUND_SECONDS,
    STEP_SECONDS,
    PASSES,
    WAITED,
    SILENCE,
    GRADIENTS,
    DISCARDED,
    STALENESS,
    BUSY,
    TURN,
)


class ServerMetrics:
    """The state of a server process for its health pages.

    Args: stuck_timeout: seconds without progress of the server's loop, after which the process is stuck.
    """

    def __init__(self, server: Server, stuck_timeout: float, liveness: Liveness = LIVENESS) -> None:
        self._server, self._stuck_timeout, self._liveness = server, stuck_timeout, liveness

    def why_stuck(self) -> str:
        """Return why the process is stuck; "" if the server's loop has made progress recently."""
        return self._liveness.why_stuck("pserver", self._stuck_timeout)

    def why_not_ready(self) -> str:
        """Return why the server is not ready; "" if all ports are bound and the ports with trainers have values.

        A port for sparse parameters may have no trainers, and then needs no values.
        """
        server = self._server
        if len(server.listeners) < len(server.services):
            return "the ports are not bound"
        used = [service for service in server.services if service.sessions.is_used]
        without = [service.identity.name for service in used if service.state.rounds is None]
        if not used:
            return "no trainer has joined yet"
        return f"no values yet on {', '.join(without)}" if without else ""

    def read(self) -> Iterator[Sample]:
        """Yield the current values of the metrics."""
        server = self._server
        first = server.options
        yield describe_build("pserver", first.job, first.attempt)
        yield Sample(BUSY, server.busy_seconds)
        yield Sample(TURN, self._liveness.age)
        for service in server.services:
            yield from _read_service(service, self._liveness.turned)
        for listener in list(server.listeners):
            yield from _read_port(listener)


def _read_port(listener: Listener) -> Iterator[Sample]:
    of = (listener.service.identity.name,)
    unsent = listener.list_unsent()
    yield Sample(CONNECTIONS, len(unsent), of)
    yield Sample(QUEUE, sum(unsent), of)
    yield Sample(RECEIVED, listener.traffic.received, of)
    yield Sample(SENT, listener.traffic.sent, of)


def _read_service(service: Service, now: float) -> Iterator[Sample]:
    name, state, complaints = service.identity.name, service.state, service.sessions.complaints
    counters, rounds = state.counters, state.rounds
    of = (name,)
    # copies, here and below: the event loop changes these dicts while the thread of the pages reads
    trainers = list(service.sessions.trainers.values())
    yield Sample(READY, rounds is not None, of)
    yield Sample(JOINED, sum(not trainer.has_left for trainer in trainers), of)
    yield Sample(DROPPED, complaints.malformed, of)
    yield Sample(FAILED, complaints.failed, of)
    yield Sample(ROUNDS, counters.rounds, of)
    yield Sample(ROUND_SECONDS, counters.round_seconds, of)
    yield Sample(STEP_SECONDS, counters.step_seconds, of)
    if not service.is_task_job:  # in a task job any number of trainers may join, and the master counts passes
        yield Sample(WANTED, service.identity.num_trainers, of)
        yield Sample(PASSES, counters.passes, of)
    waited = dict(state.stragglers.waited)
    for trainer in trainers:
        by = (name, label_of(trainer.number))
        yield Sample(WAITED, waited.get(trainer.number, 0.0), by)
        # trainers with higher ids share one series, for which no silence is measured
        if trainer.number < MOST_TRAINERS:
            is_training = state.in_pass and not trainer.progress.has_finished_pass
            yield Sample(SILENCE, max(0.0, now - trainer.progress.pushed) if is_training else 0.0, by)
    if rounds is not None and rounds.is_asynchronous:
        staleness = rounds.staleness
        yield Sample(STALENESS, staleness.age, of)
        discarded = dict(staleness.discarded)
        for number, came in sorted(dict(staleness.gradients).items()):
            by = (name, label_of(number))
            yield Sample(GRADIENTS, came, by)
            yield Sample(DISCARDED, discarded.get(number, 0), by)
