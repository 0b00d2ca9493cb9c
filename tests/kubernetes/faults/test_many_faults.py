"""Twenty random faults in one long job. FAULTS_SEED=n chooses others (default 1)."""

import os
import shutil
import time
from pathlib import Path

import pytest
from kubernetes_cluster import Once
from long_job import Runner
from many_faults import PASSES, POD_ENDERS, make_plan, strike, wait_until_due
from saved import check_saved


@pytest.fixture
def long_reference(runner: Runner, once: Once) -> Path:
    """Output of an undisturbed run of as many passes."""

    def make(directory: Path) -> None:
        with runner("undisturbed-long", directory / "volume", passes=PASSES, reference=None) as job:
            job.wait_for_success(seconds=900)
            shutil.copytree(job.output, directory / "output")

    return once("undisturbed-long", make) / "output"


@pytest.mark.alone
@pytest.mark.timeout(2400)
def test_twenty_random_faults_do_not_change_a_bit(
    runner: Runner, long_reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, began = int(os.environ.get("FAULTS_SEED", "1")), time.monotonic()
    plan = make_plan(seed)

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"{time.monotonic() - began:6.1f} s: {text}", flush=True)

    say(f"FAULTS_SEED={seed}")
    with runner("many-faults", tmp_path / "volume", passes=PASSES, reference=long_reference) as job:
        for fault in plan:
            here = wait_until_due(job, fault)
            say(f"attempt {here.attempt}, pass {here.number}, batch {here.batch}: {fault}")
            strike(job, fault)
        job.wait_for_success(seconds=600)
        say(f"Complete after {job.attempt()} attempts")
        assert check_saved(job) == PASSES
        job.check_pods(lost=tuple(fault.pod for fault in plan if fault.kind in POD_ENDERS))
