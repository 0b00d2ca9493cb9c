"""The text of a job, that is of a config with data sources, is v0.10.0's to the letter."""

import shutil
from pathlib import Path

import pytest

from paddle.utils import dump_config
from trainer.config import as_v0_10

CASES = Path(__file__).parents[4] / "golden" / "config" / "layers"


@pytest.mark.parametrize("case", sorted(path.stem for path in CASES.glob("*.txt")))
def test_a_job_prints_as_v0_10_printed_it(config_dir, capsys, case):
    for name in (case, "tiny"):
        shutil.copy(CASES / f"{name}.py", config_dir)
    assert dump_config.main([f"{case}.py"]) == 0
    assert capsys.readouterr().out == (CASES / f"{case}.txt").read_text()


MAPS = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('train.list', None, module='provider', obj='process')
image = data_layer('image', 24, height=4, width=6)
row = data_layer('row', 24)
fc_layer([image, row], 2, name='before')
fc_layer([row, image], 2, name='second_input')
steps = data_layer('steps', 3)
recurrent_group(step=lambda step: fc_layer(step, 3, name='inside'), input=steps)
outputs(fc_layer(image, 2, name='after'))
"""


def test_height_and_width_are_those_of_the_first_input_until_the_first_group(parse_text):
    layers = {layer.name: layer for layer in as_v0_10(parse_text(MAPS)).model_config.layers}
    assert (layers["before"].height, layers["before"].width) == (4, 6)
    assert not layers["second_input"].HasField("height")
    assert not layers["after"].HasField("height")
