"""A group of ranks that run collectives together, in an agreed order, over connections or shared memory.

A group works in rounds. In each round every rank announces its new requests to all other ranks. A request runs when all
ranks have announced it, in the same round or in different ones. A round begins when a thread waits for a result, or
when the waiting requests have `CYCLE_BYTES` together; no timer begins a round. The thread that waits for a result runs
the rounds. The group starts its own thread only while there are requests and no thread waits for a result.

A rank may be in several groups: that of all ranks, and those of its process sets. While a thread waits for a result of
one of them, the own threads of the others run their requests, because ranks may wait in different orders. The failure
of one of them ends the others.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from paddle_cluster.elastic.collectives.dtypes import Flat
from paddle_cluster.elastic.collectives.frames import Frame
from paddle_cluster.elastic.collectives.fusion import Batch, FusedArray, fuse
from paddle_cluster.elastic.collectives.kin import Kin
from paddle_cluster.elastic.collectives.mesh import Mesh
from paddle_cluster.elastic.collectives.paths import ArrayPath
from paddle_cluster.elastic.collectives.requests import (
    JOIN_NAME,
    CollectiveKind,
    Ledger,
    Request,
    parse_announcement,
    shape_of_result,
)
from paddle_cluster.elastic.collectives.stalls import Patience, StallWatch
from paddle_cluster.elastic.collectives.waiting import (
    CollectiveHandle,
    GroupHandle,
    Handle,
    JoinHandle,
    WaitingRequests,
    make_collective,
    make_zeros,
)
from paddle_cluster.elastic.errors import CollectiveMismatchError, HorovodInternalError
from pserver.wire.protocol import ProtocolError

CYCLE_BYTES = 8 << 20  # bytes of waiting requests at which the group's own thread begins a round
LOOK_S = 0.05  # seconds between two looks whether requests wait whose thread has to end
_ANY = np.dtype(np.uint8)
H = TypeVar("H", bound=Handle)


class RankGroup:
    """Starts the collectives of this rank, and waits for their results. Any thread may call any method.

    Raises (wait): HorovodInternalError: a rank is lost or has left, and the group has ended.
        CollectiveMismatchError: the ranks disagree about this collective; the group continues.
    """

    def __init__(
        self, mesh: Mesh, path: ArrayPath, patience: Patience | None = None, beside: RankGroup | None = None
    ) -> None:
        """Begin to take requests. `beside`: the group of all ranks, if this one is that of a process set."""
        self.rank, self.size = mesh.rank, mesh.size
        self._mesh, self._path = mesh, path
        self._waiting = WaitingRequests()
        self._driving = threading.Lock()
        self._driver = 0  # the thread that has `_driving`, or had it
        self._changed = threading.Condition()  # notified when `_waiting` changes, and when a handle is finished
        self._thread: threading.Thread | None = None
        self._ledger = Ledger(self.size)
        self._stalls = StallWatch(mesh, self._ledger, patience or Patience())
        self._kin: Kin = Kin() if beside is None else beside._kin
        self._kin.heart.add(mesh, self._driving, self._changed)
        self._kin.add(self)

    @property
    def is_driven(self) -> bool:
        """Whether a thread runs the rounds of the group."""
        return self._driving.locked()

    @property
    def has_requests(self) -> bool:
        """Whether a request waits for its result."""
        return bool(self._waiting)

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
        wire: np.dtype[Any] | None = None,
    ) -> CollectiveHandle:
        """Submit a collective, and return at once.

        Args: array: values of this rank, which must not change until the collective is done.  output: contiguous array
            of the same type and shape, possibly the array itself; the default is a new array.  prescale, postscale,
            splits: see `Request`.  wire: the floating type in which an all-reduce sends and reduces the values, which
            are rounded to it first; None: that of the array.
        Raises: ValueError: a collective with this name waits already, or the name or the array is too large.
            TypeError: the name is no text.  HorovodInternalError: this process was forked from the rank's process.
        """
        request = Request(kind, "", _ANY, (), argument, prescale, postscale, tuple(splits or ()))
        return self._submit(make_collective(request, array, output, wire), name)

    def submit_group(
        self,
        kind: CollectiveKind,
        arrays: Sequence[np.ndarray[Any, Any]],
        *,
        name: str | None = None,
        argument: int = 0,
        outputs: Sequence[np.ndarray[Any, Any] | None] | None = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
        wire: np.dtype[Any] | None = None,
    ) -> GroupHandle:
        """Submit collectives of the same kind, which run together or fail together; see `submit`.

        Args: outputs: for each array, the array that receives the result, or None.
        Raises: ValueError: see `submit`; there are more arrays than an announcement can have.
        """
        request = Request(kind, "", _ANY, (), argument, prescale, postscale)
        pairs = zip(arrays, outputs or [None] * len(arrays), strict=True)
        members = [make_collective(request, array, output, wire) for array, output in pairs]
        return self._submit(GroupHandle(members), name)

    def join(self) -> int:
        """Take part with zeros in the all-reduces of the others until all ranks have joined.

        Any other collective of the others fails on them with a CollectiveMismatchError.

        Returns: the rank that has joined last.
        Raises: HorovodInternalError: a rank is lost or has left.  ValueError: another thread of this rank has joined.
        """
        handle = self._submit(JoinHandle(), JOIN_NAME)
        self._wait(handle)
        return handle.last

    def _submit(self, handle: H, name: str | None) -> H:
        self._kin.heart.check_process()
        with self._changed:
            if self._mesh.failure:
                handle.error, handle.is_done = HorovodInternalError(self._mesh.failure), True
                return handle
            self._waiting.add(handle, name)
            is_much = self._waiting.nbytes >= CYCLE_BYTES
        # the thread that drives the rounds may wait for the network, and would not see the new request
        if self._stalls.needs_news:
            self._mesh.wake()
        if is_much or self._kin.is_driven_beside(self):
            self.start()
        return handle

    def wait(self, handle: CollectiveHandle) -> np.ndarray[Any, Any]:
        """Wait for a collective, and return its result."""
        self._wait(handle)
        assert handle.output is not None
        return handle.output

    def wait_group(self, handle: GroupHandle) -> list[np.ndarray[Any, Any]]:
        """Wait for a group of collectives, and return the results in the order of the arrays."""
        self._wait(handle)
        return [part.output for part in handle.parts if part.output is not None]

    def _wait(self, handle: Handle) -> None:
        self._kin.heart.check_process()
        while not handle.is_done:
            if self._driving.acquire(blocking=False):
                self._driver = threading.get_ident()
                try:
                    self._kin.start_beside(self)
                    while not handle.is_done:
                        self._round()
                finally:
                    self._driving.release()
                    if self._waiting:
                        self.start()
            else:
                self._kin.start_beside(self)
                self._mesh.wake()
                with self._changed:
                    self._changed.wait_for(lambda: handle.is_done or not self._driving.locked(), 1.0)
        if handle.error is not None:
            raise handle.error

    def start(self) -> None:
        """Run the waiting requests in the group's own thread."""
        self._kin.heart.check_process()
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._drive, name="collectives", daemon=True)
                self._thread.start()

    def separate(self) -> None:
        """From now on the failure of this group of a process set does not end the other groups of this rank."""
        self._kin.remove(self)

    def check(self) -> None:
        """Raises: HorovodInternalError: the group has ended, as far as this rank has heard."""
        if self._driving.acquire(blocking=False):
            try:
                self._mesh.turn(0.0)
                self._mesh.check()
            finally:
                self._driving.release()

    def abandon(self, reason: str) -> None:
        """End the group for all its ranks; the other ranks get the reason."""
        self._mesh.abandon(reason)
        if self._driving.acquire(blocking=False):  # else the other thread, or the next heartbeat, ends it
            try:
                with contextlib.suppress(HorovodInternalError):
                    self._mesh.fail(reason)
            finally:
                self._driving.release()
            self._end(HorovodInternalError(self._mesh.failure))

    def leave(self, deadline: float | None = None) -> None:
        """Leave the group; waiting requests fail. A forked process does nothing, so its parent stays in the group."""
        if self._kin.heart.is_forked:
            return
        self.separate()
        self._kin.heart.remove(self._mesh)
        with self._changed:
            thread = self._thread
        if self._take_driving():
            try:
                self._mesh.leave(deadline)
            finally:
                self._driving.release()
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._stalls.patience.stall)
        self._end(HorovodInternalError("this rank has left the group"))

    def _take_driving(self) -> bool:
        """Acquire `_driving` from another thread, whose requests fail; return False if it does not end."""
        until = time.monotonic() + self._stalls.patience.stall
        wait = 0.0
        while not self._driving.acquire(timeout=wait):
            if self._waiting:  # the other thread may wait for ranks that never answer
                self._mesh.abandon("this rank has left the group")
            if self._driver == threading.get_ident() or time.monotonic() >= until:
                return False  # a signal handler has interrupted the thread itself, which ends the group afterwards
            wait = LOOK_S
        return True

    # ----- Rounds -----

    def _drive(self) -> None:
        """Run rounds in the group's own thread until no request waits."""
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    return
            with self._driving:
                self._driver = threading.get_ident()
                while self._waiting:
                    self._round()

    def _round(self) -> None:
        try:
            self._take_round()
        except HorovodInternalError as exc:
            self._end(exc)
            self._kin.end_beside(self, str(exc))
        except BaseException as exc:  # even after Ctrl-C the group ends, because its ranks are at different exchanges
            with contextlib.suppress(HorovodInternalError):
                self._mesh.fail(f"a collective of this rank was ended by {type(exc).__name__}: {exc}")
            self._end(HorovodInternalError(self._mesh.failure))
            self._kin.end_beside(self, self._mesh.failure)
            raise

    def _take_round(self) -> None:
        if not self._waiting:
            return
        self._stalls.wait_for_news(self._waiting)
        with self._changed:
            handles = self._waiting.take_new()
        note = b"".join(handle.note for handle in handles)
        own = [handle.request for handle in handles]
        entries = _list_entries(handles, self.rank, self.size)
        batches = fuse(entries, [[entry.request] * self.size for entry in entries], self._path.limits)
        exchange = self._path.announce(note, batches[0] if batches else None)
        self._stalls.wait_for_all(own)
        frames = self._path.take_announcements()
        is_plain = all(handle.parts for handle in handles)  # no join, which only the ledger can answer
        if is_plain and self._ledger.is_empty and all(frame.note == note for frame in frames):
            for number, batch in enumerate(batches):
                _run(self._path, batch, None if number else frames)
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
            failed = self._waiting.find(name)
            if failed is not None:  # else this rank has joined
                failed.error = CollectiveMismatchError(why)
                self._finish([failed])
        run = [self._waiting.find(same[0].name) or make_zeros(same[0]) for same in agreement.run]
        requests = [part for same in agreement.run for part in _list_parts(same)]
        for part, same in zip((part for handle in run for part in handle.parts), requests, strict=True):
            _prepare(part, self.rank, same)
        for batch in fuse(_list_entries(run, self.rank, self.size), requests, self._path.limits):
            _run(self._path, batch, None)
        if agreement.last_joined >= 0:
            run.append(self._waiting.end_join(agreement.last_joined, agreement.number))
        self._finish(run, exchange)

    def _finish(self, handles: Sequence[Handle], exchange: int = -1) -> None:
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


def _run(path: ArrayPath, batch: Batch, frames: list[Frame] | None) -> None:
    if batch.count or any(batch.counts):  # an all-gather runs if any rank has elements
        # an overflow gives infinity, as in Horovod; a warning that is an error would end the group
        with np.errstate(all="ignore"), path.prepare(batch) as ready:
            path.run(ready, frames)


def _list_entries(handles: Sequence[Handle], rank: int, size: int) -> list[FusedArray]:
    parts = [part for handle in handles for part in handle.parts]
    return [FusedArray(part.request, part.source, _flat(part, rank, size)) for part in parts]


def _list_parts(same: Sequence[Request]) -> Iterable[Sequence[Request]]:
    """Return the collectives of a request; each item contains the requests of all ranks by rank."""
    is_group = same[0].kind == CollectiveKind.GROUP
    return zip(*(one.members for one in same), strict=True) if is_group else [same]


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
        handle.output = np.empty(shape, handle.source.dtype)
    handle.received_splits = [one.splits[rank] for one in same if one.splits]
