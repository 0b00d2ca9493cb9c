"""When a checkpoint is due, what this trainer has to say of itself in one, and how it goes on from that.

A place is one between two batches, right after a step: tests and saves that are due there come afterwards, and again
when training goes on from there. So a checkpoint changes nothing in a run, whenever it is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pserver import glog
from trainer.checkpoint import FOLDER, clean, keep_newest, write_checkpoint
from trainer.data import random_states
from trainer.data.source import DataSource
from trainer.encoding import decode_array, encode_array
from trainer.evaluators import Accumulator
from trainer.flags import Values
from trainer.model_files import pass_name
from trainer.updater import Updater

if TYPE_CHECKING:
    from trainer.session import Parts


NOTES_BYTES = 8 << 20  # what all trainers together may say of their data: notes of the servers hold twice as much

BEFORE, INSIDE, AFTER = "before", "inside", "after"


@dataclass(frozen=True)
class Place:
    """Where training is: BEFORE, INSIDE or AFTER pass `number`, when `batches` of it are done.

    `saves` and `checkpoints` were made inside the pass. `is_due` says that the tests and saves which belong to the last
    batch are still to come; AFTER the pass those of the pass are.
    """

    number: int
    stage: str = BEFORE
    batches: int = 0
    saves: int = 0
    checkpoints: int = 0
    is_due: bool = False


def wants_checkpoints(flags: Values) -> bool:
    """Return whether a run makes checkpoints: with parameter servers, or where a flag of theirs is given."""
    asked = flags.checkpoint_period_by_batches or flags.checkpoint_period_seconds or flags.resume_from
    return bool(flags.job == "train" and (asked or not flags.local))


class Checkpointing:
    """The checkpoints of a run.

    Args: sums: what the log's lines are made of, by name.  clock: seconds, monotonic.
    """

    def __init__(
        self,
        parts: Parts,
        updater: Updater,
        sums: Mapping[str, Accumulator],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts, self._updater, self._sums, self._clock = parts, updater, sums, clock
        self._flags = parts.flags
        self._is_first = parts.flags.trainer_id == 0
        self._last = clock()
        self._has_warned = False
        self._marked: tuple[int, dict[str, Any]] = (0, {})
        for source in (parts.train, parts.test):
            if source is not None:
                source.track()
        if self._is_first:
            clean(parts.pass_directory(FOLDER))

    def is_wanted(self, batches: int) -> bool:
        """Return whether this trainer wants a checkpoint after so many batches of a pass; trainer 0 decides."""
        if not self._is_first:
            return False
        period, seconds = self._flags.checkpoint_period_by_batches, self._flags.checkpoint_period_seconds
        return bool(period and batches % period == 0) or bool(seconds and self._clock() - self._last >= seconds)

    def mark(self) -> None:
        """Remember the random numbers of this place; tests may go on drawing before it is described."""
        self._marked = self._parts.stream.state, self._parts.network.carried()

    def describe(self, place: Place) -> dict[str, Any]:
        """Return what this trainer needs to go on from a place, as JSON can hold it."""
        parts = self._parts
        stream, network = self._marked
        batches = place.batches if place.stage == INSIDE else None
        return {
            "place": asdict(place),
            "stream": stream,
            "network": network,
            "random": random_states.write(random_states.take()),
            "data": self._describe_source(parts.train, batches),
            "test": self._describe_source(parts.test, None),
            "moving": {one.name: encode_array(one.value) for one in parts.table if one.follows},
            "sums": {name: one.state() for name, one in self._sums.items()},
        }

    def _describe_source(self, source: DataSource | None, batches: int | None) -> dict[str, Any] | None:
        if source is None:
            return None
        position = source.position(batches)
        size = sum(len(one["data"]) for one in position.values() if isinstance(one, dict) and "data" in one)
        if not self._flags.local and size > NOTES_BYTES // self._flags.num_gradient_servers:
            if not self._has_warned:
                glog.warning(
                    f"the order of {position.get('samples', 'the')} samples is too long for the servers to carry: "
                    "who goes on from a checkpoint shuffles them in another order"
                )
            self._has_warned = True
            position |= dict.fromkeys(position.keys() & {"order", "states"})
        return position

    def make(self, place: Place, name: str) -> None:
        """Make a checkpoint together with the other trainers; trainer 0 writes it and removes the oldest.

        Raises: VolumeError: if it cannot be written.
        """
        captured = self._updater.capture(self.describe(place))
        if captured is not None and self._is_first:
            parts = self._parts
            glog.info(f"Saving a checkpoint to {parts.shown_directory(f'{FOLDER}/{name}')}")
            folder = Path(parts.pass_directory(FOLDER))
            write_checkpoint(folder / name, captured, parts.table, parts.configs, asdict(place))
            keep_newest(folder, name, self._flags.checkpoints_kept)
        self._last = self._clock()

    def resume(self, own: Mapping[str, Any]) -> Place:
        """Go on as `own` describes, but for the parameters, and return the place; inside a pass its data is there.

        Raises: DataError, MissingInputError: if the provider raised or a sample is wrong.
        """
        parts = self._parts
        place = Place(**own["place"])
        glog.info(f"going on {place.stage} pass {place.number}, of which {place.batches} batches are done")
        for name, state in own["sums"].items():
            if name in self._sums:
                self._sums[name].put_back(state)
        for name, record in own["moving"].items():
            parts.table[name].value[:] = decode_array(record)
            parts.table[name].follows = True
        if parts.test is not None and own["test"] is not None:
            parts.test.resume(own["test"], parts.batch_size)
        if parts.train is not None and own["data"] is not None:
            parts.train.resume(own["data"], parts.batch_size)
        if own["data"] is None or own["data"]["is_read"]:  # else the provider goes on drawing from what it has come to
            random_states.put_back(own["random"])
        parts.stream.state = own["stream"]
        parts.network.carry_on(own["network"])
        self.mark()
        return place


def name_inside(place: Place) -> str:
    """Return the name of a checkpoint that is not one of a whole pass."""
    return pass_name(place.number, place.checkpoints)
