"""Both cases against a real API server whose nodes KWOK plays: tests/kubernetes/autoscale/run starts it.

Writes for each run caseCASE_ONOFF-N.json (the record), .log (the columns of 2017) and the autoscaler's own log.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests
import yaml

from autoscale import objects
from autoscale.account import create_account
from autoscale.cases import END, LEAST, MOST, NODE_CPUS, SIZES, STEPS, TRAINER_CPU, arrivals
from autoscale.cluster_watch import Api, PodWatch
from autoscale.figures import Record, Sample, summarise
from autoscale.machine import busy_seconds, cpu_seconds, describe_machine, describe_waits

WAIT_S = 300.0  # for what is to be there before and after a run
FIRST_SIZE = 15  # of a job of case 2
SERVICE_START = 35.0  # seconds of nginx alone
INTERVAL_S = 0.5  # between two samples
LOAD_S = 5.0  # between two looks at how busy the machine is
CHANGE = re.compile(r"\w+/(job-\d+): (\d+) -> (\d+) trainers: (.*)")


class Experiment:
    """One run of a case."""

    def __init__(self, api: Api, watch: PodWatch, record: Record, pace: float) -> None:
        self.api, self.watch, self.record, self.session = api, watch, record, api.session()
        self.pace = pace
        self.begin = 0.0
        self.wanted = 0
        self._busy = (0.0, 0.0)  # when the machine was looked at, and its CPU seconds then
        self.names = [node["metadata"]["name"] for node in objects.nodes()]

    @property
    def now(self) -> float:
        return time.monotonic() - self.begin

    def run(self, seconds: float) -> None:
        case = self.record.case
        if case == 2:
            self.api.send(self.session, "POST", *objects.replicas("Deployment", "nginx", 400))
            self.wanted = 400
            wait("400 pods of nginx", lambda: self.count("nginx") >= 400)
            time.sleep(SERVICE_START)
        self.watch.take_waits()
        self.begin, self.record.begin = time.monotonic(), time.time()
        coming, steps = list(enumerate(arrivals(case))), dict(STEPS) if case == 2 else {}
        tick = 0
        while self.now < seconds:
            while coming and self.now >= coming[0][1]:
                self.submit(coming.pop(0)[0])
            for moment in [moment for moment in steps if self.now * self.pace >= moment]:
                self.scale(steps.pop(moment))
            self.observe()
            self.look_at_machine()
            tick += 1
            time.sleep(max(self.begin + tick * INTERVAL_S - time.monotonic(), 0))

    def submit(self, job: int) -> None:
        fixed = MOST if self.record.case == 1 else FIRST_SIZE
        first = (LEAST if self.record.case == 1 else FIRST_SIZE) if self.record.elastic else fixed
        for path, item in objects.job_parts(job, first, elastic=self.record.elastic):
            self.api.send(self.session, "POST", path, item)

    def scale(self, replicas: int) -> None:
        self.record.steps.append((self.now, self.wanted, replicas))
        path = f"/apis/apps/v1/namespaces/{objects.NAMESPACE}/deployments/nginx"
        self.api.send(self.session, "PATCH", path, {"spec": {"replicas": replicas}}, "merge-patch+json")
        self.wanted = replicas

    def count(self, part: str) -> int:
        return sum(pod.part == part and pod.phase == "Running" and not pod.is_leaving for pod in self.watch.pods())

    def look_at_machine(self) -> None:
        before, worked = self._busy
        if self.now - before >= LOAD_S or not worked:
            self._busy = (self.now, busy_seconds())
            if worked:
                cpus = (self._busy[1] - worked) / (self._busy[0] - before)
                self.record.load.append((round(self.now, 1), round(os.getloadavg()[0], 2), round(cpus, 2)))

    def observe(self) -> None:
        jobs = len(arrivals(self.record.case))
        running: Counter[tuple[str, str]] = Counter()
        there: Counter[int] = Counter()
        free = dict(zip(self.names, SIZES, strict=True))
        for pod in self.watch.pods():
            if pod.node in free:
                free[pod.node] -= objects.CPUS.get(pod.part, 0)
            if pod.job:
                there[int(pod.job)] += 1
            if pod.phase == "Running" and not pod.is_leaving:
                running[pod.part, pod.job] += 1
        trainers = [running["trainer", str(job)] for job in range(jobs)]
        shares = []
        for job in range(jobs):
            cpus = sum(objects.CPUS[part] * running[part, str(job)] for part in ("trainer", "server", "master"))
            shares.append(round(100 * cpus / NODE_CPUS, 2))
        used = sum(objects.CPUS[part] * count for (part, _), count in running.items() if part in objects.CPUS)
        states = ["running" if trainers[job] else "pending" if there[job] else "" for job in range(jobs)]
        may = self.record.elastic and any(there[job] and trainers[job] < MOST for job in range(jobs))
        sample = Sample(
            seconds=round(self.now, 1),
            utilisation=round(100 * used / NODE_CPUS, 2),
            trainers=trainers,
            shares=shares,
            states=states,
            service=running["nginx", ""],
            wanted=self.wanted,
            is_full=not may or max(free.values()) < TRAINER_CPU,
        )
        self.record.observe(sample, dict(there))


def wait(what: str, condition: Any) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"no {what} after {WAIT_S:.0f} s"
        time.sleep(0.5)


def as_kubelets_do(stages: list[Any]) -> list[Any]:
    """KWOK's stages, but a pod that is deleted ends Failed before it goes, and keeps the finalizers of others.

    With KWOK's own stage it vanishes at once, so that the Job controller never counts it.
    """
    (ends,) = (one for one in stages if one["metadata"]["name"] == "pod-delete")
    others = [one for one in stages if one is not ends]
    there = ends["spec"]["selector"]["matchExpressions"]
    phases = [{"key": ".status.phase", "operator": how, "values": ["Running"]} for how in ("In", "NotIn")]
    made = []
    steps: list[Any] = [{"statusTemplate": "phase: Failed\n"}, {"delete": True}]
    for name, phase, step in zip(("pod-end", "pod-delete"), phases, steps, strict=True):
        spec = {**ends["spec"], "selector": {"matchExpressions": [*there, phase]}, "next": step}
        made.append({**ends, "metadata": {"name": name}, "spec": spec})
    return [*others, *made]


@contextlib.contextmanager
def kwok(out: Path, *, kubelets: bool) -> Iterator[int]:
    """KWOK as a process; its number. `kubelets`: pods end as a kubelet's do."""
    programs = Path(os.environ.get("CLUSTER_DIR", "/var/tmp/paddle-cluster")) / "bin"
    stages = list(yaml.safe_load_all((programs / "kwok.stages.yaml").read_text()))
    config = out / "kwok.stages.yaml"
    config.write_text(yaml.safe_dump_all(as_kubelets_do(stages) if kubelets else stages))
    command = [programs / "kwok", f"--kubeconfig={os.environ['KUBECONFIG']}", f"--config={config}"]
    command += [f"--manage-nodes-with-annotation-selector={objects.FAKE}=fake", "--node-lease-duration-seconds=40"]
    with (out / "kwok.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@contextlib.contextmanager
def autoscaler(path: Path) -> Iterator[int]:
    """The program as users run it, with the rights of k8s/tasks/autoscaler; the nodes cannot run its pod."""
    log, lines = path.with_suffix(".autoscaler.log"), path.with_suffix(".autoscaler.json")
    lines.unlink(missing_ok=True)
    account = path.with_suffix(".account")
    where = create_account(account)
    command = [sys.executable, "-m", "paddle", "autoscaler", "--all_namespaces", f"--log_json={lines}"]
    with log.open("w") as file, subprocess.Popen(command, env=where, stderr=file) as process:
        try:
            wait("autoscaler that leads", lambda: process.poll() is not None or "it leads" in log.read_text())
            yield process.pid
            assert process.poll() is None, f"the autoscaler has ended: {log.read_text()[-500:]}"
        finally:
            process.terminate()
            process.wait(30)
            for name in ("token", "ca.crt", "namespace"):
                (account / name).unlink()
            account.rmdir()


def read_changes(path: Path, begin: float) -> list[tuple[float, str, int, int, str]]:
    """The autoscaler's changes, from its log. `begin`: of the run, seconds since the epoch."""
    found = []
    for line in path.read_text().splitlines():
        said = json.loads(line)
        if match := CHANGE.fullmatch(said["message"]):
            found.append((round(said["time"] - begin, 1), match[1], int(match[2]), int(match[3]), match[4]))
    return found


def clean(api: Api, watch: PodWatch) -> None:
    """Delete everything of a run."""
    session = api.session()
    kinds = {"batch/v1": ["jobs"], "apps/v1": ["deployments", "replicasets"]}
    for group, names in kinds.items():
        for name in names:
            path = f"/apis/{group}/namespaces/{objects.NAMESPACE}/{name}?propagationPolicy=Background"
            api.send(session, "DELETE", path)
    with contextlib.suppress(requests.Timeout):  # it waits for finalizers that the Job controller takes off
        path = f"/api/v1/namespaces/{objects.NAMESPACE}/pods?labelSelector=part!%3Dsystem"
        api.send(session, "DELETE", path)
    wait("end of all pods", lambda: all(pod.part in ("system", "") for pod in watch.pods()))


def prepare(api: Api, watch: PodWatch) -> None:
    session = api.session()
    api.send(session, "POST", "/api/v1/namespaces", {"metadata": {"name": objects.NAMESPACE}})
    for item in objects.priorities():
        api.send(session, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", item)
    for item in objects.nodes():
        api.send(session, "POST", "/api/v1/nodes", item)
    api.send(session, "POST", *objects.replicas("DaemonSet", "system", 0))
    ready = len(SIZES)
    wait("system pods", lambda: sum(pod.part == "system" and pod.phase == "Running" for pod in watch.pods()) == ready)


def programs(others: dict[str, int]) -> dict[str, float]:
    """Seconds of CPU of each program of the control plane and of these others so far."""
    pids = {path.name: int(path.read_text()) for path in (Path(os.environ["KUBECONFIG"]).parent / "pid").iterdir()}
    return {name: cpu_seconds(pid) for name, pid in {**pids, **others, "experiment": os.getpid()}.items()}


def play(api: Api, watch: PodWatch, path: Path, record: Record, limits: list[str], kwok_pid: int) -> None:
    """One run and its files. `limits`: its seconds, and by how much the steps of nginx come sooner."""
    limit, pace = [*map(float, limits), *[END[record.case], 1.0][len(limits) :]]
    with autoscaler(path) if record.elastic else contextlib.nullcontext() as pid:
        others = {"kwok": kwok_pid} | ({"autoscaler": pid} if pid else {})
        before, begun = programs(others), time.monotonic()
        Experiment(api, watch, record, pace).run(limit)
        length = time.monotonic() - begun
        taken = {name: round((now - before[name]) / length, 3) for name, now in programs(others).items()}
    if record.elastic:
        record.changes = read_changes(path.with_suffix(".autoscaler.json"), record.begin)
    record.machine = {
        **describe_machine(),
        "load, mean": round(statistics.mean([one[1] for one in record.load] or [0]), 1),
        "CPUs busy, mean": round(statistics.mean([one[2] for one in record.load] or [0]), 2),
        "CPUs of each program, mean": taken,
        "pods": describe_waits(watch.take_waits()),
    }
    path.with_suffix(".json").write_text(json.dumps(record.to_json()))
    path.with_suffix(".log").write_text("".join(f"{line}\n" for line in record.columns()))
    print(f"{path.name}: {json.dumps({**summarise(record), **record.machine}, indent=1)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kubelets", action="store_true", help="a deleted pod ends Failed, as a kubelet's does")
    parser.add_argument("runs", nargs="*", default=["1,OFF", "1,ON", "2,OFF", "2,ON"] * 2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    api = Api()
    watch = PodWatch(api)
    watch.start()
    with kwok(options.out, kubelets=options.kubelets) as pid:
        prepare(api, watch)
        for place, one in enumerate(options.runs, start=1):
            case, onoff, *limits = one.split(",")
            number = 1 + len({path.name.partition(".")[0] for path in options.out.glob(f"case{case}_{onoff}-*.log")})
            path = options.out / f"case{case}_{onoff}-{number}"
            record = Record(int(case), onoff == "ON")
            print(f"{path.name}: begins at {time.strftime('%H:%M:%S')}", flush=True)
            play(api, watch, path, record, limits, pid)
            if place < len(options.runs):
                clean(api, watch)
    watch.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
