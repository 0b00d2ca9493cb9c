"""What a worker must not lose: committed, restored after a failure, given to those that join.

Names and order are those of Horovod 0.28's `horovod.common.elastic`. Other than there, an `ObjectState` keeps deep
copies, so that a list that is changed in place goes back to its committed content, and every rank syncs after every
change of hosts.
"""

from __future__ import annotations

import copy
import queue
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from elastic.errors import HostsUpdatedInterrupt
from elastic.process import operations
from elastic.sampler import ElasticSampler

_NO_UPDATE = 0


class State:
    """The base of all states: a subclass says what `save`, `restore`, `sync` and `reset` do.

    Args: bcast_object: gives every rank the object of rank 0.  get_rank: returns this worker's rank.
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
        """Call these, in this order, after the ranks have changed and before the next sync.

        For what depends on the number of workers: the learning rate, the data of this rank.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Take note that the ranks have changed."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Take a notice of the driver; the next `check_host_updates` of all ranks looks at it.

        Args: timestamp: seconds since 1970.  update_res: flags of `HostUpdateResult`.
        """
        self._host_messages.put((timestamp, update_res))

    def forget_host_updates(self) -> None:
        """Drop notices: those from before a new rank was given are in that rank already."""
        while not self._host_messages.empty():
            self._host_messages.get_nowait()

    def commit(self) -> None:
        """Save, then look whether the hosts have changed.

        Raises: HostsUpdatedInterrupt: they have; on all ranks at the same commit.
        """
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Look whether rank 0 has heard of a change; all ranks call this at the same steps.

        Raises: HostsUpdatedInterrupt: it has.
        """
        last, update = self._last_updated_timestamp, _NO_UPDATE
        while not self._host_messages.empty():
            timestamp, flags = self._host_messages.get_nowait()
            if timestamp > last:
                last = timestamp
                update |= flags
        previous, self._last_updated_timestamp, _ = self._bcast_object((self._last_updated_timestamp, last, update))
        if self._last_updated_timestamp > previous:
            raise HostsUpdatedInterrupt(skip_sync=False)

    def save(self) -> None:
        """Keep the present state."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the state that was kept last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give every rank the state of rank 0."""
        raise NotImplementedError

    def reset(self) -> None:
        """Do what a change of ranks needs; by default nothing."""


class ObjectState(State):
    """A state of attributes: `ObjectState(epoch=0, batch=0)`; they hold what `broadcast_object` takes."""

    def __init__(
        self,
        bcast_object: Callable[[Any], Any] | None = None,
        get_rank: Callable[[], int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(bcast_object, get_rank)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved_state = copy.deepcopy(kwargs)

    def save(self) -> None:
        """Keep a deep copy of the attributes."""
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        """Set the attributes to a deep copy of what was kept."""
        self._set_attrs()

    def sync(self) -> None:
        """Set the attributes to those of rank 0, and keep them."""
        if self._saved_state:
            present = {name: getattr(self, name) for name in self._saved_state}
            self._saved_state = self._bcast_object(present)
            self._set_attrs()

    def _set_attrs(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))


class ArrayState(ObjectState):
    """A state with numpy arrays: `ArrayState(weights=w, optimizer={"m": m, "v": v}, sampler=sampler, epoch=0)`.

    Arrays, and dictionaries of arrays, keep their memory: restore and sync write into it. They travel as they are.
    Samplers keep what they have processed; everything else is as in `ObjectState`.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._arrays = {name: value for name, value in kwargs.items() if _is_arrays(value)}
        self._samplers = {name: value for name, value in kwargs.items() if isinstance(value, ElasticSampler)}
        for name, value in (self._arrays | self._samplers).items():
            setattr(self, name, value)
        self._kept: dict[str, Any] = {}
        own = self._arrays.keys() | self._samplers.keys()
        super().__init__(**{name: value for name, value in kwargs.items() if name not in own})
        self._keep()

    def save(self) -> None:
        """Keep copies of all."""
        self._keep()
        super().save()

    def restore(self) -> None:
        """Write what was kept into the arrays, and go back with all else."""
        for name, array in self._named_arrays().items():
            array[...] = self._kept[name]
        for name, sampler in self._samplers.items():
            sampler.load_state_dict(self._kept[name])
        super().restore()

    def sync(self) -> None:
        """Write rank 0's arrays into those of every rank, take its other attributes, and keep them."""
        operations.broadcast_parameters(self._named_arrays())
        for sampler in self._samplers.values():
            sampler.load_state_dict(self._bcast_object(sampler.state_dict()))
        super().sync()
        self._keep()

    def reset(self) -> None:
        """Divide the samples among the new ranks."""
        for sampler in self._samplers.values():
            sampler.reset()

    def _keep(self) -> None:
        for name, array in self._named_arrays().items():
            if name in self._kept and self._kept[name].shape == array.shape:
                self._kept[name][...] = array
            else:
                self._kept[name] = array.copy()
        for name, sampler in self._samplers.items():
            self._kept[name] = sampler.state_dict()

    def _named_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays that the attributes hold now."""
        named = {}
        for name in self._arrays:
            value = getattr(self, name)
            pairs = value.items() if isinstance(value, dict) else [("", value)]
            named.update({f"{name}.{inner}": array for inner, array in pairs})
        return named


def _is_arrays(value: object) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(isinstance(one, np.ndarray) for one in value.values())
    return isinstance(value, np.ndarray)
