"""Make all launchers agree on an attempt, which trainer 0's launcher decides and announces (control/).

Only trainer 0's launcher writes output/job.json, which outlives all launchers. A replacement of trainer 0's launcher
reads this file, and a launcher that starts after the end of the Job reads it, too. A launcher never waits for a change
of this file.

The module control/ending.py handles the end of an attempt and the end of the Job.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence

from paddle_base.runtime.errors import PeerUnreachableError, VolumeError
from paddle_base.runtime.saves import FOLDER, is_set_aside
from paddle_base.runtime.status_files import clock
from paddle_cluster.launcher.attempts import JobRecord, Meeting
from paddle_cluster.launcher.checkpoints import archive, earlier_output, find_saved, set_aside_damaged
from paddle_cluster.launcher.cluster.pods import (
    IdMap,
    PodStatus,
    find_own,
    in_id_order,
    own_trainer_id,
    table_of_pods,
)
from paddle_cluster.launcher.cluster.quorum import (
    JOIN_S,
    Quorum,
    choose_leader,
    choose_members,
    find_absent,
    find_gone,
    find_live,
)
from paddle_cluster.launcher.cluster.waiting import Wait
from paddle_cluster.launcher.control.channel import POLL_S
from paddle_cluster.launcher.control.job_record import find_record, read_record, wanted_record, write_record
from paddle_cluster.launcher.control.launcher import Launcher
from paddle_cluster.launcher.errors import ApiError, IndivisibleError, LostMountError, NotReadyError
from paddle_cluster.launcher.failures import describe_attempts
from paddle_cluster.launcher.resume import decide_start, next_record
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.staging import plan_portions
from paddle_cluster.launcher.text import say
from paddle_cluster.launcher.volume import check_mount, volume_errors

TRY_S = 1.0  # seconds for a full set of pods to agree, after which the launcher lists the pods again


class Rendezvous:
    """One wait of a launcher for its next attempt.

    A method that finds no attempt raises NotReadyError, whose text says what is still missing.
    Attributes: pods: the pods of this Job in the newest list; in a large job this list has few pods.
    """

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.config, self.control, self.history = launcher.config, launcher.control, launcher.history
        self.wait = Wait(launcher.api, launcher.policy)
        self.pods: Sequence[PodStatus] = ()

    @property
    def own(self) -> PodStatus | None:
        """This pod, or None if it is not listed."""
        return find_own(self.pods, self.config.pod_ip, self.config.pod_name)

    def take_part(self, pods: Sequence[PodStatus]) -> None:
        """In trainer 0's pod, start the server; in other pods, connect to the server if trainer 0's pod is live.

        Without completion indexes the function does neither, because only the full set of pods determines which pod is
        trainer 0 (`agree`). Args: pods: the pods of this Job.
        Raises: PortInUseError.
        """
        self.pods = pods
        own, control = self.own, self.control
        control.admit(pod.ip for pod in pods if pod.ip)
        if own and own.index == 0:
            control.serve(own.uid or own.ip, own.controller_uid)
        elif own and own.index and (first := [pod for pod in pods if pod.index == 0 and pod.is_live]):
            control.join(first[0].ip, own.uid or own.ip, own.controller_uid)

    def agree(self, ids: IdMap, limit_s: float = TRY_S) -> Meeting:
        """Return the attempt of a full set of pods, which trainer 0's launcher begins when all launchers are connected.

        The other launchers receive the record. If a launcher has already had an attempt with the same set of pods, it
        accepts only a newer attempt.
        Raises: NotReadyError: no attempt begins within `limit_s`. A launcher is then unreachable, or has listed another
            set of pods. VolumeError, PortInUseError.
        """
        control, policy = self.control, self.launcher.policy
        deadline = policy.clock() + limit_s
        uid = ids.uids.get(self.config.pod_ip, self.config.pod_ip)
        is_first = own_trainer_id(self.config, ids) == 0
        if is_first:
            control.admit(ids)
            control.serve(uid, ids.job_uid)
        else:
            control.join(in_id_order(ids)[0], uid, ids.job_uid)
        while True:
            if is_first and not control.side.why_not_heard(ids):
                return self.begin(ids)
            newest = None if is_first else control.newest
            is_ours = newest and (newest.pod_uids, newest.job_uid) == (ids.pod_uids, ids.job_uid)
            if newest and is_ours and self.history.is_news(newest):
                return Meeting(ids, newest)
            if policy.clock() >= deadline:
                raise NotReadyError(self.why_not_agreed(ids))
            policy.sleep(POLL_S)

    def agree_alone(self, ids: IdMap) -> JobRecord:
        """Return the record of this attempt, for a function that does not list pods during the wait.

        Raises: PeerUnreachableError: no attempt began within START_TIMEOUT. VolumeError, PortInUseError.
        """
        try:
            return self.agree(ids, self.launcher.policy.timeout_s).record
        except NotReadyError as problem:
            raise problem.final(f"{problem}; the pods: {', '.join(ids)}") from None

    def why_not_agreed(self, ids: IdMap) -> str:
        """Describe what a full set of pods waits for, while trainer 0 has begun no attempt with these pods."""
        after = f" after attempt {self.history.attempt}" if self.history.record else ""
        missing = self.control.side.why_not_heard(ids)
        not_begun = f"trainer 0 has begun no attempt with this set{after}: see trainer 0's log"
        return f"{len(ids)} of {len(ids)} Running, but {missing or not_begun}"

    def begin(self, ids: IdMap, quorum: Quorum | None = None) -> Meeting:
        """In trainer 0's launcher, decide an attempt, and announce it. Raises: VolumeError."""
        with volume_errors(self.launcher.output):
            record = decide_attempt(self.launcher, ids, quorum)
        self.control.side.begin(record)
        return Meeting(ids, record)

    @contextlib.contextmanager
    def volume_obstacles(self) -> Iterator[None]:
        """After this launcher's first attempt, convert volume errors inside this block to ApiErrors: the wait goes on.

        Raises: VolumeError: the mount is dead, RESTARTS is 0, or this launcher has had no attempt. ApiError: any other
            error of the volume, because the volume may recover during the wait.
        """
        try:
            check_mount(self.config.job_dir)
            with volume_errors(self.launcher.output):
                yield
        except VolumeError as error:
            if isinstance(error, LostMountError) or not self.history.record or not self.config.restarts:
                raise
            raise ApiError(str(error), final=VolumeError) from error

    def with_table(self, error: PeerUnreachableError) -> PeerUnreachableError:
        """Return the error of this wait, with a table of the pods if this launcher lists all pods."""
        pods = [] if self.wait.api.indexes else self.pods
        table = f"\n{table_of_pods(pods, self.config.layout.pods)}" if pods else ""
        return PeerUnreachableError(f"{error}{table}")

    # ----- In a launcher that lists few pods

    def follow(self) -> Meeting:
        """Return the announced attempt that includes this pod."""
        if invitation := self.find_invitation():
            return invitation
        raise NotReadyError(self.why_without_record())

    def hear(self) -> Meeting | bool | None:
        """Check for messages of the other launchers.

        In a launcher that lists few pods, return the announced attempt that includes this pod, or None. In other
        launchers, return True if a message has arrived, or None.
        """
        return self.find_invitation() if self.wait.api.indexes else self.control.informer.wakeup.clear() or None

    def find_invitation(self) -> Meeting | None:
        """Return the attempt with this pod that trainer 0 has announced, or None if trainer 0 has announced none."""
        own = self.own
        record = self.control.newest if own else None
        if not own or not record or own.uid not in record.pod_uids or not self.history.is_news(record):
            return None
        return Meeting(record.ids, record) if record.pods else None

    def why_without_record(self) -> str:
        """Describe why trainer 0 has not begun an attempt, according to the state of trainer 0's pod."""
        own, config = self.own, self.config
        if own is None or own.terminating:
            return f"this pod, {config.pod_name}, is {'being stopped' if own else 'not listed'}"
        first = [pod for pod in self.pods if pod.index == 0]
        live = [pod for pod in first if pod.is_live]
        if live:
            logs = f"kubectl --namespace={config.job_namespace} logs {live[0].name}"
            trouble = self.control.side.why_not_heard(IdMap())
            return f"{trouble or 'trainer 0 has begun no attempt with this pod'}: see {logs}"
        shown = "; ".join(map(str, first)) or "the pod does not exist"
        return f"trainer 0's pod is not Running: {shown}"

    # ----- Without some pods

    def go_on_without(self, missing: NotReadyError) -> Meeting:
        """Take part in an attempt without the pods that are gone, if CONF_PADDLE_GRADIENT_MIN allows it.

        Args: missing: what is missing for an attempt with all pods.
        Raises: PaddleError.
        """
        config, control, wait = self.config, self.control, self.wait
        own, record, live = self.own, read_record(self.launcher.output), find_live(self.pods, config.layout)
        if not config.may_shrink or not own or not own.is_live or not record or live is None:
            raise missing
        if record.job_uid != own.controller_uid:  # the first attempt of a Job needs all pods
            raise missing
        if invitation := self.find_invitation():
            return invitation
        is_over = wait.waited_s >= config.rejoin_timeout
        gone = find_gone(live, config.layout, [int(one["index"]) for one in record.absent], is_over=is_over)
        if wait.api.indexes and 0 in gone:
            wait.api.widen()
            raise missing
        self.follow_others(own, live, record)
        leader = None if wait.api.indexes else choose_leader(live, gone)
        if leader and leader is not own:
            control.join(leader.ip, own.uid, own.controller_uid)
        when = say_when(wait, config, is_over=is_over)
        if leader is not own:
            raise NotReadyError(f"{missing}; {when}")
        control.serve(own.uid, own.controller_uid)
        silent = control.side.find_silent({pod.ip: pod.uid for pod in live.values()})
        late = [pod.ip for pod in live.values() if wait.known_s(pod.uid) >= JOIN_S and is_over]
        try:
            members = choose_members(live, gone, config.layout, silent, late)
        except NotReadyError as others:
            raise NotReadyError(f"{missing}; {others if is_over else when}") from None
        try:
            quorum = self.find_quorum(members, record)
        except (NotReadyError, IndivisibleError) as problem:
            raise NotReadyError(f"{missing}; {problem}") from None
        return self.begin(quorum.ids, quorum)

    def follow_others(self, own: PodStatus, live: Mapping[int, PodStatus], record: JobRecord) -> None:
        """Raise NotReadyError if an attempt runs now without this pod, whose leader then detects this pod's return.

        Args: own: this pod. record: the last attempt.
        """
        uids = {pod.uid for pod in self.pods if pod.is_live}
        is_whole_list = not self.wait.api.indexes
        rejoined = {str(pod.get("ip")): str(pod.get("uid")) for pod in record.pods if pod.get("uid") in uids}
        if is_whole_list and not self.control.side.find_silent(rejoined):
            return
        # an attempt runs if the pod of its trainer 0 is live and job.json does not record the attempt's end
        is_led = not is_whole_list or record.first_uid in uids
        is_over = record.failure or record.finished or record.given_up
        if not record.absent or own.uid in record.pod_uids or is_over or not is_led:
            return
        self.wait.begin_again()
        self.wait_beside(own, live, record)
        raise NotReadyError(
            f"attempt {record.attempt} continues without this pod, with {record.gradient_num} of "
            f"{record.job_trainers} trainers; this pod takes part after the next pass that is saved, unless that is "
            "the last pass"
        )

    def wait_beside(self, own: PodStatus, live: Mapping[int, PodStatus], record: JobRecord) -> None:
        """Open a port or a connection, by which the leader of an attempt without this pod detects this pod's return.

        If this pod has a lower index than the leader, this launcher starts its server. The leader checks the server's
        port, and for the next attempt all launchers connect to the server. If this pod has a higher index, this
        launcher connects to the leader. If the pod with index 0 is live, `take_part` has already done this.
        """
        leader = next((pod for pod in live.values() if pod.uid == record.first_uid), None)
        if leader is None or leader.index is None or own.index is None or 0 in live:
            return
        if own.index < leader.index:
            self.control.serve(own.uid, own.controller_uid)
        else:
            self.control.join(leader.ip, own.uid, own.controller_uid)

    def find_quorum(self, members: Sequence[PodStatus], record: JobRecord) -> Quorum:
        """Return the pods with which an attempt begins. Args: record: the last attempt.

        Raises: NotReadyError: too few pods. IndivisibleError: no trainer can take over a shard. VolumeError. DataError:
            an absent trainer's shard is bad.
        """
        config, least = self.config, self.config.gradient_min
        layout = config.layout.shrunk(len(members), least)
        if layout is None:
            there = f"number of live pods: {len(members)}"
            raise NotReadyError(f"{there}; CONF_PADDLE_GRADIENT_MIN = {least} needs more pods")
        plan_portions(config, [pod.index or 0 for pod in members][: layout.trainers])
        places = {int(pod.get("index", -1)): str(pod.get("place", "")) for pod in record.pods}
        absent = find_absent(members, config.layout, record.absent, places, self.wait.began_at)
        return Quorum(members, layout, absent)


def decide_attempt(launcher: Launcher, ids: IdMap, quorum: Quorum | None = None) -> JobRecord:
    """In trainer 0's launcher, keep or archive the output, and write the record of the attempt.

    Args: quorum: the pods of the attempt, if some pods of the Job are absent.
    """
    config, history, output, save_dir = launcher.config, launcher.history, launcher.output, launcher.save_dir
    output.mkdir(parents=True, exist_ok=True)
    record = find_record(output, ids.job_uid, history)
    wanted = wanted_record(config, ids, launcher.passed, quorum)
    last = record if record and record.job_uid == ids.job_uid else None
    if last and not last.failure and (failure := launcher.control.side.judge_late(last)):
        last = last.ended_by(failure)
    if last and last.attempts and not history.is_dissolved:
        history.say_once(f"the previous attempt was {describe_attempts(output, last)[-1]}")
    is_program = wanted.is_program
    saved = set_aside_damaged(save_dir, of_program=is_program) if record else find_saved(save_dir)
    found = earlier_output(output, save_dir)
    decision = decide_start(record, saved, bool(found), wanted, config.resume)
    if decision.archive:
        place = archive(found, save_dir, at_once=is_program)
        when = "" if is_program else " after the first batch"
        say(f"{decision.message}; it moves to {place}{when}, and the training starts from the beginning")
        record = None
    elif decision.message:
        history.say_once(decision.message)
    if decision.archive_state:
        say(f"state/ moves to {archive([save_dir / FOLDER], save_dir, has_passes=False)} after the first batch")
    origin = last.origin if last else ""
    is_aside = any(is_set_aside(place / origin) for place in (save_dir / FOLDER, save_dir) if origin)
    is_forgiven = history.is_dissolved or is_aside
    wanted = dataclasses.replace(wanted, attempt=record.attempt + 1 if record else 1)
    started, restarts = clock(time.time()), config.restarts
    following = next_record(wanted, last, decision, is_forgiven=is_forgiven, restarts=restarts, started=started)
    write_record(output, following)
    return following


def say_when(wait: Wait, config: LauncherConfig, *, is_over: bool) -> str:
    """Describe when the present pods continue without the missing pods."""
    if is_over:
        return f"the other pods continue with at least {config.gradient_min} trainers"
    moment = clock(wait.began_at + config.rejoin_timeout)
    left = f"at least {config.gradient_min} trainers continue without the pods that are missing then"
    return f"at {moment} (REJOIN_TIMEOUT) {left}"
