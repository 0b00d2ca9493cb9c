"""The master's service handles requests of members: it applies the rules, stores the changes, and answers.

The thread of the control server only queues messages. `MasterService.work`, in the master's own thread, takes all
queued messages, applies the rules to them one by one, stores the changes in one commit, and then sends the answers.
Each answer therefore describes a state that is already stored, and one write to a slow disk or etcd serves many
requests.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle_base.messages.envelope import MemberId
from paddle_base.messages.server_core import Dispatcher, MemberAsked, MemberJoined, ServerCore
from paddle_base.runtime import glog
from paddle_base.runtime.errors import LeaseLostError
from paddle_base.runtime.health.steady_time import steady_time
from paddle_cluster.master.protocol import MOST_SHOWN, TRAINER
from paddle_cluster.master.store.interface import Leadership, Write
from paddle_cluster.master.summary import describe_status
from paddle_cluster.master.tasks.encoding import encode_change
from paddle_cluster.master.tasks.events import (
    DatasetGiven,
    Event,
    JoinRefusal,
    MasterEffect,
    MemberIn,
    MemberLeaves,
    MemberOut,
    MemberWelcome,
    Notice,
    SaveDone,
    SaveWanted,
    TaskReported,
    TaskWanted,
    Ticket,
    TicketAnswer,
    TicketRefusal,
    TimePasses,
    ViewChange,
)
from paddle_cluster.master.tasks.rules import step, why_other_config
from paddle_cluster.master.tasks.state import MasterState
from paddle_cluster.master.uploads import DatasetOffer, DatasetUploads, Reaction

TICK_S = 0.25  # seconds between two checks for expired leases and time limits
TURN = 512  # maximum events in one commit

_Heard = MemberAsked | MemberJoined | MemberOut | BaseException


class MasterService:
    """Handles the messages that the master's control server receives.

    Args: files_per_task: number of files in each task of a new data set.  clock: returns seconds since the
            epoch, without the steps of the machine's clock.
    """

    dispatcher: Dispatcher  # `Master` sets it

    def __init__(
        self,
        state: MasterState,
        leadership: Leadership,
        files_per_task: int,
        clock: Callable[[], float] = steady_time,
    ) -> None:
        self.state = state
        self._leadership, self._clock = leadership, clock
        self._heard: queue.SimpleQueue[_Heard] = queue.SimpleQueue()
        self._open: dict[Ticket, MemberAsked] = {}
        self._uploads = DatasetUploads(files_per_task)
        self._writes: list[Write] = []
        self._effects: list[MasterEffect] = []
        self._ticked = 0.0
        self.events = 0  # number of events to which the rules were applied

    # ----- Called by the control server's thread

    def joined(self, member: MemberId, hello: Mapping[str, Any]) -> None:
        """Queue a joining member; the master's thread stores the member's number before it accepts the member."""
        self._heard.put(MemberJoined(member, hello, is_back=False))

    def asked(self, asked: MemberAsked) -> None:
        """Queue a request for the master's thread."""
        self._heard.put(asked)

    def lost(self, member: MemberId, reason: str) -> None:
        """Queue the loss of a connection."""
        self._heard.put(MemberOut(member, reason))

    # ----- Called by any thread

    def stop(self, error: BaseException) -> None:
        """Let `work` raise this error."""
        self._heard.put(error)

    # ----- Called by the master's thread

    def work(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for messages; then apply the rules, store the changes, and answer.

        Raises: the error given to `stop`; LeaseLostError and other errors of the store. After an error, no message
            that this call has processed is answered.
        """
        heard: list[_Heard] = []
        try:
            heard.append(self._heard.get(timeout=timeout) if timeout > 0 else self._heard.get_nowait())
            while len(heard) < TURN:
                heard.append(self._heard.get_nowait())
        except queue.Empty:
            pass
        for one in heard:
            if isinstance(one, BaseException):
                raise one
            self._take(one)
        now = self._clock()
        if not 0 <= now - self._ticked < TICK_S:
            self._ticked = now
            self._step(TimePasses())
        self._store()

    def _take(self, heard: MemberAsked | MemberJoined | MemberOut) -> None:
        if isinstance(heard, MemberJoined):
            self._take_join(heard)
        elif isinstance(heard, MemberOut):
            self._react(self._uploads.forget(heard.member))
            self._step(heard)
        else:
            ticket = (heard.member, heard.id)
            self._open[ticket] = heard
            _REQUESTS[heard.kind](self, ticket, heard)

    def _take_join(self, joined: MemberJoined) -> None:
        """Accept a member, or refuse it if its config differs from the job's config."""
        head = self.state.head
        fault = why_other_config(head, joined.hello["config"]) if head else ""
        if fault:
            self._effects.append(JoinRefusal(joined.member, "config", fault))
        elif joined.hello["role"] == TRAINER:
            self._step(MemberIn(joined.member, is_new=joined.hello["number"] is None))
        else:
            self._effects.append(MemberWelcome(joined.member, None))

    def _take_offer(self, ticket: Ticket, asked: MemberAsked) -> None:
        body = asked.body
        if self.state.head is None:
            offer = DatasetOffer(ticket, asked.member, body["digest"], body["config"], body["files"])
            self._react(self._uploads.offer(offer))
        else:
            self._step(DatasetGiven(ticket, body["digest"], body["config"], body["files"], ()))

    def _take_part(self, ticket: Ticket, asked: MemberAsked) -> None:
        body = asked.body
        if self.state.head is None:
            self._react(self._uploads.take(ticket, asked.member, body["first"], body["names"]))
        else:
            self._step(DatasetGiven(ticket, body["digest"], "", body["first"] + len(body["names"]), ()))

    def _take_wanted(self, ticket: Ticket, asked: MemberAsked) -> None:
        body = asked.body
        until = self._clock() + body["patience"]
        self._step(TaskWanted(ticket, asked.member, body["request"], body["pass"], until))

    def _take_report(self, ticket: Ticket, asked: MemberAsked) -> None:
        body = asked.body
        more = body["next"]
        wanted = TaskWanted(ticket, asked.member, more["request"], more["pass"], until=0.0) if more else None
        self._step(
            TaskReported(
                ticket,
                asked.member,
                body["pass"],
                body["id"],
                body["epoch"],
                body["outcome"],
                body["samples"],
                body["reason"],
                wanted,
            )
        )

    def _take_save(self, ticket: Ticket, asked: MemberAsked) -> None:
        self._step(SaveWanted(ticket, asked.member, asked.body["block"], asked.body["pass"]))

    def _take_saved(self, ticket: Ticket, asked: MemberAsked) -> None:
        self._step(SaveDone(ticket, asked.member, asked.body["pass"]))

    def _take_leave(self, ticket: Ticket, asked: MemberAsked) -> None:
        self._step(MemberLeaves(ticket, asked.member, "it leaves", is_polite=True))

    def _take_status(self, ticket: Ticket, asked: MemberAsked) -> None:
        status = describe_status(self.state, self._leadership.claim.token, MOST_SHOWN)
        self._effects.append(TicketAnswer(ticket, status))

    # -----

    def _react(self, reactions: Sequence[Reaction]) -> None:
        for one in reactions:
            if isinstance(one, DatasetGiven):
                self._step(one)
                self._react(self._uploads.settle())
            else:
                self._effects.append(one)

    def _step(self, event: Event) -> None:
        self.events += 1
        outcome = step(self.state, event, self._clock())
        self._writes += map(encode_change, outcome.changes)
        self._effects += outcome.effects

    def _store(self) -> None:
        # stored before it is told: the next leader has to know what a trainer was promised
        if self._writes:
            self._leadership.commit(self._writes)
            self._writes = []
        effects, self._effects = self._effects, []
        if any(isinstance(effect, ViewChange) for effect in effects):
            self._push_view()
        for effect in effects:
            if isinstance(effect, TicketAnswer):
                self.dispatcher.call(ServerCore.answer, self._open.pop(effect.ticket), effect.body)
            elif isinstance(effect, TicketRefusal):
                self.dispatcher.call(ServerCore.refuse, self._open.pop(effect.ticket), effect.code, effect.reason)
            elif isinstance(effect, MemberWelcome):
                settings, view = self.state.settings, self._view()
                welcome = {"lease": settings.member_lease, "passes": settings.num_passes, "view": view}
                self.dispatcher.call(ServerCore.welcome, effect.member, {**welcome, "number": effect.number})
            elif isinstance(effect, JoinRefusal):
                self.dispatcher.call(ServerCore.refuse_join, effect.member, effect.code, effect.reason)
            elif isinstance(effect, Notice):
                (glog.warning if effect.is_warning else glog.info)(effect.text)

    def _push_view(self) -> None:
        """Send the newest view to all members.

        The view is sent before the answers. A member that gets a task has therefore received a view that contains this
        member.

        Raises: LeaseLostError: the epochs are exhausted.
        """
        if self.state.presence.is_exhausted:
            raise LeaseLostError(
                "this master has used all its epochs for views; start it again, because a new leader has new epochs"
            )
        self.dispatcher.call(ServerCore.push, "view", self._view())

    def _view(self) -> Mapping[str, Any]:
        view = self.state.presence.view
        return {"epoch": view.epoch, "members": list(view.members)}


_REQUESTS: Mapping[str, Callable[[MasterService, Ticket, MemberAsked], None]] = {
    "offer_dataset": MasterService._take_offer,
    "dataset_part": MasterService._take_part,
    "get_task": MasterService._take_wanted,
    "report_task": MasterService._take_report,
    "request_save": MasterService._take_save,
    "report_saved": MasterService._take_saved,
    "depart": MasterService._take_leave,
    "status": MasterService._take_status,
}
