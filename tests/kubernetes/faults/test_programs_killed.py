"""Programs that die inside a pod: no pod is lost, and all programs are started again inside their pods."""

import re
import time
from pathlib import Path

import pytest
from infrastructure import first_said
from long_job import LongJob, StartJob

NEXT_BATCH_S = 10.0  # from the kill to the next batch
START_S = 3.0  # of NEXT_BATCH_S: from the first line of an attempt to its first batch, on an idle machine
HUNGRY = """

# what a leak does, when the test wants it: the pod that is named by a file on the volume eats all it can get
import os, threading, time

def _eat():
    order = os.path.join(os.environ["JOB_PATH"], os.environ["JOB_NAME"], "eat-" + os.environ["POD_NAME"])
    while not os.path.exists(order):
        time.sleep(0.1)
    os.unlink(order)
    hoard = []
    while True:
        hoard.append(b"x" * (16 << 20))

threading.Thread(target=_eat, daemon=True).start()
"""


@pytest.mark.alone  # it measures time
@pytest.mark.parametrize(
    ("index", "program"),
    [pytest.param(1, "trainer", marks=pytest.mark.short), (0, "trainer"), (0, "pserver"), (2, "pserver")],
    ids=["trainer", "trainer-0", "pserver-0", "pserver"],
)
def test_a_killed_program_costs_no_pod_and_ten_seconds(long_job: StartJob, index: int, program: str) -> None:
    job = long_job(f"kill-{program}-{index}")
    job.wait_for_batch(0, 50)
    attempt, slowness_s = job.attempt(), max(0.0, start_time(job) - START_S)
    job.kill(index, program)
    killed = time.monotonic()
    job.let_end()
    job.wait_for_next_attempt(attempt, seconds=120)
    waited = time.monotonic() - killed
    job.wait_for_log(index, rf"{program} failed, exit status 75: {program} was killed by SIGKILL")
    job.check_end()
    assert job.failed() == 0
    assert job.attempt() == attempt + 1
    limit = NEXT_BATCH_S + slowness_s
    assert waited <= limit, f"the next batch came {waited:.1f} s after the kill, not within {limit:.1f} s"


def start_time(job: LongJob) -> float:
    """Return the seconds from the launcher's line about the first attempt to trainer 0's first line about a batch."""
    began, trained = first_said(job, 0, r"trainer 0 of 3, attempt 1"), first_said(job, 0, r" Batch=\d+ ")
    assert began and trained
    return (trained - began).total_seconds()


def test_a_trainer_over_its_memory_limit_is_named_with_limit_and_peak(long_job: StartJob) -> None:
    """With cgroup v1 the kernel kills the trainer, and its launcher reports the limit and the peak.

    With cgroup v2 the kernel kills the whole container, and the next attempt reports the limit.
    """

    def edit(tree: Path) -> None:
        with (tree / "digits/digits_provider.py").open("a") as provider:
            provider.write(HUNGRY)

    limit = {"op": "add", "path": "/spec/template/spec/containers/0/resources/limits/memory", "value": "400Mi"}
    job = long_job("memory-limit", limit, edit=edit)
    job.wait_for_batch(0, 50)
    (job.tree / f"eat-{job.pod(1)['metadata']['name']}").touch()
    job.wait("end of the trainer", lambda: re.search("out of memory|OOMKilled", job.logs()))
    job.wait_for_success()
    job.check_bits()
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        assert re.search(
            r"OOMKilled \(exit code 137\): the container needed more memory than its limit, 400Mi", job.logs()
        )
        job.check_pods(lost=(1,))
    else:
        named = r"trainer was killed by SIGKILL by the kernel, out of memory: this container's limit is 400Mi, "
        assert re.search(named + r"and the peak of all its processes was (399|400)Mi", job.log(1))
        job.check_pods()
        assert job.failed() == 0
