"""The closed form of the endurance run, and its judgement."""

import json

import numpy as np
from chaos.endurance import ELEMENTS, find_growth, gradient_of, judge, sum_of

TRAINERS = 5


def test_the_closed_form_is_the_sum_of_what_all_trainers_push():
    for number in range(30):
        total = sum(gradient_of(trainer, number).astype(np.float64) for trainer in range(TRAINERS))
        np.testing.assert_array_equal(sum_of(TRAINERS, number), total)


def test_a_lost_or_doubled_round_of_one_trainer_would_show():
    for number in range(26):
        for trainer in range(TRAINERS):
            gradient = gradient_of(trainer, number)
            assert np.count_nonzero(gradient) > ELEMENTS // 2
            assert not np.array_equal(gradient, gradient_of(trainer, number + 1))


def test_sums_of_any_length_stay_small_whole_numbers():
    total = np.zeros(ELEMENTS)
    for number in range(26):
        total += sum_of(64, number)
        assert np.abs(total).max() < 2**24
    assert not total.any()


def test_memory_is_compared_after_the_warm_up():
    assert find_growth([10, 20, 30, 30, 30, 30, 30, 30, 31, 30]) == (30, 31)


def write_rounds(folder, rounds):
    (folder / "trainers-0.out").write_text(json.dumps(rounds))


def test_flat_memory_and_equal_rounds_are_no_faults(tmp_path):
    write_rounds(tmp_path, {"0": 50, "1": 50})
    assert judge(2, [[40000] * 10], [0], tmp_path, 1.0) == []


def test_growth_a_lost_trainer_and_a_failed_server_are_faults(tmp_path):
    write_rounds(tmp_path, {"0": 50})
    faults = judge(2, [[40000] * 9 + [42000]], [75], tmp_path, 1.0)
    assert len(faults) == 3
