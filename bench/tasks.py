"""Measure the speed of task jobs: python bench/tasks.py [--seconds 15] [--turns 3] [speed loss]

speed  the samples per second of a task job with three trainers, divided by those of a static asynchronous job with
       three trainers (goal: 0.95); both jobs have two servers, and run in alternation
loss   one of four trainers is killed (SIGKILL): the samples per second of the other three trainers in the ten seconds
       after the kill, divided by those in the ten seconds before (goal: 0.9), in asynchronous and in synchronous
       training; each trainer pauses between its batches, so that no trainer becomes faster because the killed trainer
       leaves its processor time to others
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

from machine import describe_machine, spread
from processes import find_port

from paddle_cluster.localcluster.deployment import Deployment, PodTemplate

ROOT = Path(__file__).parents[1]
BATCH, PERIOD = 64, 10  # samples of a batch; batches between two lines of the log
FILE_BATCHES, FILES = 40, 30  # batches of a file; number of files; each file is a task
TRAINERS, SERVERS = 3, 2
BEFORE_S, AFTER_S = 10.0, 10.0
DEADLINE_S = 180.0
LINE = re.compile(r"^I(\d{4} \d\d:\d\d:\d\d\.\d+) .* Batch=\d+ samples=", re.MULTILINE)

CONFIG = """
from paddle.trainer_config_helpers import *
define_py_data_sources2(train_list="train.list", test_list=None, module="provider", obj="process",
                        args={"pace": get_config_arg("pace", float, 0.0)})
settings(batch_size=BATCH, learning_rate=1e-5, is_async=get_config_arg("is_async", bool, True))
pixel = data_layer(name="pixel", size=64)
hidden = fc_layer(input=pixel, size=512, act=TanhActivation())
digit = fc_layer(input=hidden, size=10, act=SoftmaxActivation())
outputs(classification_cost(input=digit, label=data_layer(name="label", size=10)))
"""
PROVIDER = """
import time
from paddle.trainer.PyDataProvider2 import *

def begin(settings, pace, **_):
    settings.pace = pace
    settings.input_types = {"pixel": dense_vector(64), "label": integer_value(10)}

@provider(init_hook=begin, pool_size=BATCH)
def process(settings, file_name):
    for number in range(SAMPLES):
        if settings.pace and number % BATCH == 0:
            time.sleep(settings.pace)
        yield {"pixel": [number % 17 / 8.0 - 1.0] * 64, "label": number % 10}
"""


def write_job(directory: Path) -> None:
    """Writes config, provider and list; the files of the list do not exist, because the provider makes up samples."""
    directory.mkdir()
    (directory / "config.py").write_text(CONFIG.replace("BATCH", str(BATCH)))
    (directory / "provider.py").write_text(
        PROVIDER.replace("SAMPLES", str(FILE_BATCHES * BATCH)).replace("BATCH", str(BATCH))
    )
    (directory / "train.list").write_text("".join(f"part-{number:03d}\n" for number in range(FILES)))


@contextmanager
def elastic(directory: Path, trainers: int, config_args: str) -> Iterator[Deployment]:
    """Runs a task job inside the block; yields its trainers."""
    store, job = f"--store_dir={directory / 'store'}", ["--nics=lo", "--port=0"]
    config = ["--config=config.py", f"--config_args={config_args}", f"--log_period={PERIOD}"]
    commands = {
        "master": ["paddle", "master", store, *job, "--num_passes=1000000"],
        "pserver": ["paddle", "pserver", store, *job, f"--num_pservers={SERVERS}", f"--checkpoint_path={directory}/s"],
        "trainer": ["paddle", "train", store, *config, f"--save_dir={directory}/output", "--saving_period=1000000"],
    }
    with ExitStack() as stack:
        for name, command in commands.items():
            template = PodTemplate(name, tuple(command), directory / "job")
            count = {"master": 1, "pserver": SERVERS, "trainer": trainers}[name]
            kept = stack.enter_context(Deployment(template, directory / "logs", count))
        yield kept


@contextmanager
def static(directory: Path) -> Iterator[None]:
    """Runs the static asynchronous job inside the block; each of its programs is a Deployment of one pod."""
    hosts = [f"127.0.0.{server + 1}" for server in range(SERVERS)]
    common = [f"--port={find_port(hosts)}", "--ports_num=1", f"--num_gradient_servers={TRAINERS}"]
    train = ["paddle", "train", "--local=0", f"--pservers={','.join(hosts)}", "--config=config.py", *common]
    with ExitStack() as stack:
        for number, host in enumerate(hosts):
            template = PodTemplate(
                f"pserver{number}", ("paddle", "pserver", *common, f"--nics={host}"), directory / "job"
            )
            stack.enter_context(Deployment(template, directory / "logs", 1))
        for number in range(TRAINERS):
            own = [f"--trainer_id={number}", "--num_passes=1000000", f"--log_period={PERIOD}", "--nics=lo"]
            template = PodTemplate(f"trainer{number}", (*train, *own), directory / "job")
            stack.enter_context(Deployment(template, directory / "logs", 1))
        yield


def read_times(log: Path) -> list[float]:
    """Returns the time of each line of a trainer's log, in seconds since 1970; a line stands for PERIOD batches."""
    if not log.exists():
        return []
    year = time.localtime().tm_year
    found = LINE.findall(log.read_text(errors="replace"))
    return [datetime.strptime(f"{year}{one}", "%Y%m%d %H:%M:%S.%f").timestamp() for one in found]


def count_samples(logs: Sequence[Path], begin: float, end: float) -> float:
    """Returns the samples per second of all these trainers together between two times."""
    lines = sum(begin <= one < end for log in logs for one in read_times(log))
    return lines * PERIOD * BATCH / (end - begin)


def wait_for(what: str, condition: Callable[[], bool], logs: Path) -> None:
    """Waits for a condition."""
    until = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > until:
            text = "\n".join(log.read_text(errors="replace")[-800:] for log in sorted(logs.glob("*.log")))
            raise SystemExit(f"bench/tasks.py: no {what} after {DEADLINE_S:g} s:\n{text}")
        time.sleep(0.05)


def measure(directory: Path, seconds: float) -> float:
    """Returns the samples per second of a running job, measured after all of its trainers have begun to train."""
    folder = directory / "logs"

    def logs() -> list[Path]:
        return sorted(folder.glob("trainer*.log"))

    wait_for("batch", lambda: len(logs()) == TRAINERS and all(len(read_times(log)) > 2 for log in logs()), folder)
    began = time.time()
    time.sleep(seconds)
    return count_samples(logs(), began, began + seconds)


def run_speed(directory: Path, seconds: float, turns: int) -> None:
    """Prints the speeds of both kinds of jobs and their ratio."""
    rates: dict[str, list[float]] = {"static": [], "elastic": []}
    for turn in range(turns):
        for kind in rates:
            place = directory / f"{kind}-{turn}"
            place.mkdir()
            write_job(place / "job")
            with static(place) if kind == "static" else elastic(place, TRAINERS, "is_async=1"):
                rates[kind].append(measure(place, seconds))
            shutil.rmtree(place)
    ratios = [one / other for one, other in zip(rates["elastic"], rates["static"], strict=True)]
    task = FILE_BATCHES * BATCH
    print(f"speed: static {spread(rates['static'])}, elastic {spread(rates['elastic'])} samples/s, tasks of {task}")
    print(f"speed: elastic / static: {spread(ratios)} (goal 0.95)")


def run_loss(directory: Path, turns: int, *, is_async: bool) -> None:
    """Prints the speed of the other trainers after a trainer was killed, relative to their speed before."""
    kind = "asynchronous" if is_async else "synchronous"
    ratios = []
    for turn in range(turns):
        place = directory / f"loss-{kind}-{turn}"
        place.mkdir()
        write_job(place / "job")
        with elastic(place, TRAINERS + 1, f"is_async={int(is_async)},pace=0.08") as trainers:
            folder = place / "logs"
            wait_for("batch", lambda: all(len(read_times(pod.log)) > 2 for pod in trainers.pods()), folder)
            time.sleep(BEFORE_S)
            *others, lost = trainers.pods()
            killed = time.time()
            trainers.kill(lost.number)
            time.sleep(AFTER_S)
            logs = [pod.log for pod in others]
            before = count_samples(logs, killed - BEFORE_S, killed)
            ratios.append(count_samples(logs, killed, killed + AFTER_S) / before)
        shutil.rmtree(place)
    print(f"loss, {kind}: samples/s of the other trainers after / before the kill: {spread(ratios)} (goal 0.9)")


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("parts", nargs="*", default=["speed", "loss"])
    chosen = parser.parse_args()
    print(describe_machine(), flush=True)
    with tempfile.TemporaryDirectory() as directory:
        if "speed" in chosen.parts:
            run_speed(Path(directory), chosen.seconds, chosen.turns)
        for is_async in (True, False) if "loss" in chosen.parts else ():
            run_loss(Path(directory), chosen.turns, is_async=is_async)


if __name__ == "__main__":
    main()
