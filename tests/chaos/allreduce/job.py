"""The programs of an all-reduce job, each in a separate pod: a driver, which is restarted as by a Job, and hosts.

A host is a pod with an agent. The file `hosts` has the lines that the discovery script prints. A pod is in it as the
API
server would list it: it appears when its agent listens; it disappears at once if it is deleted, and some seconds later
if its node is lost.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from ports import free_ports

from chaos import network
from chaos.allreduce.ledger import Ledger, WorkerRecord
from chaos.allreduce.plan import BATCH, BEGIN, EPOCHS, LEAST, MOST, SAMPLES, AllReduceTrial
from chaos.tasks.job import read
from paddle_cluster.localcluster.deployment import DeployedPod, Deployment, PodTemplate

HERE = Path(__file__).parent
RESTART_S, GRACE_S = 0.3, 15.0
LINGER_S = 6.0  # seconds for which the discovery script still prints a host whose node is lost
PACE_S = 0.14  # seconds of a step
SILENCE_S = 2  # seconds without a message after which other ranks treat a rank as lost
FORM_S = 5  # maximum seconds for the ranks of a generation to connect to each other
TORCH_FORM_S = 40  # the same where each of them imports torch first, on a busy machine
AGENT_S, HEARTBEAT_S = 3, 5  # seconds without a message after which an agent or a worker counts as lost
ALONE_S, LEAVE_S = 25, 4  # seconds after which an agent ends workers without a driver, or that do not leave
DRIVER = f"{network.PREFIX}.2"


class AllReduceJob:
    """A driver and hosts. It is a context manager, which ends all processes.

    All their files are in `directory`: store/ (the driver's record), ledger/ (a file for each worker), pods/
    (logs), hosts (what the discovery prints), work/ (where they run).
    """

    def __init__(self, trial: AllReduceTrial, directory: Path, isolated: bool) -> None:
        self.trial, self.directory, self._isolated = trial, directory, isolated
        self.logs = directory / "pods"
        self._hosts = directory / "hosts"
        self._stack = contextlib.ExitStack()
        self._numbers = itertools.count(3)
        self._ports = (7170, 7171) if isolated else tuple(free_ports(2))
        self._gone: dict[int, float] = {}  # number of a lost pod -> time until which `hosts` names it
        for name in ("work", "ledger", "store"):
            (directory / name).mkdir()
        for path in HERE.glob("allreduce_*.py"):
            shutil.copy(path, directory / "work")
        self.ledger = Ledger(directory / "ledger")
        self.deployments: dict[str, Deployment] = {}

    def start(self, hosts: int) -> None:
        """Start everything."""
        self._keep("host", self._agent_command(), hosts)
        self.publish_hosts()
        self._keep("driver", self._driver_command(), 1)

    def publish_hosts(self) -> None:
        """Write the present hosts into the file `hosts`."""
        now, lines = time.monotonic(), []
        for pod in self.deployments["host"].pods():
            is_ready = pod.is_running and not pod.is_leaving and " listens on " in read(pod.log)
            if is_ready or now < self._gone.get(pod.number, 0.0):
                lines.append(f"{pod.address}:{self.trial.slots[pod.number % len(self.trial.slots)]}\n")
        text = "".join(lines)
        if not self._hosts.exists() or self._hosts.read_text() != text:
            new = self._hosts.with_suffix(".new")
            new.write_text(text)
            new.replace(self._hosts)

    def pods(self, kind: str) -> list[DeployedPod]:
        """Return the pods of a kind whose programs run."""
        return [pod for pod in self.deployments[kind].pods() if pod.is_running and not pod.is_leaving]

    def read_logs(self) -> dict[str, str]:
        """Return the log of each start of each program."""
        return {log.name: log.read_text(errors="replace") for log in sorted(self.logs.iterdir())}

    def find_processes(self, worker: WorkerRecord) -> list[int]:
        """Return the process ids of a worker and of its guard; the list is empty if the worker has ended."""
        return find_processes(worker, self.directory)

    # ----- harms -----

    def send(self, processes: Iterable[int], number: signal.Signals) -> None:
        """Send a signal to those of the processes that still run."""
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def list_processes(self, pod: DeployedPod) -> list[int]:
        """Return the ids of all processes of a pod; the pod's program is the first."""
        return [] if pod.process is None else [number for number, _ in pod.process.processes()]

    def lose(self, kind: str, pod: DeployedPod) -> None:
        """End a pod as if its node lost power: no connection is closed, and a replacement starts."""
        if self._isolated:
            self.cut(pod)
        self._gone[pod.number] = time.monotonic() + LINGER_S if kind == "host" else 0.0
        self.deployments[kind].lose(pod.number)

    def cut(self, pod: DeployedPod) -> bool:
        """Block all frames of a pod; return whether the pod has a network."""
        return _is_done(lambda: network.cut(pod.address))

    def heal(self, pod: DeployedPod) -> None:
        """Let all frames of a pod pass again, if the pod still exists."""
        _is_done(lambda: network.heal(pod.address))

    def part(self, pods: Iterable[DeployedPod], is_parted: bool) -> None:
        """Block the frames between these pods, or let them pass again; connections to other pods are not affected."""
        for pod in pods:
            _is_done(functools.partial(network.isolate_port, pod.address, is_parted))

    def close(self) -> None:
        """End all remaining processes."""
        self._stack.close()

    def __enter__(self) -> AllReduceJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -----

    def _keep(self, name: str, command: list[str], replicas: int) -> None:
        wrapper = [str(HERE.parent / "pod_network.sh"), "--"] if self._isolated else []
        env = {
            "PADDLE_SECRET": "of a trial",
            "PADDLE_ELASTIC_SILENCE_SECONDS": str(SILENCE_S),
            "CHAOS_LEDGER": str(self.directory / "ledger"),
            "CHAOS_PACE": str(PACE_S),
            "CHAOS_EPOCHS": str(EPOCHS),
            "CHAOS_SAMPLES": str(SAMPLES),
            "CHAOS_BATCH": str(BATCH),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        template = PodTemplate(
            name, (*wrapper, *command), self.directory / "work", env, restart_s=RESTART_S, grace_s=GRACE_S
        )
        prefix = network.PREFIX if self._isolated else "127.0.0"
        kept = Deployment(
            template,
            self.logs,
            replicas,
            take_address=(lambda: DRIVER) if name == "driver" else lambda: f"{prefix}.{next(self._numbers)}",
        )
        self.deployments[name] = kept
        self._stack.callback(kept.close)

    def _agent_command(self) -> list[str]:
        address = [] if self._isolated else ["--address=$POD_IP"]
        times = [f"--driver-timeout={ALONE_S}", f"--leave-timeout={LEAVE_S}"]
        command = ["paddle", "elastic", "agent", f"--port={self._ports[1]}", *times]
        return command if self._isolated else ["sh", "-c", f"exec {' '.join([*command, *address])}"]

    def _driver_command(self) -> list[str]:
        sizes = ["-np", str(BEGIN), "--min-np", str(LEAST), "--max-np", str(MOST)]
        hosts = ["--host-discovery-script", f"cat {self._hosts}", "--agents", "--agent-port", str(self._ports[1])]
        times = ["--agent-timeout", str(AGENT_S), "--heartbeat-timeout", str(HEARTBEAT_S)]
        times += ["--gloo-timeout-seconds", str(TORCH_FORM_S if self.trial.is_torch else FORM_S)]
        kept = ["--store-dir", str(self.directory / "store"), "--hand-over", "--port", str(self._ports[0])]
        kept += ["--address", DRIVER if self._isolated else "127.0.0.1"]
        blame = ["--failures-per-host", "3", "--blacklist-cooldown-range", "1", "3"]
        script = "allreduce_torch.py" if self.trial.is_torch else "allreduce_worker.py"
        worker = [sys.executable, str(self.directory / "work" / script)]
        return ["paddle", "elastic", "run", *sizes, *hosts, *times, *kept, *blame, *worker]


def find_processes(worker: WorkerRecord, directory: Path) -> list[int]:
    """Return the process ids of a worker and of its guard; the list is empty if the worker has ended.

    Args: directory: the directory of the trial, which only the command lines of its own programs contain.
    """
    found = []
    process = worker.pid
    while process > 1 and len(found) < 2:
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes()
            parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
        if str(directory).encode() not in words:
            break
        found.append(process)
        process = parent
    return found


def _is_done(change: Callable[[], None]) -> bool:
    try:
        change()
    except subprocess.CalledProcessError:
        return False
    return True
