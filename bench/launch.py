"""How fast a job starts, and how gently its launchers ask the API server.

usage: bench/launch.py [--runs N] [--launchers N ...] [--seconds S] [--kubernetes [--lists N]]

1. From the last pod Running to the first batch of the three-pod digits job, by localcluster (goal 1.5 s), and the ratio
   to what nine bare starts of `python -c 'import numpy'` (one per process of the job) cost on the same machine.
2. N launchers wait for a pod that does not come (threads that run start_paddle.meet against localcluster's API
   server): list calls a second, at the worst and on average (goal: never over 200), and how many were refused.
3. With --kubernetes, instead: the same against the real API server that KUBECONFIG names, with Pod objects of a Job of
   N pods; and from the last pod Running to the last launcher's start (goal: 5 s for 100; for 1000 within 3 times what
   1000 lists of them take when fetched and parsed back to back).
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
from launcher.cluster.kubernetes import PodApi
from launcher.cluster.waiting import WaitPolicy
from launcher.settings import LauncherConfig
from localcluster import ApiServer, Cluster, PodStore, load_job, peak_rate
from runtime.errors import PeerUnreachableError

ROOT = Path(__file__).parents[1]

JOB = "paddle-cluster-job"
DEADLINE_S = 120.0


# ----- From Running to the first batch


def time_first_batch(volume: Path) -> float:
    """Runs the digits job for one pass and returns the seconds from the last pod Running to trainer 0's first batch."""
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
    """Returns the seconds that a number of Python processes take together to import what ours need."""
    began = time.monotonic()
    command = [sys.executable, "-c", "import numpy"]
    for process in [subprocess.Popen(command) for _ in range(processes)]:
        process.wait(DEADLINE_S)
    return time.monotonic() - began


def bench_start(runs: int) -> None:
    """Prints the first figure."""
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
    """Returns a pod of a job of many."""
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
    """Waits as a launcher does, for pods that are not complete."""
    api = PodApi.for_role(config)
    waiting = WaitPolicy(seconds, say=lambda message: None)
    launcher = start_paddle.Launcher(config, {}, start_paddle.Stop(), api, waiting)
    launcher.control = VolumeControl(config)
    with contextlib.suppress(PeerUnreachableError):  # the deadline, as meant
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
    """Prints the second figure for N launchers, which run in other processes so as not to slow down the server."""
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
    parser.add_argument("--lists", type=int, default=50, help="fetched and parsed back to back, with --kubernetes")
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
