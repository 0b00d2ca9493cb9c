"""A group of ranks that run collectives together, in an agreed order, over connections or shared memory.

A group works in rounds. In each round every rank announces its new requests to all other ranks. A request runs when all
ranks have announced it, in the same round or in different ones. A round begins when a thread waits for a result, or
when the waiting requests have `CYCLE_BYTES` together; no timer begins a round. The thread that waits for a result runs
the rounds. The group starts its own thread only while there are requests and no thread waits for a result.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paddle_base.runtime import glog
from paddle_cluster.elastic.collectives.dtypes import Flat
from paddle_cluster.elastic.collectives.frames import MAX_NOTE_BYTES, Frame
from paddle_cluster.elastic.collectives.fusion import Batch, FusedArray, fuse
from paddle_cluster.elastic.collectives.mesh import SILENCE_S, HeartbeatThread, Mesh
from paddle_cluster.elastic.collectives.paths import ArrayPath
from paddle_cluster.elastic.collectives.requests import (
    MAX_PENDING,
    MAX_REQUESTS,
    CollectiveKind,
    Ledger,
    Request,
    describe_stall,
    encode_request,
    parse_announcement,
    shape_of_result,
)
from paddle_cluster.elastic.errors import CollectiveMismatchError, HorovodInternalError
from pserver.wire.protocol import ProtocolError

CYCLE_BYTES = 8 << 20  # bytes of waiting requests at which the group's own thread begins a round
STALL_S = 60.0  # seconds of a wait after which a warning names the missing ranks (Horovod's default)
STALL_END_S = 1800.0  # seconds of a wait after which a stalled group ends


class CollectiveHandle:
    """A submitted request.

    Attributes: output: the result.  received_splits: number of rows from each rank in the result of an all-to-all.
        error: the reason why there is no result.  place: the group, the exchange in which the request has run, and its
        number there; they are the same on all ranks, and no other request has them.
    """

    def __init__(self, request: Request, source: Flat, output: np.ndarray[Any, Any] | None) -> None:
        self.request = request
        self.note = encode_request(request)
        self.source = source
        self.output = output
        self.error: Exception | None = None
        self.received_splits: list[int] = []
        self.is_done = False
        self.place = ("", 0, 0)


@dataclass(frozen=True)
class Patience:
    """Time limits of a group in seconds.

    Attributes: stall: wait after which a warning names the missing ranks.  end: wait after which the group ends.
        silence: time without any message or heartbeat after which a rank counts as lost.
    """

    stall: float = STALL_S
    end: float = STALL_END_S
    silence: float = SILENCE_S


class WaitingRequests:
    """The requests of a rank that wait, by name; the others are those that the rank has not announced yet.

    Attributes: nbytes: bytes of the arrays of all of them.
    """

    def __init__(self) -> None:
        self.of_name: dict[str, CollectiveHandle] = {}
        self.new: collections.deque[CollectiveHandle] = collections.deque()
        self.nbytes = 0
        self._number = 0  # number of requests without a name

    def choose_name(self) -> str:
        """Return the name of the next request without a name."""
        return f"noname.{self._number}"

    def add(self, handle: CollectiveHandle, *, is_named: bool) -> None:
        """Add a request.

        Raises: ValueError: a request with this name waits already, or too many requests wait.
        """
        name = handle.request.name
        if name in self.of_name:
            raise ValueError(f"a collective named '{name}' waits already; wait for its end, or choose another name")
        if len(self.of_name) >= MAX_PENDING:
            raise ValueError(f"{MAX_PENDING} collectives wait already; wait for the end of some of them")
        self._number += not is_named
        self.of_name[name] = handle
        self.new.append(handle)
        self.nbytes += handle.request.nbytes

    def take_new(self) -> list[CollectiveHandle]:
        """Return the requests of the next announcement."""
        handles: list[CollectiveHandle] = []
        length = 0
        while self.new and len(handles) < MAX_REQUESTS:
            length += len(self.new[0].note)
            if length > MAX_NOTE_BYTES:
                break
            handles.append(self.new.popleft())
        return handles

    def remove(self, handle: CollectiveHandle) -> None:
        """Remove a request that is done."""
        del self.of_name[handle.request.name]
        self.nbytes -= handle.request.nbytes

    def clear(self) -> list[CollectiveHandle]:
        """Remove and return all requests."""
        handles = list(self.of_name.values())
        self.of_name, self.new, self.nbytes = {}, collections.deque(), 0
        return handles


class RankGroup:
    """Starts the collectives of this rank, and waits for their results. Any thread may call any method.

    Raises (wait): HorovodInternalError: a rank is lost or has left, and the group has ended.
        CollectiveMismatchError: the ranks disagree about this collective; the group continues.
    """

    def __init__(self, mesh: Mesh, path: ArrayPath, patience: Patience | None = None) -> None:
        self.rank, self.size = mesh.rank, mesh.size
        self._mesh, self._path = mesh, path
        self._patience = patience or Patience()
        self._waiting = WaitingRequests()
        self._driving = threading.Lock()
        self._changed = threading.Condition()  # notified when `_waiting` changes, and when a handle is finished
        self._thread: threading.Thread | None = None
        self._ledger = Ledger(self.size)
        mesh.silence = self._patience.silence
        self._heart = HeartbeatThread(mesh, self._driving, self._changed)

    @property
    def _others(self) -> list[int]:
        return list(self._mesh.peers)

    # ----- Requests of callers -----

    def submit(
        self,
        kind: CollectiveKind,
        array: np.ndarray[Any, Any],
        *,
        name: str | None = None,
        argument: int = 0,
        output: np.ndarray[Any, Any] | None = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
        splits: Sequence[int] | None = None,
    ) -> CollectiveHandle:
        """Submit a collective, and return at once.

        Args: array: values of this rank, which must not change until the collective is done.  output: contiguous array
            of the same type and shape, possibly the array itself; the default is a new array.  prescale, postscale,
            splits: see `Request`.
        Raises: ValueError: a collective with this name waits already, or the name or the array is too large.
            TypeError: the name is no text.  HorovodInternalError: this process was forked from the rank's process.
        """
        self._heart.check_process()
        source = np.ascontiguousarray(array).reshape(-1)
        with self._changed:
            text = self._waiting.choose_name() if name is None else name
            request = Request(kind, text, array.dtype, array.shape, argument, prescale, postscale, tuple(splits or ()))
            handle = CollectiveHandle(request, source, output)
            if self._mesh.failure:
                handle.error, handle.is_done = HorovodInternalError(self._mesh.failure), True
                return handle
            self._waiting.add(handle, is_named=name is not None)
            is_much = self._waiting.nbytes >= CYCLE_BYTES
        # the thread that drives the rounds waits for the network, and would not see the new request
        if self._driving.locked():
            self._mesh.wake()
        if is_much:
            self.start()
        return handle

    def wait(self, handle: CollectiveHandle) -> np.ndarray[Any, Any]:
        """Wait for a collective, and return its result."""
        self._heart.check_process()
        while not handle.is_done:
            if self._driving.acquire(blocking=False):
                try:
                    while not handle.is_done:
                        self._round()
                finally:
                    self._driving.release()
                    if self._waiting.of_name:
                        self.start()
            else:
                self._mesh.wake()
                with self._changed:
                    self._changed.wait_for(lambda: handle.is_done or not self._driving.locked(), 1.0)
        if handle.error is not None:
            raise handle.error
        assert handle.output is not None
        return handle.output

    def start(self) -> None:
        """Run the waiting requests in the group's own thread."""
        self._heart.check_process()
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._drive, name="collectives", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        """Leave the group; waiting requests fail. A forked process does nothing, so its parent stays in the group."""
        if self._heart.is_forked:
            return
        self._heart.stop()
        with self._changed:
            thread = self._thread
        if self._driving.acquire(timeout=0):
            try:
                self._mesh.leave()
            finally:
                self._driving.release()
        else:  # another thread waits for ranks that may never answer
            self._mesh.abandon("this rank has left the group")
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._patience.stall)
        self._end(HorovodInternalError("this rank has left the group"))

    # ----- Rounds -----

    def _drive(self) -> None:
        """Run rounds in the group's own thread until no request waits."""
        while True:
            with self._changed:
                if not self._waiting.of_name:
                    self._thread = None
                    return
            with self._driving:
                while self._waiting.of_name:
                    self._round()

    def _round(self) -> None:
        try:
            self._take_round()
        except HorovodInternalError as exc:
            self._end(exc)
        except BaseException as exc:  # even after Ctrl-C the group ends, because its ranks are at different exchanges
            with contextlib.suppress(HorovodInternalError):
                self._mesh.fail(f"a collective of this rank was ended by {type(exc).__name__}: {exc}")
            self._end(HorovodInternalError(self._mesh.failure))
            raise

    def _take_round(self) -> None:
        if not self._waiting.of_name:
            return
        self._wait_for_news()
        with self._changed:
            handles = self._waiting.take_new()
        note = b"".join(handle.note for handle in handles)
        own = [handle.request for handle in handles]
        entries = [FusedArray(handle.request, handle.source, _flat(handle, self.rank, self.size)) for handle in handles]
        batches = fuse(entries, [[request] * self.size for request in own])
        exchange = self._path.announce(note, batches[0] if batches else None)
        self._wait_for_all(own)
        frames = self._path.take_announcements()
        if self._ledger.is_empty and all(frame.note == note for frame in frames):
            for number, batch in enumerate(batches):
                self._run(batch, None if number else frames)
            self._finish(handles, exchange)
            return
        self._run_agreed(own, frames, exchange)

    def _run_agreed(self, own: Sequence[Request], frames: list[Frame], exchange: int) -> None:
        """Run the requests that all ranks have announced by now, and fail the requests with a mismatch."""
        announced: list[Sequence[Request]] = []
        theirs = dict(zip(self._others, frames, strict=True))
        for rank in range(self.size):
            try:
                announced.append(own if rank == self.rank else parse_announcement(theirs[rank].note))
            except ProtocolError as exc:
                self._mesh.fail(f"rank {rank} sent {exc}")
        try:
            agreement = self._ledger.add(announced)
        except ProtocolError as exc:
            self._mesh.fail(f"this rank got {exc}")
        for name, why in agreement.mismatches.items():
            handle = self._waiting.of_name[name]
            handle.error = CollectiveMismatchError(why)
            self._finish([handle])
        run = [self._waiting.of_name[same[0].name] for same in agreement.run]
        for handle, same in zip(run, agreement.run, strict=True):
            _prepare(handle, self.rank, same)
        entries = [FusedArray(handle.request, handle.source, _flat(handle, self.rank, self.size)) for handle in run]
        for batch in fuse(entries, agreement.run):
            self._run(batch, None)
        self._finish(run, exchange)

    def _run(self, batch: Batch, frames: list[Frame] | None) -> None:
        if batch.count or any(batch.counts):  # an all-gather runs if any rank has elements
            self._path.run(batch, frames)

    def _finish(self, handles: Sequence[CollectiveHandle], exchange: int = -1) -> None:
        with self._changed:
            for number, handle in enumerate(handles):
                handle.place, handle.is_done = (self._mesh.identity, exchange, number), True
                self._waiting.remove(handle)
            self._changed.notify_all()

    def _end(self, error: HorovodInternalError) -> None:
        """Fail every waiting request."""
        with self._changed:
            for handle in self._waiting.clear():
                handle.error, handle.is_done = error, True
            self._changed.notify_all()

    # ----- Waiting for other ranks -----

    def _wait_for_all(self, own: Sequence[Request]) -> None:
        began = time.monotonic()
        until = began + self._patience.stall
        while missing := self._mesh.wait_until(self._others, until):
            until = self._complain([() if rank in missing else own for rank in range(self.size)], began)

    def _wait_for_news(self) -> None:
        """Wait until this rank has a new request, or another rank has announced requests."""
        began = time.monotonic()
        until = began + self._patience.stall
        while not self._waiting.new and len(self._mesh.missing(self._others)) == len(self._others):
            self._mesh.check()
            self._mesh.turn(max(0.0, until - time.monotonic()))
            if time.monotonic() >= until:
                until = self._complain([()] * self.size, began)

    def _complain(self, new: Sequence[Sequence[Request]], began: float) -> float:
        """Log the ranks for which this rank waits, or end the group if the wait has been too long.

        Args: new: by rank, requests that the rank has announced in this round.
        Returns: time of the next log line, in seconds of `time.monotonic`.
        """
        now = time.monotonic()
        announced = [[*self._ledger.list_pending(rank), *new[rank]] for rank in range(self.size)]
        text = describe_stall(announced, self.rank, now - began)
        if now - began >= self._patience.end:
            self._mesh.fail(text)
        glog.warning(f"{text}; every rank has to call the same collectives")
        return now + self._patience.stall


def _flat(handle: CollectiveHandle, rank: int, size: int) -> Flat:
    """Return the memory of the result as a flat array; allocate the memory if the request has none."""
    if handle.output is None:
        _prepare(handle, rank, [handle.request] * size)
    assert handle.output is not None
    return handle.output.reshape(-1)


def _prepare(handle: CollectiveHandle, rank: int, same: Sequence[Request]) -> None:
    """Allocate the memory of the result; the number of its rows may depend on all ranks."""
    shape = shape_of_result(same, rank)
    if handle.output is None or handle.output.shape != shape:
        handle.output = np.empty(shape, handle.request.dtype)
    handle.received_splits = [one.splits[rank] for one in same if one.splits]
