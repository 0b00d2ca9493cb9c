"""Process sets: groups of some ranks, which are declared for every generation or added by the script."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from collective_ranks import DEADLINE_S, MemoryStore, add, form_set, groups, on_all, registries
from waiting import until

from paddle_base.runtime.errors import ConfigError
from paddle_cluster.elastic.collectives.forming import form
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.joining import GroupPlan
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction
from paddle_cluster.elastic.errors import CollectiveMismatchError, HorovodInternalError
from paddle_cluster.elastic.process.set_registry import ProcessSet, SetRegistry


def total(process_set: ProcessSet, value: float = 1.0) -> float:
    return float(add(process_set.group, np.full(1, value))[0])


def test_a_set_has_the_ranks_of_the_job_and_numbers_of_its_own() -> None:
    def work(registry: SetRegistry) -> tuple:
        one = registry.add([3, 0, 1])
        own = (one.ranks, one.process_set_id, one.size(), one.included(), one.rank())
        assert repr(one) == "ProcessSet(process_set_id=1, ranks=[0, 1, 3])"
        if one.included():
            return (*own, total(one, float(registry.whole.group.rank)))
        with pytest.raises(ValueError, match="this rank is not a member of the process set 1"):
            _ = one.group
        return own

    with registries(4) as made:
        found = on_all(made, work)
    assert found == [
        ([0, 1, 3], 1, 3, True, 0, 4.0),
        ([0, 1, 3], 1, 3, True, 1, 4.0),
        ([0, 1, 3], 1, 3, False, None),
        ([0, 1, 3], 1, 3, True, 2, 4.0),
    ]


def test_declared_sets_have_their_numbers_in_order_and_the_set_of_all_ranks_is_0() -> None:
    def work(registry: SetRegistry) -> float:
        whole = registry.whole
        assert (whole.process_set_id, whole.ranks, whole.size(), whole.included()) == (0, [0, 1, 2], 3, True)
        one, two = registry._static
        assert (one.process_set_id, two.process_set_id) == (1, 2)
        with pytest.raises(ValueError, match="the process sets of this job are fixed"):
            registry.add([0])
        assert registry.remove(whole) is False
        return sum(total(each) for each in (one, two, whole) if each.included())

    with registries(3, [[0, 2], [1, 2]]) as made:
        assert on_all(made, work) == [5.0, 5.0, 7.0]


def test_a_set_that_not_all_ranks_add_is_an_error_on_all_of_them() -> None:
    def work(registry: SetRegistry) -> list[str]:
        rank, texts = registry.whole.group.rank, []
        for ranks in ([0, 1] if rank else [0, 2], [0, 7], [2, 1, 0]):
            with pytest.raises(ValueError, match="process set") as caught:
                registry.add(ranks)
            texts.append(str(caught.value))
        first = registry.add([0, 1])
        with pytest.raises(ValueError, match=r"Attempted to add a duplicate process set: \[0, 1\]"):
            registry.add(ProcessSet([1, 0]))
        assert first.process_set_id == 1
        return texts

    with registries(3) as made:
        found = on_all(made, work)
    assert found == [found[0]] * 3
    assert "rank 0 calls add [0, 2], and rank 1 calls add [0, 1]" in found[0][0]
    assert "has a rank that this job of 3 ranks lacks" in found[0][1]
    assert "duplicate" in found[0][2]


def test_a_removed_set_is_gone_and_its_number_is_not_used_again() -> None:
    def work(registry: SetRegistry) -> int | None:
        one = registry.add([0, 1])
        assert registry.remove(one) is True
        assert registry.remove(one) is False
        assert (one.process_set_id, one.size(), one.rank(), one.included()) == (None,) * 4
        with pytest.raises(ValueError, match="is not registered"):
            _ = one.group
        assert total(registry.whole) == 3.0
        return registry.add(one).process_set_id

    with registries(3) as made:
        assert on_all(made, work) == [2] * 3


def test_a_set_is_removed_while_a_collective_of_it_waits_and_the_others_go_on() -> None:
    """The rank that waited counted the one that had left as lost, and ended the group of all ranks."""

    def work(registry: SetRegistry) -> float:
        one = registry.add([0, 1])
        if registry.whole.group.rank == 1:
            group = one.group
            handle = group.submit(CollectiveKind.ALLREDUCE, np.ones(1), name="alone", argument=Reduction.SUM)
            group.start()
            inner = group.leave

            def leave(*deadline: float) -> None:
                until(lambda: handle.is_done, "the end of rank 0")
                inner(*deadline)

            group.leave = leave  # type: ignore[method-assign,assignment]
            registry.remove(one)
            with pytest.raises(HorovodInternalError, match="rank 0 has left"):
                group.wait(handle)
        else:
            registry.remove(one)
        return total(registry.whole)

    with registries(3) as made:
        assert on_all(made, work) == [3.0] * 3


def test_ranks_may_wait_for_two_sets_in_different_orders() -> None:
    """Rank 1 waited for the set, and rank 0 for the whole job, and nobody ran the other's request."""

    def work(registry: SetRegistry) -> list[float]:
        one = registry.add([0, 1])
        both = [each.group for each in (registry.whole, one) if each.included()]
        handles = [group.submit(CollectiveKind.ALLREDUCE, np.ones(1), argument=Reduction.SUM) for group in both]
        pairs = list(zip(both, handles, strict=True))
        if one.rank():
            pairs.reverse()
        return [float(group.wait(handle)[0]) for group, handle in pairs]

    with registries(3) as made:
        assert on_all(made, work) == [[3.0, 2.0], [2.0, 3.0], [3.0]]


def test_a_request_for_one_set_runs_while_a_thread_waits_in_another_one() -> None:
    with registries(3) as made:
        sets = on_all(made, lambda registry: registry.add([0, 1]))
        with ThreadPoolExecutor(2) as threads:
            waits = [threads.submit(total, made[rank].whole) for rank in (0, 2)]
            until(lambda: made[0].whole.group._driving.locked(), "the wait in the set of all ranks")
            handle = sets[0].group.submit(CollectiveKind.ALLREDUCE, np.ones(1), argument=Reduction.SUM)
            assert total(sets[1]) == 2.0
            until(lambda: handle.is_done, "the request that nobody waits for")
            assert [total(made[1].whole), *(one.result(DEADLINE_S) for one in waits)] == [3.0] * 3


class LockWithHook:
    """A lock before whose first acquisition something happens."""

    def __init__(self, inner: Any, hook: Callable[[], None]) -> None:
        self._inner, self._hooks = inner, [hook]
        self.locked, self.release = inner.locked, inner.release

    def acquire(self, **more: Any) -> bool:
        while self._hooks:
            self._hooks.pop()()
        return bool(self._inner.acquire(**more))


def test_a_request_that_comes_as_a_thread_begins_to_wait_in_another_set_runs() -> None:
    """Nobody ran it: the thread had looked for it before, and the request came before the thread held the lock."""
    with registries(3) as made:
        sets = on_all(made, lambda registry: registry.add([0, 1]))
        whole, ones, handles = made[0].whole.group, np.ones(1), []

        def ask() -> None:
            group = sets[0].group
            handles.append(group.submit(CollectiveKind.ALLREDUCE, ones, name="late", argument=Reduction.SUM))

        whole._driving = LockWithHook(whole._driving, ask)  # type: ignore[assignment]
        with ThreadPoolExecutor(3) as threads:
            waits = [threads.submit(total, made[0].whole)]
            assert add(sets[1].group, ones, name="late").tolist() == [2.0]
            waits += [threads.submit(total, one.whole) for one in made[1:]]
            assert [one.result(DEADLINE_S) for one in waits] == [3.0] * 3


@pytest.mark.parametrize("where", ["set", "whole"])
def test_a_lost_rank_ends_the_sets_that_it_is_in_and_the_group_of_all_ranks(where: str) -> None:
    def work(registry: SetRegistry) -> list[str]:
        one = registry.add([1, 2])
        lost = [one, registry.whole] if where == "set" else [registry.whole, one]
        if registry.whole.group.rank == 2:
            for each in lost:
                for peer in each.group._mesh.peers.values():
                    peer.connection.stream.shutdown(2)
            return []
        texts = []
        for each in lost:
            if each.included():
                with pytest.raises(HorovodInternalError) as caught:
                    total(each)
                texts.append(str(caught.value))
        return texts

    with registries(3) as made:
        texts = on_all(made, work)
    assert [len(one) for one in texts] == [1, 2, 0]


def test_whoever_waits_in_a_set_hears_that_the_job_has_ended() -> None:
    """A thread waited in a set whose other ranks had ended the group of all ranks, and had left nothing else."""
    with registries(3) as made:
        sets = on_all(made, lambda registry: registry.add([0, 1]))
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(total, sets[0])
            until(lambda: sets[0].group._driving.locked(), "the wait in the set")
            made[2].whole.group.leave()
            with pytest.raises(HorovodInternalError, match="rank 2"):
                total(made[0].whole)
            with pytest.raises(HorovodInternalError, match="rank 2"):
                waits.result(DEADLINE_S)


def test_whoever_waits_in_a_set_hears_of_the_end_from_a_rank_that_does_not_wait_in_it() -> None:
    """Rank 1 waited for ever, because rank 0 heard of the end in the set of all ranks, and told nobody in the other."""
    with registries(3) as made:
        sets = on_all(made, lambda registry: registry.add([0, 1]))
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(total, sets[1])
            until(lambda: sets[1].group.is_driven, "the wait in the set")
            made[2].whole.group.leave()
            with pytest.raises(HorovodInternalError, match="rank 2"):
                total(made[0].whole)
            with pytest.raises(HorovodInternalError, match="rank 2"):
                waits.result(DEADLINE_S)


def test_a_rank_that_has_joined_adds_no_set() -> None:
    def work(registry: SetRegistry) -> int:
        if registry.whole.group.rank:
            with pytest.raises(CollectiveMismatchError, match="rank 0 joined"):
                registry.add([0, 1])
        return registry.whole.group.join()

    with registries(2) as made:
        assert on_all(made, work) == [1, 1]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_set_that_one_of_its_members_cannot_form_is_an_error_on_all_ranks(failing: int) -> None:
    """The others went on with the set, or without it, and heard of the failure only in one of their collectives."""

    def work(registry: SetRegistry) -> str:
        if registry.whole.group.rank == failing:

            def form_none(process_set: ProcessSet, number: int) -> RankGroup:
                raise OSError(24, "Too many open files")

            registry._form = form_none
        with pytest.raises((OSError, HorovodInternalError)) as caught:
            registry.add([0, 1])
        return str(caught.value)

    with registries(3) as made:
        texts = on_all(made, work)
    assert all("Too many open files" in text for text in texts), texts


def test_an_idle_set_has_no_thread() -> None:
    with registries(3) as made:
        before = threading.active_count()
        sets = [on_all(made, lambda registry, ranks=ranks: registry.add(ranks)) for ranks in ([0, 1], [1, 2], [0, 2])]
        on_all(made, lambda registry: [total(one[0]) for one in []])
        until(lambda: threading.active_count() <= before, "the end of the threads that have formed the sets")
        assert len(sets) == 3


def test_a_generation_forms_the_declared_sets_whose_ranks_it_has_and_forgets_the_others() -> None:
    declared = [[0, 1], [1, 2]]
    with groups(2) as made:
        store = MemoryStore()

        def work(group: RankGroup) -> tuple:
            registry = SetRegistry()
            sets = [ProcessSet(ranks) for ranks in declared]
            registry.declare(sets, is_dynamic=True)
            registry.begin(group, lambda one, n: form_set(group, one, n, store), may_lack_ranks=True)
            added = registry.add([1])
            found = ([one.process_set_id for one in sets], added.process_set_id)
            registry.end()
            return (*found, added.process_set_id, [one.process_set_id for one in sets])

        assert on_all(made, work) == [([1, None], 2, None, [None, None])] * 2
    with groups(3) as made:
        store = MemoryStore()

        def again(group: RankGroup) -> list[int | None]:
            registry = SetRegistry()
            registry.declare([ProcessSet(ranks) for ranks in declared], is_dynamic=False)
            registry.declare(None, is_dynamic=False)
            registry.begin(group, lambda one, n: form_set(group, one, n, store), may_lack_ranks=True)
            numbers = [one.process_set_id for one in registry._static]
            registry.end()
            return numbers

        assert on_all(made, again) == [[1, 2]] * 3


def test_a_fixed_job_refuses_a_declared_set_whose_ranks_it_lacks() -> None:
    registry = SetRegistry()
    registry.declare([ProcessSet([0, 3])], is_dynamic=False)
    with groups(1) as (group,), pytest.raises(ValueError, match=r"\[0, 3\] has a rank that this job of 1 ranks lacks"):
        registry.begin(group, lambda one, number: group)


def test_ranks_that_declare_different_sets_form_no_group() -> None:
    store = MemoryStore()

    def work(rank: int) -> str:
        registry = SetRegistry()
        registry.declare([ProcessSet([rank])] if rank else "dynamic", is_dynamic=False)
        with pytest.raises(ConfigError) as caught:
            form(GroupPlan(rank, 2, "g", timeout=DEADLINE_S, terms=registry.terms), store)
        return str(caught.value)

    assert all("let every rank call hvd.init with the same process_sets" in text for text in on_all([0, 1], work))


def test_what_is_no_process_set_is_refused() -> None:
    for ranks in ([], [1, 1], [-1, 2]):
        with pytest.raises(ValueError, match="give different ranks"):
            ProcessSet(ranks)
    for ranks in (["a"], [0.5], None):
        with pytest.raises(TypeError):
            ProcessSet(ranks)  # type: ignore[arg-type]
    registry = SetRegistry()
    for sets, error in (([[0, 1]], TypeError), ("some", ValueError), ([ProcessSet([0]), ProcessSet([0])], ValueError)):
        with pytest.raises(error):
            registry.declare(sets, is_dynamic=False)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="init"):
        _ = registry.whole.group
    whole = registry.whole
    assert (whole.process_set_id, whole.ranks, whole.size(), whole.rank(), whole.included()) == (
        0,
        [],
        None,
        None,
        None,
    )
