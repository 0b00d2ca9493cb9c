#!/usr/bin/env python3
"""Launch one pod of a distributed training job: its pserver and its trainer.

usage: start_paddle.py [--dry_run] [--help] [--FLAG=VALUE ...]
       start_paddle.py status [JOB] [--namespace=NAME] [--job_path=DIRECTORY]

The launcher works in these steps:
  1. Check the environment (table below) and the flags. If something is wrong, report all problems together, and end
     with status 78 or 64.
  2. Ask the Kubernetes API for the pods of the job until exactly the expected number of pods is Running.
  3. Give every pod a trainer id. In an Indexed Job the id is the completion index. In other Jobs the id is the rank of
     the pod's IP among the sorted IPs.
  4. Connect to the launcher of trainer 0. That launcher chooses the number and the set of pods of the attempt, and the
     checkpoint or pass to resume from. Only the launcher of trainer 0 writes output/job.json.
  5. Start `paddle pserver` (log: output/node_<id>/server.log) if CONF_PADDLE_PSERVER_NUM and CONF_PADDLE_PSERVER_APART
     assign a pserver to this pod. Copy the data shard <JOB_PATH>/<JOB_NAME>/<id>/data to ./data.
  6. Wait until every pserver of the job answers. Run `paddle train` (log: output/node_<id>/train.log, and stdout). If
     ENTRY is set, run the command of ENTRY instead.
  7. If a pod is lost or a program fails, stop the programs of this pod and return to step 2. The pod ends after an
     error that a retry cannot repair (status 64, 65, 66, 77 or 78), and after more than RESTARTS attempts without
     progress. If CONF_PADDLE_GRADIENT_MIN is set, the job continues without a pod that is not replaced within
     REJOIN_TIMEOUT.
  8. End with the trainer's exit status after all trainers have left this pod's pserver.
If CONF_PADDLE_METRICS_PORT is set, a thread answers the pod's probes. The probe /healthz fails when a program of the
pod is stuck, and /readyz succeeds while the programs train.

Flags: --dry_run prints the plan (pods, ids, both command lines) and exits. The launcher passes every other flag to
`paddle train` (--flag, --k=v, --k v). Such a flag overrides the launcher's own value of this flag, for the trainer and
for the pserver.

status prints the state of a job: its pods, attempt, pass, cost, slowest trainer, and how its attempts ended. Inside a
pod (kubectl exec POD -- /root/start_paddle.py status), status asks the API; elsewhere, status runs kubectl. The files
in DIRECTORY/JOB/output contain attempt, pass and cost, and status reads them even without a cluster. The default of
DIRECTORY is JOB_PATH. The exit status is 0, 64, 66, 69 or 77.

Environment:
{environment}

Exit status: 0 means that the job is done. A retry cannot repair 64 (wrong flag), 65 (bad data, provider or config),
66 (missing input), 77 (forbidden by the API) and 78 (bad environment or config, or a Job without progress). The
launcher retries in the same pod after 69 (another pod or the API is unreachable), 70 (a bug of this program), 74 (the
volume is full or not writable) and 75 (lost pod, port in use, or a program killed by a signal). The status is 143 after
SIGTERM, and 130 after Ctrl-C.
"""

from __future__ import annotations

import signal

if __name__ == "__main__":  # a Ctrl-C during the imports below ends the process without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)


import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from paddle_base.runtime import gflags
from paddle_base.runtime.errors import InterruptError, PaddleError, PeerUnreachableError, StoppedError, VolumeError
from paddle_base.runtime.network.redaction import Secrets
from paddle_cluster.launcher import command_lines
from paddle_cluster.launcher.attempts import AttemptResult, Meeting
from paddle_cluster.launcher.cluster.kubernetes import PodApi
from paddle_cluster.launcher.cluster.pods import (
    IdMap,
    own_pods,
    own_trainer_id,
    parse_pods,
    why_incomplete,
    why_not_ready,
)
from paddle_cluster.launcher.cluster.waiting import Wait, WaitPolicy, with_number_of_pods
from paddle_cluster.launcher.control import ending
from paddle_cluster.launcher.control.job_record import attempt_config
from paddle_cluster.launcher.control.launcher import Launcher
from paddle_cluster.launcher.control.watch import AttemptWatch
from paddle_cluster.launcher.copying import CopyingThread
from paddle_cluster.launcher.entry import build_entry_command
from paddle_cluster.launcher.errors import NEVER_RETRY, NotReadyError
from paddle_cluster.launcher.failures import give_up, say_first_failure
from paddle_cluster.launcher.programs.fork_client import start_fork_server
from paddle_cluster.launcher.programs.probes import watch_pod
from paddle_cluster.launcher.programs.process import Program, Stop, end_process
from paddle_cluster.launcher.rendezvous import Rendezvous
from paddle_cluster.launcher.settings import (
    LauncherConfig,
    describe_environment,
    read_layout,
    say_defaults,
    warn_of_misspelt,
    warn_without_secret,
)
from paddle_cluster.launcher.staging import stage_shard
from paddle_cluster.launcher.status import show_status
from paddle_cluster.launcher.supervisor import Supervisor, attempt_environ, check_place, prepare_node_dir
from paddle_cluster.launcher.text import JsonObject, LauncherLog, end_in_one_line, say

NOTHING_LEFT = "this Job has trained all its passes: nothing left to do"


def getPodList(wait: Wait | None = None) -> JsonObject:
    """Return the PodList of the job, as soon as the API server returns this list.

    Args: wait: the deadline and the pauses. None: the environment variables name the job, and START_TIMEOUT limits the
        wait.
    Raises: PaddleError: the API server returned no list before the deadline; the last error of a request determines the
        class of the PaddleError.
    """
    if wait is None:
        config = LauncherConfig.from_env(os.environ)
        wait = Wait(PodApi(config), WaitPolicy(config.start_timeout))
    return wait.until(wait.list_pods)


def isPodAllRunning(podlist: JsonObject, expected: int | None = None) -> bool:
    """Return whether exactly the expected number of pods is live (Running, not terminating), each with its own address.

    Args: expected: number of pods; None: read it from the environment.
    Raises: ConfigError: CONF_PADDLE_GRADIENT_NUM is missing or not a number.
    Source: the tutorial compared the list with itself, so zero of zero pods were "all running" (docs/faults.md S1-S4).
    """
    return not why_not_ready(parse_pods(podlist), read_layout(os.environ).pods if expected is None else expected)


def getIdMap(podlist: JsonObject) -> IdMap:
    """Return {ip: trainer id} of the live pods: the completion index or, without indexes, the rank of the IP.

    Source: the tutorial sorted the IPs of all pods; a new pod then changed the ids of other pods (docs/faults.md S6).
    """
    return IdMap.of_pods([pod for pod in parse_pods(podlist) if pod.is_live])


def refine_unknown_args(cmd_args: Sequence[str]) -> list[str]:
    """Return the command line arguments as a list name, value, name, value, ...

    `--k=v` and `--k v` give k, v (blanks in v stay); `--flag` gives flag, "true"; `--noflag` gives flag, "false".
    If a flag is repeated, its last value counts.
    Raises: UsageError: an argument is neither a flag nor the value of a flag.
    Source: in the tutorial, `--flag` disturbed all later pairs, and values ended at blanks (docs/faults.md S22).
    """
    return [word for name, value in gflags.read_pairs(cmd_args) for word in (name, value)]


def complete_set(config: LauncherConfig, podlist: JsonObject) -> IdMap:
    """Return the ids of the full set of this Job's pods.

    Raises: NotReadyError: the set is not full. ConfigError: the set is full, and this pod is not in the set.
    """
    obstacle = why_incomplete(config, parse_pods(podlist))
    if obstacle or not isPodAllRunning(podlist, config.layout.pods):
        raise NotReadyError(obstacle)
    ids = getIdMap(podlist)
    own_trainer_id(config, ids)
    return ids


def try_to_meet(launcher: Launcher, rendezvous: Rendezvous) -> Meeting | None:
    """Ask once for the pods and for trainer 0's attempt, and return the agreed set of pods.

    A new pod may still see pods that are about to end, so `meet` calls this function repeatedly.
    Returns: None if the Job has finished. Raises: NotReadyError: something is missing. PaddleError.
    """
    config, wait = launcher.config, rendezvous.wait
    podlist = own_pods(config, wait.list_pods() if wait.api.indexes else getPodList(wait))
    rendezvous.take_part(parse_pods(podlist))
    with rendezvous.volume_obstacles():
        if last := ending.find_end_of_job(launcher, wait, rendezvous.pods):
            return Meeting(IdMap(), last) if last.given_up else None
        try:
            return rendezvous.follow() if wait.api.indexes else rendezvous.agree(complete_set(config, podlist))
        except NotReadyError as missing:
            return rendezvous.go_on_without(missing)


def meet(launcher: Launcher) -> Meeting | None:
    """Wait until all pods are Running, their launchers are connected, and trainer 0's launcher has begun an attempt.

    In a large job only trainer 0's launcher lists all pods. Each other launcher waits for an attempt that includes its
    pod.
    Returns: None if the Job has finished. Raises: PaddleError.
    """
    launcher.api.narrow()
    rendezvous = Rendezvous(launcher)
    try:
        met = rendezvous.wait.until(lambda: try_to_meet(launcher, rendezvous), rendezvous.hear)
    except PeerUnreachableError as error:
        raise rendezvous.with_table(error) from error
    launcher.history.name_lost(rendezvous.pods)
    return met


def startPaddle(idMap: Mapping[str, int], train_args_dict: Mapping[str, str], launcher: Launcher | None = None) -> int:
    """Run one attempt of this pod's pserver and trainer to its end, and return the pod's exit status.

    Args: idMap: {ip: trainer id} from getIdMap. train_args_dict: {name of a flag for the trainer, without dashes: its
        value}. launcher: None: this function creates a launcher, which agrees on an attempt with the other launchers.
    Raises: PaddleError.
    Source: the tutorial's function lost the status in a pipe and left the pserver unwatched (docs/faults.md S12, S13).
    """
    ids = idMap if isinstance(idMap, IdMap) else IdMap(idMap.items(), pod_uids=idMap, uids={ip: ip for ip in idMap})
    if launcher is None:
        config = LauncherConfig.from_env(os.environ)
        api, policy = PodApi.for_role(config), WaitPolicy(config.start_timeout)
        launcher = Launcher(config, train_args_dict, Stop.of_process(), api, policy)
    launcher.passed = train_args_dict
    config, history, others = launcher.config, launcher.history, launcher.control
    record = launcher.attempt or Rendezvous(launcher).agree_alone(ids)
    if record.given_up:
        return give_up(config, record, history)
    trainer_id = own_trainer_id(config, ids)
    if record.finished:
        ending.finish(launcher, record, trainer_id)
        history.note(AttemptResult(0))
        say(NOTHING_LEFT)
        return 0
    is_first, history.record, config = history.record is None, record, attempt_config(config, record)
    try:
        node = prepare_node_dir(config, trainer_id, record.attempt)
    except VolumeError as error:
        if is_first:
            raise
        say(f"error: {error}")
        history.note(AttemptResult(error.exit_code, "launcher", str(error)))
        return error.exit_code
    say(f"{config.layout.name_pod(trainer_id)} of {len(ids)}, attempt {record.name}; logs in {node}")
    environ = {**os.environ, **attempt_environ(config, record, train_args_dict)}
    met = Meeting(ids, record)
    copied = config.output_copy if trainer_id == 0 else None
    with CopyingThread(config.output, copied, config.input_timeout, launcher.stop), launcher.stop.noted():
        with Supervisor(launcher, config, environ, node) as supervisor:
            try:
                result = run_programs(supervisor, met, launcher)
            except PaddleError as error:
                result = AttemptResult(error.exit_code, "launcher", str(error))
            history.note(result)
            result = others.report(record, trainer_id, result)
        # when a pod fails, the Job may stop the other pods by a signal, but this must not interrupt their last reports
        history.record = ending.conclude(launcher, met, result, environ)
    return result.status


def run_programs(supervisor: Supervisor, met: Meeting, launcher: Launcher) -> AttemptResult:
    """Start the pserver, copy the shard, wait for all pservers, and run the trainer. Return how the attempt ended."""
    config, layout, passed = supervisor.config, supervisor.config.layout, launcher.passed
    ids, record = met.ids, met.record
    trainer_id = own_trainer_id(config, ids)
    flags = command_lines.resumed_flags(config, record, passed)
    train = command_lines.build_trainer_command(config, ids, trainer_id, flags)
    if config.entry:
        train = build_entry_command(config, ids, trainer_id, train, supervisor.environ)
    serve = command_lines.build_pserver_command(config, trainer_id, passed)
    pserver: Program | None = None
    if layout.runs_pserver(trainer_id):
        say(f"starting {serve}")
        pserver = supervisor.start("pserver", serve, "server.log")
    else:
        say(f"no pserver in this pod: CONF_PADDLE_PSERVER_NUM is {config.pserver_num}")
    with launcher.stop.at_once():
        staged = stage_shard(launcher.config, trainer_id, Path("data"), launcher.history, record)
    say(f"{staged}; waiting for all pservers" if layout.pservers else staged)
    with AttemptWatch(launcher, met) as watch:
        probe = command_lines.build_probe_command(serve, train)
        if layout.pservers and (obstacle := supervisor.wait_for_pservers(pserver, probe, watch)):
            return obstacle
        if pserver and not layout.runs_trainer(trainer_id):
            return supervisor.run_pserver(pserver, watch)
        say(f"starting {train}")
        return supervisor.run_trainer(pserver, train, watch)


def run_attempts(launcher: Launcher) -> int:
    """Repeat attempts until the job is done or has an error that a retry cannot repair; return the exit status.

    A trainer with --local waits for no other pod. If this trainer fails, its pod ends, and the Job replaces the pod.
    Raises: PaddleError.
    """
    config, passed, history = launcher.config, launcher.passed, launcher.history
    while True:
        met = meet(launcher)
        if met is None:
            say(NOTHING_LEFT)
            return 0
        launcher.attempt = record = met.record
        if record.given_up:
            return give_up(config, record, history)
        say(f"{record.describe_absent() or 'all pods are Running'}: {met.ids}")
        status = startPaddle(met.ids, passed, launcher)
        is_over = record.finished or status in (0, *NEVER_RETRY) or command_lines.is_local(passed)
        if is_over and not history.is_dissolved:
            return status
        if launcher.stop.requested:
            return StoppedError.exit_code
        if not history.is_dissolved:
            ending.pause_before_next(launcher, record)


def launch(cmd_args: Sequence[str], stop: Stop, secrets: Secrets) -> int:
    """Run the steps of the module's docstring; return the exit status or raise PaddleError."""
    refined = refine_unknown_args(cmd_args)
    passed = dict(zip(refined[::2], refined[1::2], strict=True))
    dry_run = passed.pop("dry_run", "false") not in ("false", "0")
    config = LauncherConfig.from_env(os.environ)
    policy = WaitPolicy(config.start_timeout)
    config = with_number_of_pods(config, policy, secrets)
    command_lines.check_flags(config, passed)
    if dry_run:
        wait = Wait(PodApi(config, secrets=secrets), policy)
        ids = wait.until(lambda: complete_set(config, own_pods(config, getPodList(wait))))
        command_lines.print_plan(config, ids, passed)
        return 0
    check_place(config, os.environ)
    say_defaults(os.environ)
    warn_without_secret(config)
    warn_of_misspelt(os.environ)
    forks = start_fork_server(command_lines.list_preloaded(config), os.environ, stop.wakeup)
    launcher = Launcher(config, passed, stop, PodApi.for_role(config, secrets), policy, forks=forks)
    watch_pod(config, launcher.health)
    try:
        return run_attempts(launcher)
    except PaddleError:
        if launcher.history.record:  # the first failure of the last attempt explains more than the error of the wait
            say_first_failure(config.output, launcher.history.record)
        raise
    finally:
        launcher.close()


def main(cmd_args: Sequence[str]) -> int:
    """Run the launcher and return its exit status; print an error as one message."""
    if any(argument in ("--help", "-h", "-help") for argument in cmd_args):
        print((__doc__ or "").format(environment=describe_environment()))
        return 0
    secrets = Secrets()
    with LauncherLog(secrets).installed():
        if cmd_args and cmd_args[0] == "status":
            return end_in_one_line(lambda: show_status(cmd_args[1:]), secrets)
        stop = Stop.of_process()
        status = end_in_one_line(lambda: launch(cmd_args, stop, secrets), secrets)
        return InterruptError.exit_code if status == StoppedError.exit_code and stop.requested == "SIGINT" else status


def run() -> NoReturn:
    """Run the script, and end with the status of `main` even if stdout is broken."""
    if sys.stdout is None:  # `>&-` has closed stdout, and the next file that is opened would get file descriptor 1
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    end_process(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
