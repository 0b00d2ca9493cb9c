"""Makes outputs of jobs in the form of the programs, for tests of the report."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

BEGIN = 1_790_000_000.0
LAYERS: list[dict[str, Any]] = [
    {"name": "pixel", "type": "data", "size": 64, "inputs": [], "parameters": [], "active_type": ""},
    {
        "name": "__fc_layer_0__",
        "type": "fc",
        "size": 64,
        "inputs": ["pixel"],
        "parameters": ["___fc_layer_0__.w0", "___fc_layer_0__.wbias"],
        "active_type": "tanh",
    },
    {
        "name": "__fc_layer_1__",
        "type": "fc",
        "size": 10,
        "inputs": ["__fc_layer_0__"],
        "parameters": ["___fc_layer_1__.w0", "___fc_layer_1__.wbias"],
        "active_type": "softmax",
    },
    {"name": "label", "type": "data", "size": 10, "inputs": [], "parameters": [], "active_type": ""},
    {
        "name": "__cost_0__",
        "type": "multi-class-cross-entropy",
        "size": 1,
        "inputs": ["__fc_layer_1__", "label"],
        "parameters": [],
        "active_type": "",
    },
]
PARAMETERS = [
    {"name": "___fc_layer_0__.w0", "dims": [64, 64], "size": 4096, "is_static": False, "is_sparse": False},
    {"name": "___fc_layer_0__.wbias", "dims": [1, 64], "size": 64, "is_static": False, "is_sparse": False},
    {"name": "___fc_layer_1__.w0", "dims": [64, 10], "size": 640, "is_static": False, "is_sparse": False},
    {"name": "___fc_layer_1__.wbias", "dims": [1, 10], "size": 10, "is_static": False, "is_sparse": False},
]
EVALUATOR = "classification_error_evaluator"
SAMPLES = 1437  # samples of one trainer in one pass


class Job:
    """An output directory that is being made; each call writes what the programs would write at the time `now`."""

    def __init__(self, output: Path, trainers: int = 3, passes: int = 10, batches: int = 15) -> None:
        self.output, self.trainers, self.num_passes, self.batches = output, trainers, passes, batches
        self.now = BEGIN
        self.attempt = ""
        self._done = 0  # passes of this attempt
        output.mkdir(parents=True, exist_ok=True)

    def record(self, kind: str, **fields: Any) -> Job:
        """Append a record."""
        line = json.dumps({"kind": kind, "time": self.now, "attempt": self.attempt, **fields})
        with (self.output / "records.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return self

    def start(self, place: int = 0, batch: int = 0, **fields: Any) -> Job:
        """Append the start of trainer 0."""
        self._done = 0
        whole = {
            "flags": {"config": "trainer_config.py", "num_passes": str(self.num_passes), "log_period": "5"},
            "config": "trainer_config.py",
            "trainers": self.trainers,
            "start_pass": 0,
            "passes": self.num_passes,
            "resumed_from": f"state/pass-{place - 1:05d}" if place else "",
            "pass": place,
            "batch": batch,
            "layers": LAYERS,
            "parameters": PARAMETERS,
            "evaluators": [EVALUATOR],
            "method": {"learning_method": "momentum", "learning_rate": 0.001, "batch_size": 32},
        }
        return self.record("start", **{**whole, **fields})

    def run_pass(self, number: int, until: int | None = None) -> Job:
        """Append the batches of a pass; if the pass is complete, also its end, a test and a save."""
        for batch in range(5, (until or self.batches) + 1, 5):
            self.now += 0.8
            cost = 2.4 / (1 + number + batch / self.batches) + 0.03 * (batch % 2)
            self.record(
                "batch",
                **{"pass": number, "batch": batch, "samples": batch * 32},
                cost=cost * 1.05,
                window_cost=cost,
                evaluators={EVALUATOR: cost / 9},
                window_evaluators={EVALUATOR: cost / 10},
            )
        if until is not None:
            return self
        place = {"pass": number, "batch": self.batches, "samples": SAMPLES}
        values = {"cost": 2.41234567 / (1.5 + number), "evaluators": {EVALUATOR: 0.3123456 / (1 + number)}}
        self._done += 1
        self.record("pass", **place, **values, seconds=2.4, usage=self.usage())
        test = {"cost": 2.6 / (1.5 + number), "evaluators": {EVALUATOR: 0.33 / (1 + number)}}
        self.record("test", **{**place, "samples": 360}, **test)
        name = f"pass-{number:05d}"
        (self.output / name).mkdir(exist_ok=True)
        (self.output / name / "done").touch()
        return self.record("save", **{"pass": number, "batch": self.batches}, path=f"./output/{name}")

    def usage(self) -> dict[str, dict[str, float]]:
        """Return the times of the trainers in this attempt; trainer 1 is the slowest."""
        times = {
            str(trainer): {
                "samples": SAMPLES,
                "seconds": 2.4,
                "data_seconds": 0.1 + 0.5 * (trainer == 1),
                "compute_seconds": 1.0,
                "exchange_seconds": 1.1 - 0.5 * (trainer == 1),
                "test_seconds": 0.1,
                "save_seconds": 0.05,
                "other_seconds": 0.05,
            }
            for trainer in range(self.trainers)
        }
        return {trainer: {key: self._done * one[key] for key in one} for trainer, one in times.items()}

    def progress(self, status: str, place: int, message: str = "") -> Job:
        """Write progress.json."""
        usage = self.usage()
        where = {"attempt": self.attempt, "time": self.now, "pass": place, "batch": 5}
        trainers = {one: {**where, "host": f"paddle-{one}", "usage": usage[one]} for one in usage}
        self.write(
            "progress.json",
            {
                "time": self.now,
                "attempt": self.attempt,
                "pass": place,
                "batch": self.batches,
                "passes": self.num_passes,
                "pass_fraction": 0.5,
                "job_fraction": min((place + 0.5) / self.num_passes, 1.0),
                "samples_per_second": 15321.0,
                "seconds_left": 73.0,
                "cost": 0.25,
                "evaluators": {EVALUATOR: 0.04},
                "slowest": {"trainer": 1, "host": "paddle-1", "busy_seconds": 1.6, "mean_busy_seconds": 1.3},
                "status": status,
                "message": message,
                "trainers": trainers,
            },
        )
        return self

    def launch(self, *attempts: tuple[float, str], finished: bool = False, given_up: bool = False) -> Job:
        """Write job.json with attempts, each given by its begin (seconds after BEGIN) and its origin."""
        listed = [
            {
                "name": f"{number}.ab12cd3{number}",
                "started": datetime.datetime.fromtimestamp(BEGIN + after).strftime("%Y-%m-%d %H:%M:%S"),
                "origin": origin,
            }
            for number, (after, origin) in enumerate(attempts, 1)
        ]
        self.attempt = str(listed[-1]["name"])
        self.write(
            "job.json",
            {"job_uid": "1", "passes": self.num_passes, "finished": finished, "attempts": listed, "given_up": given_up},
        )
        return self

    def fail(self, trainer: int, message: str, status: int = 75, **fields: Any) -> Job:
        """Write the error of a pod, and rename the error of an earlier attempt as a launcher does."""
        node = self.output / f"node_{trainer}"
        node.mkdir(exist_ok=True)
        path = node / "error.json"
        if path.exists():
            path.rename(node / f"error.json.{len(list(node.glob('error.json*')))}")
        error = {
            "time": self.now,
            "attempt": self.attempt,
            "trainer_id": trainer,
            "host": f"paddle-{trainer}",
            "program": "trainer",
            "exit_code": status,
            "signal": "",
            "message": message,
        }
        return self.write(f"node_{trainer}/error.json", {**error, **fields})

    def logs(self) -> Job:
        """Write the logs of all pods."""
        for trainer in range(self.trainers):
            (self.output / f"node_{trainer}").mkdir(exist_ok=True)
            for name in ("train.log", "server.log"):
                (self.output / f"node_{trainer}" / name).write_text("I1122 log\n" * 40)
        return self

    def write(self, name: str, content: object) -> Job:
        """Write a file of the output as JSON."""
        (self.output / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
        return self


def finished_job(output: Path) -> Job:
    """Return a distributed job of ten passes in one attempt."""
    job = Job(output).launch((0.0, ""), finished=True).logs()
    job.now += 5
    job.start()
    for number in range(10):
        job.run_pass(number)
    return job.record("end", status=0, message="").progress("finished", 9)


def failed_job(output: Path) -> Job:
    """Return a job of three attempts: two of them ended by lost pods, the last one by bad data."""
    job = Job(output).launch((0.0, "")).logs()
    job.now += 4
    job.start().run_pass(0).run_pass(1).run_pass(2, until=5)
    job.now += 1
    job.fail(2, "trainer was killed by SIGKILL: over its memory limit of 512 MiB (peak 530 MiB)", 75, signal="SIGKILL")
    job.now += 1
    job.fail(0, "the parameter server of trainer 2 is gone", 75)
    job.launch((0.0, ""), (20.0, "pass-00001"))
    job.now += 15
    job.start(2).run_pass(2).run_pass(3).run_pass(4)
    job.now += 1
    job.fail(1, "pserver 1 cannot be reached: no answer for 12 s", 69)
    job.launch((0.0, ""), (20.0, "pass-00001"), (45.0, "pass-00004"))
    job.now += 25
    job.start(5).run_pass(5, until=10)
    job.now += 1
    lines = "\n".join(f"  File digits_provider.py, line {line}, in process" for line in range(12))
    job.fail(1, f"Traceback (most recent call last):\n{lines}\nValueError: could not convert '?' to float", 65)
    return job.progress("failed", 5, "the provider raised")


def local_run(output: Path) -> Job:
    """Return a run without launcher that trains."""
    job = Job(output, trainers=1, passes=5).start()
    job.run_pass(0).run_pass(1).run_pass(2, until=10)
    return job.progress("training", 2)


def unborn_job(output: Path) -> Job:
    """Return a job that failed before its first batch."""
    job = Job(output).launch((0.0, "")).logs()
    job.now += 3
    return job.fail(0, "trainer_config.py line 4: NameError: name 'fc_layr' is not defined", 78)
