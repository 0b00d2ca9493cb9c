"""The connections of a rank to all other ranks; they carry messages, and detect lost ranks.

A lost rank, or a rank that sends an invalid message, ends the group for all ranks. The rank that detects the failure
sends the reason to all other ranks (ABORT) and closes its connections. Every rank sends a heartbeat once a second, even
while it computes. By the missing heartbeats, a waiting rank detects a rank that is frozen or unreachable although its
connection is still open.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.wakeup import WakeUp
from paddle_cluster.elastic.collectives import frames
from paddle_cluster.elastic.collectives.frames import Frame, FrameKind
from paddle_cluster.elastic.collectives.peers import MAX_AHEAD_BYTES, PeerRank
from paddle_cluster.elastic.errors import HorovodInternalError
from pserver.wire.connection import Connection
from pserver.wire.protocol import ProtocolError

GOODBYE_S = 1.0  # maximum seconds of sending the last messages
BEAT_S = 1.0  # seconds between two heartbeats
SILENCE_S = 4.0  # seconds of silence after which a waiting rank counts another rank as lost
_NO_PAYLOAD: tuple[memoryview, ...] = ()


class Pulse:
    """The times at which this rank has sent a heartbeat and has listened, in seconds of one clock."""

    def __init__(self) -> None:
        self.beats = 0  # number of heartbeats that were due
        self._said = self._looked = self._since = self._checked = -1e9

    def is_due(self, now: float) -> bool:
        """Return whether a heartbeat is due; if so, count the heartbeat as sent."""
        if now - self._said < BEAT_S:
            return False
        self._said = now
        self.beats += 1
        return True

    def is_check_due(self, now: float) -> bool:
        """Return whether a check for silent ranks is due; a check in each call of `turn` would cost too much."""
        if now - self._checked < BEAT_S / 4:
            return False
        self._checked = now
        return True

    def look(self, now: float) -> float:
        """Record that this rank listens now; return the time since when this rank has listened without a gap.

        A rank does not listen while it computes or is frozen; the silence of other ranks in that time does not count.
        """
        if now - self._looked > 2 * BEAT_S:
            self._since = now
        self._looked = now
        return self._since


class Mesh:
    """All connections of a rank. Only one thread at a time may use a mesh; any thread may call `wake` and `abandon`.

    Attributes: failure: why the group has ended; empty: the group has not ended.  silence: seconds after which a
        waiting rank counts a silent rank as lost; 0: never.  identity: a text that no other group of any job has.
    Raises (turn, flush, check, wait, wait_until, take, collect): HorovodInternalError: the group has ended.
    """

    def __init__(self, rank: int, peers: Mapping[int, PeerRank], identity: str = "") -> None:
        self.rank, self.size, self.identity = rank, len(peers) + 1, identity
        self.peers = dict(sorted(peers.items()))
        self.failure = self._abandoned = ""
        self.silence = 0.0  # 0 until the group is formed, because ranks send no heartbeats earlier
        self._pulse = Pulse()
        self._poller = select.poll()
        self._of_file = {peer.connection.stream.fileno(): number for number, peer in self.peers.items()}
        self._writing: set[int] = set()
        self._wakeup = WakeUp()
        self._poller.register(self._wakeup, select.POLLIN)
        for file in self._of_file:
            self._poller.register(file, select.POLLIN)

    def wake(self) -> None:
        """Wake the thread that waits in `turn`; any thread may call `wake`."""
        self._wakeup.call()

    def abandon(self, reason: str) -> None:
        """Tell the thread that waits in `turn`, or sends the next heartbeat, to end the group; any thread may call
        `abandon`.
        """
        self._abandoned = reason
        self.wake()

    def send(
        self,
        number: int,
        kind: FrameKind,
        sequence: int,
        note: bytes = b"",
        payload: Sequence[memoryview] = _NO_PAYLOAD,
        piece: int = 0,
    ) -> None:
        """Send a message; the payload is not copied, and must not change until the message has been sent."""
        peer = self.peers[number]
        try:
            peer.connection.send(frames.encode(kind, sequence, note, payload, peer.keys.sending, piece))
        except OSError as exc:
            self._lose(peer, exc)
            return
        if peer.connection.unsent and number not in self._writing:
            self._writing.add(number)
            self._watch(number, peer)

    def turn(self, timeout: float) -> bool:
        """Wait until data can be received or sent, and transfer the data; return whether `wake` was called."""
        if self.failure:
            raise HorovodInternalError(self.failure)
        if self._abandoned:
            self.fail(self._abandoned)
        is_woken = False
        self.beat()
        timeout = min(timeout, BEAT_S)
        # rounded up, because a wait of less than a millisecond would become a loop without any wait
        for file, events in self._poller.poll(max(0, int(1000 * timeout + 0.999))):
            if file == self._wakeup.fileno():
                is_woken = self._wakeup.clear()
                continue
            number = self._of_file[file]
            peer = self.peers[number]
            try:
                # a hang-up or an error is read, too: the last messages may contain the reason
                if events != select.POLLOUT:
                    peer.read()
            except ProtocolError as exc:
                self.fail(f"rank {number} sent {exc}")
            if number in self._writing:
                self._flush(number, peer)
            if peer.gone:
                self._poller.unregister(file)
            elif peer.ahead > MAX_AHEAD_BYTES:
                self._watch(number, peer)
        self._check_silence()
        return is_woken

    def beat(self) -> None:
        """Send a heartbeat to all other ranks, if a heartbeat is due."""
        if self.failure or not self._pulse.is_due(time.monotonic()):
            return
        for number, peer in self.peers.items():
            if not (peer.gone or peer.left or peer.connection.unsent):
                self.send(number, FrameKind.ALIVE, self._pulse.beats)

    def _check_silence(self) -> None:
        now = time.monotonic()
        since = self._pulse.look(now)
        if not self.silence or now - since < self.silence or not self._pulse.is_check_due(now):
            return
        for number, peer in self.peers.items():
            silent = now - max(peer.heard, since)
            if silent > self.silence and not (peer.gone or peer.left or peer.is_paused):
                self.fail(f"rank {number} is lost: it has sent nothing for {silent:.1f} s, though it is connected")

    def _flush(self, number: int, peer: PeerRank) -> None:
        try:
            peer.connection.flush()
        except OSError as exc:
            self._lose(peer, exc)
        if not peer.connection.unsent:
            self._writing.discard(number)
            self._watch(number, peer)

    def _watch(self, number: int, peer: PeerRank) -> None:
        """Poll for the events of a connection. While too much of a rank is ahead, this rank waits for others alone."""
        if peer.gone:
            return  # it is unregistered, or will be
        peer.is_paused = peer.ahead > MAX_AHEAD_BYTES
        events = 0 if peer.is_paused else select.POLLIN
        self._poller.modify(peer.connection.stream, events | (select.POLLOUT if number in self._writing else 0))

    def _lose(self, peer: PeerRank, exc: OSError) -> None:
        """Record that a connection has ended; first read its last messages, which may contain the reason."""
        with contextlib.suppress(ProtocolError):
            peer.read()
        peer.gone = peer.gone or f"the connection ended ({exc})"

    def flush(self, timeout: float) -> None:
        """Wait until every message has been sent; the sent arrays may change after that.

        Args: timeout: maximum seconds in which no byte can be sent; then the group ends.
        """
        sent, deadline = -1, 0.0
        while self._writing and not all(self.peers[number].gone for number in self._writing):
            now_sent = sum(self.peers[number].connection.traffic.sent for number in self._writing)
            if now_sent != sent:
                sent, deadline = now_sent, time.monotonic() + timeout
            self._check_time(deadline, sorted(self._writing), "not all messages could be sent")
            self.turn(max(0.0, deadline - time.monotonic()))
        self.check()

    def check(self) -> None:
        """Check that no rank is lost.

        Raises: HorovodInternalError: a rank is lost; the message names the rank.
        """
        for number, peer in self.peers.items():
            if peer.abort:  # report the cause first, because other ranks are gone only as a consequence
                self.fail(f"rank {number} has ended the group: {peer.abort}")
        for number, peer in self.peers.items():
            if peer.gone and not peer.left:
                self.fail(f"rank {number} is lost: {peer.gone}")

    def missing(self, ranks: Iterable[int]) -> list[int]:
        """Return the ranks from which no message has arrived that `take` could return."""
        return [number for number in ranks if not self.peers[number].arrived]

    def wait(self, ranks: Sequence[int], deadline: float) -> None:
        """Wait until a message of each rank has arrived; end the group at the deadline."""
        self._check_time(deadline, self.wait_until(ranks, deadline), "no answer")

    def wait_until(self, ranks: Sequence[int], until: float) -> list[int]:
        """Wait until a message of each rank has arrived, or until a time; return the ranks without a message."""
        while missing := self.missing(ranks):
            self.check()
            # a GOODBYE that has arrived is no answer, and no other message follows it
            if left := [number for number in ranks if self.peers[number].is_over]:
                self.fail(f"rank {left[0]} has left the group")
            if (seconds := until - time.monotonic()) <= 0:
                break
            self.turn(seconds)
        return missing

    def _check_time(self, deadline: float, ranks: Sequence[int], what: str) -> None:
        if ranks and time.monotonic() >= deadline:
            names = ", ".join(map(str, ranks[:8]))
            self.fail(f"rank{'s' if len(ranks) > 1 else ''} {names}: {what} within the time limit of the group")

    def take(self, number: int, kind: FrameKind, sequence: int, piece: int = 0) -> Frame:
        """Return the next received message of a rank.

        Raises: HorovodInternalError: a different message has arrived, because the rank is at another exchange, has left
            or has ended the group.
        """
        peer = self.peers[number]
        frame = peer.arrived[0]
        if frame.kind == kind and frame.sequence == sequence and frame.piece == piece:
            peer.take()
            if peer.is_paused and peer.ahead <= MAX_AHEAD_BYTES:
                peer.heard = time.monotonic()  # its silence has not counted
                self._watch(number, peer)
            return frame
        self.check()
        if frame.kind == FrameKind.GOODBYE:
            self.fail(f"rank {number} has left the group")
        self.fail(
            f"rank {number} sent {frame.kind.name} for exchange {frame.sequence}, piece {frame.piece}, in place of "
            f"{kind.name} for exchange {sequence}, piece {piece}: the ranks are not at the same collective"
        )
        raise AssertionError

    def collect(self, kind: FrameKind, sequence: int, ranks: Sequence[int], deadline: float) -> list[Frame]:
        """Wait for a message of each rank, and return the messages."""
        self.wait(ranks, deadline)
        return [self.take(number, kind, sequence) for number in ranks]

    # ----- The end -----

    def end_abandoned(self) -> None:
        """End the group if `abandon` was called, and no thread has noticed it in `turn`."""
        if self._abandoned:
            with contextlib.suppress(HorovodInternalError):
                self.fail(self._abandoned)

    def fail(self, reason: str) -> None:
        """End the group: send the reason to all other ranks, and close all connections.

        Raises: HorovodInternalError: always.
        """
        if not self.failure:
            self.failure = reason
            self._end(FrameKind.ABORT, reason.encode()[:4000])
        raise HorovodInternalError(self.failure)

    def leave(self, deadline: float | None = None) -> None:
        """Send GOODBYE and close all connections; ranks that still wait for a collective with this rank fail.

        Args: deadline: time at which unsent messages are given up; None: GOODBYE_S from now.
        """
        if not self.failure:
            self.failure = "this rank has left the group"
            self._end(FrameKind.GOODBYE, b"", deadline)

    def _end(self, kind: FrameKind, note: bytes, deadline: float | None = None) -> None:
        for number, peer in self.peers.items():
            if not peer.gone:
                self.send(number, kind, 0, note)
        deadline = time.monotonic() + GOODBYE_S if deadline is None else deadline
        for peer in self.peers.values():
            with contextlib.suppress(OSError):
                _drain(peer.connection, deadline)
            peer.connection.close()
        self._wakeup.close()


class HeartbeatThread:
    """Sends the heartbeats of a rank in all its groups while no thread runs rounds.

    A thread that runs the rounds of a group sends the heartbeats of the group itself.
    """

    def __init__(self) -> None:
        self._process = os.getpid()  # a forked process shares the connections, and must not use them
        self._stop = threading.Event()
        self._meshes: dict[Mesh, tuple[threading.Lock, threading.Condition]] = {}
        self._beating = threading.Lock()  # held while a mesh is used
        self._thread = ServiceThread(self._run, "rank-heartbeat")

    def add(self, mesh: Mesh, driving: threading.Lock, changed: threading.Condition) -> None:
        """Begin to send the heartbeats of a group.

        Args: driving: lock that a thread holds while it uses the mesh.  changed: condition that is notified after the
            release of this lock.
        """
        if not mesh.peers:
            return
        with self._beating:
            self._meshes[mesh] = driving, changed
            if not self._thread.ident:
                self._thread.start()

    def remove(self, mesh: Mesh) -> None:
        """Send no more heartbeats of a group; after the last group, wait for the end of the thread."""
        with self._beating:
            self._meshes.pop(mesh, None)
            if self._meshes:
                return
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def is_forked(self) -> bool:
        """Whether this process is a forked child of the rank's process."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        """Raises: HorovodInternalError: this process is a forked child of the rank's process."""
        if self.is_forked:
            raise HorovodInternalError("a forked process is no rank; only the process that called hvd.init() is a rank")

    def _run(self) -> None:
        while not self._stop.wait(BEAT_S):
            with self._beating:
                if all(mesh.failure for mesh in self._meshes):
                    return
                for mesh, (driving, changed) in self._meshes.items():
                    _beat(mesh, driving, changed)


def _beat(mesh: Mesh, driving: threading.Lock, changed: threading.Condition) -> None:
    if not mesh.failure and driving.acquire(blocking=False):
        try:
            mesh.beat()
            mesh.end_abandoned()
        finally:
            driving.release()
        with changed:
            changed.notify_all()


class SubMesh:
    """Some ranks of a mesh, numbered from 0 in the given order; a failure ends the group of all ranks of the mesh."""

    def __init__(self, mesh: Mesh, ranks: Sequence[int]) -> None:
        self._mesh, self._ranks = mesh, list(ranks)
        self.rank, self.size = self._ranks.index(mesh.rank), len(self._ranks)
        self.peers = {place: mesh.peers[rank] for place, rank in enumerate(self._ranks) if rank != mesh.rank}

    def send(
        self,
        number: int,
        kind: FrameKind,
        sequence: int,
        note: bytes = b"",
        payload: Sequence[memoryview] = _NO_PAYLOAD,
        piece: int = 0,
    ) -> None:
        """See `Mesh.send`."""
        self._mesh.send(self._ranks[number], kind, sequence, note, payload, piece)

    def wait(self, ranks: Sequence[int], deadline: float) -> None:
        """See `Mesh.wait`."""
        self._mesh.wait([self._ranks[number] for number in ranks], deadline)

    def take(self, number: int, kind: FrameKind, sequence: int, piece: int = 0) -> Frame:
        """See `Mesh.take`."""
        return self._mesh.take(self._ranks[number], kind, sequence, piece)

    def collect(self, kind: FrameKind, sequence: int, ranks: Sequence[int], deadline: float) -> list[Frame]:
        """See `Mesh.collect`."""
        return self._mesh.collect(kind, sequence, [self._ranks[number] for number in ranks], deadline)

    def flush(self, timeout: float) -> None:
        """See `Mesh.flush`."""
        self._mesh.flush(timeout)

    def fail(self, reason: str) -> None:
        """See `Mesh.fail`."""
        numbers = ", ".join(map(str, self._ranks))
        self._mesh.fail(f"in the subgroup of the ranks {numbers}, which counts its own ranks from 0: {reason}")


AnyMesh = Mesh | SubMesh


def _drain(connection: Connection, deadline: float) -> None:
    """Send the unsent bytes, and shut down the sending side of the connection."""
    poller = select.poll()  # `select.select` refuses the descriptors of a rank with many process sets
    poller.register(connection.stream, select.POLLOUT)
    while connection.unsent and (left := deadline - time.monotonic()) > 0:
        if not poller.poll(1000 * left):
            break
        connection.flush()
    connection.stream.shutdown(socket.SHUT_WR)
    # read all input, because closing a socket with unread input discards sent data that the other side has not read
    while time.monotonic() < deadline and connection.stream.recv(1 << 16):
        pass
