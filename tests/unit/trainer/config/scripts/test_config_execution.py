"""How a script is executed: arguments, imports, and what is left of one parse in the next (specification 2)."""

import sys
from pathlib import Path

import pytest

from paddle_base.runtime.errors import ConfigError
from trainer.config import parse_config

ARGUMENT = "with open('seen', 'w') as seen:\n    seen.write(repr(get_config_arg('a', {kind}, {default})))"


@pytest.mark.parametrize(
    "kind, default, config_args, seen",
    [
        ("int", 3, "", "3"),
        ("int", 3, "a=5", "5"),
        ("float", "'2.5'", "", "2.5"),
        ("str", None, "", "'None'"),
        ("str", "'x'", "a=", "''"),
        ("bool", False, "a=1", "True"),
        ("bool", False, "a=True", "True"),
        ("bool", True, "a=false", "False"),
        ("bool", True, "a=0", "False"),
        ("bool", None, "", "None"),
        ("bool", True, "a=", "True"),
        # what the trainer prepends, and a user's value that wins over it
        ("int", 0, "trainer_id=1,local=0,with_cost=1,use_gpu=0,parallel_nn=0,cudnn_version=0,a=1,a=2", "2"),
        ("int", 7, "trainer_id=1,local=0,", "7"),
    ],
    ids=str,
)
def test_get_config_arg_converts(parse_text, config_dir, kind, default, config_args, seen):
    parse_text(ARGUMENT.format(kind=kind, default=default), config_args)
    assert (config_dir / "seen").read_text() == seen


def test_an_argument_that_nobody_asks_for_is_warned_of(parse_text, capfd):
    text = "size = get_config_arg('size', int, 1)"
    parse_text(text, "size=2,trainer_id=0,local=1,use_gpu=0,ispredict=1")
    lines = [line for line in capfd.readouterr().err.splitlines() if "never reads" in line]
    assert len(lines) == 1
    assert lines[0].startswith("[WARNING ")
    assert lines[0].endswith("] the config never reads the argument ispredict of config_args with get_config_arg")
    parse_text(text, "size=2,trainer_id=0,local=1,use_gpu=0")
    assert "config argument" not in capfd.readouterr().err


def test_parsing_twice_gives_equal_messages(parse_text):
    """The legacy kept the dictionary of settings between two parses."""
    text = "settings(batch_size=5, learning_method=AdamOptimizer())\noutputs(fc_layer(data_layer('x', 3), 2))"
    first = parse_text(text)
    parse_text("settings(batch_size=9, regularization=L2Regularization(0.5), model_average=ModelAverage(0.5))")
    assert parse_text(text) == first


def test_a_module_of_the_working_directory_is_imported_again_for_every_parse(parse_text, config_dir):
    module = config_dir / "shared_net.py"
    module.write_text(
        "from paddle.trainer_config_helpers import *\nsettings(batch_size=4)\ndef net(): return data_layer('x', 3)\n"
    )
    text = "from shared_net import *\noutputs(net())"
    assert parse_text(text).opt_config.batch_size == 4
    assert parse_text(text).opt_config.batch_size == 4
    assert list(config_dir.rglob("__pycache__")) == []


def test_modules_are_found_beside_a_config_in_another_directory(config_dir):
    (config_dir / "demo").mkdir()
    (config_dir / "demo" / "beside.py").write_text("SIZE = 6\n")
    (config_dir / "demo" / "config.py").write_text(
        "from paddle.trainer_config_helpers import *\nimport beside\ndata_layer('x', beside.SIZE)\n"
    )
    assert parse_config("demo/config.py").model_config.layers[0].size == 6


def test_a_module_of_the_same_name_in_another_directory_is_another_module(config_dir):
    for size in (3, 4):
        directory = config_dir / f"job{size}"
        directory.mkdir()
        (directory / "net.py").write_text(f"SIZE = {size}\n")
        (directory / "config.py").write_text(
            "from paddle.trainer_config_helpers import *\nimport net\ndata_layer('x', net.SIZE)\n"
        )
        assert parse_config(directory / "config.py").model_config.layers[0].size == size


def test_import_executes_another_config_and_hands_its_names_over(parse_text, config_dir):
    (config_dir / "base.conf").write_text(
        "from paddle.trainer_config_helpers import *\nWIDTH = get_config_arg('width', int, 3) * FACTOR\n"
        "def make(name):\n    return data_layer(name, WIDTH)\n"
    )
    config = parse_text("FACTOR = 10\nImport('base.conf', globals())\noutputs(make('x'))", "width=2")
    assert config.model_config.layers[0].size == 20
    assert list(config.config_files) == ["base.conf"]


def test_an_extension_module_adds_functions(parse_text, config_dir):
    (config_dir / "extension.py").write_text("def get_config_funcs(config):\n    return {'seven': lambda: 7}\n")
    config = parse_text("data_layer('x', seven())", "extension_module_name=extension")
    assert config.model_config.layers[0].size == 7


def test_a_function_can_be_parsed_instead_of_a_file(config_dir):
    from paddle.trainer.config_parser import parse_config as old_name
    from paddle.trainer_config_helpers import data_layer, outputs, parse_network_config, parse_optimizer_config

    def network():
        outputs(data_layer("x", 3))

    assert old_name(network).model_config == parse_network_config(network)
    assert parse_optimizer_config(network).learning_rate == 1.0


def test_the_language_does_nothing_outside_of_a_config():
    from paddle.trainer_config_helpers import data_layer

    with pytest.raises(ConfigError, match="can be used only inside a config"):
        data_layer("x", 3)


def test_a_module_of_the_user_never_hides_a_builtin_one_or_ours(parse_text, config_dir):
    for name in ("time", "trainer", "proto"):
        (config_dir / f"{name}.py").write_text("raise RuntimeError('hidden')\n")
    parse_text("import time\ntime.time()\nfrom paddle.trainer_config_helpers import layers\ndata_layer('x', 1)")


def test_the_directories_of_an_earlier_parse_leave_the_path(parse_text, config_dir):
    parse_text("data_layer('x', 1)")
    assert sys.path[0] == str(config_dir)
    assert sys.path.count(str(config_dir)) == 1
    other = config_dir / "other"
    other.mkdir()
    (other / "config.py").write_text("")
    parse_config(other / "config.py")
    assert sys.path[:2] == [str(config_dir), str(other)]
    parse_text("data_layer('x', 1)")
    assert str(other) not in sys.path and Path(sys.path[0]) == config_dir
