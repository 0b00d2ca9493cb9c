"""The process sets of a worker, each of which is a group of some ranks of the job.

The sets of `hvd.init(process_sets=...)` belong to the job: every generation forms them again, as far as it has all
their ranks. The sets of `hvd.add_process_set` belong to a generation, and are forgotten with it, because the numbers of
the ranks have another meaning in the next one.
"""

from __future__ import annotations

import json
import operator
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from paddle_base.runtime.errors import ConfigError
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.mesh import GOODBYE_S
from paddle_cluster.elastic.collectives.requests import CollectiveKind

DYNAMIC = "dynamic"
MAX_SETS = 1 << 12  # maximum number of process sets at a time, each of which has connections of its own
NOT_INITIALISED = "hvd.init() has not been called; call it before ranks and collectives are used"


class ProcessSet:
    """Some ranks of the job, which run collectives without the other ranks.

    Attributes: ranks: the numbers of the ranks in the job, sorted.  process_set_id: the number of the set, which is the
        same on all ranks; None: the set is not registered, or the job lacks one of its ranks now.
    Raises: TypeError: the ranks are no list of whole numbers.  ValueError: there is no rank, a rank is negative, or a
        rank appears twice.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks = sorted(map(operator.index, ranks))
        self.process_set_id: int | None = None
        self._group: RankGroup | None = None
        self._check()

    def _check(self) -> None:
        if not self.ranks or self.ranks[0] < 0 or len(set(self.ranks)) < len(self.ranks):
            raise ValueError(f"a process set of the ranks {self.ranks}; give different ranks of the job, from 0")

    @property
    def group(self) -> RankGroup:
        """The collectives of the set.

        Raises: ValueError: this rank is not a member of the set, or the set is not registered.
        """
        if self.process_set_id is None:
            raise ValueError(
                f"the process set of the ranks {self.ranks} is not registered, or the job lacks one of its ranks; give "
                "it to hvd.init(process_sets=[...]) or to hvd.add_process_set"
            )
        if self._group is None:
            raise ValueError(
                f"this rank is not a member of the process set {self.process_set_id}, which has the ranks {self.ranks}"
            )
        return self._group

    def size(self) -> int | None:
        """Return the number of ranks in the set; None: see `process_set_id`."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self) -> int | None:
        """Return the number of this rank in the set, or None if this rank is no member."""
        return None if self._group is None else self._group.rank

    def included(self) -> bool | None:
        """Return whether this rank is a member; None: see `process_set_id`."""
        return None if self.process_set_id is None else self._group is not None

    def register(self, number: int | None, group: RankGroup | None) -> None:
        """Set the number of the set, and the group of this rank in it."""
        self.process_set_id, self._group = number, group

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class Deferred(NamedTuple):
    """The place that a newcomer probably gets. Attributes: join: asks for the place, and forms the group."""

    rank: int
    size: int
    join: Callable[[], None]


class GlobalProcessSet(ProcessSet):
    """The set of all ranks, which has the number 0; it has no ranks while this process is in no job."""

    def __init__(self) -> None:
        super().__init__(())
        self.process_set_id = 0
        self._deferred: Deferred | None = None
        self._joining = threading.RLock()  # threads of torch may want the first collective, too

    def _check(self) -> None:
        """Accept that there are no ranks before `hvd.init`."""

    @property
    def group(self) -> RankGroup:
        """The collectives of all ranks.

        Raises: ConfigError: `hvd.init` was not called.  See also `join`.
        """
        if self._group is None:
            self.join()
        if self._group is None:
            raise ConfigError(NOT_INITIALISED)
        return self._group

    def size(self) -> int | None:
        """Return the number of ranks in the job, or None before `hvd.init`."""
        return len(self.ranks) or None

    def rank(self) -> int | None:
        """Return the number of this rank, or None before `hvd.init`."""
        deferred = self._deferred
        return super().rank() if deferred is None else deferred.rank

    def included(self) -> bool | None:
        """Return True, or None before `hvd.init`."""
        return self._group is not None or self._deferred is not None or None

    def defer(self, deferred: Deferred) -> None:
        """Take an expected rank until the first collective, or `join`, forms the group."""
        self._deferred, self.ranks = deferred, list(range(deferred.size))

    def join(self) -> None:
        """Form the group now if it was deferred.

        Raises: see `WorkerMembership.init`.
        """
        with self._joining:
            if self._deferred is not None:
                self._deferred.join()

    def register(self, number: int | None, group: RankGroup | None) -> None:
        """Set the group of all ranks, and thereby the ranks."""
        self._group, self._deferred = group, None
        self.ranks = [] if group is None else list(range(group.size))


class SetRegistry:
    """The process sets of this process.

    Attributes: whole: the set of all ranks.  is_dynamic: whether sets may be added and removed after `hvd.init`.
    """

    def __init__(self) -> None:
        self.whole = GlobalProcessSet()
        self.is_dynamic = False
        self._static: list[ProcessSet] = []
        self._registered: dict[int, ProcessSet] = {}
        self._next = 1  # number of the next set, which no earlier set of the generation has had
        self._form: Callable[[ProcessSet, int], RankGroup] | None = None
        self._changing = threading.Lock()

    @property
    def has_declared(self) -> bool:
        """Whether the script uses process sets, whose members are known only when the group is formed."""
        return self.is_dynamic or bool(self._static)

    @property
    def terms(self) -> str:
        """A text about the declared sets, which has to be the same on all ranks."""
        return json.dumps({"process_sets": [one.ranks for one in self._static], DYNAMIC: self.is_dynamic})

    def declare(self, process_sets: Sequence[ProcessSet] | Literal["dynamic"] | None, *, is_dynamic: bool) -> None:
        """Set the sets of every generation; None: those that are known already.

        Raises: ValueError: the same set appears twice, or there are too many.  TypeError: an item is no ProcessSet.
        """
        self.is_dynamic = is_dynamic or process_sets == DYNAMIC or (process_sets is None and self.is_dynamic)
        if process_sets is None:
            return
        if isinstance(process_sets, str):
            if process_sets != DYNAMIC:
                raise ValueError(f"process_sets is '{process_sets}'; give a list of hvd.ProcessSet, or '{DYNAMIC}'")
            process_sets = []
        found = list(process_sets)
        if not all(isinstance(one, ProcessSet) and one is not self.whole for one in found):
            raise TypeError("process_sets has an item that is no process set; make each one by hvd.ProcessSet(ranks)")
        if len({tuple(one.ranks) for one in found}) < len(found) or len(found) > MAX_SETS:
            raise ValueError(f"process_sets has a set twice, or more than {MAX_SETS} sets; give different sets")
        self._static = found

    def begin(
        self, group: RankGroup, form: Callable[[ProcessSet, int], RankGroup], *, may_lack_ranks: bool = False
    ) -> None:
        """Register the set of all ranks, and form the declared sets.

        Args: form: forms the group of a set and a number on its members.  may_lack_ranks: whether the job may lack
            ranks of the declared sets, which then are not formed in this generation.
        Raises: ValueError: a declared set has a rank that the job lacks.  HorovodInternalError: a rank is lost.
        """
        self.whole.register(0, group)
        self._form, self._next = form, 1
        for one in self._static:
            if one.ranks[-1] < group.size:
                self._register(one)
            elif not may_lack_ranks:
                raise ValueError(_lacks(one, group.size))
        if self._registered:
            self._wait_for_all("formed")

    def add(self, given: ProcessSet | Sequence[int]) -> ProcessSet:
        """Register a set, and form its group; all ranks of the job call `add` with the same ranks.

        Raises: ValueError: the ranks add different sets, the set is registered already, or the sets are not dynamic.
            CollectiveMismatchError: a rank has joined.  HorovodInternalError: a rank is lost, or has not formed the
            group.
        """
        self._check_dynamic("add_process_set")
        process_set = given if isinstance(given, ProcessSet) else ProcessSet(given)
        with self._changing:
            group = self.whole.group
            self._agree("add", process_set.ranks)
            if process_set.ranks[-1] >= group.size:
                raise ValueError(_lacks(process_set, group.size))
            registered = [self.whole, *self._registered.values()]
            if any(one.ranks == process_set.ranks for one in registered):
                raise ValueError(f"Attempted to add a duplicate process set: {process_set.ranks}")  # Horovod's words
            if len(registered) > MAX_SETS:
                raise ValueError(f"{MAX_SETS} process sets are registered; remove some of them")
            self._register(process_set)
            self._wait_for_all("formed")
        return process_set

    def remove(self, process_set: ProcessSet) -> bool:
        """Leave the group of a set, and forget the set; all ranks of the job call `remove` with the same set.

        Returns: False for the set of all ranks, and for a set that is not registered.
        Raises: see `add`.
        """
        number = process_set.process_set_id
        if not number or self._registered.get(number) is not process_set:
            return False
        self._check_dynamic("remove_process_set")
        with self._changing:
            self._agree("remove", [number])
            group = process_set._group
            if group is not None:
                group.separate()
            # no rank leaves before all have separated, because whoever still waits in the set must not end the job
            self._wait_for_all("removed")
            self._forget(process_set)
            if group is not None:
                group.leave()
        return True

    def end(self) -> None:
        """Leave all groups; the sets are not registered any more."""
        deadline = time.monotonic() + GOODBYE_S  # for all sets together
        for one in list(self._registered.values()):
            group = one._group
            self._forget(one)
            if group is not None:
                group.leave(deadline)
        whole = self.whole._group
        self.whole.register(0, None)
        if whole is not None:
            whole.leave()

    def forget(self) -> None:
        """Forget all groups without leaving them, because a forked process inherits those of its parent."""
        for one in self._registered.values():
            one.register(None, None)
        self.whole.register(0, None)
        self._registered, self._static, self.is_dynamic = {}, [], False
        self._changing = threading.Lock()

    def _check_dynamic(self, name: str) -> None:
        if not self.is_dynamic:
            raise ValueError(
                f"hvd.{name}: the process sets of this job are fixed; call hvd.init(process_sets='{DYNAMIC}'), or set "
                "HOROVOD_DYNAMIC_PROCESS_SETS=1"
            )

    def _register(self, process_set: ProcessSet) -> None:
        """Register a set, and form its group; afterwards `_wait_for_all` finds whether all members have done so."""
        assert self._form is not None
        number, self._next = self._next, self._next + 1
        group: RankGroup | None = None
        if self.whole.rank() in process_set.ranks:
            try:
                group = self._form(process_set, number)
            except BaseException as exc:  # the other ranks would wait for a set that this rank does not have
                self.whole.group.abandon(f"the process set of the ranks {process_set.ranks} has not formed: {exc}")
                raise
        process_set.register(number, group)
        self._registered[number] = process_set

    def _wait_for_all(self, what: str) -> None:
        """Wait until all ranks have done the same with a set."""
        group = self.whole.group
        group.wait(group.submit(CollectiveKind.BARRIER, np.empty(0, np.uint8), name=f"process set.{what}"))

    def _forget(self, process_set: ProcessSet) -> None:
        self._registered.pop(process_set.process_set_id or 0, None)
        process_set.register(None, None)

    def _agree(self, verb: str, numbers: Sequence[int]) -> None:
        """Check that all ranks do the same.

        Raises: ValueError: a rank does something else.
        """
        group = self.whole.group
        own = np.array([len(numbers) + 1, verb == "add", *numbers], np.int64)
        rest = group.wait(group.submit(CollectiveKind.ALLGATHER, own, name="process set")).tolist()
        calls = []
        while rest:
            length = 1 + rest[0]
            calls.append(f"{'add' if rest[1] else 'remove'} {rest[2:length]}")
            rest = rest[length:]
        if len(set(calls)) > 1:
            other = next(rank for rank, call in enumerate(calls) if call != calls[0])
            raise ValueError(
                f"process sets: rank 0 calls {calls[0]}, and rank {other} calls {calls[other]}; let every rank of the "
                "job add and remove the same sets in the same order"
            )


def _lacks(process_set: ProcessSet, size: int) -> str:
    return f"the process set of the ranks {process_set.ranks} has a rank that this job of {size} ranks lacks"
