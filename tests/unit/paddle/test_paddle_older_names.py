"""Every module and public name of v0.10's Python package is there, or an error says what replaces it, and where."""

import contextlib
import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paddle.command import main
from paddle.older_modules import MODULES
from paddle.trainer import config_parser, config_parser_extension
from paddle.utils import image_util
from paddle.utils.show_pb import main as show_pb
from paddle_base.proto.DataFormat_pb2 import DataHeader, DataSample, SlotDef
from paddle_base.runtime.errors import ConfigError
from trainer.config import parse_config

ROOT = Path(__file__).parents[3]
TABLE = [
    line.split() for line in (Path(__file__).parent / "older_names.txt").read_text().splitlines() if line[0] != "#"
]
PAGE = re.compile(r"; .*see (docs/[a-z0-9-]+\.md)$")


def names_a_page(error):
    page = PAGE.search(str(error))
    return bool(page) and (ROOT / page[1]).is_file()


def faults():
    """What of the table is missing without a word."""
    for name, *members in TABLE:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not names_a_page(error):
                yield name
            continue
        for member in members:
            try:
                getattr(module, member)
            except AttributeError as error:
                if not names_a_page(error):
                    yield f"{name}.{member}"


def test_every_module_and_name_of_v0_10_is_there_or_says_what_replaces_it():
    assert len(TABLE) > 40
    assert list(faults()) == []


@pytest.mark.parametrize("name", ["py_paddle.swig_paddle", "paddle.v2.fluid.layers", *MODULES])
def test_a_module_that_is_not_here_says_what_replaces_it(name):
    if name == "paddle.trainer.PyDataProviderWrapper":
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
            return
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(name)
    assert names_a_page(caught.value)


def test_any_other_missing_module_is_as_python_says_it():
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'paddle.nowhere'$"):
        importlib.import_module("paddle.nowhere")


def test_fluid_is_told_what_replaces_it_in_every_form_of_import():
    for program in ("import paddle.fluid", "import paddle.v2.fluid as fluid", "from paddle.v2 import fluid"):
        with pytest.raises(ModuleNotFoundError, match=r"fluid'; fluid came after .* paddle\.v2, see docs/v2\.md$"):
            exec(program, {})


def test_a_config_that_imports_such_a_module_is_told_in_its_line(tmp_path):
    (tmp_path / "config.py").write_text("import paddle.utils.predefined_net as net\n")
    with pytest.raises(
        ConfigError, match=r"config.py line 1: No module named 'paddle.utils.predefined_net'; use .*docs"
    ):
        parse_config(tmp_path / "config.py")


def test_a_config_becomes_the_bytes_of_its_message(tmp_path):
    (tmp_path / "config.py").write_text("Settings(batch_size=3)\nLayer('x', 'data', size=1)\n")
    data = config_parser.parse_config_and_serialize(str(tmp_path / "config.py"), "")
    assert data == parse_config(tmp_path / "config.py").SerializeToString()


def test_the_extension_of_v0_10_gives_its_function(tmp_path):
    (tmp_path / "config.py").write_text("TrainData(SimpleData(files='l', feat_dim=3))\nSettings(batch_size=1)\n")
    args = f"extension_module_name={config_parser_extension.__name__}"
    assert parse_config(tmp_path / "config.py", args).data_config.type == "simple"


def test_a_file_of_messages_is_shown_as_text(tmp_path, capsys):
    header = DataHeader(slot_defs=[SlotDef(type=SlotDef.INDEX, dim=7)])
    parts = [one.SerializeToString() for one in (header, DataSample(id_slots=[5]))]
    (tmp_path / "data").write_bytes(b"".join(bytes([len(part)]) + part for part in parts))
    assert show_pb([str(tmp_path / "data")]) == 0
    out = capsys.readouterr().out
    assert "dim: 7" in out and "id_slots: 5" in out
    assert show_pb([str(tmp_path / "no")]) == 66
    assert "no cannot be read: No such file or directory; correct its name" in capsys.readouterr().err


def test_ten_crops_of_an_image_are_its_corners_its_centre_and_their_mirrors():
    image = np.arange(4 * 6 * 3).reshape(4, 6, 3)
    crops = image_util.oversample([image], (2, 2))
    assert crops.shape == (10, 2, 2, 3)
    assert np.array_equal(crops[3], image[2:, 4:])
    assert np.array_equal(crops[4], image[1:3, 2:4])
    assert np.array_equal(crops[9], crops[4][:, ::-1])


def test_an_image_transformer_orders_axes_and_channels_and_subtracts_the_mean():
    image = np.arange(2 * 2 * 3, dtype=float).reshape(2, 2, 3)
    change = image_util.ImageTransformer()
    change.set_transpose((2, 0, 1))
    change.set_channel_swap((2, 1, 0))
    change.set_mean(np.array([1.0, 2.0, 3.0]))
    assert np.array_equal(change.transformer(image)[0], image[..., 2] - 1)
    assert np.array_equal(change.transformer(image)[2], image[..., 0] - 3)


def test_an_older_command_says_what_replaces_it(capsys):
    assert main(["cluster_train"]) == 64
    said = capsys.readouterr().err
    assert "there is no command 'cluster_train'; a Job starts the pods" in said
    assert names_a_page(said.rstrip())


@pytest.mark.parametrize(
    "name, said",
    [
        ("paddle_trainer", "usage: paddle train"),
        ("paddle_merge_model", "merge_model"),
        ("paddle_pserver_main", "usage: paddle pserver"),
    ],
)
def test_the_names_of_v0_10_s_programs_start_the_commands(tmp_path, name, said):
    """Installed, the files stand beside `paddle` and Python."""
    for one in (name, "paddle"):
        (tmp_path / one).write_bytes((ROOT / "paddle" / "bin" / one).read_bytes())
        (tmp_path / one).chmod(0o755)
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    done = subprocess.run([tmp_path / name, "--help"], capture_output=True, text=True, check=True)
    assert said in done.stdout
