"""Ranks that are killed, leave, lie or are strangers: every survivor hears of it, by its name."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collective_ranks import DEADLINE_S, MemoryStore, add, groups, on_all, stop
from ports import free_ports

from paddle_cluster.elastic.collectives import joining
from paddle_cluster.elastic.collectives.forming import form
from paddle_cluster.elastic.collectives.frames import FrameKind
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.joining import GroupPlan
from paddle_cluster.elastic.collectives.mesh import Pulse, _drain
from paddle_cluster.elastic.collectives.peers import LIMITS
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction
from paddle_cluster.elastic.errors import HorovodInternalError
from pserver.wire.connection import Connection

ROOT = Path(__file__).resolve().parents[4]
# a rank as a process: all-reduces for ever, and says when it has begun and why it ended
RANK = """
import json, os, signal, sys
import numpy as np
from paddle_cluster.elastic.collectives.forming import form
from paddle_cluster.elastic.collectives.stalls import Patience
from paddle_cluster.elastic.collectives.joining import GroupPlan
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction
from paddle_cluster.elastic.errors import HorovodInternalError

rank, ports, near, count, silence, has_child = json.loads(sys.argv[1])

class Store:
    def put(self, scope, key, value): pass
    def get(self, scope, key, wait=0.0):
        return json.dumps({"host": "127.0.0.1", "port": ports[int(key)]}).encode() if key.isdigit() else None

plan = GroupPlan(rank, len(ports), "g", secret="s", timeout=60.0, port=ports[rank])
group = form(plan, Store(), Patience(silence=silence), near=near)
if has_child and not (child := os.fork()):
    signal.pause()
data = np.ones(count, np.float32)
try:
    for turn in range(1 << 60):
        group.wait(group.submit(CollectiveKind.ALLREDUCE, data, argument=Reduction.SUM))
        if turn == 3:
            print("runs", *([child] if has_child else []), flush=True)
except HorovodInternalError as exc:
    print(exc, flush=True)
"""


# way -> ranks whose memory every rank uses; None: all. With "hosts" rank 2 is alone, because nobody uses its memory.
NEAR = {"memory": None, "connections": [], "hosts": [0, 1]}


def start(
    rank: int, ports: list[int], way: str, count: int, silence: float = 4.0, *, has_child: bool = False
) -> subprocess.Popen[str]:
    argument = json.dumps([rank, ports, NEAR[way], count, silence, has_child])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", RANK, argument], env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("way", ["memory", "connections"])
def test_a_killed_rank_is_missed_at_once_though_its_children_live(way: str) -> None:
    """The workers of its DataLoader kept its connections open, and the others waited until it was silent too long."""
    ports = free_ports(2)
    killed, survivor = (start(rank, ports, way, 10, silence=1e6, has_child=rank == 0) for rank in range(2))
    try:
        assert killed.stdout is not None
        child = int(killed.stdout.readline().removeprefix("runs "))
        try:
            killed.kill()
            text = survivor.communicate(timeout=DEADLINE_S)[0]
            assert "rank 0 is lost: the connection ended" in text
            os.kill(child, 0)  # it lives
        finally:
            os.kill(child, signal.SIGKILL)
    finally:
        for one in (killed, survivor):
            one.kill()
            one.communicate()


@pytest.mark.parametrize("way", ["memory", "connections"])
def test_a_frozen_rank_raises_on_every_survivor_and_raises_itself_when_it_goes_on(way: str) -> None:
    ports = free_ports(3)
    ranks = [start(rank, ports, way, 10) for rank in range(3)]
    try:
        for one in ranks:
            assert one.stdout is not None
            assert one.stdout.readline() == "runs\n"
        ranks[1].send_signal(signal.SIGSTOP)
        texts = [ranks[rank].communicate(timeout=DEADLINE_S)[0] for rank in (0, 2)]
        assert any("rank 1 is lost: it has sent nothing for" in text for text in texts)  # the first one tells the other
        assert all("rank 1 is lost" in text for text in texts), texts
        ranks[1].send_signal(signal.SIGCONT)
        assert "rank" in ranks[1].communicate(timeout=DEADLINE_S)[0]
    finally:
        for one in ranks:
            one.kill()
            one.communicate()


def test_a_rank_that_is_cut_off_behind_open_connections_is_lost() -> None:
    """Between rank 0 and rank 1 is a program that stops to carry bytes and keeps all connections open."""
    store = MemoryStore()
    with Blackhole() as way:

        class OtherWay(MemoryStore):
            """Sends rank 1 through the program."""

            def get(self, scope: str, key: str, wait: float = 0.0) -> bytes | None:
                found = store.get(scope, key, wait)
                return found and json.dumps({**json.loads(found), "port": way.lead(json.loads(found))}).encode()

            def put(self, scope: str, key: str, value: bytes) -> None:
                store.put(scope, key, value)

        plans = [GroupPlan(rank, 2, "scope", secret="s", timeout=DEADLINE_S) for rank in range(2)]
        with ThreadPoolExecutor(2) as threads:
            stores = [store, OtherWay()]
            forming = [threads.submit(form, *one, near=()) for one in zip(plans, stores, strict=True)]
            made = [one.result(DEADLINE_S) for one in forming]

        def work(group):  # type: ignore[no-untyped-def]
            with pytest.raises(HorovodInternalError) as caught:
                for _ in range(1 << 30):
                    stop(group)
            return str(caught.value)

        threading.Timer(0.2, way.cut).start()
        texts = on_all(made, work)
    assert [text.partition(" for ")[0] for text in texts] == [
        f"rank {other} is lost: it has sent nothing" for other in (1, 0)
    ]


class Blackhole:
    """Carries bytes between pairs of connections until it is cut."""

    def __init__(self) -> None:
        self._is_cut = threading.Event()
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Blackhole:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_cut.set()
        for one in self._sockets:
            one.close()

    def cut(self) -> None:
        self._is_cut.set()

    def lead(self, address: dict[str, object]) -> int:
        """Return a port that leads to an address."""
        listener = socket.create_server(("127.0.0.1", 0))
        self._sockets.append(listener)

        def serve() -> None:
            near = listener.accept()[0]
            far = socket.create_connection((str(address["host"]), int(str(address["port"]))))
            self._sockets += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        return int(listener.getsockname()[1])

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self._is_cut.is_set():
                    return
                target.sendall(data)


def test_a_rank_says_that_it_lives_while_nobody_calls_a_collective() -> None:
    with groups(2) as made:
        mesh = made[0]._mesh
        before = mesh.peers[1].heard
        deadline = time.monotonic() + DEADLINE_S
        while mesh.peers[1].heard == before:
            assert time.monotonic() < deadline
            with made[0]._driving:
                mesh.turn(0.1)


def test_the_silence_of_others_counts_only_while_this_rank_listens() -> None:
    pulse = Pulse()
    assert pulse.is_due(10.0)
    assert not pulse.is_due(10.9)
    assert pulse.is_due(11.0)
    assert [pulse.look(now) for now in (20.0, 21.0, 22.5)] == [20.0] * 3
    assert pulse.look(60.0) == 60.0  # it has computed


def test_the_reason_of_a_rank_that_has_closed_is_read_before_its_loss_counts() -> None:
    """A survivor that sent to another survivor named that one, and not the rank that was killed."""
    with groups(2) as made:
        mesh, other = made[0]._mesh, made[1]._mesh
        with pytest.raises(HorovodInternalError):
            other.fail("rank 7 is lost")
        deadline = time.monotonic() + DEADLINE_S
        with made[0]._driving:
            while not mesh.peers[1].gone:
                assert time.monotonic() < deadline
                mesh.send(1, FrameKind.ALIVE, 0)
            with pytest.raises(HorovodInternalError, match="rank 1 has ended the group: rank 7 is lost"):
                mesh.check()


# a host's ranks meet in memory and by connections: a large array that goes one way alone is lost by night
KILLED = [(way, 10) for way in NEAR] + [("hosts", 500_000)]
KILLED += [pytest.param(way, 500_000, marks=pytest.mark.nightly) for way in ("memory", "connections")]


@pytest.mark.parametrize(("way", "count"), KILLED)
def test_a_killed_rank_raises_on_every_survivor(way: str, count: int) -> None:
    ports = free_ports(3)
    ranks = [start(rank, ports, way, count, DEADLINE_S) for rank in range(3)]  # a busy machine is silent for seconds
    try:
        for one in ranks:
            assert one.stdout is not None
            assert one.stdout.readline() == "runs\n"
        ranks[1].send_signal(signal.SIGKILL)
        for rank in (0, 2):
            text, _ = ranks[rank].communicate(timeout=DEADLINE_S)
            assert "rank 1 is lost" in text
    finally:
        for one in ranks:
            one.kill()
            one.communicate()


@pytest.mark.parametrize("with_memory", [True, False], ids=["memory", "connections"])
def test_a_rank_that_leaves_ends_the_collectives_of_the_others(with_memory: bool) -> None:
    def work(group):  # type: ignore[no-untyped-def]
        if group.rank == 1:
            group.leave()
            return ""
        with pytest.raises(HorovodInternalError) as caught:
            stop(group)
        return str(caught.value)

    with groups(3, with_memory=with_memory) as made:
        texts = on_all(made, work)
    assert all("rank 1 has left the group" in text for text in (texts[0], texts[2]))


def test_a_rank_that_has_left_fails_nobody_who_wants_nothing_of_it() -> None:
    with groups(3) as made:
        on_all(made, lambda group: group.leave())
        for group in made:
            with pytest.raises(HorovodInternalError, match="this rank has left"):
                stop(group)


def test_a_rank_leaves_while_another_thread_of_it_waits() -> None:
    with groups(2) as made:
        handle = made[0].submit(CollectiveKind.ALLREDUCE, np.zeros(1), name="w")
        made[0].start()
        made[0].leave()
        with pytest.raises(HorovodInternalError, match="has left"):
            made[0].wait(handle)


class BusyOnce:
    """A lock that another thread has until the first attempt to acquire it has failed."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._attempts = inner, 0
        self.locked, self.release = inner.locked, inner.release

    def acquire(self, **more: Any) -> bool:
        self._attempts += 1
        return self._attempts > 1 and bool(self._inner.acquire(**more))


def test_a_rank_leaves_just_as_a_thread_of_it_ends_its_last_request() -> None:
    """The thread had its result, and did not look again; the connections stayed open, and nobody heard of the end."""
    with groups(2, with_memory=False) as made:
        made[0]._driving = BusyOnce(made[0]._driving)  # type: ignore[assignment]
        made[0].leave()
        assert made[0]._mesh.failure == "this rank has left the group"
        assert all(peer.connection.stream.fileno() == -1 for peer in made[0]._mesh.peers.values())
        with pytest.raises(HorovodInternalError, match="rank 0 has left the group"):  # an error of rank 0 it is not
            stop(made[1])


def test_a_group_that_is_to_end_just_as_a_thread_of_it_has_its_result_ends() -> None:
    with groups(2, with_memory=False) as made:
        with made[0]._driving:
            made[0].abandon("another group has ended")
        with pytest.raises(HorovodInternalError, match="rank 0 has ended the group: another group has ended"):
            stop(made[1])


def test_the_last_messages_are_sent_on_a_connection_of_any_number() -> None:
    """A rank with many process sets could not send the end of a group, and left its other connections open."""
    own, other = socket.socketpair()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), max(limits[1], 2048)))
    try:
        with own, other, socket.socket(fileno=fcntl.fcntl(own, fcntl.F_DUPFD_CLOEXEC, 1024)) as stream:
            stream.setblocking(False)
            connection = Connection(stream, lambda *_: (), LIMITS)
            connection.send([b"head", b"", memoryview(bytes(1 << 22))])
            assert connection.unsent
            with ThreadPoolExecutor(1) as threads:
                read = threads.submit(lambda: sum(iter(lambda: len(other.recv(1 << 16)), 0)))
                with contextlib.suppress(BlockingIOError):  # nothing has come from the other side
                    _drain(connection, time.monotonic() + DEADLINE_S)
                assert read.result(DEADLINE_S) == 4 + (1 << 22)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_rank_that_does_not_come_is_named() -> None:
    plan = GroupPlan(0, 3, "scope", secret="s", timeout=0.05)
    with pytest.raises(HorovodInternalError, match="from ranks 1, 2"):
        form(plan, MemoryStore())


def test_a_published_address_that_is_none_is_refused() -> None:
    store = MemoryStore()
    store.put("scope", "0", b'{"host": 5}')
    with pytest.raises(HorovodInternalError, match="which is no address"):
        form(GroupPlan(1, 2, "scope", timeout=DEADLINE_S), store)


def test_a_rank_joins_while_strangers_hold_every_place_of_a_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest connection was refused, so idle ones kept all ranks out until their handshakes were late."""
    monkeypatch.setattr(joining, "HANDSHAKE_S", 10 * DEADLINE_S)
    store = MemoryStore()
    plans = [GroupPlan(rank, 2, "scope", secret="s", timeout=10.0) for rank in range(2)]
    with ThreadPoolExecutor(2) as threads, contextlib.ExitStack() as stack:
        first = threads.submit(form, plans[0], store)
        address = json.loads(store.get("scope", "0", DEADLINE_S) or b"")
        place = address["host"], address["port"]
        idle = [stack.enter_context(socket.create_connection(place)) for _ in range(joining.MAX_UNPROVEN + 20)]
        assert idle[0].recv(1) == b""  # all places are taken: the oldest connections are closed
        made = [first, threads.submit(form, plans[1], store)]
        for group in [one.result(DEADLINE_S) for one in made]:
            group.leave()


def test_strangers_and_another_secret_do_not_disturb_a_group_that_forms() -> None:
    store = MemoryStore()
    plans = [GroupPlan(rank, 2, "scope", secret="s", timeout=DEADLINE_S) for rank in range(2)]
    began = threading.Event()

    class SlowStore(MemoryStore):
        """Lets the strangers be first."""

        def get(self, scope: str, key: str, wait: float = 0.0) -> bytes | None:
            began.wait(DEADLINE_S)
            return store.get(scope, key, wait)

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(form, plans[0], store)
        second = threads.submit(form, plans[1], SlowStore())
        address = json.loads(store.get("scope", "0", DEADLINE_S) or b"")
        silent = socket.create_connection((address["host"], address["port"]))
        with socket.create_connection((address["host"], address["port"])) as noisy:
            noisy.settimeout(DEADLINE_S)
            noisy.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
            while True:
                try:
                    if not noisy.recv(1 << 12):
                        break
                except ConnectionResetError:
                    break
        other = GroupPlan(1, 2, "scope", secret="other", timeout=3.0)
        with pytest.raises(HorovodInternalError, match="PADDLE_SECRET differs"):
            threads.submit(form, other, store).result(DEADLINE_S)
        began.set()
        made = [first.result(DEADLINE_S), second.result(DEADLINE_S)]
        silent.close()
    assert on_all(made, lambda group: add(group, np.ones(1))[0]) == [2.0, 2.0]
    on_all(made, lambda group: group.leave())


def test_a_rank_at_another_place_ends_the_group_with_its_name() -> None:
    with groups(2, with_memory=False) as made:
        made[1]._path._sequence += 1  # type: ignore[attr-defined]

        def work(group):  # type: ignore[no-untyped-def]
            with pytest.raises(HorovodInternalError) as caught:
                stop(group)
            return str(caught.value)

        assert all("not at the same collective" in text for text in on_all(made, work))


def test_a_bug_in_the_thread_of_a_group_is_told_to_every_waiting_call(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: ended.set())
    with groups(2, with_memory=False) as made:

        def run(*_: Any) -> None:
            raise ZeroDivisionError("a bug")

        def work(group: RankGroup) -> str:
            handle = group.submit(CollectiveKind.ALLREDUCE, np.ones(1 << 18), argument=Reduction.SUM)
            if group is made[0]:
                group._path.run = run  # type: ignore[method-assign]
                group.start()
                assert ended.wait(DEADLINE_S)  # the thread, while no call waits
            with pytest.raises(HorovodInternalError) as caught:
                group.wait(handle)
            return str(caught.value)

        assert all(
            "a collective of this rank was ended by ZeroDivisionError: a bug" in one for one in on_all(made, work)
        )
