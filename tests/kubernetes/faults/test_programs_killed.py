"""Programs that die inside a pod: no pod is lost, and everything is started again inside."""

import re
import time
from pathlib import Path

import pytest
from long_job import StartJob

NEXT_BATCH_S = 10.0  # from the kill
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
    attempt = job.attempt()
    job.kill(index, program)
    killed = time.monotonic()
    job.wait_for_next_attempt(attempt, seconds=120)
    waited = time.monotonic() - killed
    job.wait_for_log(index, rf"{program} failed, exit status 75: {program} was killed by SIGKILL")
    job.wait_for_success()
    job.check_pods()
    assert job.failed() == 0
    job.check_bits()
    assert job.attempt() == attempt + 1
    assert waited <= NEXT_BATCH_S, f"the next batch came {waited:.1f} s after the kill"


def test_a_trainer_over_its_memory_limit_is_named_with_limit_and_peak(long_job: StartJob) -> None:
    """cgroup v1: the kernel ends the trainer, its launcher tells. v2: it ends the container, the next attempt tells."""

    def edit(tree: Path) -> None:
        with (tree / "digits/digits_provider.py").open("a") as provider:
            provider.write(HUNGRY)

    limit = {"op": "add", "path": "/spec/template/spec/containers/0/resources/limits/memory", "value": "400Mi"}
    job = long_job("memory-limit", limit, edit=edit)
    job.wait_for_batch(0, 50)
    (job.tree / f"eat-{job.pod(1)['metadata']['name']}").touch()
    job.wait_for_success()
    job.check_bits()
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        assert re.search(r"OOMKilled \(exit code 137\): it needed more memory than its limit, 400Mi", job.logs())
        job.check_pods(lost=(1,))
    else:
        named = r"trainer was killed by SIGKILL by the kernel, out of memory: this container's limit is 400Mi, "
        assert re.search(named + r"and the peak of all its processes was (399|400)Mi", job.log(1))
        job.check_pods()
        assert job.failed() == 0
