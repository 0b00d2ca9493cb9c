"""The list of connected launchers and of their reports, from which trainer 0's launcher finds the first failure.

The module does no input or output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from paddle_base.runtime.errors import LostPeerError
from paddle_cluster.launcher.attempts import AttemptResult, JobRecord
from paddle_cluster.launcher.errors import NEVER_RETRY
from paddle_cluster.launcher.failures import LOST_POD, first_failure, is_passed_on, is_stopped, make_error
from paddle_cluster.launcher.text import JsonObject, list_some

KEPT_ATTEMPTS = 3  # number of attempts whose reports are kept


class LauncherPlace(NamedTuple):
    """The address and pod name of a launcher."""

    ip: str
    host: str


class FailureDetector:
    """The connected launchers, by the UID of their pod, and their reports about the newest attempts.

    Args: uid, place: UID, address and name of trainer 0's own pod, which always counts as connected.
    """

    def __init__(self, uid: str, place: LauncherPlace) -> None:
        self._places: dict[str, LauncherPlace] = {uid: place}
        self._errors: dict[str, list[JsonObject]] = {}  # {name of an attempt: its reports in order of arrival}

    def join(self, uid: str, place: LauncherPlace) -> None:
        """Record that a launcher has connected or reconnected."""
        self._places[uid] = place

    def leave(self, uid: str) -> None:
        """Record that a launcher has disconnected."""
        self._places.pop(uid, None)

    def missing(self, uids: Mapping[str, str]) -> list[str]:
        """Return the addresses of pods whose launchers are not connected. Args: uids: {address of a pod: its UID}."""
        return [ip for ip, uid in uids.items() if uid not in self._places]

    def report(self, error: JsonObject) -> bool:
        """Record a launcher's report; return whether the report is new.

        Only the first report of each pod about an attempt counts. If a launcher reports an error that a retry cannot
        repair, the launcher is about to end, and the function records it as disconnected. Its pod may still be listed
        as Running, but no attempt may begin with that pod.
        """
        if error["exit_code"] in NEVER_RETRY:
            self._places = {uid: place for uid, place in self._places.items() if place.host != error["host"]}
        errors = self._errors.setdefault(str(error["attempt"]), [])
        if any(one["trainer_id"] == error["trainer_id"] for one in errors):
            return False
        errors.append(error)
        while len(self._errors) > KEPT_ATTEMPTS:
            del self._errors[next(iter(self._errors))]
        return True

    def has_reports(self, attempt: str) -> bool:
        """Return whether any launcher has reported about an attempt."""
        return attempt in self._errors

    def judge(self, record: JobRecord, *, is_late: bool) -> JsonObject | None:
        """Return the first failure of an attempt, or None while it is unknown.

        A pod that reports its own error is the cause. A pod that was stopped from outside is the cause only if no pod
        failed by itself, because the Job stops the other pods when a pod fails. If all reports are about a lost peer,
        the cause is a launcher that disconnected without a report. If no launcher disconnected, the first report is
        returned.
        Args: is_late: whether the time for further reports has passed.
        """
        errors = self._errors.get(record.name, [])
        first = first_failure(errors, record.name)
        if first and not is_passed_on(first) and (is_late or not is_stopped(first)):
            return first
        return (self._find_lost(record, errors) or first) if is_late else None

    def _find_lost(self, record: JobRecord, errors: Iterable[JsonObject]) -> JsonObject | None:
        """Return an error that names the pods of an attempt whose launchers disconnected without a report."""
        told = {error["trainer_id"] for error in errors}
        present = {place.ip for uid, place in self._places.items() if uid in record.pod_uids}
        lost = [
            (number, str(pod.get("place") or pod.get("ip")))
            for number, pod in enumerate(record.pods)
            if number not in told and pod.get("ip") not in present
        ]
        if not lost:
            return None
        others = [f"{record.roles.name_pod(number)} ({place})" for number, place in lost[1:]]
        also = f"; the launchers of {list_some(others, ', ')} disconnected, too" if others else ""
        message = f"the pod's launcher disconnected without a report: the pod was lost{also}"
        return make_error(record.name, *lost[0], AttemptResult(LostPeerError.exit_code, LOST_POD, message))
