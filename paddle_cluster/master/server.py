"""The life cycle of a master: it campaigns, leads, loads the state, serves, and ends when the job is over."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from pathlib import Path

from paddle_base.messages.envelope import MemberId
from paddle_base.messages.gate import GateLimits
from paddle_base.messages.keys import derive_keys
from paddle_base.messages.server import ControlServer
from paddle_base.messages.server_core import Dispatcher, ServerCore
from paddle_base.registry.interface import Registry
from paddle_base.registry.keeping import ClaimKeeper
from paddle_base.runtime import glog
from paddle_base.runtime.errors import (
    DataError,
    LeaseLostError,
    PeerUnreachableError,
    PortInUseError,
)
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_base.runtime.health.steady_time import steady_time
from paddle_cluster.master.protocol import MASTER, MOST_MEMBERS
from paddle_cluster.master.recording import JobRecords, check_output
from paddle_cluster.master.service import TICK_S, MasterService
from paddle_cluster.master.store.interface import Leadership, MasterStore
from paddle_cluster.master.tasks.encoding import decode_state
from paddle_cluster.master.tasks.records import Phase
from paddle_cluster.master.tasks.state import TaskSettings

SILENCE = 0.5  # fraction of a lease after which a silent member is disconnected; until the lease ends, it may reconnect
PROBE_S = 1.5  # seconds after which the connection of a silent member is probed; members send every second
TELL_S = 30.0  # maximum seconds after the linger time until the end of the job is in the registry


@dataclass(frozen=True)
class MasterOptions:
    """The options from the flags.

    host: address to listen on.  address: address that trainers find in the store.  lease: seconds after which a silent
    member loses its tasks.  linger: seconds for members to learn of the end of the job.  output: the directory of
    tasks.json, or None.
    """

    job: str
    secret: str
    host: str
    address: str
    port: int
    lease: float
    linger: float
    files_per_task: int
    output: Path | None
    tasks: TaskSettings


class Master:
    """A master. The health pages of the master read `why_not_ready` and `service`."""

    def __init__(self, store: MasterStore, registry: Registry, options: MasterOptions) -> None:
        self._store, self._registry, self._options = store, registry, options
        self.why_not_ready = "this master has not begun to campaign yet"
        self.service: MasterService | None = None
        self.token = 0
        self._error: BaseException | None = None

    def stop(self, error: BaseException) -> None:
        """Let `run` end with this error; a signal handler may call this method."""
        self._error = error
        if self.service is not None:
            self.service.stop(error)

    def run(self) -> None:
        """Lead the job to its end.

        Raises: PaddleError: the error given to `stop`, or an error of the master.  DataError: the job has failed.
        """
        if self._options.output is not None:
            check_output(self._options.output)
        leadership = self._campaign()
        try:
            with ClaimKeeper(leadership.claim, self.stop, what="the leadership"):
                self._lead(leadership)
        finally:
            leadership.resign()

    def _campaign(self) -> Leadership:
        self.why_not_ready = "another master leads, or the leadership is not decided"
        leadership = self._store.campaign(lambda: self._error is not None, glog.info)
        if leadership is None:
            raise self._error or LeaseLostError("the campaign has ended without a leader")
        self.token = leadership.claim.token
        glog.info(f"this master leads job '{self._options.job}' as leader {leadership.claim.token}")
        return leadership

    def _lead(self, leadership: Leadership) -> None:
        self.why_not_ready = "the state is being loaded"
        began = time.monotonic()
        options = self._options
        gc.disable()  # the garbage collector would repeatedly scan the objects of a million tasks, and free none
        try:
            state = decode_state(options.tasks, leadership.load(), steady_time(), leadership.claim.token)
        finally:
            gc.enable()
        # later collections, too, skip the objects of the loaded tasks
        gc.freeze()
        table = state.table
        glog.info(
            f"loaded {len(table.files)} tasks in {time.monotonic() - began:.2f} s: pass {table.pass_number}, "
            f"{table.done} done, {len(table.pending)} pending, {len(table.failed)} failed, {len(state.members)} members"
        )
        self.service = service = MasterService(state, leadership, options.files_per_task)
        # a signal came while the state was loaded, and no server was there to stop
        if self._error is not None:
            raise self._error
        with self._open_server(service, leadership.claim.token) as server:
            address = f"{options.address}:{server.port}"
            facts = {"job": options.job, "leader": leadership.claim.token, "address": address}
            with JobRecords(state, self._registry, options.output, facts) as records:
                leadership.publish(address)
                self.why_not_ready = ""
                glog.info(f"serving on {address}")
                self._serve(service, records)

    def _open_server(self, service: MasterService, token: int) -> ControlServer:
        options = self._options
        member = MemberId(f"master of {options.job}", token)
        silence = options.lease * SILENCE
        core = ServerCore(
            MASTER,
            options.job,
            member,
            silence=silence,
            most_members=MOST_MEMBERS,
            probe=min(PROBE_S, silence / 2),
        )
        service.dispatcher = Dispatcher(core, service, glog.warning)
        keys = derive_keys(options.secret)  # a peer must prove the secret, from whatever address it comes
        # all members may reconnect at the same moment
        limits = GateLimits(unauthenticated=MOST_MEMBERS, peers=MOST_MEMBERS)
        try:
            return ControlServer(options.host, options.port, service.dispatcher, keys, limits=limits)
        except OSError as exc:
            raise PortInUseError(
                f"--port={options.port}: cannot listen on {options.host}: {exc.strerror or exc}; choose another port, "
                "or 0 for any that is free"
            ) from exc

    def _serve(self, service: MasterService, records: JobRecords) -> None:
        state, over_at = service.state, 0.0
        while True:
            service.work(TICK_S)
            LIVENESS.turn()
            records.turn()
            if not state.is_over:
                continue
            over_at = over_at or time.monotonic()
            took, linger = time.monotonic() - over_at, self._options.linger
            if (records.is_end_told and (not state.members or took >= linger)) or took >= linger + TELL_S:
                break
        head = state.head
        if head is not None and head.phase is Phase.FAILED:
            raise DataError(head.reason)
        if not records.is_end_told:
            raise PeerUnreachableError(
                "the job is done, but the parameter servers cannot learn this from the registry: "
                f"{records.trouble}; start the master again"
            )
        if state.discarded:
            raise DataError(state.discarded)
        glog.info("all passes are done")
