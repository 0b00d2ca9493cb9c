"""The membership of this worker, which forms the group of a generation, sends heartbeats, and joins new generations.

- `WORKER.init()` joins the first generation, which the environment describes. After `shutdown`, `init` joins the next
  generation.
- `WORKER.group` runs the collectives.
- `WORKER.shutdown()` leaves the group.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Literal, NamedTuple

from paddle_base.runtime import glog
from paddle_base.runtime.environment import read_environment
from paddle_base.runtime.errors import ConfigError, PaddleError
from paddle_base.runtime.health.places import name_process
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.network.interfaces import find_way, resolve_nics
from paddle_cluster.elastic.collectives.forming import form
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.joining import LOST, AddressStore, GroupPlan
from paddle_cluster.elastic.collectives.stalls import STALL_END_S, STALL_S, Patience
from paddle_cluster.elastic.constants import MOST_S, read_seconds
from paddle_cluster.elastic.errors import HorovodInternalError, LeftJobError, RemovedFromJobError
from paddle_cluster.elastic.hosts import SLOT_NUMBERS, list_slot_variables
from paddle_cluster.elastic.process.set_registry import ProcessSet, SetRegistry
from paddle_cluster.elastic.rendezvous_client import GROUP_SCOPE, RendezvousClient

_SLOT = tuple(name.upper() for name in SLOT_NUMBERS)


class ProcessPlacement(NamedTuple):
    """A worker's slot in a generation of the job."""

    hostname: str = "localhost"
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1
    generation: int = 0

    def variables(self) -> dict[str, str]:
        """Return the environment variables of this slot."""
        return list_slot_variables(self)


class WorkerSettings(NamedTuple):
    """The settings of a worker for the whole life of the process.

    Attributes:
    - address, port: address and port of the driver; "": there is no driver.
    - nic: network interface at which other workers reach this worker, or "".
    - is_elastic: whether further generations follow.
    - timeout: maximum seconds until the ranks of a generation have connected.
    - elastic_timeout: maximum seconds until the driver has begun the next generation.
    - own_address: address at which other workers reach this worker, or "".
    - is_dynamic: whether the script may add process sets after `init`.
    """

    address: str = ""
    port: int = 0
    nic: str = ""
    is_elastic: bool = False
    incarnation: str = ""
    timeout: float = 30.0
    elastic_timeout: float = 600.0
    patience: Patience = Patience()
    own_address: str = ""
    is_dynamic: bool = False


def describe_foreign(place: ProcessPlacement, holder: str) -> str:
    """Return the error of a process that has the variables of a worker and is not the worker."""
    return (
        f"hvd.init(): the place of {place.hostname}[{place.local_rank}] belongs to its process {holder.split('.')[0]}, "
        f"whose variables this process {os.getpid()} has inherited; let a script whose child processes import it call "
        "hvd.init() below if __name__ == '__main__'"
    )


def read_placement(environ: Mapping[str, str]) -> ProcessPlacement:
    """Read the slot from the environment.

    Raises: ConfigError: a variable is missing or is no number, or the variables contradict each other.
    """
    if not environ.get("HOROVOD_RANK"):
        return ProcessPlacement()
    numbers = [_read(environ, f"HOROVOD_{name}") for name in _SLOT]
    generation = _read(environ, "PADDLE_ELASTIC_GENERATION") if environ.get("PADDLE_ELASTIC_GENERATION") else 0
    placement = ProcessPlacement._make((environ.get("HOROVOD_HOSTNAME", "localhost"), *numbers, generation))
    for name, rank, size in zip(_SLOT[::2], numbers[::2], numbers[1::2], strict=True):
        if rank >= size:
            raise ConfigError(
                f"HOROVOD_{name} is {rank}, but the size is {size}; let `paddle elastic run` set the variables"
            )
    return placement


def read_settings(environ: Mapping[str, str]) -> WorkerSettings:
    """Read the settings from the environment.

    Raises: ConfigError: a variable is no number.
    """
    address = environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR", "")
    return WorkerSettings(
        address=address,
        port=_read(environ, "HOROVOD_GLOO_RENDEZVOUS_PORT") if address else 0,
        nic=environ.get("HOROVOD_GLOO_IFACE", ""),
        is_elastic=environ.get("HOROVOD_ELASTIC", "") == "1",
        incarnation=environ.get("PADDLE_ELASTIC_INCARNATION", ""),
        timeout=read_seconds(environ, "HOROVOD_GLOO_TIMEOUT_SECONDS", 30.0),
        elastic_timeout=read_seconds(environ, "HOROVOD_ELASTIC_TIMEOUT", 600.0),
        patience=_read_patience(environ),
        own_address=environ.get("PADDLE_ELASTIC_ADDRESS", ""),
        is_dynamic=environ.get("HOROVOD_DYNAMIC_PROCESS_SETS", "") == "1",
    )


def _read_patience(environ: Mapping[str, str]) -> Patience:
    has_check = environ.get("HOROVOD_STALL_CHECK_DISABLE", "0") in ("", "0")
    return Patience(
        read_seconds(environ, "HOROVOD_STALL_CHECK_TIME_SECONDS", STALL_S) if has_check else MOST_S,
        read_seconds(environ, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", STALL_END_S) if has_check else MOST_S,
        read_seconds(environ, "PADDLE_ELASTIC_SILENCE_SECONDS", Patience.silence),
    )


def _read(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ConfigError(f"{name} is '{text}', not a number; let `paddle elastic run` set the variables")
    return int(text)


def end_without_traceback() -> None:
    """Install a hook by which an uncaught RemovedFromJobError ends the process with one line and its exit code.

    The hook is `sys.excepthook`. It passes all other exceptions to the hook that was set before. In a process that has
    the hook already, this function does nothing.
    """
    if getattr(sys.excepthook, "is_of_elastic", False):
        return
    before = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, RemovedFromJobError):
            before(kind, error, trace)
            return
        glog.warning(str(error))
        sys.exit(error.exit_code)  # Python ends with the status of a SystemExit that the hook raises

    end.is_of_elastic = True  # type: ignore[attr-defined]
    sys.excepthook = end


HEARTBEAT_S = 2.0  # seconds between two heartbeats


class _SetStore:
    """The addresses of a process set; that a worker is lost stands in the scope of the group of all ranks."""

    def __init__(self, store: AddressStore, scope: str) -> None:
        self._store, self._scope = store, scope

    def put(self, scope: str, key: str, value: bytes) -> None:
        """Store a value."""
        self._store.put(scope, key, value)

    def get(self, scope: str, key: str, wait: float = 0.0) -> bytes | None:
        """Return a value, or None after `wait` seconds without a value."""
        return self._store.get(self._scope if key == LOST else scope, key, wait)


class WorkerMembership:
    """The place of this process in its job.

    Attributes:
    - has_state: whether this process has had the state of the job, which rank 0 sends to the other ranks; None:
      unknown, because the program does not use `hvd.elastic.run`.
    - is_leaving: whether this worker leaves at its next commit, because it has received SIGTERM.
    - on_placed: called by `init` when the driver has assigned a slot to this worker.
    - sets: the groups of this process: that of all ranks, and those of its process sets.
    - notice_addresses: the addresses at which this worker receives notices. Each heartbeat contains the addresses,
      because a driver that takes over the job does not know them.

    Thread safety: a single thread calls `init` and `shutdown`.
    """

    def __init__(self) -> None:
        self.placement = ProcessPlacement()
        self.settings = WorkerSettings()
        self.client: RendezvousClient | None = None
        self.has_state: bool | None = None
        self.is_leaving = False
        self.on_placed: Callable[[], None] = lambda: None
        self.notice_addresses: tuple[tuple[str, int], ...] = ()
        self.sets = SetRegistry()
        self.secret = ""
        self._process = ""  # name of the process that has called `init`, if one has
        self._heart: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def is_member(self) -> bool:
        """Whether this process has called `init`, or is no worker of a driver."""
        return bool(self._process) or not read_settings(os.environ).address

    @property
    def is_initialised(self) -> bool:
        """Whether this process is in a group now."""
        return bool(self.sets.whole.included())

    @property
    def group(self) -> RankGroup:
        """The collectives of this generation.

        Raises: ConfigError: `init` was not called.
        """
        return self.sets.whole.group

    def init(self, process_sets: Sequence[ProcessSet] | Literal["dynamic"] | None = None) -> None:
        """Form the group of this generation, and those of its process sets; block until all ranks have connected.

        If a rank is lost during the call, the worker joins the next generation instead. This may happen several times.

        Args: process_sets: the process sets of this and all later generations; None: those of the last call; "dynamic":
            the script adds them later.  All ranks give the same ones.
        Raises: RemovedFromJobError: the driver has no slot for this worker any more.
            HorovodInternalError: the job is not elastic, and a rank is missing.
            ConfigError: the environment is wrong, or it is that of a worker whose child this process is, or other ranks
            have given other process sets.  ValueError, TypeError: the process sets are wrong.
            PeerUnreachableError: the driver does not answer.
        """
        self._check_process()
        if self.is_initialised:
            return
        is_known = not self._process and not self._begin()
        self.sets.declare(process_sets, is_dynamic=self.settings.is_dynamic)
        while True:
            if not is_known and self.settings.is_elastic:
                self._ask_for_place()
            self.on_placed()
            try:
                self._form()
            except HorovodInternalError as exc:
                if not self.settings.is_elastic:
                    raise
                glog.warning(f"generation {self.placement.generation} could not be formed: {exc}")
                is_known = False
                continue
            return

    def shutdown(self) -> None:
        """Leave the group; `init` joins the next generation."""
        self.sets.end()

    def finish(self) -> None:
        """Report to the driver that this worker has finished its work, so that its exit code 0 means success."""
        if self.client is not None:
            place = self.placement
            self.client.done(place.hostname, place.local_rank, self.settings.incarnation)

    def end(self) -> None:
        """Leave the group and stop the heartbeats before the end of the process."""
        self.shutdown()
        self._stop.set()

    def forget(self) -> None:
        """Reset the membership as in a new process, because a forked process inherits the membership of its parent."""
        sets = self.sets  # scripts have `global_process_set`, which belongs to it
        vars(self).update(vars(WorkerMembership()))
        self.sets = sets
        sets.forget()

    def _check_process(self) -> None:
        """Raises: ConfigError: this process is a fork of the worker."""
        if self._process and self._process != name_process():
            raise ConfigError(describe_foreign(self.placement, self._process))

    # ----- With the driver -----

    def _check_place(self, client: RendezvousClient, process: str) -> bool:
        """Take the place of this worker; return whether this worker is a newcomer, which has to ask for its rank.

        Raises: ConfigError: another process has the place.
        """
        place = self.placement
        holder, is_newcomer = client.claim(place.hostname, place.local_rank, self.settings.incarnation, process)
        if holder != process:
            raise ConfigError(describe_foreign(place, holder))
        return is_newcomer

    def _begin(self) -> bool:
        """Read the environment once per process; return whether this worker is a newcomer without a place."""
        self.placement = read_placement(os.environ)
        settings = read_settings(os.environ)
        self.settings = settings._replace(incarnation=settings.incarnation or uuid.uuid4().hex)
        os.environ["PADDLE_ELASTIC_INCARNATION"] = self.settings.incarnation
        self.secret = read_environment(os.environ).secret
        if settings.address:
            self.client = RendezvousClient(settings.address, settings.port, self.secret, settings.elastic_timeout)
        elif self.placement.size > 1:
            raise ConfigError(
                f"HOROVOD_SIZE is {self.placement.size}, and HOROVOD_GLOO_RENDEZVOUS_ADDR is empty; start the program "
                "by `paddle elastic run`"
            )
        process = name_process()
        is_newcomer = self.client is not None and self._check_place(self.client, process)
        if is_newcomer:
            self.placement = self.placement._replace(generation=0)
        self._process = process
        end_without_traceback()
        atexit.register(self.end)
        if self.client is not None and settings.is_elastic:
            self._heart = ServiceThread(self._beat, "worker-heartbeat")
            self._heart.start()
        return is_newcomer

    def _ask_for_place(self) -> None:
        assert self.client is not None
        place = self.placement
        if self.is_leaving:  # a driver that has taken over the job does not know it
            self.client.leave(place.hostname, place.local_rank, self.settings.incarnation)
        slot, generation = self.client.query_rank(
            place.hostname,
            place.local_rank,
            self.settings.incarnation,
            place.generation,
            # a newcomer waits for a commit of the others, which may take any time
            self.settings.elastic_timeout if place.generation else math.inf,
            self.has_state is not False,
        )
        if slot.rank < 0:
            if self.is_leaving:
                raise LeftJobError(f"{place.hostname}[{place.local_rank}] has left the job at a commit, after SIGTERM")
            raise RemovedFromJobError(
                f"{place.hostname}[{place.local_rank}] was removed from the elastic job: the driver has no rank for it"
            )
        numbers = (getattr(slot, name) for name in SLOT_NUMBERS)
        self.placement = ProcessPlacement._make((place.hostname, *numbers, generation))
        os.environ.update(self.placement.variables())

    def _form(self) -> None:
        """Form the group of all ranks, and those of the process sets; after an error this process is in no group."""
        whole = form(self._plan(), self.client, self.settings.patience)
        try:
            self.sets.begin(whole, self._form_set, may_lack_ranks=self.settings.is_elastic)
        except BaseException:
            self.sets.end()
            raise

    def _form_set(self, process_set: ProcessSet, number: int) -> RankGroup:
        """Form the group of a process set, of which this rank is a member; the store forgets its addresses."""
        whole = self._plan()
        rank, scope = process_set.ranks.index(whole.rank), f"set_{self.placement.generation}.{number}"
        plan = replace(whole, rank=rank, size=len(process_set.ranks), scope=scope)
        if self.client is None or plan.size == 1:
            return form(plan, None, self.settings.patience, beside=self.group)
        store = _SetStore(self.client, whole.scope)
        group = form(plan, store, self.settings.patience, beside=self.group)
        self.client.delete(scope, str(rank))  # all members have read it
        return group

    def _plan(self) -> GroupPlan:
        place = self.placement
        return GroupPlan(
            place.rank,
            place.size,
            f"{GROUP_SCOPE}{place.generation}",
            self._own_address(),
            self.secret,
            self.settings.timeout,
            incarnation=self.settings.incarnation,
            terms=self.sets.terms,
        )

    def _own_address(self) -> str:
        """Return the address at which other workers reach this worker.

        The default is the local address on the route to the driver.
        """
        if self.settings.nic:
            return resolve_nics(self.settings.nic)[0]
        if self.settings.own_address:
            return self.settings.own_address
        with contextlib.suppress(OSError):
            return find_way(self.settings.address)
        return "127.0.0.1"

    def _beat(self) -> None:
        is_heard = True
        # a client of its own, because a heartbeat without an answer has to end before the next one is due
        client = RendezvousClient(self.settings.address, self.settings.port, self.secret, HEARTBEAT_S)
        while True:  # send at once, because the driver ignores a worker's silence before its first heartbeat
            place = self.placement
            try:
                client.heartbeat(
                    place.hostname,
                    place.local_rank,
                    self.settings.incarnation,
                    place.generation,
                    self.notice_addresses,
                    self._process,
                )
            except PaddleError as exc:
                if is_heard:
                    glog.warning(f"the driver receives no heartbeat of this worker: {exc}")
                is_heard = False
            else:
                is_heard = True
            if self._stop.wait(HEARTBEAT_S):
                return


WORKER = WorkerMembership()  # the only membership of this process, as in Horovod
