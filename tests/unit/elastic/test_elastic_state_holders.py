"""Rank 0 gives its state to all others, so it must be a worker that has had it: Horovod takes any that lives."""

from __future__ import annotations

from scripted_workers import LIMIT_S, ScriptedJob, ScriptedProcess


def grow(job: ScriptedJob, hosts: dict[str, int]) -> None:
    """Let the job have other hosts, and all of its workers join the next generation."""
    before = job.driver.notices.revision
    job.discovery.set(hosts)
    job.wait_for_notice(before)


def ask(job: ScriptedJob, process: ScriptedProcess, has_state: bool):
    place, name = process.place, process.incarnation
    return job._pool.submit(job.driver.query_rank, *place, name, process.generation, LIMIT_S, has_state)


def test_a_new_worker_that_has_never_had_the_state_does_not_become_rank_0() -> None:
    """Its host had been that of rank 0, which was lost before the two had the state in common."""
    job = ScriptedJob({"a": 1, "b": 1})
    first, second = job.start(2)
    grow(job, {"a": 2, "b": 1})
    asked = [job.ask(one) for one in (first, second)]
    new = job.wait_for(3)[2]
    assert [one.result(LIMIT_S)[0].rank for one in asked] == [0, 2]
    assert (new.place, new.slot.rank) == (("a", 1), 1)
    first.commands.put(1)
    later = [ask(job, new, has_state=False), job.ask(second, 2)]
    ranks = [one.result(LIMIT_S)[0].rank for one in later]
    assert ranks[1] == 0, "the new worker gives the others a state that it does not have"
    assert job.driver._members.find(new.place).name == new.incarnation  # it is not started again
    job.end()


def test_workers_without_the_state_do_not_go_on_alone() -> None:
    """The job would begin anew without a word."""
    job = ScriptedJob({"a": 1})
    (first,) = job.start(1)
    grow(job, {"a": 1, "b": 1})
    job.ask(first).result(LIMIT_S)
    new = job.wait_for(2)[1]
    first.commands.put(1)
    ask(job, new, has_state=False).result(LIMIT_S)
    assert "no worker is left that has the state" in job.driver.get_results().error_message
    job.end()


def test_a_worker_of_the_first_generation_has_the_state_that_all_begin_with() -> None:
    job = ScriptedJob({"a": 1, "b": 1})
    first, second = job.start(2)
    first.commands.put(1)
    assert ask(job, second, has_state=False).result(LIMIT_S)[0].rank == 0
    job.end()


def test_a_worker_that_has_had_the_state_once_has_it() -> None:
    job = ScriptedJob({"a": 1})
    (first,) = job.start(1)
    grow(job, {"a": 1, "b": 1})
    job.ask(first).result(LIMIT_S)
    new = job.wait_for(2)[1]
    first.commands.put(1)
    assert ask(job, new, has_state=True).result(LIMIT_S)[0].rank == 0
    job.end()
