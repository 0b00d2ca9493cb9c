"""`make demo-tasks` trains digits on this machine with 1 to 5 trainers, and kills, freezes and adds trainers.

The demo runs the commands of docs/tasks.md: a master and a standby, two parameter servers, and trainers. Like
Kubernetes, the demo starts a program again when the program ends.

usage: demo_tasks.py [DIRECTORY]
"""

import signal

if __name__ == "__main__":  # a Ctrl-C during the imports below ends the process without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle_cluster.localcluster.deployment import Deployment, PodTemplate

ROOT = Path(__file__).parents[1]
PLACE = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else ROOT / "demo-tasks"
JOB, STORE, OUTPUT, LOGS = PLACE / "job", PLACE / "store", PLACE / "output", PLACE / "logs"
WORK = PLACE / "work"
FILES, PASSES, BATCH = 72, 16, 4
HIGHEST_ERROR = 0.06
LIMIT_S = 170.0
FIND = "--store_dir=../store"
LEASES = "3s"

MASTER = f"paddle master {FIND} --job=demo --port=0 --nics=lo --num_passes={PASSES} --output=../output"
MASTER += f" --ttl={LEASES} --member_ttl={LEASES} --linger=5s"
SERVER = f"paddle pserver {FIND} --job=demo --port=0 --nics=lo --num_pservers=2 --etcd_ttl={LEASES}"
SERVER += " --checkpoint_path=../servers --checkpoint_interval=1s"
TRAINER = f"paddle train {FIND} --job_name=demo --config=trainer_config.py --config_args=batch_size={BATCH}"
TRAINER += " --save_dir=../output --log_period=1000 --saving_period=1000"


class Story:
    """The programs of the job, and the steps of the demo: (fraction of finished tasks, description, action)."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.told: set[tuple[Any, ...]] = set()  # the events of trainers that were already printed
        self.frozen = 0  # number of a trainer
        commands = {"master": MASTER, "pserver": SERVER, "trainer": TRAINER}
        self.kept: dict[str, Deployment] = {}
        for (name, command), count in zip(commands.items(), (2, 2, 1), strict=True):
            self.say(f"{count} x {command}")
            template = PodTemplate(name, tuple(command.split()), WORK)
            self.kept[name] = Deployment(template, LOGS, count, self.hear)
        trainers = self.kept["trainer"]
        self.steps: list[tuple[float, str, Callable[[], object]]] = [
            (0.06, "3 trainers", lambda: trainers.scale(3)),
            (0.18, "kill -9 of a trainer, which is then started again", lambda: trainers.kill(self.running()[0])),
            (0.30, "a trainer is frozen: another trainer gets its task", self.freeze),
            (0.40, "5 trainers", lambda: trainers.scale(5)),
            (0.52, "kill -9 of the master: the standby takes over", self.kill_leader),
            (0.66, "kill -9 of a parameter server: the trainers wait for it", lambda: self.kept["pserver"].kill(1)),
            (0.78, "the frozen trainer continues", lambda: trainers.send(self.frozen, signal.SIGCONT)),
            (0.88, "2 trainers: the others finish their batch and leave", lambda: trainers.scale(2)),
        ]

    # ----- the actions of the steps

    def running(self) -> list[int]:
        """Return the numbers of the running trainers."""
        return [pod.number for pod in self.kept["trainer"].pods() if pod.is_running and not pod.is_leaving]

    def freeze(self) -> None:
        """Freeze the newest trainer."""
        self.frozen = self.running()[-1]
        self.kept["trainer"].send(self.frozen, signal.SIGSTOP)

    def kill_leader(self) -> None:
        """Kill the master that leads."""
        for pod in self.kept["master"].pods():
            if pod.is_running and " serving on " in pod.log.read_text():
                self.kept["master"].kill(pod.number)

    # ----- the output

    def run(self) -> None:
        """Do the steps one by one until all programs have ended."""
        while not all(kept.wait(0) for kept in self.kept.values()):
            record = read_record()
            share = self.tell(record)
            while self.steps and share >= self.steps[0][0]:
                _, what, act = self.steps.pop(0)
                self.say(f"{share:.0%} of the tasks are done: {what}")
                act()
            if time.monotonic() - self.began > LIMIT_S:
                raise SystemExit(f"demo: the job has not ended after {LIMIT_S:g} s; the logs are in {LOGS}")
            time.sleep(0.1)
        self.tell(read_record())

    def tell(self, record: dict[str, Any]) -> float:
        """Print which trainers joined and left since the last call, and return the fraction of finished tasks."""
        for event in record.get("history", []):
            key = (event["time"], event["uid"], event["what"])
            if key not in self.told:
                reason = f": {event['reason']}" if event["reason"] else ""
                self.say(f"   the master: trainer {event['number']} {event['what']}{reason}")
            self.told.add(key)
        tasks = sum(record.get(kind, 0) for kind in ("todo", "pending", "done", "failed"))
        if not tasks:
            return 0.0
        return (record["pass"] * tasks + record["done"]) / (tasks * record["num_passes"])

    def hear(self, pod: str, what: str) -> None:
        """Print that a program has started or ended."""
        self.say(f"   {pod} {what}")

    def say(self, what: str) -> None:
        """Print a line with the seconds since the start."""
        print(f"{time.monotonic() - self.began:5.1f} s  {what}", flush=True)

    def close(self) -> None:
        """End every program that still runs."""
        for kept in self.kept.values():
            kept.close()


def read_record() -> dict[str, Any]:
    """Return the master's record of the job, or an empty record before the master has written its first record."""
    try:
        return json.loads((OUTPUT / "tasks.json").read_text())
    except (OSError, ValueError):
        return {}


def prepare() -> None:
    """Make the data files and the working directory of the trainers. Each data file becomes a task."""
    shutil.rmtree(PLACE, ignore_errors=True)
    command = ["paddle", "prepare", "--split_count=1", f"--shard_files={FILES}", f"--out_dir={JOB}"]
    print("$", *command, flush=True)
    program = Path(sys.executable).with_name("paddle")  # it prints no traceback after a Ctrl-C at its start
    subprocess.run([program, *command[1:], f"--examples_dir={ROOT / 'examples'}"], cwd=ROOT, check=True)
    shutil.copytree(JOB / "digits", WORK)
    shutil.copytree(JOB / "0" / "data", WORK / "data")


def test_model() -> float:
    """Return the test error of the last pass."""
    model = f"--init_model_path=../output/pass-{PASSES - 1:05d}"
    command = ["paddle", "train", "--job=test", "--config=trainer_config.py", model]
    print("$", *command, flush=True)
    program = Path(sys.executable).with_name("paddle")
    done = subprocess.run([program, *command[1:]], cwd=WORK, check=True, capture_output=True, text=True)
    return float(re.findall(r"classification_error_evaluator=(\S+)", done.stdout + done.stderr)[-1])


def print_tasks(record: dict[str, Any]) -> None:
    """Print the account of each pass: the tasks and samples, and the numbers of repeated tasks and samples."""
    heads = ("pass", "tasks", "dispatches", "repeated", "samples", "samples repeated")
    print("".join(head.rjust(len(head) + 4) for head in heads))
    for one in record["passes"]:
        again = one["dispatches"] - one["done"]
        row = (one["pass"], one["done"], one["dispatches"], again, one["samples"], one["repeated"])
        print("".join(str(cell).rjust(len(head) + 4) for head, cell in zip(heads, row, strict=True)))


def main() -> int:
    """Run the job, print the results, and return 0 if the error is low enough."""
    prepare()
    story = Story()
    try:
        story.run()
    finally:
        story.close()
    record = read_record()
    print_tasks(record)
    if record["phase"] != "done":
        print(f"demo: the job is {record['phase']}: {record['reason']}; the logs are in {LOGS}")
        return 1
    error = test_model()
    print(f"demo: test error {100 * error:.2f} %, after {PASSES} passes in {time.monotonic() - story.began:.0f} s")
    print("demo: paddle status", OUTPUT, "shows the record of the job; the logs of all programs are in", LOGS)
    if error >= HIGHEST_ERROR:
        print(f"demo: the error should be below {100 * HIGHEST_ERROR:g} %", file=sys.stderr)
        return 1
    return 0


def interrupt(number: int, frame: object) -> None:
    """End this process at once. The first process of each pod then ends the programs of the pod."""
    os.write(sys.stdout.fileno(), b"demo: interrupted\n")
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, interrupt)
    sys.exit(main())
