"""What users of others' elastic jobs suffer from, spec/elastic.md section 4: a test, or why it cannot happen, for each.

 1 too few are left, some skip the sync   test_pain_1 below; there is no way to skip it (test_elastic_state, N2)
 2 a worker dies during a decision        test_elastic_driver_repairs: test_a_worker_that_was_ready_and_died_has_failed
 3 a crash that exits with 0 is success   test_pain_3_4 below; N9
 4 a deleted pod ends the job             test_pain_3_4 below: a dying worker is no success
 5 the blacklist is for ever              N8 and N1: it is by incarnation, and a cooldown ends
 6 the driver must not die                test_elastic_driver_restart: N11
 7 a newcomer waits in a broadcast        it cannot: all workers of a generation begin with the same sync, and one at
                                          another place raises (test_a_rank_at_another_place_ends_the_group...)
 8 one kill aborts the others             test_elastic_lists: I2 and I3 with kill
 9 a resize loses or repeats samples      test_elastic_state: test_no_sample_of_an_epoch_is_lost_or_counted_twice...,
                                          test_elastic_collective
10 the transport's timeout does not reach test_pain_10 below
11 a removed worker's end fails the job   test_elastic_lists: I1 and P11 end with 0
12 a lost node is not noticed             test_lost_ranks: killed, frozen and cut off
13 a polite stop of one ends all          test_pain_13 below
14 restarts are counted per agent         test_elastic_lists: I7; there is one driver, and its count is in its store
15 many workers never meet                test_pain_15 below: a generation is decided once, when all have reported
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from pathlib import Path
from unittest import mock

import elastic_worker
from test_elastic_lists import A, B, C, ListJob, hosts_of
from test_elastic_run import LIMIT_S, WORKER, run, started, wait_for

from paddle_cluster.elastic.discovery import FixedHosts
from paddle_cluster.elastic.driver import ElasticDriver
from paddle_cluster.elastic.hosts import SlotInfo


def test_pain_1_too_few_are_left_then_another_host_comes(tmp_path: Path) -> None:
    # the script prints B alone three times, and so the survivor waits, before C comes
    script = "cat hosts; cp hosts seen.new; mv seen.new seen; grep -q localhost hosts || { echo x >> polls; }; "
    script += f"test ! -e polls || test $(wc -l < polls) -lt 3 || echo {C}:1"
    schedule = {"hosts": {"1": hosts_of(B)}, "leads": {"1": B}, "sizes": {"2": 2}}
    job = ListJob(tmp_path, f"{A}:1,{B}:1", schedule, "-np", "2", "--min-np", "2", "--max-np", "2", script=script)
    job.check([2, 2, 2], [1, 2, 2], [0, 1, 1])


def test_pain_3_4_a_worker_that_exits_with_0_before_the_end_is_replaced(tmp_path: Path) -> None:
    once = ["1:exit-once", "left", "0:see", "left", "0:ready", "0:touch", "over", "1:see", "over", "env"]
    status, lines, log = run(tmp_path, "-np", "2", "--min-np", "2", worker=[*WORKER, *once])
    assert status == 0, log
    assert "localhost[1] ended with 0 and has not reported that its work is done" in log
    assert "[0]<stdout>:generation 2: 0 of 2" in lines


def test_pain_10_the_timeout_of_the_transport_reaches_the_workers(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo $HOROVOD_GLOO_TIMEOUT_SECONDS"]
    status, lines, log = run(tmp_path, "-np", "2", "--gloo-timeout-seconds", "77", worker=command)
    assert status == 0, log
    assert lines == ["[0]<stdout>:77", "[1]<stdout>:77"]


def test_pain_13_a_worker_that_is_stopped_politely_is_replaced_and_the_others_go_on(tmp_path: Path) -> None:
    words = ["1:pid-once", "pid", "0:ready", "0:touch", "over", "1:see", "over", "env"]
    worker = [sys.executable, elastic_worker.__file__, *words]
    with started(tmp_path, "-np", "2", "--min-np", "2", worker=worker) as process:
        pid = int(wait_for(tmp_path / "pid"))
        os.kill(pid, signal.SIGTERM)
        output, log = process.communicate(timeout=2 * LIMIT_S)
        assert process.returncode == 0, log
    assert "[0]<stdout>:generation 2: 0 of 2" in output


def test_pain_15_two_hundred_workers_that_come_at_any_time_make_one_generation() -> None:
    hosts = {f"host-{number}": 4 for number in range(50)}
    driver = ElasticDriver(mock.MagicMock(), FixedHosts(hosts), min_num_proc=200, max_num_proc=200)
    asked = threading.Barrier(200)

    def work(slot: SlotInfo, events: object) -> tuple[int, float]:
        asked.wait(LIMIT_S)
        threading.Event().wait(random.random() / 10)  # every one at another time
        driver.record_ready(slot.hostname, slot.local_rank)
        assert driver.get_slot_info(slot.hostname, slot.local_rank).rank == slot.rank
        return 0, 1.0

    try:
        driver.wait_for_available_slots(200)
        driver.start(200, work)
        results = driver.get_results().worker_results
        assert len(results) == 200
        assert driver.world_size() == 200
    finally:
        driver.stop()
