"""The command that a stopped run prints, with which it goes on."""

import pytest

from trainer.flags import parse_flags
from trainer.storage.going_on import describe_going_on, write_command

FLAGS = ["--config=c d.py", "--save_dir", "out", "--num_passes=9", "--nolog_clipping"]
KEPT = "paddle train '--config=c d.py' --save_dir out"
KEEPING = " (--checkpoint_period_seconds=600 also keeps the state of the optimiser and the place in the data)"


@pytest.mark.parametrize(
    ("flags", "checkpoint", "save", "told"),
    [
        ([], "", "", ""),
        ([], "", "pass-00008", ""),  # nothing is left to train
        (
            [],
            "",
            "pass-00003",
            f"to go on with the parameters of pass-00003: {KEPT} --nolog_clipping --start_pass=4 "
            f"--num_passes=5{KEEPING}",
        ),
        (
            [],
            "",
            "pass-00003-001",
            f"to go on with the parameters of pass-00003-001: {KEPT} --nolog_clipping "
            f"--init_model_path=out/pass-00003-001 --start_pass=3 --num_passes=6{KEEPING}",
        ),
        (
            ["--start_pass=2", "--init_model_path", "out/x"],
            "",
            "pass-00002",
            f"to go on with the parameters of pass-00002: {KEPT} --nolog_clipping --start_pass=3 "
            f"--num_passes=8{KEEPING}",
        ),
        (
            [],
            "",
            "pass-00000-002",
            f"to go on with the parameters of pass-00000-002: {KEPT} --nolog_clipping "
            f"--init_model_path=out/pass-00000-002 --num_passes=9{KEEPING}",
        ),
        (
            ["--checkpoint_period_seconds=9"],
            "pass-00003-001",
            "pass-00002",
            f"to go on from this state: {KEPT} --num_passes=9 --nolog_clipping --checkpoint_period_seconds=9 "
            "--resume_from=out/state/pass-00003-001",
        ),
        (
            ["--resume_from=out/state/pass-00001"],
            "",
            "",
            f"to go on from this state: {KEPT} --num_passes=9 --nolog_clipping --resume_from=out/state/pass-00001",
        ),
        (
            ["--local=0"],
            "pass-00003",
            "pass-00003",
            "to go on, start all programs again, and every trainer with --resume_from=out/state/pass-00003",
        ),
        (["--local=0"], "", "pass-00003", ""),
    ],
)
def test_a_stopped_run_says_the_command_that_goes_on(flags, checkpoint, save, told):
    assert describe_going_on(parse_flags([*FLAGS, *flags]), "out", checkpoint, save) == told


def test_a_value_in_the_next_word_goes_with_its_flag():
    arguments = ["--num_passes", "3", "-start_pass=1", "--local", "--save_dir", "a b"]
    assert write_command(arguments, {"num_passes": 2, "start_pass": ""}) == (
        "paddle train --local --save_dir 'a b' --num_passes=2"
    )
