"""The first failure of an attempt: the reports that pods write to error.json, and the choice of the root cause."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddle_base.runtime.errors import HELD_PORT, LostPeerError, PeerUnreachableError, StoppedError
from paddle_base.runtime.schema import Number
from paddle_base.runtime.status_files import clock
from paddle_cluster.launcher.attempts import (
    AttemptHistory,
    AttemptResult,
    AttemptState,
    JobRecord,
    failure_in,
    is_error,
    state_of,
)
from paddle_cluster.launcher.errors import GivenUpError
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import END_OF_TIME, JsonObject, in_one_line, list_some, say
from paddle_cluster.launcher.variables import MOST_TRAINERS
from paddle_cluster.launcher.volume import load, read_json, write_atomically

REPORT_LIMIT_S = 20.0  # seconds for `paddle report`, which takes less than one second unless the volume is slow
LAST_REPORT_LIMIT_S = 5.0  # seconds for `paddle report` while the termination grace period of the pod runs
ERROR_LIMIT = 1 << 20  # maximum bytes of an error.json file, which usually has about 1,000 bytes
LOST_POD = "pod"  # program name in the report about a pod that ended without a report of its own
RETURNED_POD = "returned pod"  # program name in the report about an attempt that ended because absent pods returned
# a part of a message about a lost peer: `pserver 10.0.0.2:7164 is lost: `, or `trainer 1 at 10.0.0.2 is lost: `
_LOST = re.compile(r"\b(?P<program>pserver|trainer)(?: [0-9]+ at)? (?P<ip>[0-9a-f.:]+?)(?::[0-9]+)? is lost: ")


def make_error(attempt: str, trainer_id: int, host: str, result: AttemptResult) -> JsonObject:
    """Return a description of how an attempt ended in a pod, for error.json and for the launchers' messages."""
    return {
        "time": time.time(),
        "attempt": attempt,
        "trainer_id": trainer_id,
        "host": host,
        "program": result.program,
        "exit_code": result.status,
        "signal": result.signal,
        "message": result.message,
    }


def write_error(node: Path, attempt: str, trainer_id: int, host: str, result: AttemptResult) -> None:
    """Write output/node_<id>/error.json for users and for the HTML report."""
    error = make_error(attempt, trainer_id, host, result)
    try:
        write_atomically(node / "error.json", json.dumps(error, indent=1) + "\n")
    except OSError as problem:
        say(f"cannot write {node / 'error.json'}: {problem}")


def say_first_failure(output: Path, record: JobRecord) -> None:
    """Log the first reported failure of an attempt, with the last log lines of the failed program.

    Every pod logs this failure at the end of an attempt. Some pods may report later, and a lost pod never reports.
    """
    errors = [error for error in read_errors(output) if error["attempt"] == record.name]
    first = first_failure(errors, record.name)
    if first and not is_passed_on(first):
        say(f"first failure reported: {describe_error(first, record)}")
    elif first:
        say(f"what failed first is not known yet: {describe_followers(errors, record)}")


def read_errors(output: Path, pattern: str = "error.json") -> list[JsonObject]:
    """Return the contents of all files output/node_<id>/error.json, in the order in which they were written.

    The times of the files show the order, because one clock sets them, that of the volume; the times in the files come
    from the clocks of the pods. A suffix in `pattern` selects an earlier attempt's files.
    """
    errors, paths = list[tuple[float, JsonObject]](), []
    with contextlib.suppress(OSError):  # the volume is not reachable
        paths = list(output.glob(f"node_*/{pattern}"))
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            errors.append((path.stat().st_mtime, load(path, ERROR_LIMIT)))
    return [error for _, error in sorted(errors, key=lambda one: one[0]) if is_error(error)]


def first_failure(errors: Sequence[JsonObject], attempt: str) -> JsonObject | None:
    """Return the reported error that most probably caused the end of an attempt, or None if no pod has reported.

    Args: errors: the reports in their order, which their times do not show, because each comes from a pod's own clock.

    An error of a pod that failed by itself is chosen first. An error of a pod that was stopped from outside is chosen
    next, because the Job stops all pods when one pod fails. An error that only reports a lost peer is chosen last,
    because it is never the root cause, even if it is the earliest.
    """
    own = [error for error in errors if error["attempt"] == attempt]
    return min(own, key=lambda error: 2 * is_passed_on(error) + is_stopped(error), default=None)


def is_passed_on(error: JsonObject) -> bool:
    """Return whether an error only reports that a peer was lost.

    The result is False for reports of a lost pod, a returned pod, a killed program or a port in use.
    """
    if error.get("signal") or HELD_PORT in str(error.get("message")):
        return False
    if error.get("program") in (LOST_POD, RETURNED_POD):
        return False
    return error["exit_code"] in (PeerUnreachableError.exit_code, LostPeerError.exit_code)


def is_stopped(error: JsonObject) -> bool:
    """Return whether a pod was stopped from outside."""
    return error["exit_code"] == StoppedError.exit_code and not error.get("signal")


def describe_followers(errors: Sequence[JsonObject], record: JobRecord) -> str:
    """Describe which pods of an attempt reported nothing (such pods may be lost), and which pods reported a lost peer.

    Args: errors: the errors of one attempt, which all report only a lost peer. record: the newest record of this Job.
    """
    told = sorted({int(error["trainer_id"]) for error in errors})
    pods = max(record.gradient_num, record.pserver_num, len(record.pods))
    silent = [number for number in range(pods if 0 < pods <= 2 * MOST_TRAINERS else 0) if number not in {*told}]
    first = in_one_line(describe_error(errors[0], record))
    text = f"{name_pods(told, record)} ended, which may follow from the end of another pod ({first})"
    text = f"{name_pods(silent, record)} reported nothing; {text}" if silent else text
    suspects = find_suspects(errors, record)
    return f"{list_some(suspects, ', ')} may have been frozen, killed or cut off; {text}" if suspects else text


def find_suspects(errors: Sequence[JsonObject], record: JobRecord) -> list[str]:
    """Return the programs that most of the reports name as lost, e.g. `the pserver at 10.0.0.2 (trainer 1 on pod-1)`.

    Only the pods of the record's own attempt are named, because in another attempt another pod may have the address.
    """
    names = {
        str(pod.get("ip")): f" ({record.roles.name_pod(number)} on {pod.get('place')})"
        for number, pod in enumerate(record.pods)
    }
    votes: Counter[str] = Counter()
    for error in errors:
        for lost in _LOST.finditer(str(error.get("message"))):
            name = names.get(lost["ip"], "") if error["attempt"] == record.name else ""
            votes[f"the {lost['program']} at {lost['ip']}{name}"] += 1
    most = max(votes.values(), default=0)
    return sorted(name for name, count in votes.items() if count == most)


def name_pods(numbers: Sequence[int], record: JobRecord) -> str:
    """Return pod names and the verb, for example `trainer 1 has` or `trainers 0, 2 and pserver pod 3 have`."""
    kinds: dict[str, list[str]] = {}
    for number in numbers:
        kind, _, last = record.roles.name_pod(number).rpartition(" ")
        kinds.setdefault(kind, []).append(last)
    named = [f"{kind}{'s' * (len(found) > 1)} {list_some(found, ', ')}" for kind, found in kinds.items()]
    return f"{' and '.join(named)} {'have' if len(numbers) > 1 else 'has'}"


def describe_error(error: JsonObject, record: JobRecord | None = None) -> str:
    """Describe which pod failed, and how. Args: record: contains the layout of the pods; None if it is unknown."""
    number = error["trainer_id"]
    place = f"{record.roles.name_pod(number) if record else f'trainer {number}'} on {error['host']}"
    when = clock(error["time"])
    if error["program"] == RETURNED_POD:
        return f"{when}: {error['message']}"
    if error["program"] == LOST_POD:
        return f"{place}: {when}: {error['message']}"
    return f"{place}: {error['program']}, exit status {error['exit_code']}, {when}: {error['message']}"


def describe_attempts(output: Path, record: JobRecord, *, is_over: bool = True) -> list[str]:
    """Return a line for each attempt of this Job: its start, the save it resumed from, and how it ended.

    Args: is_over: whether the newest attempt has ended; if not, its line describes the current state.
    """
    errors = read_errors(output, "error.json*")
    lines = []
    for number, attempt in enumerate(record.attempts, 1):
        own = [error for error in errors if error["attempt"] == attempt["name"]]
        origin = f"from {attempt['origin']}" if attempt["origin"] else "from the beginning"
        is_newest = number == len(record.attempts)
        if failure := failure_in(attempt):
            # if the recorded failure is only a report of a lost peer, the reports of the other pods are used, too
            others = [error for error in own if error["trainer_id"] != failure["trainer_id"]]
            own = [failure, *others] if is_passed_on(failure) else [failure]
        is_running = is_newest and not is_over
        state = describe_newest(output, record, own) if is_running else describe_end(own, record, is_newest=is_newest)
        lines.append(f"attempt {attempt['name']}, {attempt['started']}, {origin}: {state}")
    return lines


def describe_end(errors: Sequence[JsonObject], record: JobRecord, *, is_newest: bool = False) -> str:
    """Describe how an attempt ended, according to the reports of its pods; the reports may not contain the cause."""
    first = first_failure(errors, errors[0]["attempt"]) if errors else None
    if first is None and is_newest and record.finished:
        return "finished"
    if first is None:
        return "how the attempt ended is not known: no pod has left an error.json"
    if is_passed_on(first):
        return f"what failed first is not known: {describe_followers(errors, record)}"
    return in_one_line(describe_error(first, record))


def describe_newest(output: Path, record: JobRecord, errors: Sequence[JsonObject]) -> str:
    """Describe the state of the newest attempt. Args: errors: the reports of this attempt's pods."""
    progress = read_json(output / "progress.json")
    state = state_of(record, record.failure or first_failure(errors, record.name), progress)
    if state is AttemptState.FINISHED:
        return "finished"
    if state.is_broken or state is AttemptState.GIVEN_UP:
        return describe_end(errors, record)
    if state is AttemptState.FORMING:
        return "no trainer has begun, according to the files on the volume"
    if record.is_program and progress.get("attempt") != record.name:
        return "the program runs"
    return f"{progress.get('status')}, as trainer 0 reported {describe_age(progress)}"


def give_up(config: LauncherConfig, record: JobRecord, history: AttemptHistory) -> int:
    """Log every attempt of a Job that has given up, and return the exit status of this pod's last attempt.

    If the Job then starts another pod, that pod raises GivenUpError, after which the Job starts no more pods.
    Raises: GivenUpError: this pod took part in no attempt.
    """
    attempts = "1 attempt" if record.fruitless == 1 else f"{record.fruitless} attempts in a row"
    say(
        f"giving up: {attempts} left no new checkpoint or pass, which is more than "
        f"RESTARTS={config.restarts} allows. The attempts of this Job and their first failures:"
    )
    for line in describe_attempts(config.output, record):
        say(f"  {line}")
    if history.status:
        return history.status
    raise GivenUpError(
        "this Job has given up: repair the cause of the failures above, delete the Job and create it again"
    )


def begin_report(output: Path, environ: Mapping[str, str]) -> None:
    """Start `make_report` with low priority in a thread. The launcher waits for the thread only when it exits."""
    threading.Thread(target=make_report, args=(output, environ, REPORT_LIMIT_S, ("nice", "-n", "10"))).start()


def make_report(output: Path, environ: Mapping[str, str], limit_s: float, prefix: Sequence[str] = ()) -> None:
    """Run `paddle report`, which writes output/report.html; if the program fails, only log the failure."""
    command = [*prefix, "paddle", "report", str(output)]
    try:
        made = subprocess.run(
            command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        say(f"no report was made: {problem}")
        return
    if made.returncode:
        lines = made.stderr.decode("utf-8", "replace").splitlines() or ["no output"]
        say(f"no report was made: paddle report ended with status {made.returncode}: {lines[-1]}")


def describe_age(progress: JsonObject) -> str:
    """Return the age of a progress record as text."""
    if not Number(0.0, END_OF_TIME).fits(progress.get("time")):
        return "at an unknown time"
    return f"{datetime.timedelta(seconds=max(0, round(time.time() - progress['time'])))} ago"
