"""How long a synchronous round takes against moving the same bytes: bench/round.py [--megabytes M] [--rounds N].

A round is push, one optimiser step, and the new values back, with one trainer and one server process on loopback. Its
peer is a plain zmq echo of the same bytes with one copy, in the same run and turn by turn, so that the ratio holds when
the machine's speed drifts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import zmq
from machine import describe_machine, spread

from pserver.client import Client
from pserver.rules import Optimization, ParameterSpec

PORT = 17300
DEADLINE_S = 20.0
ECHO = """
import sys, zmq
socket = zmq.Context().socket(zmq.ROUTER)
socket.bind("tcp://127.0.0.1:" + sys.argv[1])
while True:
    frames = socket.recv_multipart(copy=False)
    if len(frames[1]) == 1:
        break
    socket.send_multipart(frames, copy=False)
"""


def time_turns(turns: list[Callable[[], None]], rounds: int) -> list[list[float]]:
    """Returns milliseconds of each turn, round by round; the first five rounds warm up."""
    times: list[list[float]] = [[] for _ in turns]
    for number in range(rounds + 5):
        for turn, kept in zip(turns, times, strict=True):
            began = time.perf_counter()
            turn()
            if number >= 5:
                kept.append(1000 * (time.perf_counter() - began))
    return times


def bench(method: str, elements: int, rounds: int) -> None:
    """Prints one line for an update rule."""
    server = [sys.executable, "-m", "paddle", "pserver", "--nics=lo", f"--port={PORT}", "--ports_num=1"]
    quiet = {"stderr": subprocess.DEVNULL}
    with (
        subprocess.Popen(server, **quiet) as pserver,
        subprocess.Popen([sys.executable, "-c", ECHO, str(PORT + 1)]) as echo,
    ):
        values, gradient = np.zeros(elements, np.float32), np.ones(elements, np.float32)
        client = Client([("127.0.0.1", PORT)], trainer_id=0, num_trainers=1)
        peer = zmq.Context().socket(zmq.DEALER)
        peer.connect(f"tcp://127.0.0.1:{PORT + 1}")
        target = np.empty_like(values)

        def move() -> None:
            peer.send(gradient.view("B").data, copy=False)
            np.copyto(target, np.frombuffer(peer.recv(copy=False).buffer, np.float32))

        try:
            client.join([ParameterSpec("w", elements, momentum=0.9)], Optimization(method, 1e-6))
            client.initialise(values)
            client.start_pass()
            round_ms, move_ms = time_turns([lambda: client.push_pull(gradient, values, 1), move], rounds)
            client.finish_pass(values)
            client.goodbye()
            pserver.wait(DEADLINE_S)
        finally:
            pserver.kill()
            peer.send(b"x")
            peer.close(1000)
            echo.wait(DEADLINE_S)
    ratio = [one / other for one, other in zip(round_ms, move_ms, strict=True)]
    size = f"{elements * 4 / 1e6:.0f} MB"
    print(f"{method:9} {size}: round {spread(round_ms)} ms, zmq echo {spread(move_ms)} ms, ratio {spread(ratio)}")


def main() -> None:
    """Prints a line for each update rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    print(describe_machine())
    for method in ("momentum", "adam"):
        bench(method, int(options.megabytes * 1e6 / 4), options.rounds)


if __name__ == "__main__":
    main()
