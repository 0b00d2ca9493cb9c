"""What is lost, wrong or hostile: noticed in time, named, and never a changed bit."""

import contextlib
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

from paddle_base.runtime.errors import HELD_PORT, ConfigError, LostPeerError, PeerUnreachableError
from pserver.client.client import count_trainers
from pserver.client.server_channel import ServerChannel
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.server.admission import Identity
from pserver.server.listener import ADMISSION_TIMEOUT, MAX_UNAUTHENTICATED, Listener, bind_port
from pserver.server.service import Service
from pserver.wire import protocol
from pserver.wire.authentication import DATA, HEARTBEAT, PROBE, VERSION, ClientHandshake
from pserver.wire.protocol import Message, Op

TRAINER = """
import sys, numpy as np
from pserver.client.client import Client
from pserver.optim.settings import Optimization, ParameterSpec
host, port, number, total = sys.argv[1], *map(int, sys.argv[2:5])
one = Client([(host, port)], trainer_id=number, num_trainers=total, peer_timeout=2.0)
one.join([ParameterSpec("w", 4)], Optimization())
values = np.zeros(4, np.float32)
one.initialise(values)
one.start_pass()
print("in the pass", flush=True)
one.push_pull(np.ones(4, np.float32), values, 1)
print("pushed", flush=True)
sys.stdin.readline()
one.finish_pass(values)
sys.stdin.readline()
"""
SHORT = {"PADDLE_PEER_TIMEOUT": "2"}
WEIGHT = [ParameterSpec("w", 4)]


@pytest.fixture
def process():
    """Trainers as processes, so that they can be killed or stopped."""
    started = []

    def start(server, number, total):
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", TRAINER, server.host, str(server.port), str(number), str(total)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate(timeout=30)


def begin(client, server, number=0, total=1, **options):
    """A trainer in the first pass of a job of one small parameter; returns it with its values."""
    one = client(server.services, number, total, **options)
    one.join(WEIGHT, Optimization())
    values = np.zeros(4, np.float32)
    one.initialise(values)
    one.start_pass()
    return one, values


# ----- Lost peers -----


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_trainer_that_is_gone_is_noticed_by_everyone_and_named(pserver, client, crowd, process, number):
    server = pserver(trainers=3, environ=SHORT)
    lost = process(server, 1, 3)
    for trainer in (0, 2):
        crowd.start(trainer, lambda trainer=trainer: push_two(client, server, trainer))
    assert lost.stdout.readline() == "in the pass\n" and lost.stdout.readline() == "pushed\n"
    os.kill(lost.pid, number)
    crowd.join()
    assert server.wait() == 75
    for trainer in (0, 2):
        error = crowd.errors[trainer]
        assert isinstance(error, LostPeerError), error
        assert re.search(r"trainer 1 at 127\.0\.0\.1 is lost: .*it last pushed batch 1 of pass 0", str(error))
    assert "trainer 1 at 127.0.0.1 is lost" in server.text()


@pytest.mark.parametrize(("source", "named"), [("127.0.0.6", "127.0.0.6"), ("10.0.0.1", "127.0.0.1")])
def test_a_trainer_is_named_by_the_address_of_its_own_pod(pserver, client, source, named):
    """On one machine all pods were 127.0.0.1, which the system chooses; an address that does not go is not taken."""
    server = pserver()
    one, _ = begin(client, server, source=source)
    one.abort("a test")
    server.wait()
    assert f"trainer 0 at {named} gave up: a test" in server.text()
    assert f"worker started, peer = {named}" in server.text()


def test_a_server_that_is_not_there_is_named_after_two_seconds(client, capfd):
    """The first line came after 30 s, as in other waits."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        one = client([free.getsockname()], connect_timeout=3.5)
        with pytest.raises(PeerUnreachableError):
            one.join(WEIGHT, Optimization())
    text = (
        r"has waited (\d) s to join: pserver 127\.0\.0\.1:\d+ does not answer; start `paddle pserver` there, or correct"
    )
    assert re.findall(text, capfd.readouterr().err) in (["2"], ["3"])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "accepts connections, but does not answer: another program, such as a web server, may have this port"),
        (b"HTTP/1.0 400 Bad request\r\n\r\n", r"it begins with b'HTTP' instead of .*; it is a web server"),
    ],
)
def test_another_program_at_the_port_is_told_apart_from_a_server_that_is_not_there(client, answer, message):
    """Both were "does not answer"."""

    def serve(other):
        with other.accept()[0] as stream:
            stream.recv(100)
            stream.sendall(answer)
            stream.recv(100)

    with socket.create_server(("127.0.0.1", 0)) as other:
        if answer:
            threading.Thread(target=serve, args=[other]).start()
        one = client([other.getsockname()], connect_timeout=0.5)
        with pytest.raises(PeerUnreachableError, match=message):
            one.join(WEIGHT, Optimization())


def push_two(client, server, trainer):
    one, values = begin(client, server, trainer, 3)
    one.push_pull(np.ones(4, np.float32), values, 1)
    one.push_pull(np.ones(4, np.float32), values, 1)


def test_the_last_trainer_that_is_lost_is_no_goodbye(pserver, client, crowd, process):
    """When all others had left, the server ended with 0, and its pod succeeded though trainer 0 had not saved."""
    server = pserver(trainers=2, environ=SHORT)
    lost = process(server, 0, 2)

    def train():
        one, values = begin(client, server, 1, 2)
        one.push_pull(np.ones(4, np.float32), values, 1)
        lost.stdin.write("finish the pass\n")
        lost.stdin.flush()
        one.finish_pass(values)
        one.goodbye()

    crowd.start(1, train)
    crowd.join()
    assert crowd.errors == {}
    lost.kill()
    assert server.wait() == 75
    assert "trainer 0" in server.text() and "all trainers have said goodbye" not in server.text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_server_that_is_gone_is_noticed_and_named_with_what_it_last_did(pserver, client, crowd, number):
    server = pserver(trainers=2)
    one, values = begin_alone(client, server, crowd, peer_timeout=5.0)
    crowd.start(0, one.push_pull, np.ones(4, np.float32), values, 1)
    os.kill(server.process.pid, number)
    crowd.join()
    assert isinstance(crowd.errors[0], LostPeerError)
    named = rf"pserver 127\.0\.0\.1:{server.port} is lost: .*last answered 'start pass 0'"
    assert re.search(named, str(crowd.errors[0]))


def begin_alone(client, server, crowd, **options):
    """Trainer 0 in a pass with a trainer 1 that says nothing more."""
    crowd.start("other", begin, client, server, 1, 2)
    begun = begin(client, server, 0, 2, **options)
    crowd.join()
    return begun


def test_a_server_that_dies_while_the_trainer_computes_is_seen_at_the_next_call(pserver, client, tools):
    server = pserver()
    one, values = begin(client, server)
    server.process.kill()
    tools.until(lambda: one.member.failure, "the heartbeat")
    with pytest.raises(LostPeerError, match="is lost"):
        one.push_pull(np.ones(4, np.float32), values, 1)


def test_a_restarted_server_does_not_know_the_trainer(pserver, client, tools):
    server = pserver()
    one, values = begin(client, server)
    server.process.kill()
    server.process.wait(tools.deadline)
    pserver(port=server.port)
    with pytest.raises(LostPeerError, match=r"restarted|is lost"):
        one.push_pull(np.ones(4, np.float32), values, 1)


def test_a_trainer_that_gives_up_names_its_reason_to_the_others(pserver, client, crowd):
    server = pserver(trainers=2)
    one, values = begin_alone(client, server, crowd)
    other = crowd.results["other"][0]
    crowd.start(0, one.push_pull, np.ones(4, np.float32), values, 1)
    other.abort("dataprovider_bow.py:31 raised ValueError: no such word")
    crowd.join()
    assert "trainer 1 at 127.0.0.1 gave up: dataprovider_bow.py:31 raised ValueError" in str(crowd.errors[0])
    assert server.wait() == 75


def test_a_trainer_that_fails_while_it_joins_tells_the_others_why(pserver, client, crowd):
    """The second server is missing; the first one, which both had joined, spreads the word."""
    server = pserver(trainers=2)
    services = [*server.services, ("127.0.0.9", server.port)]
    one, other = client(services, 0, 2), client(services, 1, 2, connect_timeout=1.0)
    crowd.start(0, one.join, WEIGHT, Optimization())
    with pytest.raises(PeerUnreachableError, match=rf"127\.0\.0\.9:{server.port} does not answer") as caught:
        other.join(WEIGHT, Optimization())
    other.abort(str(caught.value))
    crowd.join()
    assert isinstance(crowd.errors[0], LostPeerError)
    assert re.search(r"trainer 1 at 127\.0\.0\.1 gave up: .*127\.0\.0\.9:\d+ does not answer", str(crowd.errors[0]))
    assert server.wait() == 75


def test_a_slow_trainer_is_waited_for_while_it_lives(pserver, client, crowd):
    """Heartbeats come from a thread of their own: more than peer_timeout of computing is no loss."""
    server = pserver(trainers=2, environ=SHORT)
    one, values = begin_alone(client, server, crowd)
    other, _ = crowd.results["other"]
    crowd.start(0, one.push_pull, np.ones(4, np.float32), values, 1)
    crowd.threads[-1].join(3.0)
    assert crowd.threads[-1].is_alive()
    other.push_pull(np.ones(4, np.float32), np.zeros(4, np.float32), 1)
    crowd.join()
    assert crowd.errors == {} and values.tolist() == [-2] * 4


def test_every_wait_has_a_deadline_and_says_whom_it_waits_for(pserver, client, crowd):
    server = pserver(trainers=2)
    crowd.start(1, begin, client, server, 1, 2)
    one, values = begin(client, server, 0, 2, wait_timeout=3.0)
    crowd.join()
    with pytest.raises(LostPeerError, match=r"waited 3 s to push batch 1 of pass 0: .*waits for trainer 1 at 127"):
        one.push_pull(np.ones(4, np.float32), values, 1)


def test_a_server_that_is_not_there_is_unreachable(client, tools):
    one = client([("127.0.0.1", tools.find_ports(1))], connect_timeout=0.5)
    with pytest.raises(PeerUnreachableError, match=r"join: pserver 127\.0\.0\.1:\d+ does not answer"):
        one.join(WEIGHT, Optimization())


def test_a_trainer_asks_a_server_for_the_number_of_trainers_before_it_joins(pserver):
    server = pserver(trainers=3, environ={"PADDLE_JOB_NAME": "a", "PADDLE_SECRET": "hush"})
    options = {"trainer_id": 1, "num_trainers": 1, "connect_timeout": 20.0}
    assert count_trainers(server.services[0], **options, job="a", secret="hush") == 3
    for wrong in ({"job": "b", "secret": "hush"}, {"job": "a", "secret": "guess"}):
        with pytest.raises(PeerUnreachableError, match="trainer 1"):
            count_trainers(server.services[0], **options, **wrong)
    assert "joined" not in server.text()


def test_a_trainer_waits_for_a_server_that_starts_late(pserver, client, crowd, tools):
    port = tools.find_ports(1)
    one = client([("127.0.0.1", port)])
    crowd.start(0, one.join, WEIGHT, Optimization())
    pserver(port=port)
    crowd.join()
    assert crowd.errors == {}


# ----- Refusals -----


@pytest.mark.parametrize(
    "options, kind, parts",
    [
        ({"job": "other"}, PeerUnreachableError, ["job 'a'", "job 'other'"]),
        ({"attempt": "0"}, PeerUnreachableError, ["attempt '1'", "attempt '0'"]),
        ({"secret": "guess"}, PeerUnreachableError, ["PADDLE_SECRET"]),
        ({"num_trainers": 3}, ConfigError, ["num_gradient_servers = 2", "num_gradient_servers = 3"]),
        ({"trainer_id": 2}, ConfigError, ["trainers 0 to 1"]),
        ({"trainer_id": 0}, ConfigError, ["two trainers with one id"]),
        ({"services": 2}, ConfigError, ["of 2", "of 1", "trainer 0 at"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_trainer_of_another_kind_is_refused_by_name_and_the_job_goes_on(pserver, client, options, kind, parts):
    server = pserver(trainers=2, environ={"PADDLE_JOB_NAME": "a", "PADDLE_ATTEMPT": "1", "PADDLE_SECRET": "hush"})
    right = {"job": "a", "attempt": "1", "secret": "hush"}
    client(server.services, 0, 2, **right).join(WEIGHT, Optimization())
    services = server.services * options.pop("services", 1)
    wrong = client(services, **{"trainer_id": 1, "num_trainers": 2} | right | options)
    with pytest.raises(kind) as caught:
        wrong.join(WEIGHT, Optimization())
    assert all(part in str(caught.value) for part in [*parts, f"127.0.0.1:{server.port}"]), caught.value
    assert "guess" not in server.text() and "hush" not in server.text()
    client(server.services, 1, 2, **right).join(WEIGHT, Optimization())


def test_other_parameters_or_another_dtype_are_refused(pserver, client, monkeypatch):
    server = pserver(trainers=2)
    client(server.services, 0, 2).join(WEIGHT, Optimization())
    with pytest.raises(ConfigError, match=r"another parameter digest than trainer 0 at 127\.0\.0\.1"):
        client(server.services, 1, 2).join([ParameterSpec("w", 5)], Optimization())
    monkeypatch.setattr(protocol, "DTYPE", "float64")
    with pytest.raises(ConfigError, match=r"stores float32; trainer 1 .* has 'float64'"):
        client(server.services, 1, 2).join(WEIGHT, Optimization())


def version_3(op, flags=0, note=b""):
    """A message as version 3 made it; its first eight bytes mean the same in every version."""
    return struct.pack("<4sHBB8siIQqQII8s", b"PDLP", 3, op, flags, b"", -1, len(note), 0, 0, 0, 0, 0, b"") + note


def test_a_client_of_version_3_is_told_so_by_both_sides(pserver, raw_peer):
    server = pserver()
    old = raw_peer(server)
    old.say(version_3(12, note=b'{"connection":"00"}') + version_3(1, note=b'{"job":""}'))
    answer = b"".join(iter(lambda: old.stream.recv(4096), b""))
    assert len(answer) == 64 and answer[:8] == b"PDLP\x06\0\x00\x01"  # as version 3 reads it: an ERROR of version 6
    assert "it speaks protocol version 3, this program speaks version 6" in server.text()


def test_a_server_of_version_3_is_named_by_its_client(client, tools):
    with socket.create_server(("127.0.0.1", 0)) as old:

        def refuse():
            stream, _ = old.accept()
            with stream:
                assert stream.recv(8)[:6] == b"PDLP\x06\0"
                note = b'{"message":"the message is of protocol version 6, this program speaks version 3"}'
                stream.sendall(version_3(0, 1, note))
                stream.recv(4096)

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        with pytest.raises(PeerUnreachableError, match="speaks protocol version 3, this program speaks version 6"):
            client([old.getsockname()]).join(WEIGHT, Optimization())
        thread.join(tools.deadline)


def test_another_number_of_passes_ends_the_job_with_a_config_error(pserver, train, crowd, tools):
    server = pserver(trainers=2)
    gradients = tools.gradients(2, 1)
    crowd.start(0, train, server.services, 0, 2, [gradients[0]])
    crowd.start(1, train, server.services, 1, 2, [gradients[1], gradients[1]])
    crowd.join()
    assert isinstance(crowd.errors[1], ConfigError) and "num_passes" in str(crowd.errors[1])
    assert server.wait() == 78


def test_a_method_that_is_not_supported_is_refused_by_the_server_too(pserver, client):
    one = client(pserver().services)
    one.join(WEIGHT, Optimization("owlqn"))
    with pytest.raises(ConfigError, match="owlqn"):
        one.initialise(np.zeros(4, np.float32))


# ----- Hostile and lost messages -----


class Stranger:
    """A plain connection that may say anything."""

    def __init__(self, server):
        self.server, self.stream = server, None
        self.open()

    def open(self):
        self.close()
        self.stream = socket.create_connection((self.server.host, self.server.port), 30)

    def enter(self, name):
        """Prove what there is to prove where there is no secret, as anybody can."""
        caller = ClientHandshake("", name, bytes(32))
        self.say(caller.greeting)
        while caller.wanted:
            self.say(caller.feed(self.stream.recv(caller.wanted)))
        assert not caller.fault
        return self

    def close(self):
        if self.stream is not None:
            self.stream.close()

    def say(self, data):
        """Send, and open a new connection if the server has had enough of this one."""
        try:
            self.stream.sendall(data)
        except OSError:
            self.open()

    def answers(self):
        """All messages that come until the server closes."""
        data = b"".join(iter(lambda: self.stream.recv(65536), b""))
        messages = []
        while data:
            note, payload = protocol.measure(data[: protocol.HEADER_BYTES])
            end = protocol.HEADER_BYTES + note
            messages.append(protocol.decode([data[: protocol.HEADER_BYTES], data[protocol.HEADER_BYTES : end]]))
            data = data[end + payload :]
        return messages


@pytest.fixture
def raw_peer():
    """Make connections; they are closed in the end."""
    made = []

    def start(server):
        made.append(Stranger(server))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_fuzz_in_the_middle_of_a_round_leaves_the_parameters_bit_equal(pserver, client, crowd, raw_peer):
    server = pserver(trainers=2)
    one, values = begin_alone(client, server, crowd)
    other, _ = crowd.results["other"]
    crowd.start(0, one.push_pull, np.full(4, 0.1, np.float32), values, 1)
    random = np.random.default_rng(4)
    session = protocol.session_of("", "")
    hostile = raw_peer(server)
    for _ in range(300):
        push = protocol.encode(
            Message(
                Op(random.choice(list(Op))),
                session,
                int(random.integers(-1, 3)),
                int(random.integers(0, 9)),
                payload=[b"\xff" * 16] if random.random() < 0.5 else [],
            )
        )
        data = bytearray(b"".join(push))
        if random.random() < 0.5:
            for _ in range(3):
                data[random.integers(0, len(data))] = random.integers(0, 256)
        hostile.say(data[: random.integers(1, len(data) + 1)] if random.random() < 0.2 else data)
    hostile.open()
    hostile.say(b"GET / HTTP/1.1\r\n\r\n" + random.bytes(1000))
    hostile.stream.shutdown(socket.SHUT_WR)
    assert [answer.op for answer in hostile.answers()] == [Op.ERROR]
    other.push_pull(np.full(4, 0.2, np.float32), values2 := np.zeros(4, np.float32), 1)
    crowd.join()
    assert crowd.errors == {}
    expected = np.float32(0) - (np.float32(0.1) + np.float32(0.2))
    assert values.tobytes() == values2.tobytes() == np.full(4, expected, np.float32).tobytes()
    for trainer in (one, other):
        crowd.start(trainer, trainer.finish_pass, values)
    crowd.join()
    one.goodbye()
    other.goodbye()
    assert server.wait() == 0


@pytest.mark.parametrize(
    "note, payload, part",
    [
        (0, 1 << 62, "payload of 4611686018427387904"),
        (65537, 0, "note of 65537"),
        (8193, 0, "note of 8193"),
        (0, 1, "payload of 1 "),
    ],
)
def test_a_length_over_an_unjoined_peers_limit_ends_its_connection_and_nothing_else(
    pserver, client, raw_peer, note, payload, part
):
    server = pserver()
    one, values = begin(client, server)
    hostile = raw_peer(server).enter(b"s" * 16 + DATA)
    header = bytearray(protocol.encode(Message(Op.PING, protocol.session_of("", ""), 0, 1))[0])
    header[20:24], header[40:48] = note.to_bytes(4, "little"), payload.to_bytes(8, "little")
    hostile.say(header)
    assert hostile.answers() == []
    assert part in server.text() and re.search("over the limit|are not within", server.text())
    one.push_pull(np.ones(4, np.float32), values, 1)
    assert values.tolist() == [-1] * 4


@pytest.mark.parametrize("noise", [b"\x12\x00" + b"a" * 17, b"\xff" + bytes(8) + b"\x7f\x03\x00NULL", b"PDLQ"])
def test_noise_on_the_port_ends_nothing(pserver, client, raw_peer, noise):
    server = pserver()
    one, values = begin(client, server)
    hostile = raw_peer(server)
    hostile.say(noise)
    hostile.stream.shutdown(socket.SHUT_WR)
    assert [answer.op for answer in hostile.answers()] == [Op.ERROR]
    assert "dropped a message" in server.text()
    one.push_pull(np.ones(4, np.float32), values, 1)
    one.finish_pass(values)
    one.goodbye()
    assert server.wait() == 0


def test_connections_that_say_nothing_keep_no_trainer_out(pserver, train, raw_peer, tools):
    """More than may be there without having joined: the oldest go, and one that speaks is heard."""
    server = pserver()
    silent = [raw_peer(server) for _ in range(MAX_UNAUTHENTICATED + 20)]
    train(server.services, 0, 1, [tools.gradients(1, 2)[0]])
    assert [one.answers() for one in silent[:20]] == [[]] * 20
    assert server.wait() == 0


def test_a_connection_that_does_not_join_is_closed(tools):
    """It has all the time that it takes to say hello, but no more."""
    number, began = tools.find_ports(1), 100.0
    with contextlib.closing(select.epoll()) as poller:
        port = Listener(bind_port("127.0.0.1", number), Service(Identity("here", 1)), poller, backlog=8)
        with socket.create_connection(("127.0.0.1", number), tools.deadline) as slow:
            slow.sendall(protocol.MAGIC + VERSION.to_bytes(2, "little"))
            for _ in ("it comes", "it says something"):
                for file, events in poller.poll(tools.deadline):
                    port.handle(file, events, began)
            port.tidy(began + ADMISSION_TIMEOUT)
            slow.setblocking(False)
            with pytest.raises(BlockingIOError):
                slow.recv(1)
            port.tidy(began + ADMISSION_TIMEOUT + 0.1)
            slow.settimeout(tools.deadline)
            assert slow.recv(1) == b""
        port.close(0)


def test_a_name_that_is_used_twice_belongs_to_the_last(pserver, client, raw_peer):
    """So a trainer whose connection broke unseen by the server is heard again at once."""
    server = pserver()
    first = raw_peer(server).enter(b"p" * 16 + DATA)
    other = raw_peer(server).enter(b"p" * 16 + HEARTBEAT)
    second = raw_peer(server).enter(b"p" * 16 + DATA)
    assert first.answers() == []
    for one in (second, other):
        one.say(b"".join(protocol.encode(Message(Op.PING, bytes(8), 0, 1))))
        assert ["has no joined trainer 0" in answer.note["message"] for answer in one.answers()] == [True]


def test_a_connection_that_has_proven_itself_has_one_question_before_it_joins(pserver, raw_peer):
    server = pserver()
    one = raw_peer(server).enter(b"p" * 16 + PROBE)
    hello = b"".join(protocol.encode(Message(Op.HELLO, bytes(8), -1, 1, note={"job": "", "attempt": ""})))
    one.say(hello * 3)
    assert [answer.op for answer in one.answers()] == [Op.HELLO]


def test_a_push_sent_twice_counts_once(pserver, client, monkeypatch):
    server = pserver()
    one, values = begin(client, server)
    send = ServerChannel.send

    def twice(channel, message):
        send(channel, message)
        send(channel, message)

    monkeypatch.setattr(ServerChannel, "send", twice)
    for _ in range(3):
        one.push_pull(np.ones(4, np.float32), values, 1)
    assert values.tolist() == [-3] * 4


class Proxy:
    """A TCP relay that can lose what the server sends, and cut its connections."""

    def __init__(self, target):
        self.target, self.pairs, self.is_deaf = target, [], False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def _accept(self):
        while True:
            try:
                inner, _ = self.listener.accept()
            except OSError:
                return
            outer = socket.create_connection(("127.0.0.1", self.target))
            self.pairs.append((inner, outer))
            for source, sink, is_answer in ((inner, outer, False), (outer, inner, True)):
                self.threads.append(threading.Thread(target=self._pump, args=(source, sink, is_answer), daemon=True))
                self.threads[-1].start()

    def _pump(self, source, sink, is_answer):
        try:
            while data := source.recv(65536):
                if not (is_answer and self.is_deaf):
                    sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            end.close()

    def cut(self):
        for pair in self.pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
        self.pairs.clear()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()
        for thread in self.threads:
            thread.join(30)


@pytest.mark.parametrize("loses_answer", [False, True])
def test_a_connection_that_breaks_for_a_moment_loses_nothing(pserver, client, crowd, capsys, loses_answer):
    server = pserver()
    proxy = Proxy(server.port)
    try:
        one = client([("127.0.0.1", proxy.port)], connect_timeout=30.0)
        one.join(WEIGHT, Optimization())
        values = np.zeros(4, np.float32)
        one.initialise(values)
        one.start_pass()
        proxy.is_deaf = loses_answer
        if not loses_answer:
            proxy.cut()
        crowd.start(0, one.push_pull, np.ones(4, np.float32), values, 1)
        if loses_answer:
            crowd.threads[0].join(0.5)
            proxy.cut()
            proxy.is_deaf = False
        crowd.join()
        assert crowd.errors == {} and values.tolist() == [-1] * 4
        assert ("the request is sent again" in capsys.readouterr().err) or not loses_answer
        one.finish_pass(values)
        one.goodbye()
        assert server.wait() == 0
    finally:
        proxy.close()


# ----- The process -----


def test_sigterm_ends_a_server_with_143_and_its_trainers_hear_it(pserver, client, crowd):
    server = pserver(trainers=2)
    one, values = begin_alone(client, server, crowd)
    crowd.start(0, one.push_pull, np.ones(4, np.float32), values, 1)
    server.process.terminate()
    assert server.wait() == 143
    crowd.join()
    assert "is leaving: stopped by SIGTERM" in str(crowd.errors[0])


def test_sigterm_ends_an_idle_server_with_143(pserver):
    server = pserver()
    server.process.terminate()
    assert server.wait() == 143


def test_a_port_in_use_is_named_with_75(pserver):
    server = pserver()
    second = pserver(port=server.port)
    assert second.wait() == 75
    assert f"cannot listen on 127.0.0.1:{server.port}: {HELD_PORT}" in second.text()


@pytest.mark.parametrize("nic, part", [("no_such_nic0", "the existing names: "), ("192.0.2.77", "192.0.2.77")])
def test_a_nic_that_does_not_exist_is_named_with_78(pserver, nic, part):
    server = pserver(f"--nics={nic}")
    assert server.wait() == 78 and part in server.text().splitlines()[-1]


# ----- The probe -----


def run_probe(hosts, port, *flags, **environ):
    return subprocess.run(
        [sys.executable, "-m", "pserver", "--probe", f"--pservers={hosts}", f"--port={port}", *flags],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_probe_ends_with_0_when_all_services_answer(pserver, tools):
    port = tools.find_ports(2)
    for host in ("127.0.0.1", "127.0.0.2"):
        pserver(host=host, port=port, ports=2, trainers=2, environ={"PADDLE_JOB_NAME": "a", "PADDLE_SECRET": "hush"})
    found = run_probe(
        "127.0.0.1,127.0.0.2", port, "--ports_num=2", "--timeout=20", PADDLE_JOB_NAME="a", PADDLE_SECRET="hush"
    )
    assert found.returncode == 0, found.stderr
    assert "all 4 pservers are ready" in found.stderr


def test_the_probe_waits_for_a_server_that_starts_later(pserver, tools):
    port = tools.find_ports(1)
    waiting = subprocess.Popen(
        [sys.executable, "-m", "pserver", "--probe", f"--port={port}", "--timeout=20"], stderr=subprocess.DEVNULL
    )
    try:
        pserver(port=port)
        assert waiting.wait(tools.deadline) == 0
    finally:
        waiting.kill()
        waiting.wait(tools.deadline)


def test_the_probe_ends_with_69_and_says_what_each_server_said(pserver, tools):
    port = tools.find_ports(1)
    pserver(port=port, environ={"PADDLE_JOB_NAME": "a", "PADDLE_ATTEMPT": "1"})
    with socket.create_server(("127.0.0.2", port)):
        found = run_probe(
            "127.0.0.1,127.0.0.2,127.0.0.3", port, "--timeout=0.7", PADDLE_JOB_NAME="a", PADDLE_ATTEMPT="2"
        )
    lines = found.stderr.splitlines()
    assert found.returncode == 69 and "3 of 3 pservers are not ready after 0.7 s" in lines[0]
    assert "127.0.0.1" in lines[1] and "attempt '2'; this server has attempt '1'" in lines[1]
    assert "127.0.0.2" in lines[2] and "accepts connections, but does not answer" in lines[2]
    assert "127.0.0.3" in lines[3] and "Connection refused" in lines[3]
    assert len(lines) == 4


@pytest.mark.parametrize(
    "environ, part", [({"PADDLE_JOB_NAME": "b"}, "job 'b'"), ({"PADDLE_SECRET": "guess"}, "PADDLE_SECRET differs")]
)
def test_the_probe_names_another_job_or_secret(pserver, environ, part):
    server = pserver(environ={"PADDLE_JOB_NAME": "a", "PADDLE_SECRET": "hush"})
    found = run_probe(
        server.host, server.port, "--timeout=0.5", **{"PADDLE_JOB_NAME": "a", "PADDLE_SECRET": "hush"} | environ
    )
    assert found.returncode == 69 and part in found.stderr and "hush" not in found.stderr


def test_a_probed_server_still_serves_one_job_and_ends(pserver, train, tools):
    server = pserver(trainers=1)
    assert run_probe(server.host, server.port).returncode == 0
    train(server.services, 0, 1, [tools.gradients(1, 1)[0]])
    assert server.wait() == 0


DROPPED = """
import gc, sys
from pserver.client.client import Client
from paddle_base.runtime.errors import LostPeerError
from pserver.optim.settings import Optimization, ParameterSpec

client = Client([("127.0.0.1", int(sys.argv[1]))], trainer_id=0, num_trainers=1, peer_timeout=1.0)
client.join([ParameterSpec("w", 10)], Optimization())
print("joined", flush=True)
sys.stdin.readline()
try:
    client.start_pass()
except LostPeerError:
    del client  # as when an error, or a signal, comes in the middle of its end
    gc.collect()
"""


def test_a_client_that_nobody_closes_does_not_hold_up_the_exit(pserver):
    """Its sockets would wait for ever to deliver what a server that is gone did not take."""
    server = pserver()
    command = [sys.executable, "-c", DROPPED, str(server.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as trainer:
        try:
            assert trainer.stdout.readline() == "joined\n"
            server.process.kill()
            server.wait()
            trainer.stdin.write("go\n")
            trainer.stdin.flush()
            assert trainer.wait(30) == 0
        finally:
            trainer.kill()
