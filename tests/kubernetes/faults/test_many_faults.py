"""Twenty random faults in one long job. FAULTS_SEED=n chooses other faults (default 1)."""

import os
import time

import pytest
from long_job import StartJob
from many_faults import PASSES, POD_ENDERS, make_plan, strike, wait_until_due
from saved import check_saved


@pytest.mark.alone
@pytest.mark.timeout(2400)
def test_twenty_random_faults_do_not_change_a_bit(long_job: StartJob, capsys: pytest.CaptureFixture[str]) -> None:
    seed, began = int(os.environ.get("FAULTS_SEED", "1")), time.monotonic()
    plan = make_plan(seed)

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"{time.monotonic() - began:6.1f} s: {text}", flush=True)

    say(f"FAULTS_SEED={seed}")
    job = long_job("many-faults", passes=PASSES)
    for fault in plan:
        here = wait_until_due(job, fault)
        say(f"attempt {here.attempt}, pass {here.number}, batch {here.batch}: {fault}")
        strike(job, fault)
    job.wait_for_success(seconds=900)
    say(f"Complete after {job.attempt()} attempts")
    job.check_bits()
    assert check_saved(job) == PASSES
    job.check_pods(lost=tuple(fault.pod for fault in plan if fault.kind in POD_ENDERS))
