"""Measure how fast a job starts, and how often its waiting launchers send requests to the API server.

usage: bench/launch.py [--runs N] [--launchers N ...] [--seconds S] [--kubernetes [--lists N]]

1. The digits job runs with three pods in localcluster. The program prints the seconds from the time when the last pod
   is Running to the first batch (goal: 1.5 s), and their ratio to the seconds of nine starts of
   `python -c 'import numpy'` on the same machine, because the job has nine processes.
2. N launchers wait for a pod that never starts. The launchers are threads that run start_paddle.meet against the API
   server of localcluster. The program prints the highest and the mean number of their list calls per second (goal: at
   most 200), and the number of refused calls.
3. With --kubernetes, only this is measured: N launchers wait as in 2, but against the real API server that KUBECONFIG
   names, with the Pod objects of a Job of N pods. The program also prints the seconds from the time when the last pod
   is Running to the start of the last launcher (goal: 5 s for 100 launchers; for 1000 launchers at most 3 times the
   seconds in which one program fetches and parses 1000 such lists one after the other).
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from launch_kubernetes import bench_kubernetes
from machine import describe_machine, spread
from volume_control import VolumeControl

import start_paddle
from paddle_base.runtime.errors import PeerUnreachableError
from paddle_cluster.launcher.cluster.kubernetes import PodApi
from paddle_cluster.launcher.cluster.waiting import WaitPolicy
from paddle_cluster.launcher.control.launcher import Launcher
from paddle_cluster.launcher.programs.process import Stop
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.localcluster import ApiServer, Cluster, PodStore, load_job, peak_rate

ROOT = Path(__file__).parents[1]

JOB = "paddle-cluster-job"
DEADLINE_S = 120.0


# ----- From Running to the first batch


def time_first_batch(volume: Path) -> float:
    """Runs the digits job for one pass; returns the seconds from all pods Running until trainer 0's first batch."""
    env = {"NUM_PASSES": "1", "LOG_PERIOD": "1", "DOT_PERIOD": "0", "RESUME": "0"}
    job = load_job(str(ROOT / "k8s" / "job.yaml"))
    with Cluster(job, volumes={"mfs": volume}, entrypoint=ROOT / "start.sh", env=env) as cluster:
        for index in range(job.completions or job.parallelism):
            cluster.wait_for_phase(str(index), "Running", deadline=DEADLINE_S)
        began = time.monotonic()
        cluster.wait_for_output(r" Batch=1 ", pod="0", deadline=DEADLINE_S)
        elapsed = time.monotonic() - began
        result = cluster.wait(deadline=DEADLINE_S)
    if result.exit_status:
        raise SystemExit(f"bench/launch.py: the job failed: {result.outcome.reason}")
    return elapsed


def time_bare_starts(processes: int) -> float:
    """Returns the seconds until a number of Python processes, started together, have all imported numpy."""
    began = time.monotonic()
    command = [sys.executable, "-c", "import numpy"]
    for process in [subprocess.Popen(command) for _ in range(processes)]:
        process.wait(DEADLINE_S)
    return time.monotonic() - began


def bench_start(runs: int) -> None:
    """Prints the figures of measurement 1."""
    with tempfile.TemporaryDirectory() as directory:
        job = load_job(str(ROOT / "k8s" / "data-job.yaml"))
        with Cluster(job, volumes={"mfs": directory}, entrypoint=ROOT / "start.sh") as cluster:
            if cluster.wait(deadline=DEADLINE_S).exit_status:
                raise SystemExit("bench/launch.py: the data job failed")
        time_first_batch(Path(directory))  # fills the caches
        batches, bare = [], []
        for _ in range(runs):
            batches.append(time_first_batch(Path(directory)))
            bare.append(time_bare_starts(9))
    ratios = [batch / start for batch, start in zip(batches, bare, strict=True)]
    print(f"last pod Running to first batch, N = 3: {spread(batches)} s, goal 1.5 s; {runs} runs")
    print(f"nine bare starts with numpy:            {spread(bare)} s; ratio {spread(ratios)}")


# ----- List calls of waiting launchers


def make_pod(number: int, *, running: bool) -> dict:
    """Returns the Pod object of one of the job's pods."""
    name = f"{JOB}-{number}"
    labels = {
        "job-name": JOB,
        "batch.kubernetes.io/controller-uid": "job",
        "batch.kubernetes.io/job-completion-index": str(number),
    }
    ip = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    status = {"phase": "Running", "podIP": ip} if running else {"phase": "Pending"}
    return {"metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels}, "status": status}


def wait_in_vain(config: LauncherConfig, seconds: float) -> None:
    """Waits like a launcher for all pods of a job, one of which never starts."""
    api = PodApi.for_role(config)
    waiting = WaitPolicy(seconds, say=lambda message: None)
    launcher = Launcher(config, {}, Stop(), api, waiting)
    launcher.control = VolumeControl(config)
    with contextlib.suppress(PeerUnreachableError):  # the wait is meant to end at its deadline
        start_paddle.meet(launcher)


def run_launchers(environ: dict[str, str], seconds: float, numbers: Sequence[int]) -> None:
    """Runs waiting launchers in threads of this process."""
    threads = []
    for number in numbers:
        own = {"JOB_COMPLETION_INDEX": str(number), "POD_NAME": f"{JOB}-{number}"}
        config = LauncherConfig.from_env({**environ, **own})
        threads.append(threading.Thread(target=wait_in_vain, args=(config, seconds)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def bench_waiting(launchers: int, seconds: float) -> None:
    """Prints the figures of measurement 2 for N launchers.

    The launchers run in other processes, so that they do not slow the API server.
    """
    store = PodStore()
    for number in range(launchers):
        store.put(make_pod(number, running=number < launchers - 1))
    with ApiServer(store) as api, tempfile.TemporaryDirectory() as account:
        api.write_service_account(Path(account))
        environ = {
            "JOB_NAME": JOB,
            "JOB_PATH": "/nonexistent",
            "CONF_PADDLE_NIC": "eth0",
            "CONF_PADDLE_PORT": "7164",
            "CONF_PADDLE_PORTS_NUM": "1",
            "CONF_PADDLE_PORTS_NUM_SPARSE": "0",
            "CONF_PADDLE_GRADIENT_NUM": str(launchers),
            "KUBERNETES_SERVICE_HOST": api.host,
            "KUBERNETES_SERVICE_PORT_HTTPS": str(api.port),
            "POD_IP": "10.0.0.1",
            "SERVICE_ACCOUNT_DIR": account,
        }
        shares = [share for share in (range(0, launchers, 2), range(1, launchers, 2)) if share]
        spawn = multiprocessing.get_context("spawn")
        processes = [spawn.Process(target=run_launchers, args=(environ, seconds, share)) for share in shares]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        times = api.request_times
        refused = sum(count for status, count in api.statuses.items() if status != 200)
    print(
        f"{launchers:5d} launchers: {peak_rate(times):.0f} list calls in the busiest second, "
        f"{len(times) / max(times[-1] - times[0], 1e-9):.1f} a second on average, {refused} refused"
    )


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--launchers", type=int, nargs="*", default=[1, 100, 1000])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--kubernetes", action="store_true")
    parser.add_argument("--lists", type=int, default=50, help="with --kubernetes: number of lists to fetch and parse")
    options = parser.parse_args()
    print(describe_machine(), flush=True)
    if options.kubernetes:
        for launchers in options.launchers:
            bench_kubernetes(launchers, options.seconds, options.lists)
        return
    bench_start(options.runs)
    for launchers in options.launchers:
        bench_waiting(launchers, options.seconds)


if __name__ == "__main__":
    main()
