"""Horovod's integration tests of elastic jobs, spec/elastic.md section 2: lists I and P, under their numbers.

A failure costs its host at once where upstream's does (`--failures-per-host 1`). Two cases of upstream's Spark tests
are the same job here: P5 and P14 have five settings of Spark's own blacklist, of which a host that the discovery names
no more, and one that the driver blacklists, are left; where Spark starts a failed task again later (P13), the driver
does so in the next generation, so that with
`--wait-for-replacement` the size never falls.

`make test` has one case of each kind: hosts that come and go (I1), a worker that is killed (I2), all workers that fail,
on fixed hosts (I4), a blacklist (I5), too few hosts (I6), the limit of resets (I7), a restart where nothing is
blacklisted (P13). The others are nightly.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import elastic_schedule
import pytest
from test_elastic_run import run

A, B, C, D = "localhost", "127.0.0.1", "127.0.0.2", "127.0.0.3"
ONE_FAILURE = ["--failures-per-host", "1"]
TWO_FAILURES = ["-np", "2", "--min-np", "2", "--failures-per-host", "2"]
P13 = ["-np", "4", "--min-np", "1", "--failures-per-host", "2"]


class ListJob:
    """A job of the schedule. `log`: a line for each epoch."""

    def __init__(
        self,
        directory: Path,
        hosts: str,
        schedule: dict[str, Any],
        *flags: str,
        fixed: bool = False,
        script: str = "cat hosts; cp hosts seen.new; mv seen.new seen",
    ) -> None:
        (directory / "schedule.json").write_text(json.dumps(schedule))
        (directory / "hosts").write_text(hosts.replace(",", "\n"))
        found = ["-H", hosts] if fixed else ["--host-discovery-script", script]
        worker = [sys.executable, elastic_schedule.__file__, str(directory)]
        more = ["--gloo-timeout-seconds", "60", *flags]
        self.status, _, self.text = run(directory, *more, *found, worker=worker)
        path = directory / "log"
        self.log = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def column(self, name: str) -> list[Any]:
        return [line[name] for line in self.log]

    def check(self, sizes: Sequence[int], rendezvous: Sequence[int], leaders: Sequence[int]) -> None:
        """No epoch is lost or done twice; each has this size, generation, and leader by its starting rank."""
        assert self.status == 0, self.text
        batches = self.log[0]["batch"]
        assert self.column("epoch") == list(range(len(sizes))), self.text
        assert self.column("size") == list(sizes), self.text
        assert self.column("rendezvous") == list(rendezvous), self.text
        assert self.column("start_rank") == list(leaders), self.text
        assert self.column("total") == [batches * (epoch + 1.0) for epoch in range(len(sizes))]


def hosts_of(*names: str, slots: int = 1) -> str:
    return "".join(f"{name}:{slots}\n" for name in names)


# ----- I: test/integration/elastic_common.py


def test_i1_hosts_added_and_removed(tmp_path: Path) -> None:
    hosts = {"1": hosts_of(A, B, slots=2), "2": hosts_of(B, slots=2)}
    schedule = {"hosts": hosts, "sizes": {"1": 4, "2": 2}}
    job = ListJob(tmp_path, f"{A}:2", schedule, "-np", "2", "--min-np", "2", "--max-np", "4")
    job.check([2, 4, 2], [1, 2, 3], [0, 0, 2])
    assert job.column("hostname") == [A, A, B]


@pytest.mark.parametrize("how", [pytest.param("exception", marks=pytest.mark.nightly), "kill"])
def test_i2_single_rank_failure(tmp_path: Path, how: str) -> None:
    schedule = {"exits": {"1,0": [0]}, "how": how}
    job = ListJob(tmp_path, f"{A}:2,{B}:2", schedule, "-np", "4", "--min-np", "2", "--max-np", "4", *ONE_FAILURE)
    job.check([4, 2, 2], [1, 2, 2], [0, 2, 2])


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["exception", "kill"])
def test_i3_fault_tolerance_without_scaling(tmp_path: Path, how: str) -> None:
    schedule = {"exits": {"1,0": [0]}, "how": how}
    job = ListJob(tmp_path, f"{A}:2,{B}:2", schedule, "-np", "4", "--min-np", "2", *ONE_FAILURE, fixed=True)
    job.check([4, 2, 2], [1, 2, 2], [0, 2, 2])


@pytest.mark.parametrize("fixed", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_i4_p7_all_ranks_failure(tmp_path: Path, fixed: bool) -> None:
    schedule = {"exits": {"1,0": [0, 1]}}
    job = ListJob(tmp_path, f"{A}:1,{B}:1", schedule, "-np", "2", "--min-np", "2", fixed=fixed)
    assert job.status == 1
    assert "as the first of 2 workers that have failed" in job.text


def test_i5_all_hosts_blacklisted(tmp_path: Path) -> None:
    schedule = {"exits": {"1,0": [0, 2]}}
    job = ListJob(tmp_path, f"{A}:2,{B}:2", schedule, "-np", "4", "--min-np", "2", *ONE_FAILURE)
    assert job.status not in (0, 64)
    assert "workers have failed on every host: 127.0.0.1, localhost" in job.text
    assert job.column("epoch") == [0]


def test_i6_p8_min_hosts_timeout(tmp_path: Path) -> None:
    flags = ["-np", "4", "--min-np", "4", "--elastic-timeout", "1", *ONE_FAILURE]
    job = ListJob(tmp_path, f"{A}:2,{B}:2", {"exits": {"1,0": [0]}}, *flags)
    assert job.status == 75
    assert "waited 1 s for 4 slots" in job.text


@pytest.mark.parametrize("limit", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_i7_reset_limit(tmp_path: Path, limit: int) -> None:
    schedule = {"hosts": {"1": hosts_of(A, B), "2": hosts_of(B)}, "sizes": {"1": 2, "2": 1}}
    flags = ["-np", "1", "--min-np", "1", "--max-np", "2", "--reset-limit", str(limit)]
    job = ListJob(tmp_path, f"{A}:1", schedule, *flags)
    if limit == 2:
        job.check([1, 2, 1], [1, 2, 3], [0, 0, 1])
    else:
        assert job.status == 75
        assert "as often as --reset-limit=1 allows" in job.text
        assert job.column("epoch") == [0, 1]


@pytest.mark.nightly
def test_i8_a_blacklisted_host_is_out_while_its_cooldown_lasts(tmp_path: Path) -> None:
    flags = ["-np", "4", "--min-np", "2", "--blacklist-cooldown-range", "120", "240", *ONE_FAILURE]
    job = ListJob(tmp_path, f"{A}:2,{B}:2", {"epochs": 5, "exits": {"1,0": [0]}}, *flags)
    job.check([4, 2, 2, 2, 2], [1, 2, 2, 2, 2], [0, 2, 2, 2, 2])


# ----- P: test/integration/elastic_spark_common.py


@pytest.mark.nightly
def test_p1_happy_run(tmp_path: Path) -> None:
    schedule = {"epochs": 10, "batches": 10}
    job = ListJob(tmp_path, f"{A}:6", schedule, "-np", "5", "--min-np", "5", "--max-np", "5")
    job.check([5] * 10, [1] * 10, [0] * 10)
    assert job.column("commits") == [10 + 11 * epoch for epoch in range(10)]


@pytest.mark.nightly
def test_p2_hosts_replaced_one_after_the_other(tmp_path: Path) -> None:
    hosts = {"1": hosts_of(B, C), "2": hosts_of(C, D)}
    flags = ["-np", "2", "--min-np", "2", "--max-np", "2"]
    job = ListJob(tmp_path, f"{A}:1,{B}:1", {"hosts": hosts, "leads": {"1": B, "2": C}}, *flags)
    job.check([2, 2, 2], [1, 2, 3], [0, 1, 1])  # rank 0 is always one that was there before
    assert job.column("hostname") == [A, B, C]


@pytest.mark.nightly
def test_p3_hosts_that_are_not_used_come_and_go(tmp_path: Path) -> None:
    hosts = {"1": hosts_of(A, B, C), "2": hosts_of(A, B, D), "3": hosts_of(A, B)}
    flags = ["-np", "2", "--min-np", "2", "--max-np", "2"]
    job = ListJob(tmp_path, f"{A}:1,{B}:1", {"hosts": hosts, "epochs": 5}, *flags)
    job.check([2] * 5, [1] * 5, [0] * 5)


@pytest.mark.nightly
def test_p4_a_failed_worker_is_started_again(tmp_path: Path) -> None:
    job = ListJob(tmp_path, f"{A}:1,{B}:1", {"exits": {"1,0": [1]}}, *TWO_FAILURES)
    job.check([2, 2, 2], [1, 2, 2], [0, 0, 0])


@pytest.mark.nightly
def test_p5_a_host_that_the_resource_manager_takes_away_leaves_too_few(tmp_path: Path) -> None:
    schedule = {"hosts": {"1": hosts_of(A)}, "sizes": {"1": 1}}
    job = ListJob(tmp_path, f"{A}:1,{B}:1", schedule, "-np", "2", "--min-np", "2", "--elastic-timeout", "1")
    assert job.status == 75
    assert "waited 1 s for 2 slots" in job.text


@pytest.mark.nightly
def test_p6_one_rank_of_a_host_fails_and_the_other_leads(tmp_path: Path) -> None:
    job = ListJob(tmp_path, f"{A}:2", {"exits": {"1,0": [0]}}, *TWO_FAILURES)
    job.check([2, 2, 2], [1, 2, 2], [0, 1, 1])


@pytest.mark.nightly
def test_p9_all_hosts_lost(tmp_path: Path) -> None:
    schedule = {"hosts": {"1": ""}, "sizes": {"1": 0}}
    job = ListJob(tmp_path, f"{A}:1,{B}:1", schedule, "-np", "2", "--min-np", "1", "--elastic-timeout", "1")
    assert job.status == 75
    assert job.column("epoch") == [0]


@pytest.mark.nightly
def test_p10_auto_scale_up(tmp_path: Path) -> None:
    schedule = {"hosts": {"1": hosts_of(A, B), "2": hosts_of(A, B, C)}, "sizes": {"1": 2, "2": 3}}
    job = ListJob(tmp_path, f"{A}:1", schedule, "-np", "1", "--min-np", "1", "--max-np", "3")
    job.check([1, 2, 3], [1, 2, 3], [0, 0, 0])


@pytest.mark.nightly
def test_p11_auto_scale_down_by_discovery(tmp_path: Path) -> None:
    schedule = {"hosts": {"1": hosts_of(B, C), "2": hosts_of(C)}, "sizes": {"1": 2, "2": 1}}
    job = ListJob(tmp_path, f"{A}:1,{B}:1,{C}:1", schedule, "-np", "3", "--min-np", "1")
    job.check([3, 2, 1], [1, 2, 3], [0, 1, 2])


@pytest.mark.nightly
def test_p12_p14_auto_scale_down_by_exception(tmp_path: Path) -> None:
    schedule = {"exits": {"1,0": [0], "2,0": [1]}}
    hosts = ",".join(f"{name}:1" for name in (A, B, C, D))
    job = ListJob(tmp_path, hosts, schedule, "-np", "4", "--min-np", "1", *ONE_FAILURE)
    job.check([4, 3, 2], [1, 2, 3], [0, 1, 2])


def test_p13_auto_scale_without_a_blacklist(tmp_path: Path) -> None:
    hosts = ",".join(f"{name}:1" for name in (A, B, C, D))
    job = ListJob(tmp_path, hosts, {"exits": {"1,0": [2]}}, *P13, "--wait-for-replacement")
    job.check([4, 4, 4], [1, 2, 2], [0, 0, 0])


def test_p13_the_others_go_on_until_the_new_worker_is_ready(tmp_path: Path) -> None:
    hosts = ",".join(f"{name}:1" for name in (A, B, C, D))
    job = ListJob(tmp_path, hosts, {"exits": {"1,0": [2]}, "sizes": {"2": 4}}, *P13)
    assert job.status == 0, job.text
    assert [(line["size"], line["rendezvous"]) for line in job.log[::2]] == [(4, 1), (4, 3)]
    assert job.column("total") == [3.0, 6.0, 9.0]
