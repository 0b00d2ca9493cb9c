"""What trainer 0's launcher knows of the others, and what it makes of how they say that an attempt ended (pure)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from launcher.attempts import JobRecord
from launcher.failures import LOST_POD, first_failure, is_passed_on, is_stopped
from launcher.text import JsonObject, list_some

KEPT_ATTEMPTS = 3  # number of attempts whose reports are remembered


@dataclasses.dataclass(frozen=True)
class LauncherPlace:
    """Where a launcher runs."""

    ip: str
    host: str


class AttemptBook:
    """The launchers that have joined, by the UID of their pod, and what they have reported of the newest attempts.

    Args: uid, place: of trainer 0's own pod, which is always there.
    """

    def __init__(self, uid: str, place: LauncherPlace) -> None:
        self._places: dict[str, LauncherPlace] = {uid: place}
        self._errors: dict[str, list[JsonObject]] = {}  # by attempt, in the order in which they came

    def join(self, uid: str, place: LauncherPlace) -> None:
        """Take note of a launcher that has joined, or is back."""
        self._places[uid] = place

    def leave(self, uid: str) -> None:
        """Take note of a launcher that is gone."""
        self._places.pop(uid, None)

    def missing(self, uids: Mapping[str, str]) -> list[str]:
        """Return the addresses of a set of pods whose launchers have not joined. Args: uids: by address."""
        return [ip for ip, uid in uids.items() if uid not in self._places]

    def report(self, error: JsonObject) -> bool:
        """Take a launcher's report; return whether it is news. The first of each pod and attempt counts."""
        errors = self._errors.setdefault(str(error["attempt"]), [])
        if any(one["trainer_id"] == error["trainer_id"] for one in errors):
            return False
        errors.append(error)
        while len(self._errors) > KEPT_ATTEMPTS:
            del self._errors[next(iter(self._errors))]
        return True

    def has_reports(self, attempt: str) -> bool:
        """Tell whether a launcher has reported of an attempt."""
        return attempt in self._errors

    def judge(self, record: JobRecord, now: float, *, is_late: bool) -> JsonObject | None:
        """Return what failed first in an attempt, None as long as that is not known.

        A pod that says what went wrong in itself is the cause. A pod that was stopped from outside is the cause if no
        other pod is, because the Job stops the other pods when one fails. If all others only report a lost peer, a
        launcher that has gone without a word is the cause. If none is gone, the first report is all that there is.
        Args: now: seconds since the epoch.  is_late: all launchers have had the time to report.
        """
        errors = self._errors.get(record.name, [])
        first = first_failure(errors, record.name)
        if first and not is_passed_on(first) and (is_late or not is_stopped(first)):
            return first
        return (self._find_lost(record, errors, now) or first) if is_late else None

    def _find_lost(self, record: JobRecord, errors: Iterable[JsonObject], now: float) -> JsonObject | None:
        """Return an error that names the pods of an attempt whose launchers are gone without a word."""
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
        also = f"; so are those of {list_some(others, ', ')}"
        return {
            "time": now,
            "attempt": record.name,
            "trainer_id": lost[0][0],
            "host": lost[0][1],
            "program": LOST_POD,
            "exit_code": 75,
            "signal": "",
            "message": f"its launcher is gone without a word: the pod was lost{also if lost[1:] else ''}",
        }
