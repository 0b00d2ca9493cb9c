"""Make all launchers agree on an attempt, which trainer 0's launcher decides and announces (control/).

Only trainer 0's launcher writes output/job.json, which outlives all launchers. A replacement of trainer 0's launcher
reads this file, and a launcher that starts after the end of the Job reads it, too. A launcher never waits for a change
of this file.

The main functions are:
- `decide_attempt` calls resume.next_record, which decides, without input or output, what the next attempt is.
- `agree` and `agree_alone` find the attempt that begins with a full set of pods.
- `follow` finds the attempt that begins in a large job.
- `go_on_without` finds an attempt that begins without some pods.

The module control/ending.py handles the end of an attempt and the end of the Job.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Iterator, Mapping, Sequence

from paddle_base.runtime.errors import PeerUnreachableError, VolumeError
from paddle_base.runtime.saves import FOLDER, is_set_aside
from paddle_cluster.launcher.attempts import AttemptHistory, JobRecord, Rendezvous, to_clock
from paddle_cluster.launcher.checkpoints import archive, earlier_output, find_saved, set_aside_damaged
from paddle_cluster.launcher.cluster.kubernetes import PodApi
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
from paddle_cluster.launcher.cluster.waiting import Wait, WaitPolicy
from paddle_cluster.launcher.command_lines import save_dir_of
from paddle_cluster.launcher.control.channel import POLL_S, ControlChannel
from paddle_cluster.launcher.control.job_record import find_record, read_record, wanted_record, write_record
from paddle_cluster.launcher.errors import ApiError, IndivisibleError, LostMountError
from paddle_cluster.launcher.failures import describe_attempts
from paddle_cluster.launcher.resume import decide_start, next_record
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.staging import plan_portions
from paddle_cluster.launcher.text import say
from paddle_cluster.launcher.volume import check_mount, volume_errors

TRY_S = 1.0  # seconds for a full set of pods to agree, after which the launcher lists the pods again


def take_part(config: LauncherConfig, control: ControlChannel, pods: Sequence[PodStatus]) -> None:
    """In trainer 0's pod, start the server; in other pods, connect to the server as soon as trainer 0's pod is live.

    Without completion indexes the function does neither, because only the full set of pods determines which pod is
    trainer 0 (`agree`). Args: pods: the pods of this Job.
    Raises: PortInUseError.
    """
    own = find_own(pods, config.pod_ip, config.pod_name)
    control.admit(pod.ip for pod in pods if pod.ip)
    if own and own.index == 0:
        control.serve(own.uid or own.ip, own.controller_uid)
    elif own and own.index and (first := [pod for pod in pods if pod.index == 0 and pod.is_live]):
        control.join(first[0].ip, own.uid or own.ip, own.controller_uid)


def agree(
    config: LauncherConfig,
    ids: IdMap,
    passed: Mapping[str, str],
    policy: WaitPolicy,
    history: AttemptHistory,
    control: ControlChannel,
) -> JobRecord | None:
    """Return the record of this attempt, which trainer 0's launcher makes when all launchers are connected.

    The other launchers receive the record. If a launcher has already had an attempt with the same set of pods, it
    accepts only a newer attempt.
    Returns: None if no attempt begins within `policy.timeout_s`. A launcher is then unreachable, or has listed another
        set of pods.
    Raises: VolumeError, PortInUseError.
    """
    deadline = policy.clock() + policy.timeout_s
    uid = ids.uids.get(config.pod_ip, config.pod_ip)
    if own_trainer_id(config, ids) == 0:
        control.admit(ids)
        control.serve(uid, ids.job_uid)
        while control.side.why_not_heard(ids):
            if policy.clock() >= deadline:
                return None
            policy.sleep(POLL_S)
        with volume_errors(config.output):
            record = decide_attempt(config, ids, passed, history, control)
        control.side.begin(record)
        return record
    control.join(in_id_order(ids)[0], uid, ids.job_uid)
    while True:
        newest = control.newest
        is_ours = newest and (newest.pod_uids, newest.job_uid) == (ids.pod_uids, ids.job_uid)
        if newest and is_ours and history.is_news(newest):
            return newest
        if policy.clock() >= deadline:
            return None
        policy.sleep(POLL_S)


def try_to_agree(
    config: LauncherConfig,
    ids: IdMap,
    passed: Mapping[str, str],
    policy: WaitPolicy,
    history: AttemptHistory,
    control: ControlChannel,
) -> Rendezvous | str:
    """Return the attempt of a full set of pods, or a text that says what is still missing after TRY_S.

    Raises: see agree.
    """
    policy = dataclasses.replace(policy, timeout_s=TRY_S)
    record = agree(config, ids, passed, policy, history, control)
    return Rendezvous(ids, record) if record else why_not_agreed(control, ids, history)


def agree_alone(
    config: LauncherConfig,
    ids: IdMap,
    passed: Mapping[str, str],
    policy: WaitPolicy,
    history: AttemptHistory,
    control: ControlChannel,
) -> JobRecord:
    """Return the record of this attempt, for a function that does not list pods during the wait.

    Raises: PeerUnreachableError: no attempt began within `policy.timeout_s`. VolumeError, PortInUseError.
    """
    record = agree(config, ids, passed, policy, history, control)
    if record is None:
        raise PeerUnreachableError(f"{why_not_agreed(control, ids, history)}; the pods: {', '.join(ids)}")
    return record


def decide_attempt(
    config: LauncherConfig,
    ids: IdMap,
    passed: Mapping[str, str],
    history: AttemptHistory,
    control: ControlChannel,
    quorum: Quorum | None = None,
) -> JobRecord:
    """In trainer 0's launcher, keep or archive the output, and write the record of the attempt.

    Args: quorum: the pods of the attempt, if some pods of the Job are absent.
    """
    output, save_dir = config.output, save_dir_of(config, passed)
    output.mkdir(parents=True, exist_ok=True)
    record = find_record(output, ids.job_uid, history)
    wanted = wanted_record(config, ids, passed, quorum)
    last = record if record and record.job_uid == ids.job_uid else None
    if last and not last.failure and (failure := control.side.judge_late(last)):
        last = last.ended_by(failure)
    if last and last.attempts and not history.is_dissolved:
        history.say_once(f"the previous attempt was {describe_attempts(output, last)[-1]}")
    saved = set_aside_damaged(save_dir) if record else find_saved(save_dir)
    found = earlier_output(output, save_dir)
    decision = decide_start(record, saved, bool(found), wanted, config.resume)
    if decision.archive:
        place = archive(found, save_dir)
        say(
            f"{decision.message}; it moves to {place} after the first batch, and the training starts from the beginning"
        )
        record = None
    elif decision.message:
        history.say_once(decision.message)
    if decision.archive_state:
        say(f"state/ moves to {archive([save_dir / FOLDER], save_dir, has_passes=False)} after the first batch")
    origin = last.origin if last else ""
    is_aside = any(is_set_aside(place / origin) for place in (save_dir / FOLDER, save_dir) if origin)
    is_forgiven = history.is_dissolved or is_aside
    started = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    wanted = dataclasses.replace(wanted, attempt=record.attempt + 1 if record else 1)
    following = next_record(wanted, last, decision, is_forgiven=is_forgiven, restarts=config.restarts, started=started)
    write_record(output, following)
    return following


@contextlib.contextmanager
def volume_obstacles(config: LauncherConfig, history: AttemptHistory) -> Iterator[None]:
    """After this launcher's first attempt, convert volume errors inside this block to ApiErrors, so the wait continues.

    Raises: VolumeError: the mount is dead, RESTARTS is 0, or this launcher has had no attempt. ApiError: any other
        error of the volume, because the volume may recover during the wait.
    """
    try:
        check_mount(config.job_dir)
        with volume_errors(config.output):
            yield
    except VolumeError as error:
        if isinstance(error, LostMountError) or not history.record or not config.restarts:
            raise
        raise ApiError(str(error), final=VolumeError) from error


def follow(
    config: LauncherConfig, pods: Sequence[PodStatus], history: AttemptHistory, control: ControlChannel
) -> Rendezvous | str:
    """In a launcher that lists few pods, return the attempt that includes this pod, or why there is no such attempt.

    Args: pods: the listed pods of this Job.
    """
    return find_invitation(config, pods, history, control) or why_without_record(config, pods, control)


def hear(
    api: PodApi,
    config: LauncherConfig,
    pods: Sequence[PodStatus],
    history: AttemptHistory,
    control: ControlChannel,
) -> Rendezvous | bool | None:
    """Check for messages of the other launchers.

    In a launcher that lists few pods, return the announced attempt that includes this pod, or None. In other launchers,
    return True if a message has arrived, or None.
    """
    return find_invitation(config, pods, history, control) if api.indexes else control.informer.wakeup.clear() or None


def go_on_without(
    wait: Wait,
    config: LauncherConfig,
    passed: Mapping[str, str],
    pods: Sequence[PodStatus],
    history: AttemptHistory,
    control: ControlChannel,
    missing: str,
) -> Rendezvous | str:
    """Take part in an attempt without the pods that are gone, if CONF_PADDLE_GRADIENT_MIN allows it.

    Args: pods: the listed pods of this Job. missing: what is missing for an attempt with all pods.
    Returns: the attempt, or a text that says what is missing. Raises: PaddleError.
    """
    own, record = find_own(pods, config.pod_ip, config.pod_name), read_record(config.output)
    live = find_live(pods, config.layout)
    if not config.may_shrink or not own or not own.is_live or not record or live is None:
        return missing
    if record.job_uid != own.controller_uid:  # the first attempt of a Job needs all pods
        return missing
    if met := find_invitation(config, pods, history, control):
        return met
    is_over = wait.waited_s >= config.rejoin_timeout
    gone = find_gone(live, config.layout, [int(one["index"]) for one in record.absent], is_over=is_over)
    if wait.api.indexes and 0 in gone:
        wait.api.widen()
        return missing
    rejoined = {str(pod.get("ip")): str(pod.get("uid")) for pod in record.pods if pod.get("uid") in live_uids(pods)}
    is_elsewhere = bool(wait.api.indexes or control.side.find_silent(rejoined))
    if is_elsewhere and (text := find_attempt_without(own, record, pods, not wait.api.indexes)):
        wait.begin_again()
        wait_beside(own, live, record, control)
        return text
    leader = None if wait.api.indexes else choose_leader(live, gone)
    if leader and leader is not own:
        control.join(leader.ip, own.uid, own.controller_uid)
    if leader is not own:
        return f"{missing}; {say_when(wait, config, is_over=is_over)}"
    control.serve(own.uid, own.controller_uid)
    silent = control.side.find_silent({pod.ip: pod.uid for pod in live.values()})
    late = [pod.ip for pod in live.values() if wait.known_s(pod.uid) >= JOIN_S and is_over]
    members = choose_members(live, gone, config.layout, silent, late)
    if isinstance(members, str):
        return f"{missing}; {members if is_over else say_when(wait, config, is_over=False)}"
    quorum = find_quorum(config, members, record, wait.began_at)
    if isinstance(quorum, str):
        return f"{missing}; {quorum}"
    with volume_errors(config.output):
        following = decide_attempt(config, quorum.ids, passed, history, control, quorum)
    control.side.begin(following)
    return Rendezvous(quorum.ids, following)


def find_quorum(config: LauncherConfig, members: Sequence[PodStatus], record: JobRecord, since: float) -> Quorum | str:
    """Return the pods with which an attempt begins, or a text that says why no attempt can begin.

    Args: record: the last attempt. since: start (epoch seconds) of the absence of pods that took part in `record`.
    Raises: VolumeError. DataError: an absent trainer's shard is bad.
    """
    layout = config.layout.shrunk(len(members), config.gradient_min)
    if layout is None:
        return f"number of live pods: {len(members)}; CONF_PADDLE_GRADIENT_MIN = {config.gradient_min} needs more pods"
    try:
        plan_portions(config, [pod.index or 0 for pod in members][: layout.trainers])
    except IndivisibleError as error:
        return str(error)
    places = {int(pod.get("index", -1)): str(pod.get("place", "")) for pod in record.pods}
    return Quorum(members, layout, find_absent(members, config.layout, record.absent, places, since))


def wait_beside(own: PodStatus, live: Mapping[int, PodStatus], record: JobRecord, control: ControlChannel) -> None:
    """Open a port or a connection, by which the leader of an attempt without this pod detects this pod's return.

    If this pod has a lower index than the leader, this launcher starts its server. The leader checks the server's port,
    and for the next attempt all launchers connect to the server. If this pod has a higher index, this launcher connects
    to the leader. If the pod with index 0 is live, `take_part` has already started the server or connected to it.
    """
    leader = next((pod for pod in live.values() if pod.uid == record.first_uid), None)
    if leader is None or leader.index is None or own.index is None or 0 in live:
        return
    if own.index < leader.index:
        control.serve(own.uid, own.controller_uid)
    else:
        control.join(leader.ip, own.uid, own.controller_uid)


def say_when(wait: Wait, config: LauncherConfig, *, is_over: bool) -> str:
    """Describe when the present pods continue without the missing pods."""
    if is_over:
        return f"the other pods continue with at least {config.gradient_min} trainers"
    moment = to_clock(wait.began_at + config.rejoin_timeout)
    left = f"at least {config.gradient_min} trainers continue without the pods that are missing then"
    return f"at {moment} (REJOIN_TIMEOUT) {left}"


def live_uids(pods: Sequence[PodStatus]) -> set[str]:
    """Return the UIDs of the pods that are live."""
    return {pod.uid for pod in pods if pod.is_live}


def find_attempt_without(own: PodStatus, record: JobRecord, pods: Sequence[PodStatus], is_whole_list: bool) -> str:
    """Describe an attempt that runs now without this pod, or return "" if no such attempt runs.

    An attempt runs if the pod of its trainer 0 is live and job.json does not record the attempt's end.
    Args: pods: listed pods of this Job. is_whole_list: whether `pods` lists all pods, including trainer 0's pod.
    """
    is_led = not is_whole_list or record.first_uid in live_uids(pods)
    is_over = record.failure or record.finished or record.given_up
    if not record.absent or own.uid in record.pod_uids or is_over or not is_led:
        return ""
    return (
        f"attempt {record.attempt} continues without this pod, with {record.gradient_num} of {record.job_trainers} "
        "trainers; this pod takes part after the next pass that is saved, unless that is the last pass"
    )


def with_table(error: PeerUnreachableError, config: LauncherConfig, pods: Sequence[PodStatus]) -> PeerUnreachableError:
    """Return the error of a wait, with a table of the pods added if there are any pods."""
    table = f"\n{table_of_pods(pods, config.layout.pods)}" if pods else ""
    return PeerUnreachableError(f"{error}{table}")


def why_not_agreed(control: ControlChannel, ids: IdMap, history: AttemptHistory) -> str:
    """Describe what a full set of pods waits for, while trainer 0 has begun no attempt with these pods."""
    after = f" after attempt {history.attempt}" if history.record else ""
    missing = control.side.why_not_heard(ids)
    not_begun = f"trainer 0 has begun no attempt with this set{after}: see trainer 0's log"
    return f"{len(ids)} of {len(ids)} Running, but {missing or not_begun}"


def find_invitation(
    config: LauncherConfig, pods: Sequence[PodStatus], history: AttemptHistory, control: ControlChannel
) -> Rendezvous | None:
    """Return the attempt with this pod that trainer 0 has announced, or None if trainer 0 has announced none.

    Args: pods: all or some pods of this Job.
    """
    own = find_own(pods, config.pod_ip, config.pod_name)
    record = control.newest if own else None
    if not own or not record or own.uid not in record.pod_uids or not history.is_news(record):
        return None
    return Rendezvous(record.ids, record) if record.pods else None


def why_without_record(config: LauncherConfig, pods: Sequence[PodStatus], control: ControlChannel) -> str:
    """Describe why trainer 0 has not begun an attempt, according to the state of trainer 0's pod.

    Args: pods: at least trainer 0's pod and this pod.
    """
    own = find_own(pods, config.pod_ip, config.pod_name)
    if own is None or own.terminating:
        return f"this pod, {config.pod_name}, is {'being stopped' if own else 'not listed'}"
    first = [pod for pod in pods if pod.index == 0]
    live = [pod for pod in first if pod.is_live]
    if live:
        logs = f"kubectl --namespace={config.job_namespace} logs {live[0].name}"
        return f"{control.side.why_not_heard(IdMap()) or 'trainer 0 has begun no attempt with this pod'}: see {logs}"
    shown = "; ".join(map(str, first)) or "the pod does not exist"
    return f"trainer 0's pod is not Running: {shown}"
