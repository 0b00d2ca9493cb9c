"""Watch whether the attempt has ended in another pod, while the supervisor watches the programs of this pod."""

from __future__ import annotations

import contextlib
import time

from paddle_base.runtime.errors import LostPeerError
from paddle_cluster.launcher.attempts import AttemptResult, Meeting
from paddle_cluster.launcher.checkpoints import find_saved
from paddle_cluster.launcher.cluster.pods import IdMap, own_trainer_id
from paddle_cluster.launcher.cluster.waiting import is_first_live, is_whole
from paddle_cluster.launcher.control.informer import find_later
from paddle_cluster.launcher.control.job_record import read_record, write_record
from paddle_cluster.launcher.control.launcher import Launcher
from paddle_cluster.launcher.control.returning import ReturnWatch
from paddle_cluster.launcher.failures import LOST_POD, RETURNED_POD, is_passed_on, make_error
from paddle_cluster.launcher.resume import position
from paddle_cluster.launcher.text import list_some, say

SILENCE_S = 10.0  # seconds without a connection to trainer 0's launcher, after which trainer 0's pod is checked
WATCH_PERIOD_S = 3.0  # seconds between two calls of `AttemptWatch.find_end` while no message arrives
LOOK_PERIOD_S = WATCH_PERIOD_S - 0.1  # minimum seconds between two checks by trainer 0's launcher that job.json exists


class AttemptWatch:
    """Detect whether an attempt continues or has ended in another pod."""

    def __init__(self, launcher: Launcher, met: Meeting) -> None:
        self.record = record = met.record
        self._ids, self._control, self._api = met.ids, launcher.control, launcher.api
        self._save_dir, self._output = launcher.save_dir, launcher.output
        self._trainer_id = own_trainer_id(launcher.config, met.ids)
        self._looked = self._heard = time.monotonic()
        is_leading = self._trainer_id == 0 and bool(record.absent)
        self._returning = ReturnWatch(launcher, record) if is_leading else None
        # what was saved (`_measure_saved`) when the first absent pod returned
        self._saved_before: tuple[int, float] | None = None
        self._told_at = -WATCH_PERIOD_S  # when this launcher has told that its program has finished

    def __enter__(self) -> AttemptWatch:
        if self._returning:
            self._returning.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._returning:
            self._returning.close()

    @property
    def wakeup(self) -> int:
        """A file descriptor that becomes readable when a message of another launcher has arrived."""
        return self._control.informer.wakeup.fileno()

    def find_end(self) -> AttemptResult | None:
        """Return the result if the attempt has ended in another pod, or None if the attempt continues."""
        self._control.informer.wakeup.clear()
        if self._trainer_id == 0 and time.monotonic() - self._looked >= LOOK_PERIOD_S:
            self._looked = time.monotonic()
            end = self._look_at_record() or self._look_for_returned()
            if end:
                return end
        if self.record.is_program and (end := self._find_lost_peer()):
            return end
        return self._control.find_end(self.record, self._trainer_id)

    def find_obstacle(self) -> AttemptResult | None:
        """While the pservers start, return why this attempt cannot begin to train, or None if it can begin."""
        end = self.find_end()
        if not end and not (is_whole(self._api, self._ids) and self._is_joined()):
            return AttemptResult(0, "launcher", "the set of pods changed before the training began", is_dissolved=True)
        if not end and self.record.absent and (trouble := self._find_silence()):
            return AttemptResult(LostPeerError.exit_code, "launcher", f"trainer 0's launcher is gone: {trouble}")
        return end

    def find_lost_server(self) -> AttemptResult | None:
        """In a pod without a trainer, return an error if trainer 0's pod is lost; the pserver may not detect this loss.

        The launcher asks the API server after trainer 0's launcher has been unreachable for SILENCE_S, and repeats the
        request every SILENCE_S.
        """
        if not (trouble := self._find_silence()) or self.is_done():
            return None
        self._heard = time.monotonic()
        if is_first_live(self._api, self._ids):
            return None
        return AttemptResult(LostPeerError.exit_code, "launcher", f"trainer 0's pod is lost: {trouble}")

    def _find_lost_peer(self) -> AttemptResult | None:
        """Return an error if the pod of a program of ENTRY is lost, which the other programs may never notice.

        Trainer 0's launcher watches the other pods, and the others watch trainer 0's pod.
        """
        if self._trainer_id:
            return self.find_lost_server()
        now = time.monotonic()
        pods = {str(pod["ip"]): number for number, pod in enumerate(self.record.pods)}
        silent = self._control.side.find_silent({str(pod["ip"]): str(pod["uid"]) for pod in self.record.pods})
        if not (silent and self._control.side.has_peers):
            self._heard = now
        elif now - self._heard >= LOOK_PERIOD_S:
            self._heard = now
            if not is_whole(self._api, self._ids):
                number = pods[silent[0]]
                message = "the pod is lost: its launcher no longer answers"
                lost = AttemptResult(LostPeerError.exit_code, LOST_POD, message)
                place = str(self.record.pods[number].get("place") or silent[0])
                self._control.side.send("report", {"error": make_error(self.record.name, number, place, lost)})
        return None

    def tell_finished(self) -> None:
        """Tell trainer 0's launcher that this pod's program of ENTRY has finished; each call repeats a lost message."""
        if not self.record.is_program or time.monotonic() - self._told_at < WATCH_PERIOD_S:
            return
        self._told_at = time.monotonic()
        if self._control.side.has_peers:
            body = {"attempt": self.record.name, "trainer_id": self._trainer_id}
            self._control.side.send("finished", body)
        else:
            self._control.informer.finish(self.record.name)

    def tell(self, result: AttemptResult) -> bool:
        """Return whether a program of this pod caused the attempt's end; if so, notify the other launchers at once."""
        is_cause = not is_passed_on(make_error(self.record.name, self._trainer_id, "", result))
        if is_cause:
            self._control.report(self.record, self._trainer_id, result)
        return is_cause

    def is_done(self) -> bool:
        """Return whether the job has trained all passes, according to trainer 0's launcher or to job.json."""
        if self._control.is_done(self.record):
            return True
        newest = read_record(self._output)
        return bool(newest and newest.finished and newest.job_uid == self.record.job_uid)

    def _find_silence(self) -> str:
        """Return why trainer 0's launcher is unreachable, or "" if it has been unreachable for less than SILENCE_S."""
        now = time.monotonic()
        if not (trouble := self._control.side.why_not_heard(IdMap())):
            self._heard = now
        return trouble if now - self._heard >= SILENCE_S else ""

    def _is_joined(self) -> bool:
        """In the leader of an attempt without some pods, return whether the other launchers are still connected.

        If the pod of index 0 returns before a launcher has received the attempt, that launcher disconnects from the
        leader and connects to the pod of index 0. The leader then connects to the pod of index 0, too. A launcher that
        has received the attempt detects that the leader is unreachable (`_find_silence`).
        """
        uids = {str(pod["ip"]): str(pod["uid"]) for pod in self.record.pods} if self._returning else {}
        return not self._control.side.find_silent(uids)

    def _look_for_returned(self) -> AttemptResult | None:
        """If absent pods have returned and a pass has been saved since then, end the attempt and return its result."""
        names = self._returning.names if self._returning else []
        if not names:
            self._saved_before = None
            return None
        try:
            saved = find_saved(self._save_dir)
        except OSError:  # the volume is not reachable
            return None
        reached = position(saved.newest) if self.record.is_program else (saved.following, 0.0)
        if self._saved_before is None:
            self._saved_before = reached
            returned = f"{list_some(names, ', ')} can take part again"
            say(f"{returned}: the next pass that is saved ends this attempt, unless it is the last pass")
        is_last = not self.record.is_program and saved.following >= self.record.passes
        if reached <= self._saved_before or is_last:
            return None
        returned = f"{list_some(names, ', ')} can take part again"
        what = saved.newest if self.record.is_program else f"pass {saved.following - 1}"
        message = f"{returned}, and {what} is saved: continuing with all pods"
        result = AttemptResult(LostPeerError.exit_code, RETURNED_POD, message)
        return self._control.report(self.record, self._trainer_id, result)

    def _look_at_record(self) -> AttemptResult | None:
        """Write job.json again if it is lost; return a result if job.json contains a later attempt than this one."""
        newest = read_record(self._output)
        if newest is None:
            with contextlib.suppress(OSError):  # the volume is not reachable
                write_record(self._output, self.record)
        return find_later(newest, self.record) if newest else None
