"""The state of a worker: committed by the program, restored after a failure, and sent to workers that join.

Names and order are those of Horovod 0.28's `horovod.common.elastic`. The states differ from Horovod's in two ways. An
`ObjectState` keeps deep copies, so `restore` also undoes changes inside a list. Every rank syncs after every change of
hosts.
"""

from __future__ import annotations

import copy
import functools
import queue
import time
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from paddle_base.runtime import glog
from paddle_cluster.elastic.collectives.dtypes import DTYPES
from paddle_cluster.elastic.errors import HorovodInternalError, HostsUpdatedInterrupt
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.fresh_memory import FreshMemory
from paddle_cluster.elastic.process.leaving import leaving_on_sigterm
from paddle_cluster.elastic.process.membership import WORKER
from paddle_cluster.elastic.process.objects import dump_object
from paddle_cluster.elastic.process.sameness import list_stale
from paddle_cluster.elastic.sampler import ElasticSampler
from paddle_cluster.elastic.worker import WorkerNotificationManager

P = ParamSpec("P")
R = TypeVar("R")
_NO_UPDATE = 0
_SCALARS = frozenset({bool, int, float, str, type(None)})
SYNC_NAME = "state.sync"  # begins the names of the collectives of `sync`, which the warning about a long wait quotes
FIXED = "this job ends, because its number of workers is fixed (paddle elastic run --min-np 1 lets the others continue)"
notification_manager = WorkerNotificationManager()  # the only manager of this process


# ----- States -----

ASK_S = 0.5  # seconds between two questions whether new workers start


class HostMessages(queue.Queue[tuple[float, int]]):
    """The notices of the driver that a state has not handled yet.

    Horovod's own test scripts wait some seconds until the queue is not empty, because Horovod sends the notice before
    it starts a new worker. Here the new worker has to be ready first, which takes as long as its imports.
    """

    def empty(self) -> bool:
        """Return whether there is no notice; while new workers start, wait for the notice that they are ready."""
        until = time.monotonic() + WORKER.settings.elastic_timeout
        while super().empty() and time.monotonic() < until and WORKER.has_newcomers():
            with self.not_empty:
                if not self._qsize():
                    self.not_empty.wait(ASK_S)
        return super().empty()

    def take_all(self) -> list[tuple[float, int]]:
        """Remove all notices, and return them in their order."""
        with self.mutex:
            found = list(self.queue)
            self.queue.clear()
        return found


class State:
    """The base class of all states; a subclass implements `save`, `restore`, `sync` and `reset`.

    Args: bcast_object: returns the object of rank 0 on every rank.  get_rank: returns this worker's rank.
    """

    def __init__(
        self, bcast_object: Callable[[Any], Any] | None = None, get_rank: Callable[[], int] | None = None
    ) -> None:
        self._bcast_object = bcast_object or operations.broadcast_object
        self._rank = get_rank or operations.rank
        self._host_messages = HostMessages()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """Register callbacks that run in this order after a change of ranks and before the next sync.

        A callback adapts values that depend on the number of workers, such as the learning rate or the data of this
        rank.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Reset the state and run the callbacks after a change of ranks."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Store a notice of the driver for the next `check_host_updates`.

        Args: timestamp: see `HostsListener`.  update_res: flags of `HostUpdateResult`.
        """
        self._host_messages.put((timestamp, update_res))

    def forget_host_updates(self) -> None:
        """Drop all notices, because the ranks that were just assigned already account for every earlier notice."""
        self._host_messages.take_all()

    def commit(self) -> None:
        """Save the state, then check for a change of hosts.

        Raises: HostsUpdatedInterrupt: the hosts have changed; all ranks raise at the same commit.
        """
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Check whether rank 0 has a notice of a change; all ranks call this method at the same steps.

        Raises: HostsUpdatedInterrupt: rank 0 has a notice.
        """
        last, update = self._last_updated_timestamp, _NO_UPDATE
        for timestamp, flags in self._host_messages.take_all():
            if timestamp > last:
                last = timestamp
                update |= int(flags)
        previous, self._last_updated_timestamp, _ = self._bcast_object((self._last_updated_timestamp, last, update))
        if self._last_updated_timestamp > previous:
            raise HostsUpdatedInterrupt(skip_sync=False)

    def save(self) -> None:
        """Save the present state."""
        raise NotImplementedError

    def restore(self) -> None:
        """Return to the last saved state."""
        raise NotImplementedError

    def sync(self) -> None:
        """Send the state of rank 0 to every rank."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt the state to a change of ranks; the default does nothing."""

    def _sync_object(self, value: object) -> Any:
        """Return the object of rank 0, for `sync`."""
        if self._bcast_object is operations.broadcast_object:
            return operations.broadcast_object(value, name=SYNC_NAME)
        return self._bcast_object(value)  # a function of the program takes no name


class ObjectState(State):
    """A state of attributes, as in `ObjectState(epoch=0, batch=0)`; `broadcast_object` must be able to send each value.

    Raises: TypeError: an attribute cannot be sent to other ranks; the message names the attribute and its replacement.
    """

    def __init__(
        self,
        bcast_object: Callable[[Any], Any] | None = None,
        get_rank: Callable[[], int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(bcast_object, get_rank)
        for name, value in kwargs.items():
            self._check_name(name)
            self._check(name, value)
            setattr(self, name, value)
        self._saved_state = copy.deepcopy(kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign an attribute.

        Raises: TypeError: it is one of the state and cannot be sent, which `sync` would find only after hours.
        """
        if name in self.__dict__.get("_saved_state", ()):
            self._check_assigned(name, value)
        object.__setattr__(self, name, value)

    def save(self) -> None:
        """Save a deep copy of the attributes."""
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        """Set the attributes to a deep copy of the last saved values."""
        self._set_attrs()

    def sync(self) -> None:
        """Set the attributes to the values of rank 0, and save the values."""
        if self._saved_state:
            present = {name: getattr(self, name) for name in self._saved_state}
            self._saved_state = self._sync_object(present)
            self._set_attrs()

    def _check_assigned(self, name: str, value: object) -> None:
        if type(value) not in _SCALARS:  # a loop assigns numbers after each batch
            self._check(name, value)

    def _check(self, name: str, value: object) -> None:
        """Refuse an attribute that `sync` could not send. Raises: TypeError."""
        call = f"{type(self).__name__}({name}=...)"
        if isinstance(value, ElasticSampler):
            raise TypeError(
                f"{call}: an ElasticSampler has other samples on each rank and cannot be sent to a rank; "
                f"use ArrayState({name}=...), which sends the number of processed samples"
            )
        if self._bcast_object is not operations.broadcast_object:
            return
        try:
            dump_object(value, name)
        except TypeError as exc:
            raise TypeError(
                f"{call}: {exc}. Keep plain data in the state, samples in an ElasticSampler of an ArrayState, and "
                "anything else in a subclass of hvd.elastic.State"
            ) from exc

    def _check_name(self, name: str) -> None:
        """Refuse an attribute that would replace a method. Raises: TypeError."""
        if callable(getattr(type(self), name, None)):
            raise TypeError(f"{type(self).__name__}({name}=...): {name} is a method of the state; choose another name")

    def _set_attrs(self) -> None:
        for name, value in self._saved_state.items():
            object.__setattr__(self, name, copy.deepcopy(value))


class ArrayState(ObjectState):
    """A state with numpy arrays, such as `ArrayState(weights=w, optimizer={"m": m, "v": v}, sampler=sampler, epoch=0)`.

    `restore` and `sync` write into the existing memory of arrays and of dictionaries of arrays. If the program has
    assigned an array of another shape or type since the last commit, `restore` replaces this array. `sync` sends the
    raw bytes of an array. A sampler saves its number of processed samples. Any other attribute behaves as in
    `ObjectState`.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._arrays = {name: value for name, value in kwargs.items() if _is_arrays(value)}
        self._samplers = {name: value for name, value in kwargs.items() if isinstance(value, ElasticSampler)}
        for name, value in (self._arrays | self._samplers).items():
            self._check_name(name)
            setattr(self, name, value)
        for name, array in self._named_arrays().items():
            _check_array(name.rstrip("."), array)
        self._kept: dict[str, Any] = {}
        own = self._arrays.keys() | self._samplers.keys()
        super().__init__(**{name: value for name, value in kwargs.items() if name not in own})
        self._keep()

    def save(self) -> None:
        """Save copies of arrays, samplers and other attributes."""
        self._keep()
        super().save()

    def restore(self) -> None:
        """Write the saved values into the arrays, and restore samplers and other attributes."""
        for name in self._arrays:
            value, kept = getattr(self, name, None), self._kept[name]
            if not isinstance(kept, dict):
                setattr(self, name, _copy_into(value, kept))
            elif isinstance(value, dict):
                found = {key: _copy_into(value.get(key), array) for key, array in kept.items()}
                value.clear()
                value.update(found)
            else:
                setattr(self, name, {key: array.copy() for key, array in kept.items()})
        for name in self._samplers:
            getattr(self, name).load_state_dict(self._kept[name])
        super().restore()

    def sync(self) -> None:
        """Write rank 0's arrays into the arrays of every rank, take rank 0's other attributes, and save all of them.

        An array that has the same bits on all ranks is not sent.
        """
        named = sorted(self._named_arrays().items())
        names = repr([(name, array.dtype.str, array.shape) for name, array in named]).encode()
        stale = list_stale([array for _, array in named], names, SYNC_NAME)
        handles = [
            operations.broadcast_async_(named[one][1], 0, f"{SYNC_NAME}.{named[one][0]}") for one in sorted(stale)
        ]
        for handle in handles:
            operations.synchronize(handle)
        for name in self._samplers:
            sampler = getattr(self, name)
            sampler.load_state_dict(self._sync_object(sampler.state_dict()))
        super().sync()
        self._keep()

    def reset(self) -> None:
        """Divide the unprocessed samples among the new ranks."""
        for name in self._samplers:
            getattr(self, name).reset()

    def _keep(self) -> None:
        memory = FreshMemory()
        for name in self._arrays:
            value, kept = getattr(self, name), self._kept.get(name)
            if isinstance(value, dict):
                old = kept if isinstance(kept, dict) else {}
                self._kept[name] = {key: _copy_into(old.get(key), array, memory) for key, array in value.items()}
            else:
                self._kept[name] = _copy_into(kept, value, memory)
        for name in self._samplers:
            self._kept[name] = getattr(self, name).state_dict()

    def _named_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays of the attributes by name."""
        named = {}
        for name in self._arrays:
            value = getattr(self, name)
            pairs = value.items() if isinstance(value, dict) else [("", value)]
            named.update({f"{name}.{inner}": array for inner, array in pairs})
        return named


def _copy_into(target: object, source: np.ndarray[Any, Any], memory: FreshMemory | None = None) -> np.ndarray[Any, Any]:
    """Return an array with the content of the source; this is the target if it has the type and shape of the source."""
    source = np.asarray(source)
    if (
        not isinstance(target, np.ndarray)
        or (target.shape, target.dtype) != (source.shape, source.dtype)
        or not target.flags.writeable
    ):
        if memory is None or not source.flags.c_contiguous:
            return source.copy()
        target = memory.take(source.nbytes).view(source.dtype).reshape(source.shape)
    target[...] = source
    return target


def _check_array(name: str, array: np.ndarray[Any, Any]) -> None:
    """Raises: TypeError: `sync` could not send the array, or could not write into it."""
    if array.dtype not in DTYPES:
        types = ", ".join(dtype.name for dtype in DTYPES)
        raise TypeError(f"ArrayState: {name} is an array of {array.dtype}; the types that can be sent are {types}")
    if not array.flags.writeable:
        raise TypeError(
            f"ArrayState: {name} is a read-only array; give a copy of this array, because `sync` changes the values"
        )


def _is_arrays(value: object) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(isinstance(one, np.ndarray) for one in value.values())
    return isinstance(value, np.ndarray)


# ----- The loop -----


def run_fn(
    func: Callable[Concatenate[Any, P], R],
    reset: Callable[[], None],
    finish: Callable[[], None] = lambda: None,
) -> Callable[Concatenate[Any, P], R]:
    """Return a function that runs `func` in a loop: sync, train, and repeat after a failure or a change of hosts.

    1. Start to receive notices of the driver. A newcomer asks for its place, and calls `state.on_reset()` if the place
       is not the expected one.
    2. Call `state.sync()`, which sends the state of rank 0 to every rank.
    3. Call `func(state)`. If `func` returns, call `finish`, and end the loop.
    4. After HorovodInternalError call `state.restore()`. After HostsUpdatedInterrupt keep the present state.
    5. Call `reset` and `state.on_reset()`, and repeat from step 2.

    The order is that of Horovod's `run_fn`.

    Args: reset: leaves the group and joins the next generation.
    """

    @functools.wraps(func)
    def wrapper(state: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        notices = notification_manager
        if WORKER.is_member:  # a child of a worker must not receive its notices
            notices.init()
        WORKER.notice_addresses = notices.addresses
        notices.register_listener(state)
        WORKER.on_placed = getattr(state, "forget_host_updates", lambda: None)
        try:
            with leaving_on_sigterm():
                # a newcomer asks for its place only here, so that nobody waits while it loads its data
                if WORKER.join():
                    state.on_reset()
                return _repeat(functools.partial(func, state, *args, **kwargs), state, reset, finish)
        finally:
            WORKER.on_placed = lambda: None
            notices.remove_listener(state)

    return wrapper


def _repeat(train: Callable[[], R], state: Any, reset: Callable[[], None], finish: Callable[[], None]) -> R:
    skip_sync = False
    WORKER.has_state = bool(WORKER.has_state)
    while True:
        try:
            if not skip_sync:
                state.sync()
            WORKER.has_state = True
            result = train()
        except HorovodInternalError as exc:
            follows = "training continues from the last commit" if WORKER.settings.is_elastic else FIXED
            glog.warning(f"a collective failed, and {follows}: {exc}")
            state.restore()
            skip_sync = False
        except HostsUpdatedInterrupt as exc:
            glog.info("the workers change, and training continues in the next generation")
            skip_sync = exc.skip_sync
        else:
            finish()
            return result
        reset()
        state.on_reset()


def reset_worker() -> None:
    """Leave the group and join the next generation."""
    WORKER.shutdown()
    WORKER.init()


def run(func: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Wrap a function `train(state, ...)`; the wrapped function continues after a failure or a change of hosts.

    HorovodInternalError and HostsUpdatedInterrupt restart `func` with the remaining workers. The wrapped function ends
    when `func` returns or raises any other exception. No collective may run before the wrapped function, except those
    of `hvd.init`.

    Raises: RemovedFromJobError: the driver no longer has a slot for this worker; the worker must end.
    """
    return run_fn(func, reset_worker, WORKER.finish)
