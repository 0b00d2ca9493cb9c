"""Any course of collectives, groups, process sets and joins, in which a rank may be lost at any moment.

Every rank submits the requests of a step in its own order, and waits for them in its own order. Whatever a rank gets is
right. If a rank is lost, every rank gets to the end, or an error; no rank waits for ever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from collective_ranks import on_all, registries
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.mesh import Mesh
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction, split_evenly
from paddle_cluster.elastic.errors import CollectiveMismatchError, HorovodInternalError
from paddle_cluster.elastic.process.set_registry import ProcessSet, SetRegistry

REDUCTIONS = (Reduction.SUM, Reduction.MIN, Reduction.MAX)
LENGTHS = (0, 1, 3, 100, 70_000)  # elements: with the announcement, along a tree, and in pieces or around a ring


class Call(NamedTuple):
    """A request of every member of a set. `parts`: lengths of its arrays; more or less than one makes it a group."""

    kind: CollectiveKind
    parts: tuple[int, ...]
    argument: int
    is_in_set: bool


class Step(NamedTuple):
    """A step of a course; the fields after the first are those of the kind.

    kind: "calls" in any order, "joins" after `counts[rank]` all-reduces of each rank, "add" or "remove" a set.
    """

    kind: str
    calls: tuple[Call, ...] = ()
    counts: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    seed: int = 0


class Course(NamedTuple):
    """Steps of `size` ranks. `loss`: rank that is lost, and in which of its waits; None: no rank is lost."""

    size: int
    with_memory: bool | list[set[int]]
    steps: list[Step]
    loss: tuple[int, int] | None


@st.composite
def courses(draw: st.DrawFn) -> Course:
    size = draw(st.integers(2, 5))
    ranks = st.integers(0, size - 1)
    part = st.lists(st.sampled_from(LENGTHS), max_size=3).map(tuple) | st.sampled_from([(one,) for one in LENGTHS])
    reduce = st.builds(Call, st.just(CollectiveKind.ALLREDUCE), part, st.sampled_from(REDUCTIONS), st.booleans())
    gather = st.builds(Call, st.just(CollectiveKind.ALLGATHER), part, st.just(0), st.booleans())
    cast = st.builds(Call, st.just(CollectiveKind.BROADCAST), part, st.just(0), st.booleans())
    scatter = st.builds(Call, st.just(CollectiveKind.REDUCESCATTER), part, st.just(Reduction.SUM), st.booleans())
    one_part = st.sampled_from([(one,) for one in LENGTHS])
    exchange = st.builds(Call, st.just(CollectiveKind.ALLTOALL), one_part, st.just(0), st.booleans())
    calls = st.lists(reduce | gather | cast | scatter | exchange, max_size=6).map(tuple)
    seed = st.integers(0, 99)
    step = st.one_of(
        st.builds(Step, st.just("calls"), calls, seed=seed),
        st.builds(Step, st.just("joins"), counts=st.tuples(*[st.integers(0, 3)] * size), seed=seed),
        st.builds(Step, st.just("add"), ranks=st.sets(ranks, min_size=1).map(tuple)),
        st.just(Step("remove")),
    )
    loss = draw(st.none() | st.tuples(ranks, st.integers(0, 30)))
    with_memory = draw(st.sampled_from([True, False, [{0, 1}]]))
    return Course(size, with_memory, draw(st.lists(step, min_size=1, max_size=6)), loss)


class Walker:
    """A rank on its way through a course."""

    def __init__(self, registry: SetRegistry, course: Course) -> None:
        self.registry, self.course = registry, course
        self.rank = registry.whole.group.rank
        self.added: list[ProcessSet] = []
        self.waits = 0

    def walk(self) -> str:
        """Returns "end", or the error of a lost rank."""
        try:
            for place, step in enumerate(self.course.steps):
                self._arm()
                getattr(self, f"_{step.kind}")(place, step)
        except HorovodInternalError as exc:
            assert self.course.loss is not None, f"rank {self.rank}: {exc}"
            return str(exc)
        finally:
            self.registry.end()
        return "end"

    def _arm(self) -> None:
        """Close all connections of the rank that is to be lost in one of its waits for the network."""
        if self.course.loss is None or self.course.loss[0] != self.rank:
            return
        meshes = [one.group._mesh for one in [self.registry.whole, *self.added] if one.included()]
        for mesh in meshes:
            mesh.turn = self._lose_at(meshes, type(mesh).turn.__get__(mesh))  # type: ignore[method-assign]

    def _lose_at(self, meshes: Sequence[Mesh], inner: Callable[[float], bool]) -> Callable[[float], bool]:
        def turn(timeout: float) -> bool:
            self.waits += 1
            if self.course.loss is not None and self.waits > self.course.loss[1]:
                self._end(meshes)
            return inner(timeout)

        return turn

    def _end(self, meshes: Sequence[Mesh]) -> None:
        for mesh in meshes:
            _close(mesh)

    def _calls(self, place: int, step: Step) -> None:
        order = np.random.default_rng([step.seed, self.rank]).permutation(len(step.calls))
        waiting = []
        for number in order:
            call = step.calls[number]
            one = self.added[-1] if call.is_in_set and self.added else self.registry.whole
            if one.included():
                arrays = [make(one.ranks.index(self.rank), number, length) for length in call.parts]
                waiting.append((call, number, one, submit(one.group, call, arrays, f"{place}.{number}")))
        for place_of in np.random.default_rng([step.seed, self.rank, 1]).permutation(len(waiting)):
            call, number, one, handle = waiting[place_of]
            for length, found in zip(call.parts, one.group.wait_group(handle), strict=True):
                every = [make(rank, number, length) for rank in range(len(one.ranks))]
                np.testing.assert_array_equal(found, expect(call, every, one.ranks.index(self.rank)))

    def _joins(self, _: int, step: Step) -> None:
        group, counts = self.registry.whole.group, step.counts
        for number in range(counts[self.rank]):
            if step.seed % 3 == number and min(counts) <= number:
                with pytest.raises(CollectiveMismatchError, match="joined"):
                    group.wait(group.submit(CollectiveKind.ALLGATHER, np.ones(1)))
            own = np.full(7, 1.0 + self.rank)
            found = group.wait(group.submit(CollectiveKind.ALLREDUCE, own, argument=Reduction.SUM))
            assert found.tolist() == [sum(1.0 + rank for rank, count in enumerate(counts) if count > number)] * 7
        # a rank announces its join after its last all-reduce, which waits for all that have not joined
        assert counts[group.join()] == max(counts)
        assert group.wait(group.submit(CollectiveKind.ALLREDUCE, np.ones(1), argument=Reduction.SUM))[0] == group.size

    def _add(self, _: int, step: Step) -> None:
        known = [one.ranks for one in [self.registry.whole, *self.added]]
        if sorted(step.ranks) in known:
            with pytest.raises(ValueError, match="duplicate"):
                self.registry.add(step.ranks)
        else:
            self.added.append(self.registry.add(step.ranks))

    def _remove(self, _: int, __: Step) -> None:
        if self.added:
            assert self.registry.remove(self.added.pop())


def _close(mesh: Mesh) -> None:
    for peer in mesh.peers.values():
        with contextlib.suppress(OSError):
            peer.connection.stream.shutdown(2)


def make(rank: int, number: int, length: int) -> np.ndarray:
    return np.arange(length, dtype=np.float32) % 11 + 100.0 * rank + number


def expect(call: Call, every: Sequence[np.ndarray], place: int) -> np.ndarray:
    """The result of the rank at a place of its set."""
    bounds = np.cumsum([0, *split_evenly(len(every[0]), len(every))])
    rows = slice(bounds[place], bounds[place + 1])
    if call.kind == CollectiveKind.ALLTOALL:
        return np.concatenate([array[rows] for array in every])
    if call.kind == CollectiveKind.REDUCESCATTER:
        return np.asarray(np.sum(every, axis=0)[rows])
    if call.kind == CollectiveKind.ALLGATHER:
        return np.concatenate(every)
    if call.kind == CollectiveKind.BROADCAST:
        return every[0]
    functions = {Reduction.SUM: np.sum, Reduction.MIN: np.min, Reduction.MAX: np.max}
    return np.asarray(functions[Reduction(call.argument)](every, axis=0))


def submit(group: RankGroup, call: Call, arrays: list[np.ndarray], name: str) -> Any:
    if call.kind == CollectiveKind.ALLTOALL:
        return group.submit(call.kind, arrays[0], name=name, splits=split_evenly(len(arrays[0]), group.size))
    return group.submit_group(call.kind, arrays, name=name, argument=call.argument)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(courses())
def test_every_rank_gets_what_is_right_or_the_error(course: Course) -> None:
    with registries(course.size, with_memory=course.with_memory) as made:
        ends = on_all(made, lambda registry: Walker(registry, course).walk())
    event("lost" if set(ends) != {"end"} else "to the end")
    if course.loss is None:
        assert ends == ["end"] * course.size
