"""The random stream and the first values, against the vectors of spec/trainer.md 5.4 and config.md 15."""

import math

import numpy as np
import pytest

from trainer.arrays.initializers import fill_normal, fill_uniform, logf
from trainer.arrays.rng import Stream, start_state

VECTORS = {
    1: dict(
        r=[476707713, 1186278907, 505671508, 2137716191],
        log=[-1.50514853, -0.593475342, -1.44616473, -0.00455868617],
        normal=[-1.6418159, -0.56101495, 1.69999063, -0.0485953614, -1.1788733, -1.45803034],
        bits=(0xBFD22706, 0xBFBAA0BD),
        states={6: 675780521, 5: 3535774167, 1: 2516284547},
        uniform=[-0.556031346, 0.104808323, -0.529056728, 0.990903318],
    ),
    0: dict(
        r=[1012484, 1716955679, 1792309082, 229610924],
        log=[-7.65964413, -0.223744005, -0.180791959, -2.2356658],
        normal=[1.19825101, -3.72605467, 0.470652074, 0.374259979, -0.487358242, 1.30304956],
        bits=(0x3F99604A, 0x3FA6CA54),
        states={6: 1538207304, 5: 3866696494, 1: 3256818826},
        uniform=[-0.999057055, 0.599039555, 0.669217885, -0.786158144],
    ),
}


@pytest.mark.parametrize("state", [0, 1])
def test_first_draws_are_the_c_librarys(state):
    assert Stream(state).draws(4).tolist() == VECTORS[state]["r"]
    one_by_one = Stream(state)
    assert [one_by_one.draw() for _ in range(4)] == VECTORS[state]["r"]


@pytest.mark.parametrize("state", [0, 1])
def test_logarithms_are_glibcs(state):
    u = ((np.array(VECTORS[state]["r"]) + 1).astype(np.float32) / np.float32(2**31)).astype(np.float32)
    assert logf(u).tolist() == np.array(VECTORS[state]["log"], np.float32).tolist()


@pytest.mark.parametrize("state", [0, 1])
@pytest.mark.parametrize("count", [1, 5, 6])
def test_normal_fill_repeats_the_vectors_bit_for_bit(state, count):
    stream, values = Stream(state), np.empty(count, np.float32)
    fill_normal(values, 0.0, 1.0, stream)
    assert values.tolist() == np.array(VECTORS[state]["normal"], np.float32)[:count].tolist()
    assert stream.state == VECTORS[state]["states"][count]
    if count == 6:
        assert (int(values.view(np.uint32)[0]), int(values.view(np.uint32)[5])) == VECTORS[state]["bits"]


@pytest.mark.parametrize("state", [0, 1])
def test_uniform_fill_repeats_the_vectors_bit_for_bit(state):
    values = np.empty(4, np.float32)
    fill_uniform(values, -1.0, 1.0, Stream(state))
    assert values.tolist() == np.array(VECTORS[state]["uniform"], np.float32).tolist()


@pytest.mark.parametrize("count", [1, 2, 7, 70_000])
def test_zero_deviation_fills_the_mean_and_costs_the_same_draws(count):
    flat, normal = Stream(3), Stream(3)
    values = np.empty(count, np.float32)
    fill_normal(values, 0.25, 1.0, normal)
    fill_normal(values, 0.25, 0.0, flat)
    assert (values == np.float32(0.25)).all()
    assert flat.state == normal.state


def test_many_draws_equal_single_draws_across_the_block_border():
    many, single = Stream(12345), Stream(12345)
    together = many.draws(65_536 + 17)
    assert together.tolist() == [single.draw() for _ in range(65_536 + 17)]
    assert many.state == single.state


def test_skipping_equals_drawing():
    skipped, drawn = Stream(99), Stream(99)
    skipped.skip(1001)
    drawn.draws(1001)
    assert skipped.state == drawn.state


def test_no_draws_leave_the_state_alone():
    stream = Stream(5)
    assert stream.draws(0).size == 0
    assert stream.state == 5


def test_logarithm_is_within_one_unit_of_the_exact_one():
    u = np.random.default_rng(1).random(10_000, np.float32) + np.float32(2**-31)
    exact = np.array([math.log(x) for x in u.tolist()])
    assert np.max(np.abs(logf(u) - exact) / np.spacing(np.abs(exact).astype(np.float32))) < 1.0


def test_start_state_depends_on_the_seed_flags():
    assert start_state(1, True) == 1
    assert start_state(1, False) == 0
    assert start_state(0, False) == 0xFFFFFFFF


def test_normal_values_around_a_mean_are_those_of_the_original():
    """A mean was taken in double precision, so that single bits differed. Recorded: case initial_normal."""
    values = np.empty(30, np.float32)
    fill_normal(values, 0.1, 0.2, Stream(1))
    first = ["-0x1.d3b010p-3", "-0x1.8fde0ap-7", "0x1.c28edep-2", "0x1.71ca6ap-4", "-0x1.161108p-3", "-0x1.0b6fb2p-8"]
    assert values[:6].tolist() == [float.fromhex(one) for one in first]


def test_uniform_values_of_any_range_are_those_of_the_original():
    """The bounds were taken in double precision, so that single bits differed. Recorded: case initial_defaults."""
    values = np.empty(30, np.float32)
    fill_uniform(values, 0.05 - 0.3, 0.05 + 0.3, Stream(1))
    first = ["-0x1.de7388p-4", "0x1.4d96aap-4", "-0x1.bd4e0cp-4", "0x1.639b04p-2", "0x1.7aaad0p-7", "0x1.6f66ecp-4"]
    assert values[:6].tolist() == [float.fromhex(one) for one in first]
