"""Who holds up the rounds: the line of every log period, and the warning about a round that takes too long."""

import pytest

from pserver.server.service import STALL_PERIOD
from pserver.server.stragglers import BarrierLog, Stragglers


def test_the_slowest_is_the_one_that_the_others_waited_for_longest():
    late = Stragglers()
    late.add({0: 1.0, 1: 1.5, 2: 1.2})
    late.add({0: 2.25, 1: 2.0, 2: 2.0})
    late.add({0: 3.0, 1: 3.1, 2: 3.0})
    text = late.describe({0: "trainer 0", 1: "trainer 1"}, {0: 3.0, 1: 3.1}, 4.0)
    assert text.startswith(
        "slowest is trainer 1: last in 2 of 3 rounds, delayed the others by 0.400 s in all, 0.300 s at most"
    )


def test_the_end_of_a_pass_names_who_is_the_last_one_too_often():
    late = Stragglers()
    for last in (1, 1, 2, 1):
        late.add({number: float(number == last) for number in range(3)})
    late.begin_period()
    text = late.describe_pass(BarrierLog(), 3)
    assert text.startswith(
        "4 rounds of 3 trainers: trainer 1 last in 3, delayed the others by 3.000 s in all, 1.000 s at most; "
    )
    assert late.describe_pass(BarrierLog(most_trainers=1), 3).count("trainer ") == 1
    assert late.describe_pass(BarrierLog(is_on=False), 3) == late.describe_pass(BarrierLog(), 2) == ""
    for last in (2, 2, 0, 0):  # the shares are now 2, 3 and 3 of 8 rounds, and 0.427 is too often
        late.add({number: float(number == last) for number in range(3)})
    assert late.describe_pass(BarrierLog(), 3) == "" != late.describe_pass(BarrierLog(is_always=True), 3)
    late.begin_pass()
    assert late.describe_pass(BarrierLog(is_always=True), 3) == ""


def test_the_rate_that_is_too_often_is_that_of_the_original():
    """Recorded: `warning rate: 0.583333` with two trainers (qs_lr_dist_2ps)."""
    assert f"{BarrierLog().warning_rate(2):g}" == "0.583333"


def test_alone_nobody_is_waited_for():
    late = Stragglers()
    late.add({0: 1.0})
    assert late.describe({0: "trainer 0"}, {0: 1.0}, 2.0) == "1 rounds, and no trainer kept the others waiting"


def test_every_log_period_names_the_slowest_trainer_its_age_and_the_wait(wire, capsys):
    wire = wire(2, log_period=2)
    one, two = wire.ready()
    for _ in range(2):
        one.push(1)
        wire.now += 1.25
        two.push(1)
    lines = [line for line in capsys.readouterr().err.splitlines() if "slowest" in line]
    assert len(lines) == 1
    assert (
        "trainer 1 at 10.0.0.9: last in 2 of 2 rounds, delayed the others by 2.500 s in all, 1.250 s at most"
        in lines[0]
    )
    assert lines[0].endswith("its last push was 0.000 s ago")


def test_a_round_that_stalls_names_who_has_not_pushed_once_a_period(wire, capsys):
    wire = wire(3, peer_timeout=1e6)
    one, _, three = wire.ready()
    wire.check(later=10 * STALL_PERIOD)
    assert "waits for" not in capsys.readouterr().err  # nobody has pushed: all may be computing
    one.push(1)
    three.push(1)
    wire.check(later=STALL_PERIOD - 1)
    assert "waits for" not in capsys.readouterr().err
    wire.check(later=2)
    warned = capsys.readouterr().err
    assert "batch 1 of the pass waits for trainer 1 at 10.0.0.9, which last asked for the start of a pass" in warned
    assert "trainer 0" not in warned and "trainer 2" not in warned
    wire.check(later=1)
    assert "waits for" not in capsys.readouterr().err
    wire.check(later=STALL_PERIOD)
    assert "waits for" in capsys.readouterr().err


@pytest.mark.parametrize("pushes", [1, 2])
def test_a_round_that_is_over_does_not_stall(wire, capsys, pushes):
    wire = wire(1, peer_timeout=1e6)
    (one,) = wire.ready()
    for _ in range(pushes):
        one.push(1)
    wire.check(later=2 * STALL_PERIOD)
    assert "waits for" not in capsys.readouterr().err
