"""Any course of collectives in processes, one of which is killed or frozen in one of its waits.

`test_any_course.py` has the course, and threads in place of processes, whose connections it cuts.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Sequence

import pytest
from collective_ranks import DEADLINE_S
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from ports import free_ports
from test_any_course import Course, Walker, courses

from paddle_cluster.elastic.collectives.forming import form
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.joining import GroupPlan
from paddle_cluster.elastic.collectives.mesh import Mesh
from paddle_cluster.elastic.collectives.stalls import Patience
from paddle_cluster.elastic.process.set_registry import DYNAMIC, ProcessSet, SetRegistry

SILENCE_S = 2.0


class PortTable:
    """Knows the port of each rank in each group beforehand, in place of a store."""

    def __init__(self, size: int, groups: int) -> None:
        ports = free_ports(size * groups)
        self.ports = [ports[first : first + size] for first in range(0, len(ports), size)]

    def put(self, scope: str, key: str, value: bytes) -> None:
        """Keeps nothing."""

    def get(self, scope: str, key: str, wait: float = 0.0) -> bytes | None:
        """The address of a rank; `scope` is the number of the group."""
        if not key.isdigit():
            return None
        return json.dumps({"host": "127.0.0.1", "port": self.ports[int(scope)][int(key)]}).encode()


class MortalWalker(Walker):
    """A rank that sends itself a signal in one of its waits."""

    way = signal.SIGKILL

    def _end(self, meshes: Sequence[Mesh]) -> None:
        os.kill(os.getpid(), self.way)


def walk(course: Course, rank: int, table: PortTable, way: signal.Signals) -> str:
    """Returns "end", or the error of a lost rank."""
    near = None if course.with_memory is True else [0, 1] if course.with_memory and rank < 2 else ()
    patience = Patience(silence=SILENCE_S if way == signal.SIGSTOP else DEADLINE_S)

    def join(place: int, size: int, number: int, beside: RankGroup | None = None) -> RankGroup:
        plan = GroupPlan(place, size, str(number), secret="s", timeout=DEADLINE_S, port=table.ports[number][place])
        return form(plan, table, patience, near=near if beside is None else None, beside=beside)

    registry = SetRegistry()
    registry.declare(DYNAMIC, is_dynamic=True)
    whole = join(rank, course.size, 0)

    def form_set(one: ProcessSet, number: int) -> RankGroup:
        return join(one.ranks.index(rank), len(one.ranks), number, whole)

    registry.begin(whole, form_set)
    walker = MortalWalker(registry, course)
    walker.way = way
    return walker.walk()


def run_in_processes(course: Course, way: signal.Signals) -> list[str]:
    """Returns what each rank says at its end; "" of a rank that is killed."""
    table = PortTable(course.size, 1 + len(course.steps))
    ranks: dict[int, tuple[int, int]] = {}  # by rank: process, and the pipe from it
    for rank in range(course.size):
        source, sink = os.pipe()
        pid = os.fork()
        if not pid:
            text = ""
            try:
                text = walk(course, rank, table, way)
            except BaseException as exc:
                text = f"rank {rank}: {type(exc).__name__}: {exc}"
            finally:
                os.write(sink, text.encode())
                os._exit(0)
        os.close(sink)
        ranks[rank] = pid, source
    try:
        return [_read(source, rank, course) for rank, (_, source) in ranks.items()]
    finally:
        for pid, source in ranks.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(source)


def _read(source: int, rank: int, course: Course) -> str:
    """Returns what a rank says; "" of a rank that was killed, or is frozen."""
    is_mortal = course.loss is not None and course.loss[0] == rank
    until = time.monotonic() + (0.0 if is_mortal else DEADLINE_S)
    while not select.select([source], [], [], max(0.0, until - time.monotonic()))[0]:
        if is_mortal:
            return ""
        assert time.monotonic() < until, f"rank {rank} does not end"
    return os.read(source, 1 << 16).decode()


# more courses with a loss than by `courses` alone, and in earlier waits, of which most courses have few
MOMENTS = st.tuples(st.integers(0, 4), st.integers(0, 8))


def check(course: Course, moment: tuple[int, int], way: signal.Signals) -> None:
    course = course._replace(loss=(moment[0] % course.size, moment[1]))
    ends = run_in_processes(course, way)
    survivors = [text for rank, text in enumerate(ends) if rank != moment[0] % course.size]
    event("to the end" if set(survivors) == {"end"} else "lost")
    for text in survivors:
        assert text == "end" or "lost" in text or "left" in text, text


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(courses(), MOMENTS)
def test_every_process_gets_what_is_right_or_the_error_when_one_is_killed(
    course: Course, moment: tuple[int, int]
) -> None:
    check(course, moment, signal.SIGKILL)


@pytest.mark.nightly
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(courses(), MOMENTS)
def test_every_process_gets_what_is_right_or_the_error_when_one_is_frozen(
    course: Course, moment: tuple[int, int]
) -> None:
    check(course, moment, signal.SIGSTOP)
