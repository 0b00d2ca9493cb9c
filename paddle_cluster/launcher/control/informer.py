"""A launcher's information about the newest attempt; most launchers receive it from trainer 0's launcher."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from typing import Any

from paddle_base.messages.envelope import MemberId
from paddle_base.runtime.errors import LostPeerError
from paddle_base.runtime.wakeup import WakeUp
from paddle_cluster.launcher.attempts import AttemptResult, JobRecord, failure_in, is_later, parse_record
from paddle_cluster.launcher.failures import RETURNED_POD, describe_error
from paddle_cluster.launcher.text import JsonObject, in_one_line, say

KEPT_ENDS = 3  # number of attempts whose end is kept


@dataclasses.dataclass(frozen=True)
class AttemptView:
    """This launcher's information about the newest attempt."""

    record: JobRecord | None = None
    # {name of an ended attempt: its first failure, or None while the failure is unknown}
    ends: Mapping[str, JsonObject | None] = dataclasses.field(default_factory=dict)
    done: str = ""  # the name of the attempt that has trained all passes

    def failure_in(self, record: JobRecord) -> JsonObject | None:
        """Return the first failure of an attempt, or None while the failure is unknown.

        `ends` contains the failures of ended attempts. The record of a later attempt also contains the failures of
        earlier attempts.
        """
        before = [one for one in (self.record.attempts if self.record else []) if one["name"] == record.name]
        return self.ends.get(record.name) or (failure_in(before[0]) if before else None)


class AttemptInformer:
    """The newest AttemptView.

    Attributes: wakeup: wakes the supervisor when the view, or the set of connected launchers, has changed.

    Thread safety: any thread may call any method.
    """

    def __init__(self) -> None:
        self.wakeup = WakeUp()
        self._lock = threading.Lock()
        self._view = AttemptView()

    @property
    def view(self) -> AttemptView:
        """The newest view."""
        with self._lock:
            return self._view

    def begin(self, record: JobRecord) -> None:
        """Record a new attempt; do nothing if this attempt is recorded already."""
        with self._lock:
            if not self._view.record or record.name != self._view.record.name:
                self._view = AttemptView(record, self._view.ends)
        self.wakeup.call()

    def end(self, attempt: str, failure: JsonObject | None) -> None:
        """Record the end of an attempt. Args: failure: the attempt's first failure, or None if it is not known yet."""
        with self._lock:
            ends = {**{name: self._view.ends[name] for name in [*self._view.ends][-KEPT_ENDS:]}, attempt: failure}
            self._view = dataclasses.replace(self._view, ends=ends)
        self.wakeup.call()

    def finish(self, attempt: str) -> None:
        """Record that an attempt has trained all passes."""
        with self._lock:
            self._view = dataclasses.replace(self._view, done=attempt)
        self.wakeup.call()

    def forget(self) -> None:
        """Reset the view, because the channel closes the connection to trainer 0's launcher."""
        with self._lock:
            self._view = AttemptView()

    # ----- The handlers of a client (paddle_base.messages.client_core.ClientHandlers)

    def pushed(self, kind: str, body: Mapping[str, Any]) -> None:
        """Apply a message of protocol.RENDEZVOUS that trainer 0's launcher has pushed."""
        if kind == "ended":
            self.end(body["attempt"], body["failure"])
        elif kind == "done":
            self.finish(body["attempt"])
        elif record := parse_record(body["record"].encode()):
            self.begin(record)
        else:
            say("trainer 0's launcher has announced an attempt in a form that this launcher cannot read")

    def welcomed(self, server: MemberId, welcome: Mapping[str, Any]) -> None:
        """Apply the state in the welcome message, which a launcher receives when it connects."""
        if welcome["record"]:
            self.pushed("begin", welcome)
        for ended in welcome["ended"]:
            self.pushed("ended", ended)
        if welcome["done"]:
            self.pushed("done", {"attempt": welcome["done"]})

    def disconnected(self, reason: str) -> None:
        """Wake the thread that waits for messages."""
        self.wakeup.call()


def find_later(newest: JobRecord, record: JobRecord) -> AttemptResult | None:
    """Return the result of an attempt that a later attempt of the Job has replaced, or None."""
    if newest.job_uid != record.job_uid or not is_later(newest, record):
        return None
    message = f"attempt {newest.attempt} has begun without this pod"
    return AttemptResult(LostPeerError.exit_code, "launcher", message)


def describe_elsewhere(failure: JsonObject | None, record: JobRecord | None = None) -> str:
    """Return a text about the pod that has ended an attempt. Args: record: the record of the attempt."""
    if failure is None:
        return "another pod has ended the attempt; what failed first is not known yet"
    if failure["program"] == RETURNED_POD:
        return f"trainer 0 has ended the attempt: {failure['message']}"
    return f"another pod has failed: {in_one_line(describe_error(failure, record))}"
