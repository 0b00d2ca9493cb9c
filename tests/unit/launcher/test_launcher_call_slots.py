"""Calls of all launchers of a job stay below 200 in any second: by their slots, not by chance."""

from __future__ import annotations

import bisect
import random

import pytest

from paddle_cluster.launcher.cluster.call_slots import (
    ALONE,
    CALLS_PER_SECOND,
    FEW,
    LATE_S,
    SLOTS_PER_SECOND,
    CallSlots,
    Pacer,
    make_slots,
)

BEGAN = 1_763_800_000.0  # seconds since the epoch


class Clock:
    """Time that passes while one sleeps; `late` more than was asked for."""

    def __init__(self, late: float = 0.0) -> None:
        self.now, self.late = BEGAN, late

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds + self.late


def busiest_second(calls: list[float]) -> int:
    """The most calls that any window of one second has."""
    calls = sorted(calls)
    return max(bisect.bisect_left(calls, call + 1.0) - at for at, call in enumerate(calls))


def call_as_fast_as_allowed(
    index: int | None, members: int, seconds: float, rng: random.Random, slots: CallSlots | None = None
) -> list[float]:
    """The moments of one launcher's calls; it oversleeps by up to LATE_S and begins at any time."""
    clock = Clock()
    clock.now += rng.uniform(0, 1)
    pacer, calls = Pacer(slots or make_slots(index, members, rng), clock, clock.sleep), []
    while clock.now < BEGAN + seconds:
        clock.late = rng.uniform(0, LATE_S)
        pacer.wait()
        calls.append(clock.now)
    return calls


@pytest.mark.parametrize("members", [1, 3, 100, 1000])
def test_no_second_has_200_calls_however_often_the_launchers_ask(members):
    rng = random.Random(members)
    calls = [call for index in range(members) for call in call_as_fast_as_allowed(index, members, 12.0, rng)]
    assert 100 < busiest_second(calls) < CALLS_PER_SECOND


def test_clocks_that_differ_by_25_ms_change_nothing():
    rng = random.Random(0)
    skew = [rng.choice((-0.0125, 0.0125)) for _ in range(400)]
    calls = [call + skew[index] for index in range(400) for call in call_as_fast_as_allowed(index, 400, 10.0, rng)]
    calls += call_as_fast_as_allowed(0, 400, 10.0, rng, ALONE)
    assert busiest_second(calls) < CALLS_PER_SECOND


def test_without_an_index_the_bound_holds_with_room():
    rng = random.Random(7)
    calls = [call for _ in range(1000) for call in call_as_fast_as_allowed(None, 1000, 30.0, rng)]
    assert busiest_second(calls) < CALLS_PER_SECOND


def test_every_launcher_has_a_place_of_its_own():
    slots = [make_slots(index, 300, random.Random(0)) for index in range(300)]
    assert len({one.place for one in slots}) == 300 and {one.period_s for one in slots} == {300 / SLOTS_PER_SECOND}


def test_while_the_number_of_pods_is_not_known_their_first_calls_keep_the_rate_too():
    rng = random.Random(3)
    calls = []
    for index in range(1000):
        clock = Clock()
        Pacer(make_slots(index, None, rng), clock, clock.sleep).wait()
        calls.append(clock.now)
    assert busiest_second(calls) < CALLS_PER_SECOND
    assert max(calls[:FEW]) - BEGAN < 0.1  # a small job does not wait for it


def test_an_index_beyond_the_members_has_slots_too():
    assert make_slots(7, 4, random.Random(0)) == make_slots(7, 8, random.Random(0))


def test_a_launcher_that_wakes_late_leaves_its_slot_out():
    clock = Clock(late=0.3)
    pacer = Pacer(CallSlots(0.0, 1.0), clock, clock.sleep)
    clock.now = BEGAN + 0.5
    seen = []

    def sleep(seconds: float) -> None:
        seen.append(seconds)
        clock.late = 0.3 if len(seen) == 1 else 0.0
        clock.now += seconds + clock.late

    pacer.sleep = sleep
    pacer.wait()
    assert clock.now == BEGAN + 2.0  # woke at 1.3, beyond the slot of second 1
    assert len(seen) == 2


def test_a_slot_has_one_call():
    clock = Clock()
    pacer = Pacer(CallSlots(0.25, 0.5), clock, clock.sleep)
    moments = []
    for _ in range(4):
        pacer.wait()
        moments.append(clock.now - BEGAN)
    assert moments == [0.125, 0.625, 1.125, 1.625]


def test_a_clock_that_is_put_back_costs_at_most_two_periods():
    clock = Clock()
    pacer = Pacer(CallSlots(0.0, 1.0), clock, clock.sleep)
    pacer.wait()
    clock.now -= 3600
    began = clock.now
    pacer.wait()
    assert clock.now - began <= 2.0
