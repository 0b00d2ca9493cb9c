"""Measure how fast a job of three pods starts, and restarts after a kill; also with a volume that shows old files.

usage: bench/recovery.py [--runs N] [--before DIRECTORY] [--stale SECONDS]

localcluster runs the digits example with k8s/job.yaml. Two times are measured:
1. from the time when the last pod is Running to trainer 0's first batch, and the ratio of this time to nine starts of
   `python -c 'import numpy'`
2. from the SIGKILL of trainer 1 to the first batch of the next attempt (goal: 1.2 s)
Both times are measured with a usual volume, and with a volume that shows old files: a launcher that has read a file
sees the old content for SECONDS seconds, as with an NFS client that caches attributes. If SECONDS is 0, only the usual
volume is measured. DIRECTORY is a checkout of an earlier commit; its launcher is measured in alternation with the
launcher of this checkout. All other programs come from this checkout.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from launch import time_bare_starts
from machine import describe_machine, spread

from paddle_cluster.localcluster import Cluster, load_job

ROOT = Path(__file__).parents[1]
DEADLINE_S = 180.0
LOOK_S = 0.005  # seconds between two reads of a pod's output
BATCH = re.compile(r" Batch=\d+ ")
NEXT_ATTEMPT = re.compile(r"attempt 2\.")

# A read of a file of the volume returns the earlier content for SECONDS, unless this process has written the file.
STALE = '''

import paddle_base.runtime.durable_files as _files

_read_fresh, _write_fresh, _seen = _files.read_text_file, _files.write_mark, {}


def _read_stale(path, most=_files.MOST_TEXT_BYTES):
    """Returns what this client has seen of a file in the last SECONDS."""
    import time
    at, content, error = _seen.get(str(path), (float("-inf"), None, None))
    if time.monotonic() - at >= SECONDS:
        try:
            content, error = _read_fresh(path, most), None
        except OSError as problem:
            content, error = None, problem
        _seen[str(path)] = (time.monotonic(), content, error)
    if error is not None:
        raise error
    return content


def _write_seen(path, content, staging=None):
    """Writes a file, and forgets what was seen of it."""
    _seen.pop(str(path), None)
    _write_fresh(path, content, staging)


_files.read_text_file, _files.write_mark = _read_stale, _write_seen
'''


def make_launcher(source: Path, directory: Path, stale_s: float) -> Path:
    """Copies a checkout's launcher, and returns its start.sh; the copy sees files up to `stale_s` seconds late."""
    shutil.copytree(
        source / "paddle_cluster", directory / "paddle_cluster", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(source / "start_paddle.py", directory / "start_paddle.py")
    if stale_s:
        first = directory / "paddle_cluster/launcher/__init__.py"  # it runs before a module of the launcher imports
        first.write_text(first.read_text() + STALE.replace("SECONDS", str(stale_s)))
    return Path(shutil.copy(source / "start.sh", directory / "start.sh"))


def make_launchers(sources: Mapping[str, Path], directory: Path, stale_s: float) -> dict[str, Path]:
    """Returns the start.sh of each measured launcher, by the label of the launcher's row in the table."""
    starts = {}
    for name, source in sources.items():
        for old_s in dict.fromkeys((0.0, stale_s)):
            label = f"{name}, {'looks up to ' + format(old_s, 'g') + ' s old' if old_s else 'a usual volume'}"
            copy = directory / label.replace(" ", "-")
            copy.mkdir()
            starts[label] = make_launcher(source, copy, old_s)
    return starts


def start(volume: Path, entrypoint: Path, **env: str) -> Cluster:
    """Returns the cluster of a job that does not resume from a checkpoint."""
    usual = {"LOG_PERIOD": "1", "DOT_PERIOD": "0", "RESUME": "0"}
    return Cluster(
        load_job(str(ROOT / "k8s" / "job.yaml")),
        volumes={"mfs": volume},
        entrypoint=entrypoint,
        env={**usual, **env},
        logs=volume / "pods",
    )


def wait_for_batch(log: Path, after: re.Pattern[str] | None = None) -> float:
    """Waits for a log line about a batch; returns the current time.

    If `after` is given, the line must follow a line that matches `after`.
    """
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        text = log.read_text(errors="replace") if log.exists() else ""
        begin = after.search(text) if after else None
        if (after is None or begin) and BATCH.search(text, begin.end() if begin else 0):
            return time.monotonic()
        time.sleep(LOOK_S)
    raise SystemExit(f"bench/recovery.py: no batch in {log} within {DEADLINE_S:g} s:\n{text[-3000:]}")


def log_of(volume: Path) -> Path:
    """Returns the path of the file with the output of pod 0."""
    return next(path for path in sorted((volume / "pods").iterdir()) if re.search(r"-0-[a-z0-9]+\.log$", path.name))


def time_job(volume: Path, entrypoint: Path) -> tuple[float, float]:
    """Runs a job, kills trainer 1 of the job, and returns both times."""
    shutil.rmtree(volume / "pods", ignore_errors=True)
    with start(volume, entrypoint, NUM_PASSES="200") as cluster:
        for index in range(3):
            cluster.wait_for_phase(str(index), "Running", deadline=DEADLINE_S)
        began = time.monotonic()
        log = log_of(volume)
        first = wait_for_batch(log) - began
        cluster.wait_for_output(r"Pass=1 ", deadline=DEADLINE_S, pod="1")
        killed = time.monotonic()
        cluster.kill("1", process="paddle train", signum=signal.SIGKILL)
        again = wait_for_batch(log, NEXT_ATTEMPT) - killed
    return first, again


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--stale", type=float, default=30.0)
    options = parser.parse_args()
    print(describe_machine(), flush=True)
    sources = {"before": options.before, "now": ROOT} if options.before else {"now": ROOT}
    rows: dict[str, list[tuple[float, float]]] = {}
    bare = []
    with tempfile.TemporaryDirectory() as directory:
        volume = Path(directory) / "volume"
        volume.mkdir()
        with Cluster(
            load_job(str(ROOT / "k8s" / "data-job.yaml")), volumes={"mfs": volume}, entrypoint=ROOT / "start.sh"
        ) as cluster:
            if cluster.wait(deadline=DEADLINE_S).exit_status:
                raise SystemExit("bench/recovery.py: the data job failed")
        starts = make_launchers(sources, Path(directory), options.stale)
        for run in range(options.runs + 1):  # the first run fills the caches
            bare.append(time_bare_starts(9))
            for label, entrypoint in starts.items():
                figures = time_job(volume, entrypoint)
                if run or not options.runs:
                    rows.setdefault(label, []).append(figures)
    print(f"nine bare starts with numpy: {spread(bare)} s; {options.runs} runs")
    print("| launcher and volume | last pod Running to first batch, s | of nine bare starts | kill to first batch, s |")
    print("|---|---|---|---|")
    middle = sorted(bare)[len(bare) // 2]
    for label, figures in rows.items():
        firsts, agains = zip(*figures, strict=True)
        ratio = sorted(firsts)[len(firsts) // 2] / middle
        print(f"| {label} | {spread(firsts)} | {ratio:.2f} | {spread(agains)} |")


if __name__ == "__main__":
    main()
