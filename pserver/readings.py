"""What a server process has counted, as metrics, and whether it is alive and ready; for the thread of `health`."""

from __future__ import annotations

from collections.abc import Iterator

from pserver.metrics import BUILD, MOST_TRAINERS, Metric, Sample, describe_build, label_of
from pserver.port import Port
from pserver.pulse import PULSE, Pulse
from pserver.server import Server
from pserver.service import Service

_OF = ("pserver",)  # address:port of one of its services
_BY = ("pserver", "trainer")

READY = Metric("paddle_pserver_ready", "1 when the service has its values", _OF)
WANTED = Metric("paddle_pserver_wanted_trainers", "trainers of the job", _OF)
JOINED = Metric("paddle_pserver_joined_trainers", "trainers that have joined and not left", _OF)
CONNECTIONS = Metric("paddle_pserver_connections", "open connections, two of each trainer and those of strangers", _OF)
QUEUE = Metric("paddle_pserver_queue_messages", "parts of messages that the other sides have not taken yet", _OF)
RECEIVED = Metric("paddle_pserver_received_bytes_total", "read from connections; not what shared memory brought", _OF)
SENT = Metric("paddle_pserver_sent_bytes_total", "written to connections; not what shared memory brought", _OF)
DROPPED = Metric("paddle_pserver_dropped_messages_total", "messages that were none, or of strangers", _OF)
ROUNDS = Metric("paddle_pserver_rounds_total", "rounds of synchronous training that are done", _OF)
ROUND_SECONDS = Metric(
    "paddle_pserver_round_seconds_total", "from the first piece of a round that came to its end, of all rounds", _OF
)
STEP_SECONDS = Metric("paddle_pserver_step_seconds_total", "in the optimiser", _OF)
PASSES = Metric("paddle_pserver_passes_total", "passes that all trainers have finished", _OF)
WAITED = Metric(
    "paddle_pserver_wait_seconds_total",
    "that the other trainers waited for this one, in the rounds in which it was the last",
    _BY,
)
SILENCE = Metric("paddle_pserver_silence_seconds", "since the trainer's last gradient, inside of a pass", _BY)
GRADIENTS = Metric("paddle_pserver_async_gradients_total", "gradients of asynchronous training that came", _BY)
DISCARDED = Metric("paddle_pserver_discarded_gradients_total", "those of them that were too old to be used", _BY)
LAG = Metric(
    "paddle_pserver_lag_steps_total",
    "steps by which they lagged, added up; by paddle_pserver_async_gradients_total, the average",
    _OF,
)
BUSY = Metric("paddle_pserver_busy_seconds_total", "that the server's loop has had something to do")
TURN = Metric("paddle_pserver_turn_age_seconds", "since the server's loop turned last; above 1 it is in one long step")

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
    ROUNDS,
    ROUND_SECONDS,
    STEP_SECONDS,
    PASSES,
    WAITED,
    SILENCE,
    GRADIENTS,
    DISCARDED,
    LAG,
    BUSY,
    TURN,
)


class Readings:
    """A server process as others see it.

    Args: stuck_timeout: seconds.
    """

    def __init__(self, server: Server, stuck_timeout: float, pulse: Pulse = PULSE) -> None:
        self._server, self._stuck_timeout, self._pulse = server, stuck_timeout, pulse

    def why_stuck(self) -> str:
        """Return "" if the loop has turned lately."""
        age = self._pulse.age
        return f"the loop of the pserver has not turned for {age:.0f} s" if age > self._stuck_timeout else ""

    def why_not_ready(self) -> str:
        """Return "" if all ports are bound and those that trainers use, which sparse ones need not be, have values."""
        server = self._server
        if len(server.ports) < len(server.services):
            return "the ports are not bound"
        used = [service for service in server.services if service.is_used]
        without = [service.identity.name for service in used if service.rounds is None]
        if not used:
            return "no trainer has joined yet"
        return f"no values yet on {', '.join(without)}" if without else ""

    def read(self) -> Iterator[Sample]:
        """Yield what is known now."""
        server = self._server
        first = server.options
        yield describe_build("pserver", first.job, first.attempt)
        yield Sample(BUSY, server.busy_seconds)
        yield Sample(TURN, self._pulse.age)
        for service in server.services:
            yield from _read_service(service, self._pulse.turned)
        for port in list(server.ports):
            yield from _read_port(port)


def _read_port(port: Port) -> Iterator[Sample]:
    of = (port.service.identity.name,)
    unsent = port.list_unsent()
    yield Sample(CONNECTIONS, len(unsent), of)
    yield Sample(QUEUE, sum(unsent), of)
    yield Sample(RECEIVED, port.traffic.received, of)
    yield Sample(SENT, port.traffic.sent, of)


def _read_service(service: Service, now: float) -> Iterator[Sample]:
    name, tally, rounds = service.identity.name, service.tally, service.rounds
    of = (name,)
    trainers = list(service.trainers.values())
    yield Sample(READY, rounds is not None, of)
    yield Sample(WANTED, service.identity.num_trainers, of)
    yield Sample(JOINED, sum(not trainer.has_left for trainer in trainers), of)
    yield Sample(DROPPED, service.malformed, of)
    yield Sample(ROUNDS, tally.rounds, of)
    yield Sample(ROUND_SECONDS, tally.round_seconds, of)
    yield Sample(STEP_SECONDS, tally.step_seconds, of)
    yield Sample(PASSES, tally.passes, of)
    waited = dict(service.stragglers.waited)
    for trainer in trainers:
        by = (name, label_of(trainer.number))
        yield Sample(WAITED, waited.get(trainer.number, 0.0), by)
        if trainer.number < MOST_TRAINERS:  # the silence of several at once would be nobody's
            is_training = service.in_pass and not trainer.has_finished_pass
            yield Sample(SILENCE, max(0.0, now - trainer.pushed) if is_training else 0.0, by)
    if rounds is not None and rounds.is_asynchronous:
        lag = rounds.lag
        yield Sample(LAG, lag.age, of)
        for number, (came, discarded) in enumerate(zip(lag.gradients, lag.discarded, strict=True)):
            by = (name, label_of(number))
            yield Sample(GRADIENTS, came, by)
            yield Sample(DISCARDED, discarded, by)
