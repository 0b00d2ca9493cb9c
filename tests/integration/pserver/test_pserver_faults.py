"""What is lost, wrong or hostile: noticed in time, named, and never a changed bit."""

import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
from fuzz import peers

from paddle_base.runtime.errors import HELD_PORT, ConfigError, LostPeerError, PeerUnreachableError
from pserver.client.client import count_trainers
from pserver.client.server_channel import ServerChannel
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.wire.authentication import DATA, HEARTBEAT
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


# ----- Lost peers -----


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_trainer_that_is_gone_is_noticed_by_everyone_and_named(pserver, begin, crowd, process, number):
    server = pserver(trainers=3, environ=SHORT)
    lost = process(server, 1, 3)
    for trainer in (0, 2):
        crowd.start(trainer, lambda trainer=trainer: push_two(begin, server, trainer))
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
def test_a_trainer_is_named_by_the_address_of_its_own_pod(pserver, begin, source, named):
    """On one machine all pods were 127.0.0.1, which the system chooses; an address that does not go is not taken."""
    server = pserver()
    one, _ = begin(server.services, source=source)
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


def push_two(begin, server, trainer):
    one, values = begin(server.services, trainer, 3)
    one.push_pull(np.ones(4, np.float32), values, 1)
    one.push_pull(np.ones(4, np.float32), values, 1)


def test_the_last_trainer_that_is_lost_is_no_goodbye(pserver, begin, crowd, process):
    """When all others had left, the server ended with 0, and its pod succeeded though trainer 0 had not saved."""
    server = pserver(trainers=2, environ=SHORT)
    lost = process(server, 0, 2)

    def train():
        one, values = begin(server.services, 1, 2)
        one.push_pull(np.ones(4, np.float32), values, 1)
        lost.stdin.write("finish the pass\n")
        lost.stdin.flush()
        one.finish_pass(values)
        one.goodbye()

    crowd.start(1, train)
    crowd.end()
    lost.kill()
    assert server.wait() == 75
    assert "trainer 0" in server.text() and "all trainers have said goodbye" not in server.text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_server_that_is_gone_is_noticed_and_named_with_what_it_last_did(pserver, begin, crowd, number):
    server = pserver(trainers=2)
    one, values = begin_alone(begin, server, crowd, peer_timeout=5.0)
    crowd.start(0, one.push_pull, np.ones(4, np.float32), values, 1)
    os.kill(server.process.pid, number)
    crowd.join()
    assert isinstance(crowd.errors[0], LostPeerError)
    named = rf"pserver 127\.0\.0\.1:{server.port} is lost: .*last answered 'start pass 0'"
    assert re.search(named, str(crowd.errors[0]))


def begin_alone(begin, server, crowd, **options):
    """Trainer 0 in a pass with a trainer 1 that says nothing more."""
    crowd.start("other", begin, server.services, 1, 2)
    begun = begin(server.services, 0, 2, **options)
    crowd.join()
    return begun


def test_a_server_that_dies_while_the_trainer_computes_is_seen_at_the_next_call(pserver, begin, tools):
    server = pserver()
    one, values = begin(server.services)
    server.process.kill()
    tools.until(lambda: one.member.heartbeat.failure, "the heartbeat")
    with pytest.raises(LostPeerError, match="is lost"):
        one.push_pull(np.ones(4, np.float32), values, 1)


def test_a_restarted_server_does_not_know_the_trainer(pserver, begin, tools):
    server = pserver()
    one, values = begin(server.services)
    server.process.kill()
    server.process.wait(tools.deadline)
    pserver(port=server.port)
    with pytest.raises(LostPeerError, match=r"restarted|is lost"):
        one.push_pull(np.ones(4, np.float32), values, 1)


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


def test_a_slow_trainer_is_waited_for_while_it_lives(pserver, begin, crowd):
    """Heartbeats come from a thread of their own: more than peer_timeout of computing is no loss."""
    server = pserver(trainers=2, environ=SHORT)
    one, values = begin_alone(begin, server, crowd)
    other, _ = crowd.results["other"]
    crowd.start(0, one.push_pull, np.ones(4, np.float32), values, 1)
    crowd.threads[-1].join(3.0)
    assert crowd.threads[-1].is_alive()
    other.push_pull(np.ones(4, np.float32), np.zeros(4, np.float32), 1)
    crowd.end()
    assert values.tolist() == [-2] * 4


def test_every_wait_has_a_deadline_and_says_whom_it_waits_for(pserver, begin, crowd):
    server = pserver(trainers=2)
    crowd.start(1, begin, server.services, 1, 2)
    one, values = begin(server.services, 0, 2, wait_timeout=3.0)
    crowd.join()
    with pytest.raises(LostPeerError, match=r"waited 3 s to push batch 1 of pass 0: .*waits for trainer 1 at 127"):
        one.push_pull(np.ones(4, np.float32), values, 1)


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
    crowd.end()


# ----- Refusals -----


@pytest.mark.parametrize(
    "options, kind, parts",
    [
        ({"job": "other"}, PeerUnreachableError, ["job 'a'", "job 'other'"]),
        ({"secret": "guess"}, PeerUnreachableError, ["PADDLE_SECRET"]),
        ({"num_trainers": 3}, ConfigError, ["num_gradient_servers = 2", "num_gradient_servers = 3"]),
        ({"trainer_id": 0}, ConfigError, ["two trainers with one id"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_trainer_of_another_kind_is_refused_by_name_and_the_job_goes_on(pserver, client, options, kind, parts):
    server = pserver(trainers=2, environ={"PADDLE_JOB_NAME": "a", "PADDLE_ATTEMPT": "1", "PADDLE_SECRET": "hush"})
    right = {"job": "a", "attempt": "1", "secret": "hush"}
    client(server.services, 0, 2, **right).join(WEIGHT, Optimization())
    wrong = client(server.services, **{"trainer_id": 1, "num_trainers": 2} | right | options)
    with pytest.raises(kind) as caught:
        wrong.join(WEIGHT, Optimization())
    assert all(part in str(caught.value) for part in [*parts, f"127.0.0.1:{server.port}"]), caught.value
    assert "guess" not in server.text() and "hush" not in server.text()
    client(server.services, 1, 2, **right).join(WEIGHT, Optimization())


def version_3(op, flags=0, note=b""):
    """A message as version 3 made it; its first eight bytes mean the same in every version."""
    return struct.pack("<4sHBB8siIQqQII8s", b"PDLP", 3, op, flags, b"", -1, len(note), 0, 0, 0, 0, 0, b"") + note


def read_all(stream):
    return b"".join(iter(lambda: stream.recv(4096), b""))


def test_a_client_of_version_3_is_told_so_by_both_sides(pserver):
    server = pserver()
    with socket.create_connection(server.services[0], peers.DEADLINE) as old:
        old.sendall(version_3(12, note=b'{"connection":"00"}') + version_3(1, note=b'{"job":""}'))
        answer = read_all(old)
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


# ----- Lost messages -----


def test_a_name_that_is_used_twice_belongs_to_the_last(pserver):
    """So a trainer whose connection broke unseen by the server is heard again at once."""
    server = pserver()
    with contextlib.ExitStack() as stack:
        first, other, second = (
            stack.enter_context(peers.enter(server.services[0], b"p" * 16 + kind))[0]
            for kind in (DATA, HEARTBEAT, DATA)
        )
        assert first.recv(1) == b""
        for one in (second, other):
            one.sendall(peers.message(Message(Op.PING, bytes(8), 0, 1)))
            assert b"has no joined trainer 0" in read_all(one)


def test_a_push_sent_twice_counts_once(pserver, begin, monkeypatch):
    server = pserver()
    one, values = begin(server.services)
    send = ServerChannel.send

    def twice(channel, message):
        send(channel, message)
        send(channel, message)

    monkeypatch.setattr(ServerChannel, "send", twice)
    for _ in range(3):
        one.push_pull(np.ones(4, np.float32), values, 1)
    assert values.tolist() == [-3] * 4


@pytest.mark.parametrize("loses_answer", [False, True])
def test_a_connection_that_breaks_for_a_moment_loses_nothing(pserver, begin, crowd, capsys, loses_answer):
    server = pserver()
    with contextlib.closing(peers.Tap(server.services[0])) as tap:
        one, values = begin([tap.address])
        tap.is_deaf = loses_answer
        if not loses_answer:
            tap.cut()
        crowd.start(0, one.push_pull, np.ones(4, np.float32), values, 1)
        if loses_answer:
            crowd.threads[0].join(0.5)
            tap.cut()
            tap.is_deaf = False
        crowd.end()
        assert values.tolist() == [-1] * 4
        assert ("the request is sent again" in capsys.readouterr().err) or not loses_answer
        one.finish_pass(values)
        one.goodbye()
        assert server.wait() == 0


# ----- The process -----


def test_sigterm_ends_a_server_with_143_and_its_trainers_hear_it(pserver, begin, crowd):
    server = pserver(trainers=2)
    one, values = begin_alone(begin, server, crowd)
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
