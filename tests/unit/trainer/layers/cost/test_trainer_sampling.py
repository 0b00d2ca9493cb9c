"""Classes that are drawn by their shares."""

import numpy as np
import pytest

from trainer.layers.sampling import AliasTable, SampleStream

SHARES = [
    [1.0],
    [0.5, 0.5],
    [0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.2],
    [0.1, 0.2, 0.3, 0.4, 0.0],
    [0.9, 0.025, 0.025, 0.05],
]


@pytest.mark.parametrize("shares", SHARES)
def test_classes_are_drawn_as_often_as_their_shares_say(shares):
    drawn = AliasTable(np.array(shares)).draw(SampleStream(), 40000)
    assert np.bincount(drawn, minlength=len(shares)) / 40000 == pytest.approx(shares, abs=0.01)
    assert set(drawn) == {one for one, share in enumerate(shares) if share}


def test_a_place_below_the_threshold_is_the_class_of_its_interval():
    """Thresholds of 0.25, 0.75, 0.25, 0.75 are 0.5, 1, 0.5, 1: the second half of the first interval is class 1."""
    table = AliasTable(np.array([0.125, 0.375, 0.125, 0.375]))
    samples = SampleStream()
    places = SampleStream().fractions(100) * 4
    wanted = [int(place) + (int(place) % 2 == 0 and place % 1 >= 0.5) for place in places]
    assert table.draw(samples, 100).tolist() == wanted


@pytest.mark.parametrize(
    ("thresholds", "others", "filled"),
    [
        # class 2 gives to class 0 and becomes small: class 3 fills it in the same sweep, before class 4
        (
            [0.5, 0.75, 1.25, 1.5, 0.5, 0.75, 1.25, 1.5],
            [2, 3, 3, 3, 6, 7, 7, 7],
            [0.5, 0.75, 0.75, 1, 0.5, 0.75, 0.75, 1],
        ),
        # class 0 becomes small behind the class that it gives to: the second sweep fills it
        ([1.25, 0.5, 0.25, 2.0], [3, 0, 3, 3], [0.75, 0.5, 0.25, 1]),
    ],
)
def test_a_large_class_that_becomes_small_is_filled_in_its_turn(thresholds, others, filled):
    table = AliasTable(np.array(thresholds) / len(thresholds))
    places = SampleStream().fractions(200) * len(thresholds)
    wanted = [int(place) if place % 1 < filled[int(place)] else others[int(place)] for place in places]
    assert table.draw(SampleStream(), 200).tolist() == wanted


def test_one_draw_takes_two_numbers_of_the_generator():
    samples, other = SampleStream(), SampleStream()
    AliasTable(np.array([0.3, 0.7])).draw(samples, 5)
    other.states(10)
    assert samples.state == other.state
