"""A request through the compiled exchange and through the connections: the same bytes, values, errors and breaks.

The services are the other ends of socket pairs. They send what a test tells them, in parts of any length.
"""

import contextlib
import itertools
import signal
import socket
from dataclasses import dataclass, field

import numpy as np
import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.kernels import exchange as kernel
from paddle_base.runtime.errors import ConfigError, LostPeerError, PaddleError
from pserver.client.client import Client
from pserver.client.connection import ServerConnection
from pserver.client.membership import ModelSetup
from pserver.client.server_channel import SenderId, ServerChannel, VectorLayout
from pserver.client.tasks.requests import CommitValues, CountedPush, RoundPush
from pserver.optim.settings import ParameterSpec
from pserver.store import partition
from pserver.wire import protocol
from pserver.wire.authentication import NO_KEYS, MessageKeys
from pserver.wire.connection import Connection, ConnectionLimits, Pool
from pserver.wire.protocol import Message, MessageFlag, Op
from pserver.wire.shared_memory import SharedMemory

KEYS = MessageKeys(b"from the client", b"from the server")
SENDER = SenderId(b"session.", 3)
PARAMETERS = [ParameterSpec("w", 7001), ParameterSpec("b", 3), ParameterSpec("v", 2500)]  # blocks of 1,024 elements
SIZE = 9504
PIECE_BYTES = 4096 + 400  # pieces end in the middle of blocks
FORMS = ["compiled", "plain"]


@dataclass
class Service:
    """The other end of a channel's connection."""

    stream: socket.socket
    channel: ServerChannel
    keys: MessageKeys
    memory: SharedMemory | None = None
    received: bytearray = field(default_factory=bytearray)

    def read(self):
        """Read what has come so far."""
        with contextlib.suppress(OSError):  # nothing more has come, or the client has broken the connection
            while data := self.stream.recv(1 << 16):
                self.received += data

    def answer(self, piece, values=None, flags=MessageFlag.ANSWER, op=Op.PUSH, **more):
        """The bytes of an answer with these elements of the service's vector."""
        channel, payload, argument = self.channel, [], 0
        if values is not None:
            part = protocol.cut(values.view("B").data, piece)
            if self.memory is None:
                payload = [part]
            else:
                flags, argument = flags | MessageFlag.LOCAL, len(part)
                protocol.cut(self.memory.inbox, piece)[: len(part)] = part
        values = {
            "sequence": channel.sequence,
            "argument": argument,
            "flags": flags,
            "payload": payload,
            "piece": piece,
        }
        message = Message(**{"op": op, "session": SENDER.session, "trainer": SENDER.trainer, **values, **more})
        return b"".join(protocol.encode(message, self.keys.receiving))

    def answers(self, values, order=None, **more):
        pieces = range(self.channel.layout.pieces) if order is None else order
        return b"".join(self.answer(piece, values, **more) for piece in pieces)


class Job:
    """A client and its services."""

    def __init__(self, services=2, keys=NO_KEYS, *, is_local=False, buffer=None):
        self.client = Client([("h", 1)] * services, trainer_id=3, num_trainers=4)
        self.services, channels = [], []
        for ranges in partition.layout(PARAMETERS, services):
            own, other = socket.socketpair()
            for one in (own, other):
                one.setblocking(False)
                if buffer:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
            connection = ServerConnection("h", 1, b"n" * 17, "")
            connection.begin = lambda now: 0.0  # a broken connection is not made again
            connection.keys = keys
            channel = ServerChannel(connection, VectorLayout(partition.find_runs(PARAMETERS, ranges)), SENDER, Pool())
            connection.established = Connection(own, connection.place, ConnectionLimits(1 << 16, 1 << 20))
            memory = None
            if is_local:
                channel.memory = SharedMemory.make(4 * channel.layout.size)
                memory = SharedMemory.open(channel.memory.offer)
            channels.append(channel)
            self.services.append(Service(other, channel, keys, memory))
        self.client._model = ModelSetup(PARAMETERS, {})
        self.client._use(channels)
        rng = np.random.default_rng(services)
        self.gradient, self.values = rng.standard_normal(SIZE, np.float32), np.zeros(SIZE, np.float32)
        self.news = [rng.standard_normal(one.channel.layout.size, np.float32) for one in self.services]

    def close(self):
        self.client.close()
        for service in self.services:
            service.stream.close()

    def turn(self):
        """Let the client and the services send and receive what is possible at once."""
        for _ in range(3):
            self.client._exchange.advance(self.client._request, 0)
            for service in self.services:
                service.read()

    def pending(self):
        return [sorted(service.channel.pending) for service in self.services]

    def breaks(self):
        return [service.channel.connection.breaks for service in self.services]

    def new_values(self):
        """The values that the services' answers make."""
        values = np.zeros(SIZE, np.float32)
        for service, news in zip(self.services, self.news, strict=True):
            for piece in range(service.channel.layout.pieces):
                service.channel.layout.scatter(protocol.cut(news.view("B").data, piece), values, piece)
        return values


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(protocol, "PIECE_BYTES", PIECE_BYTES)


pytestmark = pytest.mark.usefixtures("small_pieces")


@contextlib.contextmanager
def job_of(form, **options):
    """A job whose client uses the compiled exchange, or only the connections."""
    if form == "compiled" and not kernel.IS_COMPILED:
        pytest.skip("the compiled module is not built here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "IS_COMPILED", form == "compiled")
        made = Job(**options)
        try:
            yield made
        finally:
            made.close()


def both(run):
    """The results of a function for both forms, which have to be equal."""
    compiled, plain = [run(form) for form in FORMS]
    assert compiled == plain
    return compiled


def count_calls(monkeypatch):
    """A list that gets the status of each compiled exchange."""
    found, exchange = [], kernel.exchange

    def call(*args):
        found.append(exchange(*args))
        return found[-1]

    monkeypatch.setattr(kernel, "exchange", call)
    return found


# ----- What is expected


@each("keys, is_local", [(NO_KEYS, False), (KEYS, False), (NO_KEYS, True), (KEYS, True)])
def test_a_round_has_the_same_bytes_and_values_in_both_forms(keys, is_local):
    def run(form):
        with job_of(form, services=3, keys=keys, is_local=is_local) as job:
            sent = []
            for _ in range(2):
                for service, news in zip(job.services, job.news, strict=True):
                    service.channel.sequence += 1  # of the request that follows
                    service.stream.sendall(service.answers(news))
                    service.channel.sequence -= 1
                assert not job.client.push_pull(job.gradient, job.values, 5)
                for service in job.services:
                    service.read()
                    sent.append(bytes(service.received))
                    service.received.clear()
                    if is_local:
                        sent.append(bytes(service.memory.outbox))
                assert job.values.tobytes() == job.new_values().tobytes()
                job.news = [news + 1 for news in job.news]
            return sent

    sent = both(run)
    assert len({len(one) for one in sent}) > 1 and all(sent)


def test_a_round_whose_answers_lie_ready_is_one_call(monkeypatch):
    calls = count_calls(monkeypatch)
    with job_of("compiled", keys=KEYS) as job:
        for service, news in zip(job.services, job.news, strict=True):
            service.channel.sequence = 1
            service.stream.sendall(service.answers(news))
            service.channel.sequence = 0
        monkeypatch.setattr(job.client._exchange, "receive", None)  # the connections are not used
        monkeypatch.setattr(job.client._exchange, "_send_pieces", None)
        job.client.push_pull(job.gradient, job.values, 5)
        assert calls == [kernel.ExchangeStatus.COMPLETE]
        assert [service.channel.last for service in job.services] == ["answered 'push batch 1 of pass 0'"] * 2
        assert job.values.tobytes() == job.new_values().tobytes()


def test_other_requests_with_vectors_have_the_same_bytes_and_values():
    def requests(job):
        note = {"push": 7, "pass": 1}
        channels = job.client.channels
        yield CountedPush("push", job.gradient, job.values, 5, note), MessageFlag.ANSWER, True
        yield RoundPush("push", job.gradient, 5, note, lambda: True), MessageFlag.ANSWER | MessageFlag.PREPARED, False
        yield CommitValues("commit", note, channels, job.values), MessageFlag.ANSWER, True
        yield CommitValues("commit", note, channels[:1], job.values), MessageFlag.ANSWER, True

    def run(form):
        found = []
        with job_of(form, keys=KEYS) as job:
            for request, flags, has_values in requests(job):
                job.values[:] = 0
                job.client.begin(request)
                job.turn()
                for service, news in zip(job.services, job.news, strict=True):
                    data = service.answers(
                        news if has_values else None, sorted(service.channel.pending), flags=flags, op=request.op
                    )
                    service.stream.sendall(data)
                assert job.client.finish() & flags == flags
                found.append((job.values.tobytes(), [bytes(service.received) for service in job.services]))
        return found

    assert len(both(run)) == 4


# ----- What is not


EVENTS = ["answer", "answer", "repeated", "ping", "late", "due", "other flags", "garbage", "unsigned", "error", "fatal"]


def bytes_of(service, news, event, piece):
    """The bytes of an event on a line."""
    if event in ("answer", "repeated"):
        return service.answer(piece, news)
    if event == "due":
        return service.answer(piece, news, flags=MessageFlag.ANSWER | MessageFlag.CHECKPOINT)
    if event == "other flags":
        return service.answer(piece, news, flags=MessageFlag.ANSWER, samples=9)
    if event == "late":
        return service.answer(piece, news, sequence=service.channel.sequence - 1)
    if event == "ping":
        note = {
            "received": service.channel.sequence,
            "pieces": service.channel.layout.pieces,
            "answers": 0,
            "waits_for": "x",
        }
        return service.answer(0, op=Op.PING, note=note)
    if event == "garbage":
        return b"PDLQ" + bytes(100)
    if event == "unsigned":
        return service.answer(piece, news)[:60] + b"XXXX" + service.answer(piece, news)[64:]
    flags = MessageFlag.ANSWER | (MessageFlag.FATAL if event == "fatal" else 0)
    return service.answer(
        0, op=Op.ERROR, flags=flags, note={"message": "no such job", "exit_code": ConfigError.exit_code}
    )


@st.composite
def scripts(draw):
    """What each of two services sends: events, in parts of any length."""
    found = []
    for _ in range(2):
        pieces = draw(st.permutations(range(5)))
        events = [("answer", piece) for piece in pieces]
        for place, event in draw(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(EVENTS)), max_size=2)):
            events.insert(place, (event, draw(st.integers(0, 4))))
        cuts = draw(st.lists(st.integers(1, 30_000), max_size=12))
        found.append((events, cuts, draw(st.booleans())))
    return found


def elements_of(channel, values, piece):
    """The elements of a piece, in the order of the service's vector."""
    found = bytearray(len(protocol.cut(bytes(4 * channel.layout.size), piece)))
    channel.layout.copy(values, piece, memoryview(found))
    return bytes(found)


@settings(deadline=None, max_examples=150)
@given(script=scripts(), keys=st.sampled_from([NO_KEYS, KEYS]), is_local=st.booleans())
def test_whatever_arrives_in_whatever_parts_has_the_same_end_in_both_forms(script, keys, is_local):
    def run(form):
        with job_of(form, keys=keys, is_local=is_local) as job:
            job.client.begin_push(job.gradient, job.values, 5)
            parts = []
            for service, news, (events, cuts, ends) in zip(job.services, job.news, script, strict=True):
                events = [one for one in events if one[1] < service.channel.layout.pieces]
                data = b"".join(bytes_of(service, news, *event) for event in events)
                cuts = sorted({cut % max(len(data), 1) for cut in cuts} | {0, len(data)})
                parts.append(([data[a:b] for a, b in itertools.pairwise(cuts)], ends))
            error = ""
            try:
                job.turn()
                for number in range(max(len(own) for own, _ in parts)):
                    for service, (own, _) in zip(job.services, parts, strict=True):
                        with contextlib.suppress(OSError):  # the client has broken the connection
                            service.stream.sendall(own[number] if number < len(own) else b"")
                    job.turn()
                for service, (_, ends) in zip(job.services, parts, strict=True):
                    if ends:
                        service.stream.shutdown(socket.SHUT_WR)
                job.turn()
            except PaddleError as exc:
                error = f"{type(exc).__name__}: {exc}"
            if error:
                return [error]
            found = []
            for service, (events, _, _) in zip(job.services, script, strict=True):
                channel = service.channel
                found.append(channel.connection.breaks)
                # how many of the answers that follow an unsigned one count depends on how they arrive
                if not any(event == "unsigned" for event, _ in events):
                    taken = set(range(channel.layout.pieces)) - channel.pending
                    found.append([elements_of(channel, job.values, piece) for piece in sorted(taken)])
                    found.append(b"" if channel.connection.breaks else bytes(service.received))
            return found

    both(run)


@each("form", FORMS)
def test_the_begin_of_a_head_that_came_before_is_parsed_once(form):
    """The connection kept it after the exchange had used it, and took the next message for garbage."""
    with job_of(form) as job:
        job.client.begin_push(job.gradient, job.values, 5)
        first, second = job.services
        second.stream.sendall(second.answers(job.news[1]))
        data = first.answers(job.news[0])
        first.stream.sendall(data[:1])
        job.turn()
        first.stream.sendall(data[1:])
        job.turn()
        assert job.pending() == [[], []]
        first.stream.sendall(bytes_of(first, job.news[0], "ping", 0))
        job.turn()
        assert first.channel.waits_for == "x" and job.breaks() == [0, 0]


@each("cut", [1, 63, 64, 65, 64 + 100, 64 + PIECE_BYTES - 1, 64 + PIECE_BYTES + 10])
def test_a_line_that_ends_anywhere_is_broken_and_its_pieces_stay_pending(cut):
    def run(form):
        with job_of(form, keys=KEYS) as job:
            job.client.begin_push(job.gradient, job.values, 5)
            job.turn()
            first, second = job.services
            first.stream.sendall(first.answers(job.news[0])[:cut])
            job.turn()
            first.stream.shutdown(socket.SHUT_WR)
            second.stream.sendall(second.answers(job.news[1]))
            job.turn()
            return job.pending(), job.breaks(), first.channel.connection.established is None

    pending, breaks, is_broken = both(run)
    assert breaks == [1, 0] and pending[1] == [] and is_broken
    assert pending[0][0] == (1 if cut >= 64 + PIECE_BYTES else 0)


def test_bytes_that_a_slow_service_has_not_read_are_sent_by_the_connection():
    def run(form):
        with job_of(form, keys=KEYS, buffer=1) as job:
            job.client.begin_push(job.gradient, job.values, 5)
            job.client.send()
            first, second = job.services
            assert first.channel.connection.established.unsent and not first.channel.unsent
            while first.channel.connection.established.unsent or second.channel.connection.established.unsent:
                job.turn()
            return [bytes(service.received) for service in job.services]

    assert all(len(one) > 10_000 for one in both(run))


def test_pieces_that_were_pushed_early_and_are_not_sent_yet_come_first():
    def run(form):
        with job_of(form, keys=KEYS, buffer=1) as job:
            job.client.begin_push(job.gradient, job.values, 5)
            job.client.push_from(0)
            for _ in range(50):
                job.turn()
            return [bytes(service.received) for service in job.services]

    assert all(len(one) > 10_000 for one in both(run))


def test_a_slow_answer_ends_at_the_deadline_with_an_error_that_names_the_service(monkeypatch):
    calls = count_calls(monkeypatch)
    monkeypatch.setattr("pserver.client.client.ASK_INTERVAL", 0.0)
    monkeypatch.setattr("pserver.client.client.POLL_INTERVAL", 0.01)
    with job_of("compiled", keys=KEYS) as job:
        first, second = job.services
        second.channel.sequence = 1
        second.stream.sendall(second.answers(job.news[1]))
        second.channel.sequence = 0
        job.client.begin_push(job.gradient, job.values, 5)
        with pytest.raises(
            LostPeerError, match=r"trainer 3 waited 0 s to push batch 1 of pass 0: pserver h:1 does not answer"
        ):
            job.client.collect(0.05)
        assert calls and set(calls) == {kernel.ExchangeStatus.TIMEOUT}
        assert job.pending() == [list(range(first.channel.layout.pieces)), []]
        assert bytes(first.received) == b""
        first.read()
        assert Op.PING in [
            first.received[at + 6] for at in range(len(first.received) - 64) if first.received[at : at + 4] == b"PDLP"
        ]


def test_a_signal_ends_the_wait_at_once():
    class Stop(Exception):
        pass

    def stop(number, frame):
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with job_of("compiled") as job:
            job.client.begin_push(job.gradient, job.values, 5)
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(Stop):
                job.client._exchange.advance(job.client._request, 60.0)
            assert job.pending() == [list(range(one.channel.layout.pieces)) for one in job.services]
            signal.setitimer(signal.ITIMER_REAL, 0)
            for service, news in zip(job.services, job.news, strict=True):
                service.stream.sendall(service.answers(news))
            job.client.finish()
            assert job.values.tobytes() == job.new_values().tobytes()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
