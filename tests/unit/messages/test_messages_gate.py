"""The gate between the network and libzmq."""

from __future__ import annotations

import contextlib
import select
import selectors
import socket
import threading

import pytest
from full_process import FullProcess
from waiting import until

from paddle_base.messages.gate import Gate, GateLimits, GateTarget, Refusals, _Passage, find_idlest

LIMIT_S = 60.0


def test_a_gate_that_closes_takes_no_connection_that_has_come_in_the_same_moment() -> None:
    """It accepted on the closed socket: the log of a master's pod had a traceback at the end of a job."""
    is_refusing, goes_on = threading.Event(), threading.Event()

    def hold(_: str) -> None:
        is_refusing.set()
        goes_on.wait(LIMIT_S)

    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    target = GateTarget("paddle-gate-test-of-no-server", b"NULL", lambda _: True)
    gate = Gate(listener, target, GateLimits(), Refusals(hold))
    with socket.create_connection(address) as first:
        first.sendall(b"no signature of ZMTP")  # the gate refuses it, and its thread waits in `hold`
        assert is_refusing.wait(LIMIT_S)
        closing = threading.Thread(target=gate.close, args=(LIMIT_S,))
        closing.start()
        assert select.select([gate._wakeup], [], [], LIMIT_S)[0]
        with socket.create_connection(address):  # after the order to close, and before the gate has read it
            goes_on.set()
            closing.join(LIMIT_S)
    assert not closing.is_alive()


def test_silent_connections_that_hold_the_last_descriptors_make_room() -> None:
    """The gate accepted no member until the handshakes of the others were late."""
    listener = FullProcess(free=3)
    address = listener.getsockname()
    target = GateTarget("paddle-gate-test-of-no-server", b"NULL", lambda _: True)
    gate = Gate(listener, target, GateLimits(handshake=LIMIT_S), Refusals(lambda line: None))
    with contextlib.ExitStack() as stack:
        stack.callback(gate.close, LIMIT_S)
        silent = [stack.enter_context(socket.create_connection(address, LIMIT_S / 4)) for _ in range(3)]
        until(lambda: len(gate._unauthenticated) == 3, "the silent connections")
        member = stack.enter_context(socket.create_connection(address, LIMIT_S))
        with pytest.raises(ConnectionResetError):
            silent[0].recv(1)
        until(
            lambda: member.getsockname() in [one.outer.getpeername() for one in list(gate._unauthenticated)],
            "the member",
        )


def test_the_oldest_connection_goes_if_possible_one_that_does_not_know_the_key() -> None:
    with contextlib.ExitStack() as stack:
        made = [_Passage(stack.enter_context(socket.socket()), "10.0.0.1", b"CURVE", 0.0) for _ in range(3)]
        assert find_idlest(made) is made[0]
        made[0].server.has_welcomed = True
        assert find_idlest(made) is made[1]
        made[1].server.has_welcomed = made[2].server.has_welcomed = True
        assert find_idlest(made) is made[0]
        assert find_idlest([]) is None


def test_a_reason_of_refusals_is_logged_once_in_thirty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [100.0], list[str]()
    monkeypatch.setattr("paddle_base.messages.gate.time.monotonic", lambda: now[0])
    refusals = Refusals(said.append)
    for second in range(31):
        now[0] = 100.0 + second
        refusals.add("late", "one")
        refusals.add("crowd", "another")
    assert refusals.counts == {"late": 31, "crowd": 31}
    assert [line.rpartition(": ")[2] for line in said] == ["one", "another"] * 2
    assert "31 for this reason so far" in said[-1]


def test_a_peer_that_is_refused_after_its_proof_has_said_nothing_to_libzmq() -> None:
    """Its last bytes and a message came in one piece: the message of a refused member was taken."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
    refusals = Refusals(lambda line: None)
    target = GateTarget("paddle-gate-test-of-no-server", b"NULL", lambda _: True)
    gate = Gate(socket.create_server(("127.0.0.1", 0)), target, GateLimits(peers=0), refusals)
    peer, outer = socket.socketpair()
    inner, libzmq = socket.socketpair()
    with peer, outer, inner, libzmq:
        passage = _Passage(outer, "10.0.0.1", b"NULL", 0.0)
        passage.inner, passage.peer.has_agreed = inner, True
        passage.peer.feed(greeting)
        peer.sendall(b"\x04\x06\x05READY" + b"\x00\x05hello")
        gate._serve(passage, True, selectors.EVENT_READ)
        libzmq.settimeout(LIMIT_S)
        assert libzmq.recv(100) == b""
        assert refusals.counts == {"full": 1}
    gate.close(LIMIT_S)
