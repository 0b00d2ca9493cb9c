"""A newcomer joins when it has loaded its data, and not in `hvd.init()`: the others would wait for all that it does.

Building the first optimizer of torch takes seconds, because it imports torch's compiler, and data sets take minutes.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import Future
from unittest import mock

import pytest
from scripted_workers import LIMIT_S, ScriptedProcess
from test_worker_leaving import Job
from test_worker_leaving import job as job
from waiting import until

from paddle_base.runtime.errors import ConfigError
from paddle_cluster.elastic import state as loop
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.process import membership, operations
from paddle_cluster.elastic.process.set_registry import ProcessSet


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_cluster.elastic.driver.DISCOVER_HOSTS_FREQUENCY_SECS", 0.01)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, str]]:
    """The rank, the size and the scope of each group that is formed."""
    found: list[tuple[int, int, str]] = []

    def form(plan: membership.GroupPlan, *_: object) -> mock.Mock:
        found.append((plan.rank, plan.size, plan.scope))
        return mock.Mock(rank=plan.rank, size=plan.size)

    monkeypatch.setattr(membership, "form", form)
    return found


def take_newcomer(job: Job, slots: int = 2) -> ScriptedProcess:
    """Let this process be the first newcomer of b."""
    job.job.discovery.set({"a": 1, "b": slots})
    new = next(one for one in job.job.wait_for(slots + 1) if one.place == ("b", 1))
    job.take_place(new, new.slot)
    for module in (loop, operations):
        job.monkeypatch.setattr(module, "WORKER", job.worker)
    return new


def let_in(job: Job) -> list[Future[tuple[SlotInfo, int] | None]]:
    job.job.wait_for_notice(0)
    return [job.job.ask(one) for one in (job.first, job.one)]


def test_init_of_a_newcomer_only_takes_the_place_that_it_probably_gets(job: Job, plans: list[object]) -> None:
    take_newcomer(job)
    job.worker.init()
    job.worker.init()
    assert (operations.rank(), operations.size(), operations.local_rank(), operations.is_initialized()) == (2, 3, 1, 1)
    whole = job.worker.sets.whole
    assert (whole.rank(), whole.size(), whole.included(), whole.ranks) == (2, 3, True, [0, 1, 2])
    assert (job.job.driver._newcomers.list_ready(), plans) == (set(), [])
    job.worker.shutdown()
    assert not operations.is_initialized()
    with pytest.raises(ConfigError, match=r"hvd\.init"):
        operations.rank()


def test_the_first_collective_of_a_newcomer_joins(job: Job, plans: list[object]) -> None:
    """Its variables are those of the time at which it was started, so it asks for its rank before it connects."""
    take_newcomer(job)
    job.worker.init()
    group = job.job._pool.submit(lambda: job.worker.group)
    answers = let_in(job)
    assert group.result(LIMIT_S).rank == 2
    assert [one.result(LIMIT_S)[0].rank for one in answers] == [0, 1]  # type: ignore[index]
    assert plans == [(2, 3, "group_2")]
    assert job.worker.placement.generation == 2
    assert job.worker.group is group.result(LIMIT_S)


def test_the_loop_of_a_newcomer_joins_and_resets_the_state_if_the_place_is_another_one(
    job: Job, plans: list[object]
) -> None:
    """Of two newcomers the second one never gets ready; a script may have a learning rate for three ranks."""
    job.monkeypatch.setattr("paddle_cluster.elastic.worker_reports.GATHER_S", 0.05)
    take_newcomer(job, slots=3)
    job.worker.init()
    assert operations.size() == 4
    calls = mock.Mock()
    calls.on_reset.side_effect = lambda: calls.size(operations.size())
    train = loop.run_fn(lambda _: "done", mock.Mock())
    job.monkeypatch.setattr(loop, "notification_manager", mock.Mock(addresses=()))
    job.monkeypatch.setattr(loop, "leaving_on_sigterm", contextlib.nullcontext)
    result = job.job._pool.submit(train, calls)
    let_in(job)
    assert result.result(LIMIT_S) == "done"
    names = [name for name, *_ in calls.mock_calls if name != "forget_host_updates"]
    assert names == ["on_reset", "size", "sync"]
    calls.size.assert_called_once_with(3)
    assert not job.worker.join(), "it has its place"


def test_process_sets_join_in_init_because_only_the_group_knows_their_members(job: Job, plans: list[object]) -> None:
    take_newcomer(job)
    inited = job.job._pool.submit(job.worker.init, [ProcessSet([5])])
    let_in(job)
    inited.result(LIMIT_S)
    assert plans == [(2, 3, "group_2")]


def test_a_child_of_a_newcomer_does_not_take_its_place(job: Job, plans: list[object]) -> None:
    take_newcomer(job)
    job.worker.init()
    job.monkeypatch.setattr(membership, "name_process", lambda: f"{os.getpid()}.another")
    with pytest.raises(ConfigError, match="belongs to its process"):
        _ = job.worker.group
    assert plans == []


def test_a_newcomer_that_is_not_wanted_any_more_ends_with_its_first_collective(job: Job, plans: list[object]) -> None:
    take_newcomer(job)
    job.worker.init()
    job.job.discovery.set({"a": 1, "b": 1})
    until(lambda: not job.job.driver._newcomers.list_all(), "the end of the newcomer")
    with pytest.raises(membership.RemovedFromJobError):
        _ = job.worker.group
    assert plans == []
