"""The state of a worker: committed by the program, restored after a failure, and sent to workers that join.

Names and order are those of Horovod 0.28's `horovod.common.elastic`. The states differ from Horovod's in two ways. An
`ObjectState` keeps deep copies, so `restore` also undoes changes inside a list. Every rank syncs after every change of
hosts.
"""

from __future__ import annotations

import copy
import functools
import math
import queue
import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from paddle_base.runtime import glog
from paddle_cluster.elastic.collectives.dtypes import DTYPES
from paddle_cluster.elastic.errors import HorovodInternalError, HostsUpdatedInterrupt
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.leaving import leaving_on_sigterm
from paddle_cluster.elastic.process.membership import WORKER
from paddle_cluster.elastic.process.objects import dump_object
from paddle_cluster.elastic.worker import WorkerNotificationManager

P = ParamSpec("P")
R = TypeVar("R")
_NO_UPDATE = 0
_SCALARS = frozenset({bool, int, float, str, type(None)})
SYNC_NAME = "state.sync"  # begins the names of the collectives of `sync`, which the warning about a long wait quotes
FIXED = "this job ends, because its number of workers is fixed (paddle elastic run --min-np 1 lets the others continue)"
notification_manager = WorkerNotificationManager()  # the only manager of this process


# ----- The samples of an epoch -----


class ElasticSampler:
    """Divides the unprocessed samples of an epoch among the ranks, and divides them again after a change of ranks.

        for batch, indices in enumerate(batches(sampler)):
            ...
            sampler.record_batch(batch, len(indices))
            state.commit()
        sampler.set_epoch(epoch + 1)      # at the end of an epoch

    All ranks use the same order. Some samples are repeated at the end of an epoch, so every rank gets the same number
    of samples.

    Args: dataset: its length is the number of samples.  shuffle: whether each epoch has another order.  seed: seed of
        the shuffle.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = self.processed_num = 0
        self.num_replicas, self.rank = 1, 0
        self.remaining_indices: list[int] = []
        self.num_samples = self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch without processed samples. Call this method at the end of the previous epoch."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Record that every rank has processed a batch of this size."""
        self.processed_num += batch_size * self.num_replicas

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Return this rank's samples of a batch; batch 0 is the first batch after the last reset."""
        indices = list(self)
        return indices[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and the number of its processed samples."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from the result of `state_dict`.

        Raises: ValueError: processed_num is negative.
        """
        epoch, processed_num = int(state_dict["epoch"]), int(state_dict["processed_num"])
        if processed_num < 0:
            raise ValueError(f"processed_num is {processed_num}; it is a number of samples, at least 0")
        self.epoch, self.processed_num = epoch, processed_num
        self.reset()

    def reset(self) -> None:
        """Divide the unprocessed samples among the present ranks."""
        self.rank, self.num_replicas = self._find_place()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def _find_place(self) -> tuple[int, int]:
        """Return this rank and the number of ranks."""
        return operations.rank(), operations.size()

    def __iter__(self) -> Iterator[int]:
        """Yield this rank's samples; every rank yields the same number of samples."""
        left = self.remaining_indices
        padded = (left[place % len(left)] for place in range(self.rank, self.total_size, self.num_replicas))
        return iter(list(padded))

    def __len__(self) -> int:
        return self.num_samples


# ----- Callbacks, as those of Horovod for Keras -----


class CommitStateCallback:
    """Commits a state after every `batches_per_commit` batches, and at the end of an epoch.

    Args: state: an `paddle_cluster.elastic.state.State`.  batches_per_commit: number of batches between two commits; 0:
        commit only at the end of an epoch.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        self.state, self.batches_per_commit = state, batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_batch_end(self, batch: int, logs: object = None) -> None:
        """Count a batch, and commit if `batches_per_commit` batches have been counted since the last commit."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.commit()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Commit."""
        self.commit()

    def commit(self) -> None:
        """Commit, and reset the count of batches."""
        self.batches_remaining = self.batches_per_commit
        self.state.commit()


class UpdateBatchStateCallback:
    """Updates `state.batch`; the first epoch after a reset does not repeat the batches that were committed before.

    Attributes: steps_per_epoch: number of batches of a whole epoch; None: the number is unknown.
    """

    def __init__(self, state: Any, steps_per_epoch: int | None = None) -> None:
        self.state, self.steps_per_epoch = state, steps_per_epoch

    def steps_of_epoch(self) -> int | None:
        """Return the number of remaining batches of the present epoch."""
        return None if self.steps_per_epoch is None else max(0, self.steps_per_epoch - self.state.batch)

    def on_batch_end(self, batch: int, logs: object = None) -> None:
        """Count a batch."""
        self.state.batch += 1

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Reset the count of batches."""
        self.state.batch = 0


class UpdateEpochStateCallback:
    """Updates `state.epoch`; the number stays correct after a reset, when the loop counts its epochs from 0 again."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self.initial_epoch = int(state.epoch)

    def on_train_begin(self, logs: object = None) -> None:
        """Record the epoch from which training continues."""
        self.initial_epoch = int(self.state.epoch)

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Count an epoch."""
        self.state.epoch = self.initial_epoch + epoch + 1


# ----- States -----


class State:
    """The base class of all states; a subclass implements `save`, `restore`, `sync` and `reset`.

    Args: bcast_object: returns the object of rank 0 on every rank.  get_rank: returns this worker's rank.
    """

    def __init__(
        self, bcast_object: Callable[[Any], Any] | None = None, get_rank: Callable[[], int] | None = None
    ) -> None:
        self._bcast_object = bcast_object or operations.broadcast_object
        self._rank = get_rank or operations.rank
        self._host_messages: queue.SimpleQueue[tuple[float, int]] = queue.SimpleQueue()
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
        while not self._host_messages.empty():
            self._host_messages.get_nowait()

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
        while not self._host_messages.empty():
            timestamp, flags = self._host_messages.get_nowait()
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
        """Write rank 0's arrays into the arrays of every rank, take rank 0's other attributes, and save all of them."""
        named = sorted(self._named_arrays().items())
        handles = [operations.broadcast_async_(array, 0, f"{SYNC_NAME}.{name}") for name, array in named]
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
        for name in self._arrays:
            value, kept = getattr(self, name), self._kept.get(name)
            if isinstance(value, dict):
                old = kept if isinstance(kept, dict) else {}
                self._kept[name] = {key: _copy_into(old.get(key), array) for key, array in value.items()}
            else:
                self._kept[name] = _copy_into(kept, value)
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


def _copy_into(target: object, source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array with the content of the source; this is the target if it has the type and shape of the source."""
    source = np.asarray(source)
    if (
        not isinstance(target, np.ndarray)
        or (target.shape, target.dtype) != (source.shape, source.dtype)
        or not target.flags.writeable
    ):
        return source.copy()
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

    1. Start to receive notices of the driver.
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
            glog.info("the hosts have changed, and training continues in the next generation")
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
