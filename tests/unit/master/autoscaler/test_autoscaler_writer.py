"""How changes reach the API server: several at a time, none after a failure, and when they count as made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddle_base.runtime.kubernetes.client import ApiPlace, ApiProblem
from paddle_cluster.master.autoscaler import api, loop
from paddle_cluster.master.autoscaler.api import (
    WRITERS,
    ChangeRefusals,
    JobWriter,
    ParallelismWish,
    is_about_job,
    is_policy,
)
from paddle_cluster.master.autoscaler.facts import JobFacts, Placement
from paddle_cluster.master.autoscaler.loop import Autoscaler, AutoscalerOptions
from paddle_cluster.master.autoscaler.packing import ClusterRoom
from paddle_cluster.master.autoscaler.plan import Change
from paddle_cluster.master.autoscaler.snapshot import ClusterSnapshot

PLACE = ApiPlace("127.0.0.1", 1, Path("/nowhere"))
WISHES = [ParallelismWish("science", f"job-{number}", f"uid-{number}", 1, 2) for number in range(3 * WRITERS)]


def writer(monkeypatch: pytest.MonkeyPatch, send: Callable[[ParallelismWish], None]) -> JobWriter:
    monkeypatch.setattr(api, "set_parallelism", lambda _, wish: send(wish))
    return JobWriter(PLACE)


def test_several_jobs_are_changed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(WRITERS, timeout=60)
    made = writer(monkeypatch, lambda _: together.wait() and None)
    assert list(made.set_all(WISHES, lambda: None)) == [(wish, None) for wish in WISHES]


def test_no_more_requests_are_sent_after_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    def fail(wish: ParallelismWish) -> None:
        sent.append(wish)
        raise ApiProblem("made to fail", 500)

    found = list(writer(monkeypatch, fail).set_all(WISHES, lambda: None))
    assert 1 <= len(sent) <= WRITERS
    assert len(found) == len(sent) and all(problem and problem.status == 500 for _, problem in found)


@pytest.mark.parametrize("status", [404, 409, 422])
def test_a_job_that_has_changed_stops_no_other(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    def fail(wish: ParallelismWish) -> None:
        if wish is WISHES[0]:
            raise ApiProblem("made to fail", status)

    found = list(writer(monkeypatch, fail).set_all(WISHES, lambda: None))
    assert [problem and problem.status for _, problem in found] == [status, *[None] * (len(WISHES) - 1)]


def test_a_change_counts_from_when_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from the decision, a job was lowered 29.3 s after it was raised, where requests took a second."""
    clock = [1000.0]
    monkeypatch.setattr(loop, "steady_time", lambda: clock[0])
    options = AutoscalerOptions(("science",), {}, "science", "lease", "me", 1.0, 600.0, 60.0, False, False)
    autoscaler = Autoscaler(PLACE, options)

    def set_all(wishes: list[ParallelismWish], _: Any) -> Iterator[tuple[ParallelismWish, None]]:
        for wish in wishes:
            clock[0] += 3.0
            yield wish, None

    monkeypatch.setattr(autoscaler._writer, "set_all", set_all)
    facts = JobFacts("science/a", "uid-a", 0.0, "1", "9", 1, False, False, "", (), Placement())
    autoscaler._apply(ClusterSnapshot(ClusterRoom([]), [], [facts], {}), [Change(0, 1, 5, "there is room")])
    assert autoscaler._pasts["uid-a"].raised == 1003.0


def test_a_refusal_of_a_policy_is_told_from_a_missing_right() -> None:
    policy = ApiProblem(
        "jobs.batch is forbidden: ValidatingAdmissionPolicy 'a' with binding 'a' denied request: no", 403
    )
    webhook = ApiProblem('admission webhook "a.b" denied the request: no', 400)
    right = ApiProblem('jobs.batch is forbidden: User "a" cannot patch resource "jobs"', 403)
    assert is_policy(policy) and is_policy(webhook) and not is_policy(right)
    assert is_about_job(policy) and not is_about_job(right)
    assert not is_policy(ApiProblem("the server rejected our request: testing value failed", 422))


def test_each_refusal_doubles_the_wait() -> None:
    refusals = ChangeRefusals(30.0, 100.0)
    assert refusals.end("uid", "a") == 0
    assert [refusals.add("uid", 1000.0) for _ in range(4)] == [30, 60, 100, 100]
    assert refusals.end("other", "uid") == 1000.0 + 100
    refusals.keep({"other"})
    assert refusals.end("uid") == 0
    refusals.add("uid", 1000.0)
    refusals.forget("uid", "a")
    assert refusals.end("uid") == 0
