"""Print the state of a job for `start_paddle.py status`. The state comes from the job's pods and its output files."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddle_base.runtime import gflags
from paddle_base.runtime.errors import STOP_CODES, MissingInputError, PaddleError, PeerUnreachableError, UsageError
from paddle_base.runtime.kubernetes.answers import ANSWER_LIMIT
from paddle_base.runtime.kubernetes.text import one_line, shorten
from paddle_base.runtime.status_files import MOST_ROWS
from paddle_base.runtime.terminal import format_lines
from paddle_cluster.launcher.attempts import AttemptState, JobRecord, state_of
from paddle_cluster.launcher.cluster.kubernetes import PodApi
from paddle_cluster.launcher.cluster.pods import PodStatus, parse_pods
from paddle_cluster.launcher.control.job_record import read_record
from paddle_cluster.launcher.errors import ApiError
from paddle_cluster.launcher.failures import describe_age, describe_attempts, first_failure, read_errors
from paddle_cluster.launcher.programs.process import run_bounded
from paddle_cluster.launcher.programs.stalls import describe_stalls
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import (
    CELL_LIMIT,
    END_OF_TIME,
    TABLE_ROWS,
    JsonObject,
    as_row,
    list_some,
    number_of,
    parse_json,
)
from paddle_cluster.launcher.volume import read_json, show_json

ENDED = {
    AttemptState.FAILED: "; a pod has ended this attempt, and no other attempt has begun",
    AttemptState.RESTARTING: "; restarting: a pod has ended this attempt, and no other attempt has begun",
    AttemptState.FINISHED: "; the job has finished",
    AttemptState.GIVEN_UP: "; the job has given up",
}
KUBECTL_LIMIT_S = 30.0  # seconds for `kubectl get pods`


def show_status(cmd_args: Sequence[str]) -> int:
    """Print the state of a job (see the module's docstring) and return the exit status.

    Raises: PaddleError: the pods cannot be listed.
    """
    jobs: list[str] = []
    flags: list[str] = []
    for before, argument in zip(["", *cmd_args], cmd_args, strict=False):  # the name of the job may follow the flags
        is_value = before.startswith("-") and "=" not in before
        (flags if argument.startswith("-") or is_value else jobs).append(argument)
    options = dict(gflags.read_pairs([*jobs[1:], *flags]))
    unknown = sorted(options.keys() - {"namespace", "job_path"})
    if unknown:
        raise UsageError(f"status has no flag --{unknown[0]}: status [JOB] [--namespace=NAME] [--job_path=DIRECTORY]")
    volume = Path(options.get("job_path") or os.environ.get("JOB_PATH") or "/home/jobpath")
    name = jobs[0] if jobs else os.environ.get("JOB_NAME") or ("job_path" in options and only_job_of(volume)) or ""
    if not name:
        raise UsageError("the name of the job is missing; write start_paddle.py status JOB")
    output = volume / name / "output"
    is_there = os.path.isdir(output)  # noqa: PTH112 - Path's fails where a directory above may not be looked into
    pods, unlisted = [], ""
    try:
        pods = parse_pods(list_pods_of(name, options.get("namespace", "")))
    except PaddleError as error:
        if not is_there:
            advice = f"and there is no {output}: give the mount point of the volume by --job_path"
            raise type(error)(f"{error}; {advice}") from error
        unlisted = f"the pods cannot be listed here: {error}"
    record = read_record(output)
    if record and any(pod.controller_uid == record.job_uid for pod in pods):
        pods = [pod for pod in pods if pod.controller_uid == record.job_uid]
    if not pods and not is_there:
        raise MissingInputError(f"there are no pods of a job {name!r} here, and no {output}: see kubectl get jobs -A")
    told = [*(describe_job(output) if is_there else []), *name_awaited(pods, record), *tabulate_pods(pods, output)]
    if not is_there:
        told.append(f"there is no {output} here; ask inside a pod: kubectl exec POD -- /root/start_paddle.py status")
    elif not pods:
        told.append(unlisted or "there are no pods of this job")
    fraction = number_of(read_json(output / "progress.json").get("job_fraction"))
    shown = [as_row(line) for line in [name, *told]]
    sys.stdout.write(format_lines(shown, fraction, sys.stdout, os.environ))
    return 0


def name_awaited(pods: Sequence[PodStatus], record: JobRecord | None) -> list[str]:
    """Return a line about the pods that the launchers wait for, or [] if all pods are live or the job is over.

    Args: pods: the pods of the Job, from the API.
    """
    if not pods or (record and (record.finished or record.given_up)):
        return []
    missing = [f"{pod.name} ({pod.state})" for pod in pods if pod.is_expected and not pod.is_live]
    missing += [f"{pod.name} ({pod.state})" for pod in pods if pod.terminating and pod.phase in ("Pending", "Running")]
    live, wanted = sum(pod.is_live for pod in pods), len(record.pods) + len(record.absent) if record else 0
    if not missing and live < wanted:
        return [f"the job waits for pods: {live} of {wanted} are Running, and the Job has not created the others yet"]
    return [f"the job waits for pods: {list_some(missing, ', ')}"] if missing else []


def only_job_of(volume: Path) -> str:
    """Return the name of the job that has an output directory on a volume, if there is only one such job.

    Raises: UsageError: several jobs have an output. MissingInputError: no job has an output.
    """
    found: list[str] = []
    with contextlib.suppress(OSError):
        found = sorted(path.parent.name for path in volume.glob("*/output") if path.is_dir())
    if not found:
        raise MissingInputError(f"no directory of {volume} has an output/: give the job's name, and --job_path")
    if len(found) > 1:
        raise UsageError(f"the name of the job is missing; {volume} has the jobs {list_some(found, ', ')}")
    return found[0]


def list_pods_of(job: str, namespace: str) -> JsonObject:
    """Return the PodList of a job. Inside a pod, the list comes from the API, and elsewhere from kubectl."""
    if os.environ.get("KUBERNETES_SERVICE_HOST") and os.environ.get("JOB_NAME"):
        config = LauncherConfig.from_env(os.environ)
        config = dataclasses.replace(config, job_name=job, job_namespace=namespace or config.job_namespace)
        try:
            return PodApi(config).list_pods()
        except ApiError as error:
            raise error.final(str(error)) from error
    command = ["kubectl", "get", "pods", f"--selector=job-name={job}", "--output=json"]
    command += [f"--namespace={namespace}"] if namespace else []
    try:
        status, listed, said = run_bounded(command, KUBECTL_LIMIT_S, ANSWER_LIMIT)
        if status:
            raise PeerUnreachableError(f"{shlex.join(command)} failed: {one_line(said.decode('utf-8', 'replace'))}")
        podlist = parse_json(listed)
        if not isinstance(podlist, dict):
            raise ValueError(f"kubectl printed {shorten(podlist)}, expected an object")
        parse_pods(podlist)
        return podlist
    except FileNotFoundError:
        raise MissingInputError("there is no kubectl on PATH; install it, or ask inside a pod") from None
    except (OSError, subprocess.TimeoutExpired, ValueError) as problem:
        raise PeerUnreachableError(f"{shlex.join(command)}: {problem}") from problem


def describe_job(output: Path, *, is_killed: bool = False) -> list[str]:
    """Return lines about a job from the files of its output: attempt, pass, cost, slowest trainer, failed attempts.

    Args: is_killed: whether the run has no launcher and is known to have ended.
    Raises: MissingInputError, VolumeError: a file exists but cannot be read.
    """
    show_json(output / "job.json")  # `read_record` ignores a file that cannot be read
    record, progress = read_record(output), show_json(output / "progress.json")
    errors = read_errors(output, "error.json*")
    lines, state = [], AttemptState.RUNNING
    if record:
        failure = record.failure or first_failure(errors, record.name)
        state = state_of(record, failure, progress)
        ended = ENDED.get(state, "")
        if state is AttemptState.RESTARTING and failure and failure["exit_code"] in STOP_CODES:
            ended = "; stopped; the next attempt begins if its pods run again"
        if state is AttemptState.FORMING and len(record.attempts) > 1:
            ended = "; restarting: no trainer has begun yet"
        start = f" from {record.origin}" if record.origin else ""
        lines.append(f"attempt {record.name}{start}{ended}")
        lines += [record.describe_absent()] if record.absent else []
    if record and record.is_program and not progress:
        lines.append(
            "the program of ENTRY has reported no progress, for example by a line Pass=0 Batch=10 "
            f"(docs/any-program.md); {output}/node_0/train.log shows what it does"
        )
    elif not progress:
        hint = "" if record else "; outside a pod, trainers report it with --report"
        lines.append(f"trainer 0 has not reported its progress yet{hint}")
    elif is_stale(progress, record):
        lines.append("trainer 0 of this attempt has not reported its progress yet")
        old = {**progress, "seconds_left": None}
        lines.append(f"the last report of attempt {progress['attempt']}: {describe_progress(old)}")
        progress = {}
    else:
        is_over = is_killed or state not in (AttemptState.RUNNING, AttemptState.FORMING)
        is_old = is_over and progress.get("status") == "training"
        if is_old:
            progress = {**progress, "seconds_left": None}
        lines.append(f"{'last report: ' if is_old else ''}{describe_progress(progress)}")
    slowest = progress.get("slowest")
    if isinstance(slowest, dict) and slowest:
        lines.append(
            f"slowest: trainer {slowest.get('trainer')} on {slowest.get('host')}, "
            f"busy for {slowest.get('busy_seconds')} s, while the mean of all trainers is "
            f"{slowest.get('mean_busy_seconds')} s"
        )
    if not is_killed and (record is None or state in (AttemptState.RUNNING, AttemptState.FORMING)):
        told = {number: one for number, one in read_trainers(output).items() if not is_stale(one, record)}
        # of a program that reports nothing, nothing is known
        lines += (
            describe_stalls(output, told, record, time.time()) if told or not (record and record.is_program) else []
        )
    failed = describe_attempts(output, record, is_over=False) if record and (errors or len(record.attempts) > 1) else []
    if len(failed) > MOST_ROWS:
        lines.append(f"  {len(failed) - MOST_ROWS} earlier attempts: see {output / 'report.html'}")
    return [*lines, *(f"  {line}" for line in failed[-MOST_ROWS:])]


def is_stale(progress: JsonObject, record: JobRecord | None) -> bool:
    """Return whether a progress report comes from an attempt that is older than the newest attempt."""
    if record is None or record.finished or not progress.get("attempt"):
        return False
    return bool(progress["attempt"] != record.name)


def describe_progress(progress: JsonObject) -> str:
    """Return the contents of progress.json as one line."""
    last = (number_of(progress.get("passes")) or 0) - 1
    place = f"pass {progress.get('pass')} of passes 0 to {last:.0f}, batch {progress.get('batch')}"
    words = [f"{progress.get('status')}: {place}"]
    for name, what in (("pass_fraction", "pass"), ("job_fraction", "job")):
        fraction = number_of(progress.get(name))
        words += [] if fraction is None else [f"{fraction:.0%} of the {what}"]
    mean = "" if progress.get("status") == "training" else " on average"
    words.append(f"{number_of(progress.get('samples_per_second')) or 0:.0f} samples/s{mean}")
    left = number_of(progress.get("seconds_left"))
    if left and 0 < left < END_OF_TIME:
        words.append(f"{datetime.timedelta(seconds=round(left))} left")
    evaluators = progress.get("evaluators")
    numbers = {"cost": progress.get("cost"), **(evaluators if isinstance(evaluators, dict) else {})}
    found = {name: number_of(value) for name, value in numbers.items()}
    numbers_shown = [f"{name} {value:g}" for name, value in found.items() if value is not None]
    trainers = progress.get("trainers")
    # each trainer computes its cost and its evaluators over its own samples
    if numbers_shown and isinstance(trainers, dict) and len(trainers) > 1:
        numbers_shown[0] = f"trainer 0's {numbers_shown[0]}"
    words += [*numbers_shown, f"said {describe_age(progress)}"]
    return ", ".join(words) + (f": {progress['message']}" if progress.get("message") else "")


def tabulate_pods(pods: Sequence[PodStatus], output: Path) -> list[str]:
    """Return a table of the pods with id, pod, node, state and progress.

    If there are no pods, the table has a row for each trainer that has written to the output directory.
    """
    index = {f"{pod.index}": pod for pod in pods if pod.index is not None and pod.is_expected}
    record = read_record(output)
    nodes = {number: told for number, told in read_trainers(output).items() if not is_stale(told, record)}
    by_host = {str(progress.get("host")): number for number, progress in nodes.items()}
    # an attempt without some pods renumbers its trainers
    ids = {str(index): str(number) for number, index in enumerate(record.indexes)} if record and record.absent else {}
    rows: list[tuple[str, ...]] = [("ID", "POD", "NODE", "STATE", "PASS", "BATCH", "SAMPLES/S", "SAID")]
    for pod in sorted(pods, key=lambda pod: (pod.index is None, pod.index or 0, pod.name)):
        number = str(pod.index) if pod.index is not None else by_host.get(pod.name[:63], "?")
        is_own = index.get(number, pod) is pod  # a replaced pod has the index of its replacement, and shows no progress
        number = ids.get(number, "-") if ids else number
        progress = nodes.get(number, {}) if is_own else {}
        rows.append((number, pod.name, pod.node or "-", pod.state, *tabulate_progress(progress)))
    for number, progress in sorted(nodes.items(), key=lambda item: (len(item[0]), item[0])):
        if not pods:
            rows.append((number, str(progress.get("host")), "-", "-", *tabulate_progress(progress)))
    left_out = []
    if len(rows) > 1 + TABLE_ROWS:
        left_out = [f"and {len(rows) - 1 - MOST_ROWS} more: see {output / 'report.html'}, or kubectl get pods"]
        # pods that do not run, and pods without a report, come first
        rows[1:] = sorted(rows[1:], key=lambda row: (row[3] in ("Running", "-"), row[4] != "-"))[:MOST_ROWS]
    rows = [tuple(cell[:CELL_LIMIT] for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*table, *left_out] if len(table) > 1 else []


def read_trainers(output: Path) -> dict[str, JsonObject]:
    """Return each trainer's last progress report, by trainer id.

    The reports come from the trainers' node directories. If these directories contain no reports, the reports come from
    trainer 0's progress.json.
    Raises: MissingInputError, VolumeError: a report exists but cannot be read.
    """
    nodes = []
    with contextlib.suppress(OSError):  # the volume is not reachable
        nodes = list(output.glob("node_*"))
    found = {node.name.removeprefix("node_"): show_json(node / "progress.json") for node in nodes}
    told: Mapping[str, Any] = {number: progress for number, progress in found.items() if progress}
    if not told:
        trainers = read_json(output / "progress.json").get("trainers")
        told = trainers if isinstance(trainers, dict) else {}
    return {number: progress for number, progress in told.items() if isinstance(progress, dict)}


def tabulate_progress(progress: JsonObject) -> tuple[str, str, str, str]:
    """Return pass, batch, samples/s and age for the table, or dashes if the trainer has not reported."""
    if not progress:
        return "-", "-", "-", "-"
    speed = f"{number_of(progress.get('samples_per_second')) or 0:.0f}"
    return str(progress.get("pass")), str(progress.get("batch")), speed, describe_age(progress)
