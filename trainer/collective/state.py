"""The state that a trainer commits: parameters, optimiser, position, sums of the log lines, and random streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.state import State
from pserver.store.snapshot import Part
from trainer.collective.updater import DividedUpdater
from trainer.evaluators import Accumulator
from trainer.session import Session
from trainer.training.position import Position, read_position

Arrays = dict[str, npt.NDArray[Any]]


class Commit(NamedTuple):
    """The parts of the last committed state that are not arrays."""

    counters: dict[str, Any]
    place: dict[str, Any]
    stream: int
    network: Mapping[str, Any]
    sums: dict[str, dict[str, Any]]


class Seeded(Protocol):
    """Something whose order of samples follows from a seed, which all trainers must have."""

    seed: int


class TrainingState(State):
    """The state of one trainer; `sync` copies the state of trainer 0 to every trainer.

    Each trainer has its own random numbers of the network and its own sums of the log lines.

    Attributes: position: the position of the training.

    Args: session: it is connected. source: what reads the samples in the order of a seed. sums: the sums of the log
        lines, by name. number: a function that gets the new id of this trainer, and the new number of trainers.
    """

    def __init__(
        self,
        session: Session,
        source: Seeded,
        position: Position,
        sums: Mapping[str, Accumulator],
        number: Callable[[int, int], None],
    ) -> None:
        super().__init__()
        self._session, self._source, self._sums, self._number = session, source, sums, number
        self._updater = cast("DividedUpdater", session.updater)
        self.position = position
        self._kept: Arrays = {}
        self._keep_fixed()
        self._commit = self._keep()

    def has_news(self) -> bool:
        """Return whether the driver has reported a change of hosts since the last call."""
        last = self._last_updated_timestamp
        for stamp, _ in self._host_messages.take_all():
            self._last_updated_timestamp = max(self._last_updated_timestamp, stamp)
        return self._last_updated_timestamp > last

    def save(self) -> None:
        """Commit the present state."""
        self._commit = self._keep()

    def restore(self) -> None:
        """Return to the last committed state."""
        session, commit = self._session, self._commit
        part = self._updater.take()
        for name in self._moving():
            np.copyto(session.table[name].value, self._kept[_key(name)])
        self._updater.put_back(Part(commit.counters, {name: self._kept[name] for name in part.arrays}))
        self.position.become(read_position(commit.place))
        session.stream.state = commit.stream
        session.network.carry_on(commit.network)
        for name, sums in self._sums.items():
            sums.put_back(commit.sums[name])

    def sync(self) -> None:
        """Copy the parameter values, the optimiser's state and the position of trainer 0 to this trainer."""
        session, part = self._session, self._updater.take()
        own = {
            "counters": part.counters,
            "place": self.position.record(),
            "seed": self._source.seed,
            "masks": self._updater.take_masks(),
            "moving": self._moving(),
        }
        given = self._bcast_object(own if self._rank() == 0 else None)
        fixed = {_key(one.name): one.value for one in session.table if one.is_static}
        operations.broadcast_parameters({**part.arrays, **fixed})
        for name in given["moving"]:
            session.table[name].follows = True
        self._source.seed = given["seed"]
        self._updater.put_back_masks(given["masks"])
        self._updater.put_back(Part(given["counters"], part.arrays))
        self.position.become(read_position(given["place"]))
        self._keep_fixed()
        self.save()

    def reset(self) -> None:
        """Set the new id of this trainer, and the new number of trainers."""
        self._number(operations.rank(), operations.size())

    def _moving(self) -> list[str]:
        """Return the names of the static parameters that forward passes have updated (for example in batch norm)."""
        return [one.name for one in self._session.table if one.follows]

    def _keep_fixed(self) -> None:
        """Store the values of all static parameters, because later batches may update some of them."""
        self._keep_arrays({_key(one.name): one.value for one in self._session.table if one.is_static})

    def _keep_arrays(self, present: Arrays) -> None:
        for name, array in present.items():
            if name in self._kept:
                np.copyto(self._kept[name], array)
            else:
                self._kept[name] = array.copy()

    def _keep(self) -> Commit:
        session, part = self._session, self._updater.take()
        self._keep_arrays({**part.arrays, **{_key(name): session.table[name].value for name in self._moving()}})
        return Commit(
            part.counters,
            self.position.record(),
            session.stream.state,
            session.network.carried(),
            {name: one.state() for name, one in self._sums.items()},
        )


def _key(name: str) -> str:
    """Return the name under which the value of a static parameter is stored."""
    return f"fixed.{name}"
