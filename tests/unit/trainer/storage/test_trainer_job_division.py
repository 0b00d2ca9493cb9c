"""A checkpoint of trainers that had other samples."""

from __future__ import annotations

from typing import Any

import pytest

from paddle_base.runtime.errors import ConfigError
from pserver.store.snapshot import CheckpointState
from trainer.storage.job_division import redivide

PLACE = {"number": 4, "stage": "before", "batches": 0, "saves": 0, "checkpoints": 0, "is_due": False}


def told(number: int, **more: Any) -> dict[str, Any]:
    own = {
        "place": PLACE,
        "data": {"batches": None},
        "test": {},
        "sums": {"period": 1},
        "stream": number,
        "masks": {"w": 1},
    }
    return {**own, **more}


def made_by(*trainers: dict[str, Any] | None) -> CheckpointState:
    return CheckpointState([], list(trainers))


def test_trainers_with_the_samples_of_then_go_on_as_they_were() -> None:
    for absent in ("", "1"):
        restored = made_by(told(0, absent=absent), told(1, absent=absent))
        assert redivide(restored, 2, absent, "state/x") is restored
    old = made_by(told(0), told(1))  # of a release that did not tell it
    assert redivide(old, 2, "", "state/x") is old


@pytest.mark.parametrize("absent", ["", "1"])
def test_fewer_trainers_begin_with_the_next_pass(absent: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = redivide(made_by(*map(told, range(3))), 2, absent, "state/pass-00003")
    assert found.origins == [0, 1]
    assert found.trainers == [
        {
            "place": {"number": 4, "stage": "before"},
            "absent": absent,
            "data": None,
            "test": None,
            "sums": {},
            "stream": number,
            "masks": {"w": 1},
        }
        for number in range(2)
    ]
    said = capsys.readouterr().err
    assert "was made by 3 trainers, but this job has 2 trainers" in said and "from pass 4 on" in said
    assert ("without pods 1" in said) == bool(absent) and "begins again" not in said


def test_inside_a_pass_it_begins_again_and_a_warning_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    inside = {**PLACE, "stage": "inside", "batches": 7}
    found = redivide(made_by(told(0, place=inside), told(1, place=inside)), 3, "", "state/pass-00004-001")
    assert found.origins == [0, 1, 0]
    assert [one["stream"] for one in found.trainers if one] == [0, 1, 0]
    assert all(one and one["place"] == {"number": 4, "stage": "before"} for one in found.trainers)
    said = capsys.readouterr().err
    assert (
        said.startswith("W") and "pass 4 begins again: samples trained before the checkpoint are trained again" in said
    )


def test_as_many_trainers_of_other_pods_have_other_samples() -> None:
    """The place in the data of the pod that had been there was taken for that of another shard."""
    found = redivide(made_by(told(0, absent="1"), told(1, absent="1")), 2, "2", "state/x")
    assert found.origins == [0, 1] and all(one and one["data"] is None for one in found.trainers)


def test_a_trainer_that_told_nothing_goes_on_as_trainer_0() -> None:
    found = redivide(made_by(told(0), None), 3, "", "state/x")
    assert [one["stream"] for one in found.trainers if one] == [0, 0, 0]


@pytest.mark.parametrize(
    "first", [None, told(0, place={}), told(0, place={"number": "4"}), told(0, place={"number": -1})]
)
def test_a_checkpoint_without_a_place_is_refused(first: dict[str, Any] | None) -> None:
    with pytest.raises(ConfigError, match="does not contain the trainers' position"):
        redivide(made_by(first, told(1)), 3, "", "state/x")
