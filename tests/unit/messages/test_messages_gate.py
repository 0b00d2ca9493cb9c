"""The gate between the network and libzmq."""

from __future__ import annotations

import select
import socket
import threading

from messages.gate.gate import Gate, GateLimits, GateTarget, Refusals

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
        assert select.select([gate._wakeup[0]], [], [], LIMIT_S)[0]
        with socket.create_connection(address):  # after the order to close, and before the gate has read it
            goes_on.set()
            closing.join(LIMIT_S)
    assert not closing.is_alive()
