"""The programs of a trial's job, each in a separate pod, which is restarted as by a Deployment of Kubernetes."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from etcd_process import BINARY
from ports import free_ports

from chaos import network
from chaos.tasks.plan import MASTERS, PASSES, SERVERS, ElasticTrial
from paddle_cluster.localcluster.deployment import DeployedPod, Deployment, PodTemplate

HERE = Path(__file__).parent
JOB = "chaos"
LEASE_S = 3  # seconds of every lease: of a master, a member, a server
RESTART_S, GRACE_S = 0.3, 10.0
PACE_S = 0.0025  # seconds per sample: a task of 33 samples takes a trainer a twelfth of a second
PACE_OF_TEXTS_S = 0.0005
ETCD = f"{network.PREFIX}.2"


class ElasticJob:
    """A master with a standby, servers, a variable number of trainers, and an etcd if the trial uses it.

    All their files are in `directory`: store/, etcd/, servers/ (snapshots), output/, work/ (where trainers run), pods/
    (logs), ledger. It is a context manager, which ends all processes.
    """

    def __init__(self, trial: ElasticTrial, directory: Path, data: Path, isolated: bool) -> None:
        self.trial, self.directory = trial, directory
        self.output = directory / "output"
        self.ledger = directory / "ledger"
        self.logs = directory / "pods"
        self._isolated = isolated
        self._numbers = itertools.count(3)
        self._stack = contextlib.ExitStack()
        self._endpoint = self._choose_endpoint()
        self.ledger.touch()
        stage(directory / "work", data)
        self.deployments: dict[str, Deployment] = {}

    def start(self, trainers: int) -> None:
        """Start everything."""
        if self.trial.store == "etcd":
            self._keep("etcd", self._etcd_command(), 1, lambda: ETCD)
        self._keep("master", self._master_command(), MASTERS)
        self._keep("pserver", self._server_command(), SERVERS)
        self._keep("trainer", self._trainer_command(), trainers)

    def is_over(self) -> bool:
        """Whether every program has ended and will not restart, except etcd and frozen trainers."""
        return all(self.deployments[name].wait(0) for name in ("master", "pserver"))

    def pods(self, kind: str) -> list[DeployedPod]:
        """Return the pods of a kind whose programs run."""
        return [pod for pod in self.deployments[kind].pods() if pod.is_running and not pod.is_leaving]

    def masters(self, is_leader: bool) -> list[DeployedPod]:
        """Return the pods of the masters that lead, the newest first, or of the standby masters."""
        found = [pod for pod in self.pods("master") if (" serving on " in read(pod.log)) == is_leader]
        return sorted(found, key=lambda pod: pod.log.stat().st_mtime, reverse=True) if is_leader else found

    def cut(self, pod: DeployedPod) -> Callable[[], None] | None:
        """Block all frames of a pod; return the function that ends this, or None if the pod has no network yet."""
        try:
            network.cut(pod.address)
        except subprocess.CalledProcessError:
            return None

        def heal() -> None:
            with contextlib.suppress(subprocess.CalledProcessError):  # the pod has ended, and its network with it
                network.heal(pod.address)

        return heal

    def freeze(self, kind: str, pod: DeployedPod) -> Callable[[], None]:
        """Stop a pod's program; return the function that lets it continue."""
        self.deployments[kind].send(pod.number, signal.SIGSTOP)
        return lambda: self.deployments[kind].send(pod.number, signal.SIGCONT) and None

    def lose(self, kind: str, pod: DeployedPod) -> None:
        """End a pod as if its node lost power: no connection is closed."""
        if self._isolated:
            self.cut(pod)
        self.deployments[kind].lose(pod.number)

    def close(self) -> None:
        """End all remaining processes."""
        self._stack.close()

    def __enter__(self) -> ElasticJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -----

    def _keep(self, name: str, command: list[str], replicas: int, address: Callable[[], str] | None = None) -> None:
        wrapper = [str(HERE.parent / "pod_network.sh"), "--"] if self._isolated else []
        env = {
            "PADDLE_SECRET": "of a trial",
            "PADDLE_PEER_TIMEOUT": str(LEASE_S),
            "CHAOS_LEDGER": str(self.ledger),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        template = PodTemplate(
            name, (*wrapper, *command), self.directory / "work", env, restart_s=RESTART_S, grace_s=GRACE_S
        )
        own = (address or self._next_address) if self._isolated else (lambda: "127.0.0.1")
        self.deployments[name] = Deployment(template, self.logs, replicas, take_address=own)
        self._stack.callback(self.deployments[name].close)

    def _next_address(self) -> str:
        return f"{network.PREFIX}.{next(self._numbers)}"

    def _choose_endpoint(self) -> str:
        if self.trial.store != "etcd":
            return ""
        return f"http://{ETCD}:2379" if self._isolated else f"http://127.0.0.1:{free_ports(1)[0]}"

    @property
    def store(self) -> str:
        """The flag that names the store."""
        return f"--etcd_endpoints={self._endpoint}" if self._endpoint else f"--store_dir={self.directory / 'store'}"

    @property
    def _nics(self) -> list[str]:
        return [] if self._isolated else ["--nics=lo"]

    def _etcd_command(self) -> list[str]:
        peer = f"http://127.0.0.1:{free_ports(1)[0]}"
        return [
            str(BINARY),
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={self._endpoint}",
            f"--advertise-client-urls={self._endpoint}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=warn",
        ]

    def _master_command(self) -> list[str]:
        times = [f"--ttl={LEASE_S}s", f"--member_ttl={LEASE_S}s", "--linger=4s"]
        passes = [f"--num_passes={PASSES}", f"--output={self.output}"]
        return ["paddle", "master", self.store, f"--job={JOB}", "--port=0", *times, *passes, *self._nics]

    def _server_command(self) -> list[str]:
        snapshots = [f"--checkpoint_path={self.directory / 'servers'}", "--checkpoint_interval=1s"]
        own = [f"--num_pservers={SERVERS}", f"--etcd_ttl={LEASE_S}s", "--port=0"]
        return ["paddle", "pserver", self.store, f"--job={JOB}", *own, *snapshots, *self._nics]

    def _trainer_command(self) -> list[str]:
        pace = PACE_OF_TEXTS_S if self.trial.data == "texts" else PACE_S
        config = [
            "--config=tasks_config.py",
            f"--config_args=mode={self.trial.mode},data={self.trial.data},pace={pace}",
        ]
        how = [f"--save_dir={self.output}", "--log_period=1", "--seed=1"]
        return ["paddle", "train", self.store, f"--job_name={JOB}", *config, *how]


def stage(work: Path, data: Path) -> None:
    """Make the working directory of the trainers, with config, provider and `data`."""
    work.mkdir(parents=True, exist_ok=True)
    for path in HERE.glob("tasks_*.py"):
        shutil.copy(path, work)
    if not (work / "data").exists():
        (work / "data").symlink_to(data)


def read(log: Path) -> str:
    """Return the text of a log, or "" if it does not exist yet."""
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
