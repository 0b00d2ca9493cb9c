"""The parameter servers of a task job.

A trainer finds the servers in the registry, joins them, and joins them again after the loss of a server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from paddle_base.registry.interface import WATCH_S, Registry
from paddle_base.registry.servers import JOB_END, SERVERS, ServerRecord, describe_missing, find_servers
from paddle_base.runtime import glog
from paddle_base.runtime.errors import (
    BugError,
    ConfigError,
    LostPeerError,
    PaddleError,
    PeerUnreachableError,
    VolumeError,
)
from paddle_base.runtime.rate_limit import WAIT_LINE_S, RateLimit
from pserver.client.tasks.services import JoinedServices, ServiceAddress, TaskModel
from pserver.optim.settings import Array
from trainer.updaters.tables import SPARSE_PORTS
from trainer.updaters.tasks.errors import TaskTakenError
from trainer.updaters.tasks.first_values import agree_on_first_values
from trainer.updaters.tasks.views import MasterViews, ViewSource

RECORDS_S = 0.5  # seconds between two checks that the registry still lists the servers that this trainer is joining
REMEDY = "start the missing servers, or correct and restart the others"
LOST = (LostPeerError, PeerUnreachableError, VolumeError)  # after these errors this trainer joins the servers again

_Result = TypeVar("_Result")


def _do_nothing() -> None:
    """Return at once."""


@dataclass(frozen=True)
class TaskMembership:
    """The membership of this trainer in the job.

    master: the source of this trainer's number and of the views of synchronous rounds. uid, incarnation: the identity
        of this trainer at the master.
    own_addresses, source, peer_timeout: see `ClientOptions`.
    patience: maximum seconds to wait for servers, for initial values, and for the master.
    look: a function that is called every second of these waits; an error that it raises ends the wait. begin: a
        function that is called before this trainer sends the initial values, if this trainer sends them.
    """

    master: ViewSource
    uid: str
    incarnation: int
    job: str = ""
    secret: str = ""
    own_addresses: Collection[str] = ()
    source: str = ""
    peer_timeout: float = 10.0
    patience: float = 3600.0
    look: Callable[[], None] = _do_nothing
    begin: Callable[[], None] = _do_nothing

    @property
    def name(self) -> str:
        """The name of the trainer, for messages."""
        return f"trainer {self.master.number} ({self.uid}, incarnation {self.incarnation})"


class TaskServers:
    """All servers of a job.

    `run` executes an action with the servers, and repeats the action after the loss of a server.

    Attributes: services: the joined services; None before `connect`, and after a loss until the next `run`.
    """

    def __init__(self, registry: Registry, membership: TaskMembership) -> None:
        self._registry, self._membership = registry, membership
        self._model: TaskModel | None = None
        self._looked = 0.0
        self.services: JoinedServices | None = None
        self.views = MasterViews(membership.master, membership.patience, look=membership.look, tell=self._tell_view)

    # ----- Joining -----

    def connect(self, model: TaskModel, values: Array, tables: Array) -> None:
        """Join all servers. Send the initial values, or take the values that the servers have. Tables are not fetched.

        Shapes: values: all dense parameters; tables: all tables.
        Raises: ConfigError: the servers have values of another model, or no ports for tables.
            PeerUnreachableError: not all servers are present in time.  TaskTakenError: the job is over.
        """
        self._model = model
        me, digest = self._membership, model.digest()

        def begin(services: JoinedServices) -> None:
            def give() -> None:
                me.begin()
                services.give(values, tables)

            agree_on_first_values(self._registry, me.name, digest, give, me.patience, me.look)
            services.fetch(values, 0)

        self.run(begin)

    def run(self, action: Callable[[JoinedServices], _Result]) -> _Result:
        """Return the result of an action with the joined servers. After a loss, join again and repeat the action.

        Raises: PeerUnreachableError, LostPeerError: not all servers are present within the patience.
            TaskTakenError: the job is over. All other errors come from the action.
        """
        deadline = float("inf")
        while True:
            began = time.monotonic()
            if self.services is None:
                deadline = min(deadline, began + self._membership.patience)
                self.services = self._join(deadline)
            try:
                return action(self.services)
            except LOST as exc:
                self.lose(exc)
                if time.monotonic() >= deadline:
                    raise
                if time.monotonic() - began < WATCH_S:  # the servers have failed at once
                    self._pause()

    def lose(self, error: PaddleError) -> None:
        """Close all connections, because a server is lost."""
        glog.warning(f"{error}; this trainer waits until all parameter servers are present, and continues")
        self.drop()

    def drop(self) -> None:
        """Close all connections without a message. The next `run` makes new connections."""
        if self.services is not None:
            self.services.close()
            self.services = None

    # ----- Leaving -----

    def leave(self) -> None:
        """Leave all servers after the last step."""
        if self.services is not None:
            self.services.leave()
            self.services = None

    def abort(self, reason: str) -> None:
        """Send all servers the reason why this trainer leaves. This method does not wait."""
        if self.services is not None:
            self.services.abort(reason)
            self.services = None

    # -----

    def _tell_view(self) -> None:
        """Send a new view to the servers, in the thread that has received it."""
        services, model = self.services, self._model
        if services is not None and model is not None and not model.optimization.is_asynchronous:
            services.tell_view()

    def _join(self, deadline: float) -> JoinedServices:
        """Wait until all servers are in the registry and accept this trainer."""
        began = time.monotonic()
        lines = RateLimit(WAIT_LINE_S, began + WAIT_LINE_S)
        while True:
            try:
                missing, records = self._find()
                if not missing:
                    return self._try_to_join(records)
                wanted = f"for {missing}"
            except LOST as exc:
                wanted = f"to join the parameter servers: {exc}"
            now = time.monotonic()
            if now >= deadline:
                raise PeerUnreachableError(f"this trainer waited {now - began:.0f} s {wanted}; {REMEDY}")
            if lines.is_due(now):
                glog.info(f"this trainer has waited {now - began:.0f} s {wanted}; {REMEDY}")
            self._pause()

    def _find(self) -> tuple[str, list[ServerRecord]]:
        """Return a text that names the missing servers ("" if there are none), and the records of the present servers.

        Raises: TaskTakenError: the job is over.
        """
        end = self._registry.read(JOB_END).get(JOB_END)
        if end is not None:
            raise TaskTakenError(f"the job is over: {glog.clean(end.value[:1000])}")
        found = find_servers(self._registry)
        return describe_missing(found), [one for one in found if one is not None]

    def _try_to_join(self, records: list[ServerRecord]) -> JoinedServices:
        me, model = self._membership, self._model
        if model is None:
            raise BugError("the servers are used before `connect`")
        _check_ports(records, needs_tables=bool(model.tables))
        return JoinedServices(
            [ServiceAddress(one.host, port, one.attempt) for one in records for port in one.ports],
            [ServiceAddress(one.host, port, one.attempt) for one in records for port in one.sparse_ports],
            model,
            trainer_id=me.master.number,
            job=me.job,
            secret=me.secret,
            uid=me.uid,
            incarnation=me.incarnation,
            own_addresses=me.own_addresses,
            source=me.source,
            peer_timeout=me.peer_timeout,
            connect_timeout=me.peer_timeout,
            view=lambda: None if model.optimization.is_asynchronous else self.views.newest,
            refuse=lambda: self._refuse(records),
        )

    def _refuse(self, records: list[ServerRecord]) -> PaddleError | None:
        """Return an error if the registry no longer lists the servers that this trainer is joining."""
        now = time.monotonic()
        if now - self._looked < RECORDS_S:
            return None
        self._looked = now
        missing, found = self._find()
        if missing:
            return PeerUnreachableError(missing)
        return (
            None
            if found == records
            else PeerUnreachableError("a parameter server was started again; this trainer joins it again")
        )

    def _pause(self) -> None:
        """Wait for a change in the registry, at most WATCH_S seconds."""
        self._membership.look()
        began = time.monotonic()
        try:
            self._registry.wait(SERVERS, self._registry.read(SERVERS), WATCH_S)
        except (PeerUnreachableError, VolumeError):
            time.sleep(max(0.0, WATCH_S - (time.monotonic() - began)))


def _check_ports(records: list[ServerRecord], *, needs_tables: bool) -> None:
    """Check that all servers have equally many ports and, if there are tables, ports for tables.

    Raises: ConfigError: the numbers of ports differ, or ports for tables are missing.
    """
    first = records[0]
    for one in records:
        if (len(one.ports), len(one.sparse_ports)) != (len(first.ports), len(first.sparse_ports)):
            raise ConfigError(
                f"parameter server {first.index} has {len(first.ports)} ports and {len(first.sparse_ports)} sparse "
                f"ports, but server {one.index} has {len(one.ports)} ports and {len(one.sparse_ports)} sparse ports: "
                "start all servers with the same --ports_num and --ports_num_for_sparse"
            )
    if needs_tables and not first.sparse_ports:
        raise ConfigError(
            f"the config has tables (sparse_update), but the parameter servers have no ports for tables; {SPARSE_PORTS}"
        )
