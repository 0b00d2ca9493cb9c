"""The server side of the control connection. The server announces attempts and determines the first failure."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Mapping
from typing import Any

from paddle_base.messages.dispatcher import ControlServing
from paddle_base.messages.envelope import MemberId
from paddle_base.messages.server_core import MemberAsked
from paddle_cluster.launcher.attempts import JobRecord
from paddle_cluster.launcher.control.attempt_book import AttemptBook, LauncherPlace
from paddle_cluster.launcher.control.news import AttemptNews
from paddle_cluster.launcher.text import JsonObject

CAUSE_S = 2.0  # seconds after the first report of a lost peer, within which the failed pod must report the cause


class RendezvousHost:
    """The handlers of the server (paddle_base.messages.dispatcher.ServerHandlers). `ControlChannel` sets `server`.

    Thread safety: the server's thread calls `joined`, `asked` and `lost`; any thread may call the other methods.
    """

    def __init__(self, book: AttemptBook, news: AttemptNews) -> None:
        self.server: ControlServing | None = None
        self._book, self._news = book, news
        self._lock = threading.Lock()

    def missing(self, uids: Mapping[str, str]) -> list[str]:
        """Return the addresses of pods whose launchers are not connected. Args: uids: {address of a pod: its UID}."""
        with self._lock:
            return self._book.missing(uids)

    def begin(self, record: JobRecord) -> None:
        """Announce an attempt to the other launchers."""
        self._news.begin(record)
        self._push("begin", {"record": to_text(record)})

    def finish(self, record: JobRecord) -> None:
        """Announce that all passes are trained."""
        self._news.finish(record.name)
        self._push("done", {"attempt": record.name})

    def report(self, error: JsonObject) -> None:
        """Record a pod's error, announce the end of the attempt, and announce its first failure when it is known."""
        record = self._news.view.record
        with self._lock:
            is_news = self._book.report(error)
            if not is_news or not record or error["attempt"] != record.name:
                return
            failure = self._book.judge(record, time.time(), is_late=False)
        view = self._news.view
        is_first = record.name not in view.ends
        if is_first and not failure:
            timer = threading.Timer(CAUSE_S, self.judge_and_tell, [record])
            timer.daemon = True
            timer.start()
        if is_first or (failure and not view.failure_in(record)):
            self._tell_end(record, failure)

    def judge_and_tell(self, record: JobRecord) -> None:
        """Announce the first failure of an attempt when the time for further reports has passed."""
        view = self._news.view
        if not view.failure_in(record) and (failure := self.judge_late(record)):
            self._tell_end(record, failure)

    def judge_late(self, record: JobRecord) -> JsonObject | None:
        """Return the first failure of an earlier attempt, or None if no launcher has reported about that attempt."""
        with self._lock:
            is_told = self._book.has_reports(record.name)
            return self._book.judge(record, time.time(), is_late=True) if is_told else None

    # ----- Handlers that the server calls

    def joined(self, member: MemberId, hello: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add a launcher that has connected or reconnected; return the welcome message with the current state."""
        with self._lock:
            self._book.join(member.uid, LauncherPlace(hello["ip"], hello["host"]))
        if hello["last"]:
            self.report(hello["last"])
        self._news.signal()
        view = self._news.view
        ended = [{"attempt": name, "failure": failure} for name, failure in view.ends.items()]
        return {"record": to_text(view.record) if view.record else None, "ended": ended, "done": view.done}

    def asked(self, asked: MemberAsked) -> Mapping[str, Any] | None:
        """Handle a launcher's report, or its message that all trainers have left its pod's pserver."""
        if asked.kind == "left":
            self._news.finish(asked.body["attempt"])
        else:
            self.report(asked.body["error"])
        return {}

    def lost(self, member: MemberId, reason: str) -> None:
        """Record that a launcher has disconnected."""
        with self._lock:
            self._book.leave(member.uid)
        self._news.signal()

    # -----

    def _tell_end(self, record: JobRecord, failure: JsonObject | None) -> None:
        self._news.end(record.name, failure)
        self._push("ended", {"attempt": record.name, "failure": failure})

    def _push(self, kind: str, body: Mapping[str, Any]) -> None:
        if self.server:
            self.server.push(kind, body)


def to_text(record: JobRecord) -> str:
    """Return a record as the JSON text that the messages contain."""
    return json.dumps(dataclasses.asdict(record))
