"""What a supervisor watches beside its own programs: whether its attempt has ended in another pod."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from launcher.attempts import AttemptResult, JobRecord, is_later
from launcher.checkpoints import find_saved
from launcher.cluster.kubernetes import PodApi
from launcher.cluster.pods import IdMap, own_trainer_id
from launcher.cluster.waiting import is_first_live, is_whole
from launcher.command_lines import save_dir_of
from launcher.control.channel import LauncherControl
from launcher.control.job_record import read_record, write_record
from launcher.control.returning import ReturnWatch
from launcher.failures import RETURNED_POD, is_passed_on, make_error
from launcher.settings import LauncherConfig
from launcher.text import list_some, say
from runtime.errors import LostPeerError

SILENCE_S = 10.0  # seconds without a connection to trainer 0's launcher, after which its pod is looked for
LOOK_PERIOD_S = 2.9  # seconds between two looks of trainer 0's launcher whether job.json is still there


class AttemptWatch:
    """Says whether an attempt goes on.

    Args: api: is asked, while the pservers are waited for, whether all pods of the set are still live.
        passed: flags of the trainer, which tell where it saves.
    """

    def __init__(
        self,
        config: LauncherConfig,
        ids: IdMap,
        record: JobRecord,
        control: LauncherControl,
        api: PodApi,
        passed: Mapping[str, str],
    ) -> None:
        self.record = record
        self._save_dir = save_dir_of(config, passed)
        self._output, self._ids, self._control, self._api = config.output, ids, control, api
        self._trainer_id = own_trainer_id(config, ids)
        self._looked = self._heard = time.monotonic()
        is_leading = self._trainer_id == 0 and bool(record.absent)
        self._returning = ReturnWatch(config, record, control, api) if is_leading else None
        self._saved_before: int | None = None  # the pass that was to follow when the first pod was back

    def __enter__(self) -> AttemptWatch:
        if self._returning:
            self._returning.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._returning:
            self._returning.close()

    @property
    def wakeup(self) -> int:
        """A file descriptor that can be read when another launcher has said something."""
        return self._control.wakeup

    def find_end(self) -> AttemptResult | None:
        """Says that the attempt has ended elsewhere, None: it goes on."""
        self._control.acknowledge()
        if self._trainer_id == 0 and time.monotonic() - self._looked >= LOOK_PERIOD_S:
            self._looked = time.monotonic()
            end = self._look_at_record() or self._look_for_returned()
            if end:
                return end
        return self._control.find_end(self.record, self._trainer_id)

    def find_obstacle(self) -> AttemptResult | None:
        """Says, while the pservers are waited for, why this attempt cannot begin to train; None: it can."""
        end = self.find_end()
        if not end and not (is_whole(self._api, self._ids) and self._is_joined()):
            return AttemptResult(0, "launcher", "the set of pods changed before the training began", is_dissolved=True)
        if not end and self.record.absent and (trouble := self._find_silence()):
            return AttemptResult(LostPeerError.exit_code, "launcher", f"trainer 0's launcher is gone: {trouble}")
        return end

    def find_lost_server(self) -> AttemptResult | None:
        """Says that trainer 0's pod is lost, in a pod whose pserver may have met no trainer that would be missed.

        The API server is asked when trainer 0's launcher has been out of reach for SILENCE_S, and as long after that.
        """
        if not (trouble := self._find_silence()) or self.is_done():
            return None
        self._heard = time.monotonic()
        if is_first_live(self._api, self._ids):
            return None
        return AttemptResult(LostPeerError.exit_code, "launcher", f"trainer 0's pod is lost: {trouble}")

    def tell(self, result: AttemptResult) -> bool:
        """Tells the others at once if a program of this pod is the cause of the end; returns whether it is."""
        is_cause = not is_passed_on(make_error(self.record.name, self._trainer_id, "", result))
        if is_cause:
            self._control.report(self.record, self._trainer_id, result)
        return is_cause

    def is_done(self) -> bool:
        """Tells whether the job is done: trainer 0's launcher says so, and job.json does when that one has ended."""
        if self._control.is_done(self.record):
            return True
        newest = read_record(self._output)
        return bool(newest and newest.finished and newest.job_uid == self.record.job_uid)

    def _find_silence(self) -> str:
        """Returns why trainer 0's launcher is out of reach, "" until that has lasted for SILENCE_S."""
        now = time.monotonic()
        if not (trouble := self._control.why_not_heard(IdMap())):
            self._heard = now
        return trouble if now - self._heard >= SILENCE_S else ""

    def _is_joined(self) -> bool:
        """Tells, in an attempt that this launcher leads without some pods, whether the others have stayed with it.

        They leave it when they see the pod of index 0 come back before they hear of the attempt. This launcher then
        joins that pod's, too, and those that have heard of the attempt find it gone (`_find_silence`).
        """
        uids = {str(pod["ip"]): str(pod["uid"]) for pod in self.record.pods} if self._returning else {}
        return not self._control.find_silent(uids)

    def _look_for_returned(self) -> AttemptResult | None:
        """Says, once a pass has been saved after absent pods are back, that they take part in the next attempt."""
        names = self._returning.names if self._returning else []
        if not names:
            self._saved_before = None
            return None
        try:
            following = find_saved(self._save_dir).following
        except OSError:  # a volume that is away
            return None
        if self._saved_before is None:
            self._saved_before = following
            say(f"{list_some(names, ', ')}: back; the next pass that is saved ends this attempt, unless it is the last")
        if following <= self._saved_before or following >= self.record.passes:
            return None
        message = f"{list_some(names, ', ')}: back, and pass {following - 1} is saved: going on with all that are there"
        result = AttemptResult(LostPeerError.exit_code, RETURNED_POD, message)
        return self._control.report(self.record, self._trainer_id, result)

    def _look_at_record(self) -> AttemptResult | None:
        """Writes a record again that is lost; says that another launcher of trainer 0 has written a later one."""
        newest = read_record(self._output)
        if newest is None:
            with contextlib.suppress(OSError):  # a volume that is away
                write_record(self._output, self.record)
        if newest and newest.job_uid == self.record.job_uid and is_later(newest, self.record):
            message = f"attempt {newest.attempt} has begun without this pod"
            return AttemptResult(LostPeerError.exit_code, "launcher", message)
        return None
