"""The process sets of a worker from generation to generation."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from collective_ranks import DEADLINE_S, MemoryStore, add

from paddle_base.runtime.health.places import name_process
from paddle_cluster.elastic.collectives.joining import LOST
from paddle_cluster.elastic.errors import HorovodInternalError
from paddle_cluster.elastic.process.membership import WorkerMembership
from paddle_cluster.elastic.process.placement import ProcessPlacement, WorkerSettings, read_settings
from paddle_cluster.elastic.process.set_registry import ProcessSet


class Driver(MemoryStore):
    """A store that also assigns the slots of the next generations. `sizes`: number of ranks of each generation."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.sizes = sizes

    def query_rank(self, host: str, local_rank: int, _: str, generation: int, *__: Any) -> tuple[Any, int]:
        slot = make_placement(local_rank, self.sizes[generation + 1], generation + 1)
        return SimpleNamespace(**slot._asdict()), generation + 1


def make_placement(rank: int, size: int, generation: int) -> ProcessPlacement:
    return ProcessPlacement("localhost", rank, size, rank, size, 0, 1, generation)


def make_worker(rank: int, driver: Driver, *, is_elastic: bool = True) -> WorkerMembership:
    worker = WorkerMembership()
    worker.placement = make_placement(rank, driver.sizes[0], -1 if is_elastic else 0)
    worker.settings = WorkerSettings("127.0.0.1", 1, is_elastic=is_elastic, incarnation=f"{rank}", timeout=DEADLINE_S)
    worker.client = driver  # type: ignore[assignment]
    worker._process = name_process()
    return worker


def on_ranks(size: int, work: Any) -> list[Any]:
    with ThreadPoolExecutor(size) as threads:
        return [one.result(DEADLINE_S) for one in [threads.submit(work, rank) for rank in range(size)]]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker writes its slot into the environment, and sets a hook."""
    for name in ("PADDLE_ELASTIC_INCARNATION", *ProcessPlacement().variables()):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


def test_a_reset_forms_the_declared_sets_again_and_forgets_the_added_ones() -> None:
    driver = Driver(3, 2, 3)

    def work(rank: int) -> list[Any]:
        worker, found = make_worker(rank, driver), []
        sets = [ProcessSet([0, 1]), ProcessSet([1, 2])]
        added = None
        for size in driver.sizes:
            if rank >= size:
                worker.placement = worker.placement._replace(generation=1)
                continue
            worker.init(None if found else [*sets])
            worker.sets.is_dynamic = True
            assert added is None or added.process_set_id is None
            added = worker.sets.add([1])
            totals = [float(add(one.group, np.ones(1))[0]) for one in sets if one.included()]
            found.append(([one.process_set_id for one in sets], totals, added.process_set_id))
            worker.shutdown()
        return found

    found = on_ranks(3, work)
    assert found[1] == [([1, 2], [2.0, 2.0], 3), ([1, None], [2.0], 2), ([1, 2], [2.0, 2.0], 3)]
    assert not [scope for scope in driver.list_scopes() if scope.startswith("set")]


def test_a_set_does_not_wait_for_a_worker_that_the_driver_knows_as_failed() -> None:
    """Rank 1 fails between the group of all ranks and that of its set."""
    driver = Driver(3)
    whole_formed = threading.Barrier(3)

    def work(rank: int) -> str:
        worker = make_worker(rank, driver, is_elastic=False)
        worker.init("dynamic")
        whole_formed.wait(DEADLINE_S)
        if rank == 1:
            worker.sets._form = lambda process_set, number: driver.put("group_0", LOST, b"worker 1 failed")  # type: ignore
        try:
            worker.sets.add([0, 1])
            return ""
        except HorovodInternalError as exc:
            return str(exc)
        finally:
            if rank != 1:
                worker.shutdown()

    texts = on_ranks(3, work)
    assert "worker 1 failed" in texts[0]


def test_a_worker_reads_whether_its_sets_are_dynamic() -> None:
    assert read_settings({"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}).is_dynamic
    assert not read_settings({}).is_dynamic


def test_a_forked_child_has_no_set_of_its_parent() -> None:
    worker = WorkerMembership()
    worker.init([ProcessSet([0])])
    whole, one = worker.sets.whole, worker.sets._static[0]
    assert (whole.size(), one.size()) == (1, 1)
    group = worker.group
    worker.forget()
    assert worker.sets.whole is whole
    assert (whole.size(), one.size(), worker.is_initialised) == (None, None, False)
    group.leave()
