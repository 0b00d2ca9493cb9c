"""Run N launchers of a Job of N pods against the API server that KUBECONFIG names: `bench/launch.py --kubernetes`.

The program creates the Job of k8s/job.yaml with N pods, and the Job's controller creates the Pod objects. The program
writes the status of each pod in the form that a kubelet writes, so that the cluster needs no node. Each launcher is a
thread with a separate token that is bound to its pod, and waits in start_paddle.meet for the last pod. The threads, the
API server and the controllers share this machine.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import gzip
import io
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
import yaml
from volume_control import VolumeControl

import start_paddle
from paddle_cluster.launcher.cluster.kubernetes import PodApi
from paddle_cluster.launcher.cluster.pods import parse_pods
from paddle_cluster.launcher.cluster.waiting import WaitPolicy
from paddle_cluster.launcher.control.launcher import Launcher
from paddle_cluster.launcher.programs.process import Stop
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.localcluster import peak_rate

ROOT = Path(__file__).parents[1]
JOB = "paddle-cluster-job"
DEADLINE_S = 600.0
PROCESSES = 4


# ----- The cluster, with the rights of its owner


class Owner:
    """Calls the API server with the rights and the token of KUBECONFIG's user."""

    def __init__(self) -> None:
        if not shutil.which("kubectl"):
            raise SystemExit("bench/launch.py: --kubernetes needs kubectl on PATH, and KUBECONFIG")
        text = subprocess.check_output(["kubectl", "config", "view", "--raw", "--minify", "-o", "json"], timeout=60)
        config = json.loads(text)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url = cluster["server"]
        self.authority = (
            base64.b64decode(cluster["certificate-authority-data"]).decode()
            if "certificate-authority-data" in cluster
            else Path(cluster["certificate-authority"]).read_text(encoding="ascii")
        )
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.headers["Authorization"] = f"Bearer {user['token']}"
        self.session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=16))
        self.directory = tempfile.TemporaryDirectory()
        authority = Path(self.directory.name) / "ca.crt"
        authority.write_text(self.authority, encoding="ascii")
        self.session.verify = str(authority)

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Returns the answer to one request. Raises: requests.RequestException."""
        response = self.session.request(
            method, f"{self.url}{path}", json=body, headers={"Content-Type": content_type}, timeout=60
        )
        response.raise_for_status()
        return response.json() if response.headers["Content-Type"].startswith("application/json") else response.text

    def counters(self) -> tuple[float, float]:
        """Returns the API server's processor seconds and refusals (429) since its start."""
        text = self.call("GET", "/metrics")
        refused = re.findall(r'^apiserver_request_total\{.*code="429".*\} (\S+)$', text, re.MULTILINE)
        processor = re.search(r"^process_cpu_seconds_total (\S+)$", text, re.MULTILINE)
        assert processor is not None
        return float(processor[1]), sum(map(float, refused))


def kubelets_status(pod: dict[str, Any], number: int) -> dict[str, Any]:
    """Returns the status that a kubelet writes for a pod whose container runs."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ip = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    container = pod["spec"]["containers"][0]
    mounts = [{**mount, "recursiveReadOnly": "Disabled"} for mount in container["volumeMounts"] if "readOnly" in mount]
    status = {
        "name": container["name"],
        "state": {"running": {"startedAt": now}},
        "lastState": {},
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": container["image"],
        "imageID": f"{container['image'].rpartition(':')[0]}@sha256:{number:064x}",
        "containerID": f"containerd://{number:064x}",
        "volumeMounts": [*[mount for mount in container["volumeMounts"] if "readOnly" not in mount], *mounts],
        "resources": container["resources"],
    }
    return {
        "phase": "Running",
        "conditions": [
            {"type": name, "status": "True", "reason": None, "message": None, "lastTransitionTime": now}
            for name in conditions
        ],
        "hostIP": "10.10.0.11",
        "hostIPs": [{"ip": "10.10.0.11"}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": now,
        "containerStatuses": [status],
        "qosClass": "Burstable",
    }


class Pods:
    """The Job's pods in a new namespace, which exists inside a `with` block."""

    def __init__(self, owner: Owner, count: int) -> None:
        self.owner, self.count = owner, count
        self.namespace = f"launch-{count}-{os.getpid()}"
        self.path = f"/api/v1/namespaces/{self.namespace}"
        self.items: list[dict[str, Any]] = []

    def __enter__(self) -> Pods:
        body = {"metadata": {"name": self.namespace}}
        self.owner.call("POST", "/api/v1/namespaces", body)
        try:
            self._create()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _create(self) -> None:
        for manifest in yaml.safe_load_all((ROOT / "k8s" / "rbac.yaml").read_text(encoding="utf-8")):
            group, kind = manifest["apiVersion"], f"{manifest['kind'].lower()}s"
            prefix = f"/apis/{group}" if "/" in group else f"/api/{group}"
            self.owner.call("POST", f"{prefix}/namespaces/{self.namespace}/{kind}", manifest)
        job = yaml.safe_load((ROOT / "k8s" / "job.yaml").read_text(encoding="utf-8"))
        job["spec"].update(parallelism=self.count, completions=self.count)
        self.owner.call("POST", f"/apis/batch/v1/namespaces/{self.namespace}/jobs", job)
        deadline, active = time.monotonic() + DEADLINE_S, 0
        while active < self.count:  # the controller creates pods at a limited rate
            if time.monotonic() > deadline:
                raise SystemExit(f"bench/launch.py: {active} of {self.count} pods after {DEADLINE_S:g} s")
            time.sleep(1.0)
            status = self.owner.call("GET", f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{JOB}")["status"]
            active = status.get("active", 0)
        self.items = self.owner.call("GET", f"{self.path}/pods")["items"]
        self.items.sort(key=lambda pod: int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]))

    def run(self, numbers: Sequence[int]) -> None:
        """Sets the phase of these pods to Running."""

        def patch(number: int) -> None:
            pod = self.items[number]
            path = f"{self.path}/pods/{pod['metadata']['name']}/status?fieldManager=kubelet"
            body = {"status": kubelets_status(pod, number + 1)}
            self.owner.call("PATCH", path, body, "application/strategic-merge-patch+json")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(patch, numbers))

    def write_accounts(self, directory: Path) -> None:
        """Writes each pod's service account: a token that is bound to the pod, the certificate, and the namespace."""

        def write(number: int) -> None:
            pod = self.items[number]["metadata"]
            bound = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
            body = {"spec": {"boundObjectRef": bound, "expirationSeconds": 3600}}
            answer = self.owner.call("POST", f"{self.path}/serviceaccounts/paddle/token", body)
            account = directory / str(number)
            account.mkdir()
            (account / "token").write_text(answer["status"]["token"], encoding="ascii")
            (account / "ca.crt").write_text(self.owner.authority, encoding="ascii")
            (account / "namespace").write_text(self.namespace, encoding="ascii")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(self.count)))

    def __exit__(self, *_: object) -> None:
        self.owner.call("DELETE", f"/api/v1/namespaces/{self.namespace}")


# ----- The launchers


@dataclasses.dataclass(frozen=True)
class Call:
    """One request of a launcher: the time of sending, the status of the answer, and the bytes of the answer.

    `wire_bytes` counts the bytes as received, `body_bytes` the bytes after decompression.
    """

    sent: float
    status: int
    wire_bytes: int
    body_bytes: int


class CountingSession(requests.Session):
    """A session that records its calls."""

    def __init__(self, calls: list[Call]) -> None:
        super().__init__()
        self.calls = calls
        self.trust_env = False

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        sent = time.monotonic()
        response = super().send(request, **{**options, "stream": True})
        try:
            wire = response.raw.read(decode_content=False)
        except urllib3.exceptions.HTTPError as error:  # requests translates this error only if it reads the body itself
            raise requests.ConnectionError(error) from error
        is_packed = response.headers.get("Content-Encoding") == "gzip"
        body = gzip.decompress(wire) if is_packed else wire
        self.calls.append(Call(sent, response.status_code, len(wire), len(body)))
        # the launcher reads the body from `response.raw`
        response.raw = urllib3.HTTPResponse(io.BytesIO(wire), preload_content=False)
        return response


@dataclasses.dataclass
class LaunchResult:
    """The calls of a launcher, and the time at which it had all ids (time.monotonic is equal in all processes)."""

    began: float
    calls: list[Call] = dataclasses.field(default_factory=list)
    done: float = 0.0
    error: str = ""


def launch_one(environ: dict[str, str], result: LaunchResult) -> None:
    """Waits like a launcher, from its start until it has the ids of all pods."""
    config = LauncherConfig.from_env(environ)
    api = PodApi.for_role(config)
    api.client.session = CountingSession(result.calls)
    waiting = WaitPolicy(config.start_timeout, say=lambda message: None)
    try:
        launcher = Launcher(config, {}, Stop(), api, waiting)
        launcher.control = VolumeControl(config)
        meeting = start_paddle.meet(launcher)
        assert len(meeting.ids) == config.gradient_num
    except Exception as error:  # the parent process counts and shows the error
        result.error = f"{type(error).__name__}: {error}"
    result.done = time.monotonic()


def launch_many(environs: list[dict[str, str]], started: Any, results: Any) -> None:
    """Runs launchers in threads of this process and puts their results into a queue."""
    sys.setswitchinterval(0.001)
    threading.stack_size(1 << 20)
    answers = [LaunchResult(time.monotonic()) for _ in environs]
    threads = [
        threading.Thread(target=launch_one, args=pair, daemon=True) for pair in zip(environs, answers, strict=True)
    ]
    for thread in threads:
        thread.start()
    started.release()
    for thread in threads:
        thread.join()
    results.put(answers)


def make_environ(pods: Pods, number: int, directory: Path) -> dict[str, str]:
    """Returns the environment of a launcher, as job.yaml and Kubernetes give it."""
    job = yaml.safe_load((ROOT / "k8s" / "job.yaml").read_text(encoding="utf-8"))
    variables = job["spec"]["template"]["spec"]["containers"][0]["env"]
    given = {variable["name"]: variable["value"] for variable in variables if "value" in variable}
    address = urlsplit(pods.owner.url)
    return {
        **given,
        "JOB_PATH": str(directory / "volume"),
        "JOB_NAMESPACE": pods.namespace,
        "JOB_COMPLETION_INDEX": str(number),
        "CONF_PADDLE_GRADIENT_NUM": str(pods.count),
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(address.port or 443),
        "POD_IP": kubelets_status(pods.items[number], number + 1)["podIP"],
        "POD_NAME": pods.items[number]["metadata"]["name"],
        "SERVICE_ACCOUNT_DIR": str(directory / "accounts" / str(number)),
        "START_TIMEOUT": str(DEADLINE_S),
    }


@contextlib.contextmanager
def running_launchers(environs: list[dict[str, str]]) -> Iterator[Callable[[], list[LaunchResult]]]:
    """Runs launchers in a few processes; yields a function that waits for their ends and returns their results."""
    spawn = multiprocessing.get_context("spawn")
    started, results = spawn.Semaphore(0), spawn.Queue()
    shares = [share for share in (environs[first::PROCESSES] for first in range(PROCESSES)) if share]
    processes = [spawn.Process(target=launch_many, args=(share, started, results), daemon=True) for share in shares]
    try:
        for process in processes:
            process.start()
        for _ in processes:
            assert started.acquire(timeout=DEADLINE_S)
        yield lambda: [result for _ in processes for result in results.get(timeout=DEADLINE_S)]
    finally:
        for process in processes:
            process.terminate()


# ----- Figures


def time_lists(pods: Pods, count: int) -> tuple[list[float], int]:
    """Fetches and parses `count` lists of all the Job's pods, one after the other; returns seconds and size of each."""
    query = f"?labelSelector=job-name%3D{JOB}&limit={2 * pods.count}"
    seconds, size = [], 0
    for _ in range(count):
        began = time.monotonic()
        response = pods.owner.session.get(f"{pods.owner.url}{pods.path}/pods{query}", timeout=60)
        parse_pods(response.json())
        seconds.append(time.monotonic() - began)
        size = len(response.content)
    return seconds, size


def describe_calls(title: str, calls: Sequence[Call], seconds: float, launchers: int, processor: float) -> None:
    """Prints the number, the sizes and the results of the launchers' calls."""
    times = sorted(call.sent for call in calls)
    statuses = Counter(call.status for call in calls)
    refused = statuses.pop(429, 0)
    others = sum(count for status, count in statuses.items() if status != 200)
    wire, body = sum(call.wire_bytes for call in calls), sum(call.body_bytes for call in calls)
    print(
        f"  {title} ({seconds:.1f} s): {len(calls)} lists, {peak_rate(times):.0f} in the busiest second, "
        f"{len(calls) / seconds:.1f} a second; {refused} refused (429), {others} failed; per launcher "
        f"{wire / launchers / 1e3:.1f} kB on the wire, {body / launchers / 1e3:.1f} kB unpacked; "
        f"API server {processor:.2f} s of processor, {processor / seconds:.2f} a second"
    )


def bench_kubernetes(launchers: int, seconds: float, lists: int) -> None:
    """Prints the calls of N waiting launchers, and the seconds in which they start after the last pod is Running."""
    owner = Owner()
    with Pods(owner, launchers) as pods, tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        (directory / "volume").mkdir()
        (directory / "accounts").mkdir()
        pods.write_accounts(directory / "accounts")
        pods.run(range(launchers - 1))
        environs = [make_environ(pods, number, directory) for number in range(launchers)]
        spans, size = time_lists(pods, lists)
        _, refused = owner.counters()
        print(f"{launchers} pods: {lists} lists of {size / 1e6:.2f} MB fetched and parsed in {sum(spans):.1f} s")
        with running_launchers(environs) as join:
            began, (processor, _) = time.monotonic(), owner.counters()
            time.sleep(seconds)
            waited, (waited_processor, _) = time.monotonic(), owner.counters()
            pods.run([launchers - 1])
            complete = time.monotonic()
            results = join()
            ended, (ended_processor, all_refused) = time.monotonic(), owner.counters()
    failed = [result.error for result in results if result.error]
    if failed:
        raise SystemExit(f"bench/launch.py: {len(failed)} launchers failed, one with {failed[0]}")
    calls = [call for result in results for call in result.calls]
    describe_calls(
        "all but one Running",
        [call for call in calls if call.sent < waited],
        waited - began,
        launchers,
        waited_processor - processor,
    )
    describe_calls(
        "from then on",
        [call for call in calls if call.sent >= waited],
        ended - waited,
        launchers,
        ended_processor - waited_processor,
    )
    starts = sorted(result.done - complete for result in results)
    share = starts[-1] / (sum(spans) * launchers / lists)
    print(
        f"  last Running to last launcher's start {starts[-1]:.2f} s (median {starts[launchers // 2]:.2f}): "
        f"{share:.3f} of {launchers} such lists; 429s that the API server counts: {all_refused - refused:g}",
        flush=True,
    )
