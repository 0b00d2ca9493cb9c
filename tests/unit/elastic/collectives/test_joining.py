"""How a rank connects to the others, without other ranks: slow listeners, other jobs, and what stays open."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from collective_ranks import DEADLINE_S, MemoryStore
from waiting import until

from paddle_cluster.elastic.collectives import forming, joining
from paddle_cluster.elastic.collectives.joining import GroupPlan, RankAddress
from paddle_cluster.elastic.collectives.mesh import Mesh
from paddle_cluster.elastic.collectives.peers import PeerRank
from paddle_cluster.elastic.errors import HorovodInternalError
from pserver.wire.authentication import NO_KEYS, ServerHandshake
from pserver.wire.connection import Pool
from pserver.wire.shared_memory import SharedMemory

_MAKE = SharedMemory.make


class Clock:
    """A clock that runs only while somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class SlowListener:
    """A connection to a program that sends a challenge, one byte in three seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._limit = clock, 0.0
        self._left = ServerHandshake("", b"n" * 32).feed(_greeting())
        self.is_closed = False

    def settimeout(self, seconds: float) -> None:
        self._limit = seconds

    def sendall(self, data: bytes) -> None:
        """Send at once."""

    def recv(self, most: int) -> bytes:
        self._clock.sleep(min(3.0, self._limit))
        if self._limit < 3.0:
            raise TimeoutError("timed out")
        byte, self._left = self._left[:1], self._left[1:]
        return byte

    def close(self) -> None:
        self.is_closed = True


def _greeting() -> bytes:
    return joining.ClientHandshake("", bytes(17), b"c" * 32).greeting


def test_a_listener_that_sends_single_bytes_does_not_hold_a_rank_beyond_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each byte had five seconds of its own: a rank with a limit of 6 s waited for 197 s."""
    clock, opened = Clock(), []

    def connect(place: tuple[str, int], timeout: float) -> SlowListener:
        opened.append(SlowListener(clock))
        opened[-1].settimeout(timeout)
        return opened[-1]

    monkeypatch.setattr(joining, "time", clock)
    monkeypatch.setattr(joining, "socket", SimpleNamespace(create_connection=connect, socket=socket.socket))
    address = json.dumps({"host": "h", "port": 1}).encode()
    store = SimpleNamespace(get=lambda _, key, *__: None if key == joining.LOST else address)
    with pytest.raises(HorovodInternalError, match="rank 0 of 2 cannot be reached within 6 s: h:1: "):
        joining._call(GroupPlan(1, 2, "g", timeout=6.0), store, 0, Pool(), clock.now + 6.0, lambda: None)
    assert clock.now <= 106.1
    assert len(opened) == 2 and all(one.is_closed for one in opened)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "group": ({"scope": "group_1"}, "a"),
    "size": ({"size": 3}, "a"),
    "rank": ({"rank": 0}, "a"),
    "job": ({}, "b"),
}


@pytest.mark.parametrize(("wrong", "called"), WRONG.values(), ids=WRONG)
def test_a_rank_of_another_group_or_job_gets_no_proof(wrong: dict[str, Any], called: str) -> None:
    """A worker connects to an address that is used again; every job has a group_2, and may have the same secret."""
    plan = GroupPlan(0, 2, "group_2", secret="s", timeout=DEADLINE_S, incarnation="a")
    right = replace(plan, rank=1, incarnation="c")
    limit = time.monotonic() + DEADLINE_S
    with joining.Acceptor(plan, Pool()) as acceptor:
        address = RankAddress("127.0.0.1", acceptor.port, called)
        with pytest.raises(joining._RefusedError, match="the other side ended the connection"):
            joining._shake(replace(right, **wrong), address, Pool(), limit)
        own = joining._shake(right, address._replace(incarnation="a"), Pool(), limit)
        peers = acceptor.wait(limit)
        assert list(peers) == [1]
        for peer in (own, peers[1]):
            peer.connection.close()


def test_the_ranks_of_a_group_know_it_by_a_name_that_no_other_job_has() -> None:
    for job in ("a", "b"):
        store = MemoryStore()
        plans = [GroupPlan(rank, 3, "group_1", secret="s", incarnation=f"{job}{rank}") for rank in range(3)]
        with ThreadPoolExecutor(3) as threads:
            made = list(threads.map(lambda plan: joining.join(plan, store), plans))  # noqa: B023
            assert [mesh.identity for mesh in made] == [f"group_1 3 {job}0"] * 3
            list(threads.map(Mesh.leave, made))


def test_a_group_that_does_not_form_leaves_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections stayed open until the garbage collector ran, a dozen in each generation that failed."""

    def wait(*_: object) -> Any:
        raise HorovodInternalError("rank 2 does not come")

    monkeypatch.setattr(joining.Acceptor, "wait", wait)
    lower = GroupPlan(0, 3, "g", secret="s", incarnation="a")
    store = MemoryStore()
    with joining.Acceptor(lower, Pool()) as acceptor:
        address = {"host": "127.0.0.1", "port": acceptor.port, "incarnation": "a"}
        store.put("g", "0", json.dumps(address).encode())
        with pytest.raises(HorovodInternalError, match="rank 2 does not come"):
            joining.join(replace(lower, rank=1, incarnation="b"), store)
        peer = until(lambda: acceptor._peers.get(1), "rank 0 to take rank 1")
        until(lambda: is_ended(peer.connection.stream), "rank 1 to close its connection", 10.0)
    assert peer.connection.stream.fileno() == -1  # the called rank closes it, too


def is_ended(stream: socket.socket) -> bool:
    """Whether the other side has ended a connection."""
    try:
        return stream.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_group_that_does_not_agree_on_its_memory_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(length: int) -> SharedMemory:
        made.append(_MAKE(length))
        return made[-1]

    monkeypatch.setattr(SharedMemory, "make", make)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        mesh = Mesh(0, {1: PeerRank(ours, NO_KEYS, Pool())})
        with pytest.raises(HorovodInternalError, match="no answer"):
            forming._share(mesh, "", [1], time.monotonic())
    file = Path(f"/proc/self/fd/{made[0].offer['file']}")
    with contextlib.suppress(FileNotFoundError):
        assert "memfd" not in str(file.readlink())  # another thread may have opened a file meanwhile
    assert ours.fileno() == -1


def test_ranks_hear_of_a_lost_one_that_they_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A joiner that died before hvd.init() stopped the job for the 30 s in which ranks have to connect.

    The others first looked after a second, so a joiner that died just before it connected stopped them for a second.
    """
    monkeypatch.setattr(joining, "LOOK_S", 1000.0)
    store = MemoryStore()
    store.put("group_1", joining.LOST, b"the process of b[0] has ended")
    with ThreadPoolExecutor() as threads:  # rank 1 is lost: rank 0 waits for its call, and rank 2 for its address
        waits = [threads.submit(joining.join, GroupPlan(rank, 3, "group_1", timeout=3600.0), store) for rank in (0, 2)]
        for one in waits:
            with pytest.raises(HorovodInternalError, match=r"cannot form: the process of b\[0\] has ended"):
                one.result(DEADLINE_S)
