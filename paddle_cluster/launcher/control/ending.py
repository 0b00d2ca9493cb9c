"""End an attempt in this pod, or end the Job. The functions log the end, notify other launchers, and write files."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from paddle_cluster.launcher.attempts import AttemptResult, JobRecord, Meeting
from paddle_cluster.launcher.checkpoints import clear_unfinished, find_saved
from paddle_cluster.launcher.cluster.pods import PodStatus, find_own, own_trainer_id
from paddle_cluster.launcher.cluster.quorum import JOIN_S
from paddle_cluster.launcher.cluster.waiting import Wait
from paddle_cluster.launcher.command_lines import is_local, wanted_passes
from paddle_cluster.launcher.control.informer import describe_elsewhere
from paddle_cluster.launcher.control.job_record import read_record, write_record
from paddle_cluster.launcher.control.launcher import Launcher
from paddle_cluster.launcher.control.sides import CAUSE_S
from paddle_cluster.launcher.errors import NEVER_RETRY
from paddle_cluster.launcher.failures import (
    LAST_REPORT_LIMIT_S,
    REPORT_LIMIT_S,
    RETURNED_POD,
    begin_report,
    describe_error,
    is_passed_on,
    make_error,
    make_report,
    say_first_failure,
    write_error,
)
from paddle_cluster.launcher.programs.process import wait_for_any
from paddle_cluster.launcher.resume import Saved, is_finished, pause_after
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import JsonObject, say
from paddle_cluster.launcher.volume import read_json, volume_errors, write_atomically

FAILURE_LIMIT_S = CAUSE_S + 1.5  # seconds to wait for the first failure
TEMPORARY = (".report.html.*", ".progress.*", "node_0/.progress.*")  # temporary files of trainer 0 and `paddle report`
STOPPED_LIMIT_S = 1.0  # seconds to wait for the first failure during the termination grace period of the pod


def find_end_of_job(launcher: Launcher, wait: Wait, pods: Sequence[PodStatus]) -> JobRecord | None:
    """Return None if this Job may begin a further attempt, or its last record, which has finished or has given up.

    After the Job's first attempt the wait is longer, because a launcher must keep waiting while the Job replaces a pod
    or a node is drained. Args: pods: the pods of this Job.
    """
    config = launcher.config
    own = find_own(pods, config.pod_ip, config.pod_name)
    job_uid = own.controller_uid if own else ""
    record = read_record(launcher.output)
    is_of_job = bool(job_uid and record and record.job_uid == job_uid)
    if record and (is_of_job or launcher.history.record):
        # additional seconds for the present pods to agree on an attempt without the absent pods
        more_s = config.start_timeout + JOIN_S if config.may_shrink else 0.0
        wait.extend(config.rejoin_timeout + more_s, "REJOIN_TIMEOUT" + " and START_TIMEOUT" * config.may_shrink)
    if not record or not is_of_job:
        return None
    # a pod succeeds after all trainers have left its pserver, and the Job never replaces a succeeded pod
    has_succeeded = any(pod.phase == "Succeeded" for pod in pods) and not is_local(launcher.passed)
    saved, passes = find_saved(launcher.save_dir), wanted_passes(launcher.passed)
    if not (record.given_up or has_succeeded or is_finished(record, saved, record.job_uid, passes)):
        return None
    if not record.given_up and is_left_alone(record, pods, config):
        settle(launcher, record, {pod.name[:63] for pod in pods if pod.is_live})
    return record


def is_left_alone(record: JobRecord, pods: Sequence[PodStatus], config: LauncherConfig) -> bool:
    """Return whether all programs of trainer 0's last pod have ended; after that, only `settle` writes to output/."""
    first = record.first_uid or next(iter(record.pod_uids), "")  # records of older versions contain no UID of trainer 0
    holder = next((pod for pod in pods if pod.uid == first), None)
    return (
        holder is None
        or holder.phase in ("Succeeded", "Failed")
        or holder is find_own(pods, config.pod_ip, config.pod_name)
    )


def settle(launcher: Launcher, record: JobRecord, live: Collection[str]) -> None:
    """Complete output/ of a Job that has trained all passes, because trainer 0's pod may have ended before this step.

    The function marks job.json and progress.json as finished, makes the report again, and removes incomplete files.
    Args: live: host names of the pods whose launchers may still write files.
    Raises: OSError: job.json cannot be written.
    """
    output = launcher.output
    if not record.finished:
        write_record(output, dataclasses.replace(record, finished=True))
    clear_unfinished(launcher.save_dir)
    hosts = tuple(f".{host}" for host in (*live, socket.gethostname()))
    # temporary files of write_atomically
    begun = [path for path in output.glob(".*.json.*.*") if not path.name.endswith(hosts)]
    for path in (*begun, *(path for name in TEMPORARY for path in output.glob(name))):
        with contextlib.suppress(OSError):
            path.unlink()
    progress = read_json(output / "progress.json")
    if progress and progress.get("status") != "finished":
        last = {"status": "finished", "message": "", "pass": record.passes - 1}
        if record.is_program:
            last["pass"] = progress.get("pass")
        done = {"pass_fraction": 1.0, "job_fraction": 1.0, "seconds_left": 0.0}
        with contextlib.suppress(OSError):
            write_atomically(output / "progress.json", json.dumps({**progress, **last, **done}, indent=1) + "\n")
        make_report(output, {**os.environ, "PADDLE_OUTPUT": str(output)}, REPORT_LIMIT_S)


def finish(launcher: Launcher, record: JobRecord, trainer_id: int) -> None:
    """In trainer 0's pod, record that the job has trained all its passes, and notify the other launchers.

    In a pod without a trainer, notify trainer 0's launcher that all trainers have left the pserver.
    Raises: VolumeError.
    """
    if not record.roles.runs_trainer(trainer_id):
        launcher.control.side.send("left", {"attempt": record.name})
    if trainer_id == 0:
        with volume_errors(launcher.output):
            settle(launcher, record, ())
        launcher.control.side.finish(record)


def conclude(launcher: Launcher, met: Meeting, result: AttemptResult, environ: Mapping[str, str]) -> JobRecord:
    """Report how an attempt has ended in this pod, and wait for the first failure of the attempt.

    Args: environ: environment of the programs.
    Returns: the record of the attempt, with its first failure.
    Raises: VolumeError: the end of the job cannot be written.
    """
    if result.status or result.is_dissolved:
        result, failure = hear_cause(launcher, met, result)
        return report_end(launcher, met, result, failure, environ)
    finish(launcher, met.record, own_trainer_id(launcher.config, met.ids))
    say("training finished")
    return met.record


def hear_cause(launcher: Launcher, met: Meeting, result: AttemptResult) -> tuple[AttemptResult, JsonObject | None]:
    """After this pod has reported its result, wait for the first failure of the attempt.

    The wait is short if the pod has received a signal, because its termination grace period has begun.
    Returns: the result, and the first failure (None if nothing has failed or the failure is unknown). If the programs
        of this pod only lost a peer, the result names the first failure.
    """
    if not result.status or result.is_dissolved:
        return result, None
    limit_s = STOPPED_LIMIT_S if launcher.stop.requested else FAILURE_LIMIT_S
    failure = launcher.control.wait_for_first_failure(met.record, limit_s)
    trainer_id = own_trainer_id(launcher.config, met.ids)
    own = make_error(met.record.name, trainer_id, launcher.config.pod_name, result)
    if failure and failure["trainer_id"] != trainer_id and is_passed_on(own):
        result = dataclasses.replace(result, program="launcher", message=describe_elsewhere(failure, met.record))
    return result, failure


def report_end(
    launcher: Launcher,
    met: Meeting,
    result: AttemptResult,
    failure: JsonObject | None,
    environ: Mapping[str, str],
) -> JobRecord:
    """Log how an unfinished attempt has ended in this pod, and record the end in the files of output/.

    Args: failure: the first failure. environ: environment of the programs.
    Returns: the record of the attempt, with its first failure.
    """
    ids, record, config = met.ids, met.record, launcher.config
    if result.is_dissolved:
        say(result.message)
        return record
    trainer_id = own_trainer_id(config, ids)
    if failure and failure["program"] == RETURNED_POD:
        say(f"attempt {record.attempt} has ended: {failure['message']}")
        if trainer_id == 0:
            record = note_failure(config.output, record, failure)
            begin_report(config.output, environ)
        return record
    shown = result.message
    # the first failure is in another pod, and a later line of the log describes the failure
    if failure and result.message == describe_elsewhere(failure, record):
        number = failure["trainer_id"]
        where = "".join(f" at {ip}" for ip in ids if ids[ip] == number)
        shown = f"{record.roles.name_pod(number)}{where} has ended the attempt"
    say(f"{result.program} failed, exit status {result.status}: {shown}")
    for peer in ids.describe_peers(f"{shown}\n{result.message}", config):
        say(peer)
    write_error(config.output / f"node_{trainer_id}", record.name, trainer_id, config.pod_name, result)
    if failure is None:
        say_first_failure(config.output, record)
    elif failure["trainer_id"] != trainer_id:
        say(f"first failure reported: {describe_error(failure, record)}")
    if trainer_id == 0:
        if failure:
            record = note_failure(config.output, record, failure)
        if launcher.stop.requested or result.status in NEVER_RETRY:
            make_report(config.output, environ, LAST_REPORT_LIMIT_S if launcher.stop.requested else REPORT_LIMIT_S)
        else:
            begin_report(config.output, environ)
    return record


def note_failure(output: Path, record: JobRecord, failure: JsonObject) -> JobRecord:
    """Write the first failure of an attempt to job.json, and return the record with this failure."""
    record = record.ended_by(failure)
    with contextlib.suppress(OSError):  # the record of the next attempt contains the failure, too
        write_record(output, record)
    return record


def pause_before_next(launcher: Launcher, record: JobRecord) -> None:
    """Sleep between two attempts; the pause grows with each consecutive attempt that saves nothing new.

    Raises: StoppedError: a signal has arrived.
    """
    saved = Saved()
    with contextlib.suppress(OSError):  # the next rendezvous reports an error of the volume
        saved = find_saved(launcher.save_dir)
    pause_s = pause_after(record, saved, launcher.config.restarts)
    say(f"keeping this pod and its data for the next attempt{f', in {pause_s:g} s' if pause_s else ''}")
    wait_for_any(pause_s, launcher.stop.wakeup)
    launcher.stop.check()
