"""Agreement of all launchers on an attempt: trainer 0's launcher decides it and tells the others (launcher/control/).

It alone writes output/job.json, which survives all launchers: a launcher that takes its place reads it, and so does one
that starts after the end of the Job. No launcher waits for what another one writes there.
  decide    what the next attempt is: resume.next_record, pure; decide_attempt does the input and output around it
  learn     which attempt begins: agree and agree_alone (trainer 0 tells it, the others hear it), follow (of many)
How an attempt and the Job end is in control/ending.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Iterator, Mapping, Sequence

from launcher.attempts import AttemptHistory, JobRecord, Rendezvous
from launcher.checkpoints import archive, earlier_output, find_saved, is_set_aside, set_aside_damaged
from launcher.cluster.pods import (
    IdMap,
    PodStatus,
    find_own,
    in_id_order,
    own_trainer_id,
    parse_pods,
    select_own_job,
    table_of_pods,
)
from launcher.cluster.waiting import Wait, WaitPolicy, wait_for_pods
from launcher.command_lines import save_dir_of
from launcher.control.channel import LauncherControl
from launcher.control.ending import find_end_of_job
from launcher.control.job_record import find_record, wanted_record, write_record
from launcher.errors import ApiError, LostMountError
from launcher.failures import describe_attempts
from launcher.resume import decide_start, next_record
from launcher.settings import LauncherConfig
from launcher.text import JsonObject, say
from launcher.volume import check_mount, volume_errors
from runtime.errors import PeerUnreachableError, VolumeError

POLL_S = 0.02  # seconds between two looks at what the other launchers have said


def take_part(config: LauncherConfig, control: LauncherControl, pods: Sequence[PodStatus]) -> None:
    """Serves the other launchers, or joins trainer 0's, as soon as a list of pods tells where that is.

    Without completion indexes it does not: `agree` knows trainer 0 by the full set. Args: pods: this Job's.
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
    control: LauncherControl,
) -> JobRecord | None:
    """Returns the record of this attempt: trainer 0 decides it when all launchers take part, the others hear of it.

    With the same set of pods as before, a launcher that comes back demands an attempt after its last one.
    Returns: None when that does not come in `policy.timeout_s`: a launcher cannot be reached, or has another set.
    Raises: VolumeError, PortInUseError.
    """
    deadline = policy.clock() + policy.timeout_s
    uid = ids.uids.get(config.pod_ip, config.pod_ip)
    if own_trainer_id(config, ids) == 0:
        control.admit(ids)
        control.serve(uid, ids.job_uid)
        while control.why_not_heard(ids):
            if policy.clock() >= deadline:
                return None
            policy.sleep(POLL_S)
        with volume_errors(config.output):
            record = decide_attempt(config, ids, passed, history, control)
        control.begin(record)
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


def agree_alone(
    config: LauncherConfig,
    ids: IdMap,
    passed: Mapping[str, str],
    policy: WaitPolicy,
    history: AttemptHistory,
    control: LauncherControl,
) -> JobRecord:
    """Returns the record of this attempt, for a caller that lists no pods meanwhile.

    Raises: PeerUnreachableError: there is no attempt in `policy.timeout_s`. VolumeError, PortInUseError.
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
    control: LauncherControl,
) -> JobRecord:
    """Trainer 0's part of `agree`: keeps or archives the output, then writes the record."""
    output, save_dir = config.output, save_dir_of(config, passed)
    output.mkdir(parents=True, exist_ok=True)
    record = find_record(output, ids.job_uid, history)
    wanted = wanted_record(config, ids, passed)
    last = record if record and record.job_uid == ids.job_uid else None
    if last and not last.failure and (failure := control.judge_late(last)):
        last = last.ended_by(failure)
    if last and last.attempts and not history.is_dissolved:
        history.say_once(f"the last was {describe_attempts(output, last)[-1]}")
    saved = set_aside_damaged(save_dir) if record else find_saved(save_dir)
    found = earlier_output(output, save_dir)
    decision = decide_start(record, saved, bool(found), wanted, config.resume)
    if decision.archive:
        say(f"{decision.message}; moved to {archive(found)}, starting afresh")
        record = None
    elif decision.message:
        history.say_once(decision.message)
    if decision.archive_state:
        say(f"moved state/ to {archive([save_dir / 'state'])}")
    is_forgiven = history.is_dissolved or bool(last and is_set_aside(save_dir, last.origin))
    started = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    wanted = dataclasses.replace(wanted, attempt=record.attempt + 1 if record else 1)
    following = next_record(wanted, last, decision, is_forgiven=is_forgiven, restarts=config.restarts, started=started)
    write_record(output, following)
    return following


@contextlib.contextmanager
def volume_obstacles(config: LauncherConfig, history: AttemptHistory) -> Iterator[None]:
    """Turns faults of the volume in this block into obstacles of the wait, once this launcher has had an attempt.

    Raises: VolumeError: before the first attempt, and from a mount that is dead. ApiError: in all other cases, because
        the volume may be mended meanwhile.
    """
    try:
        check_mount(config.job_path)
        with volume_errors(config.output):
            yield
    except VolumeError as error:
        if isinstance(error, LostMountError) or not history.record or not config.restarts:
            raise
        raise ApiError(str(error), final=VolumeError) from error


def follow(
    wait: Wait,
    config: LauncherConfig,
    passed: Mapping[str, str],
    history: AttemptHistory,
    seen: list[PodStatus],
    control: LauncherControl,
) -> Rendezvous:
    """Waits for an attempt of trainer 0 that names this pod: the part of a launcher that does not list all pods.

    Args: seen: gets the pods of every list. Raises: PaddleError.
    """

    def look() -> Rendezvous | None:
        return find_invitation(config, seen, history, control)

    def decide(podlist: JsonObject) -> Rendezvous | str:
        seen[:] = select_own_job(parse_pods(podlist), config.pod_ip, config.pod_name)[0]
        take_part(config, control, seen)
        with volume_obstacles(config, history):
            over = find_end_of_job(wait, config, passed, history, seen)
            return over or look() or why_without_record(config, seen, control)

    return wait_for_pods(wait, decide, look)


def with_table(error: PeerUnreachableError, config: LauncherConfig, pods: Sequence[PodStatus]) -> PeerUnreachableError:
    """Returns the error of a wait with a table of the pods that it was for, without one where there are none."""
    table = f"\n{table_of_pods(pods, config.layout.pods)}" if pods else ""
    return PeerUnreachableError(f"{error}{table}")


def why_not_agreed(control: LauncherControl, ids: IdMap, history: AttemptHistory) -> str:
    """Says what a full set of pods waits for when trainer 0 has not begun an attempt with it."""
    after = f" after attempt {history.attempt}" if history.record else ""
    missing = control.why_not_heard(ids) or f"trainer 0 has begun no attempt with this set{after}: see its log"
    return f"{len(ids)} of {len(ids)} Running, but {missing}"


def find_invitation(
    config: LauncherConfig, pods: Sequence[PodStatus], history: AttemptHistory, control: LauncherControl
) -> Rendezvous | None:
    """Returns the attempt that names this pod, if trainer 0 has told of one. Args: pods: this one among them."""
    own = find_own(pods, config.pod_ip, config.pod_name)
    record = control.newest if own else None
    if not own or not record or own.uid not in record.pod_uids or not history.is_news(record):
        return None
    return Rendezvous(record.ids, record) if record.pods else None


def why_without_record(config: LauncherConfig, pods: Sequence[PodStatus], control: LauncherControl) -> str:
    """Says why trainer 0 has not begun, as far as its pod tells. Args: pods: its and this pod's."""
    own = find_own(pods, config.pod_ip, config.pod_name)
    if own is None or own.terminating:
        return f"this pod, {config.pod_name}, is {'being stopped' if own else 'not listed'}"
    first = [pod for pod in pods if pod.index == 0]
    live = [pod for pod in first if pod.is_live]
    if live:
        logs = f"kubectl --namespace={config.job_namespace} logs {live[0].name}"
        return f"{control.why_not_heard(IdMap()) or 'trainer 0 has begun no attempt with this pod'}: see {logs}"
    shown = "; ".join(map(str, first)) or "it does not exist"
    return f"trainer 0's pod is not Running: {shown}"
