"""Learning-rate schedules by their formulas, and what they say in the log."""

import pytest
from each import each

from paddle_base.runtime.errors import ConfigError
from pserver.optim.schedules import Schedule, check_schedule, is_constant, scheduled_rate
from pserver.optim.settings import Optimization


@each(
    "schedule, a, b, args, samples, passes, expected",
    [
        ("constant", 5, 5, "", 100, 3, 0.5),
        ("poly", 0, 0, "", 100, 0, 0.5),
        ("poly", 0.01, 0.5, "", 300, 0, 0.5 * 4**-0.5),
        ("caffe_poly", 400, 2, "", 100, 0, 0.5 * 0.75**2),
        ("caffe_poly", 400, 2, "", 400, 0, 0.0),
        ("caffe_poly", 400, 2, "", 401, 0, 0.0),
        ("exp", 0.5, 100, "", 150, 0, 0.5 * 0.5**1.5),
        ("discexp", 0.5, 100, "", 199, 0, 0.25),
        ("discexp", 0.5, 100, "", 200, 0, 0.125),
        ("linear", 0.001, 0.1, "", 100, 0, 0.4),
        ("linear", 0.001, 0.1, "", 1000, 0, 0.1),
        ("manual", 0, 0, "100:1,200:0.5,300:0.25", 100, 0, 0.5),
        ("manual", 0, 0, "100:1,200:0.5,300:0.25", 101, 0, 0.25),
        ("manual", 0, 0, "100:1,200:0.5,300:0.25", 999, 0, 0.125),
        ("pass_manual", 0, 0, "0:1,2:0.5", 999, 0, 0.5),
        ("pass_manual", 0, 0, "0:1,2:0.5", 999, 2, 0.25),
        ("pass_manual", 0, 0, "0:1,2:0.5", 999, 7, 0.25),
    ],
)
def test_schedules_follow_their_formula(schedule, a, b, args, samples, passes, expected):
    settings = Optimization("momentum", 0.5, schedule, a, b, args)
    check_schedule(settings)
    assert scheduled_rate(settings, samples, passes) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "settings, part",
    [
        (Optimization(learning_rate_schedule="cosine"), "cosine"),
        (Optimization(learning_rate_schedule="manual", learning_rate_args="100"), "learning_rate_args"),
        (Optimization(learning_rate_schedule="manual", learning_rate_args="200:1,100:2"), "must not decrease"),
        (Optimization(learning_rate_schedule="exp"), "decay_b"),
        (Optimization(learning_rate_schedule="caffe_poly"), "decay_a"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_impossible_schedule_is_named(settings, part):
    with pytest.raises(ConfigError, match=part):
        check_schedule(settings)


@pytest.mark.parametrize(
    "schedule, a, b, rate",
    [("exp", 2, 1e-3, "inf"), ("exp", -0.5, 3, "nan"), ("poly", -1, 0.5, "nan"), ("discexp", 0, -1, "nan")],
)
def test_a_rate_that_is_no_number_is_named(schedule, a, b, rate):
    with pytest.raises(ConfigError, match=f"schedule '{schedule}' gives the rate {rate} after 10 samples"):
        scheduled_rate(Optimization("momentum", 0.5, schedule, a, b), 10, 0)


def changes(schedule, positions, capsys):
    """The rates at these positions, and the lines about changes."""
    rates = [schedule.rate(*position) for position in positions]
    return rates, [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]


def test_a_manual_schedule_says_when_it_enters_its_next_segment(capsys):
    schedule = Schedule(Optimization("momentum", 0.5, "manual", learning_rate_args="10:1,20:0.5,30:0.25"))
    rates, lines = changes(schedule, [(10, 0), (11, 0), (20, 0), (21, 0), (31, 0), (99, 0)], capsys)
    assert rates == [0.5, 0.25, 0.25, 0.125, 0.125, 0.125]
    assert lines == [" learning_rate changes to 0.25", " learning_rate changes to 0.125"]


def test_every_segment_that_a_large_batch_jumps_over_has_its_line(capsys):
    schedule = Schedule(Optimization("momentum", 1, "pass_manual", learning_rate_args="0:1,1:0.5,2:0.25"))
    assert changes(schedule, [(5, 0), (10, 2)], capsys)[1] == [
        " learning_rate changes to 0.5",
        " learning_rate changes to 0.25",
    ]


def test_the_end_of_caffe_poly_is_warned_of_once(capsys):
    schedule = Schedule(Optimization("momentum", 1.0, "caffe_poly", 10, 1))
    rates, lines = changes(schedule, [(5, 0), (10, 0), (20, 0)], capsys)
    assert rates == [0.5, 0, 0] and len(lines) == 1 and "the learning rate is 0" in lines[0]


@pytest.mark.parametrize(
    "settings, constant",
    [
        (Optimization(), True),
        (Optimization(learning_rate_schedule="poly"), True),
        (Optimization(learning_rate_schedule="poly", learning_rate_decay_a=0.1), True),
        (Optimization(learning_rate_schedule="poly", learning_rate_decay_a=0.1, learning_rate_decay_b=0.1), False),
        (Optimization(learning_rate_schedule="exp", learning_rate_decay_b=1), False),
    ],
)
def test_which_schedules_never_change_the_rate(settings, constant):
    """A constant rate is computed at the first step only, and is the rate of every later step."""
    assert is_constant(settings) is constant
    schedule = Schedule(settings)
    for samples in (1, 10, 1 << 40):
        assert schedule.rate(samples, 0) == scheduled_rate(settings, samples, 0)
