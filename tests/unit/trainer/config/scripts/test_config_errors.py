"""Errors of configs: one line with the user's file and line, and the exit code that says whose mistake it was."""

import pytest

from paddle.trainer import PyDataProvider2
from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError
from trainer.config import parse_args, parse_config
from trainer.config.building import names

# name: text of the config after the import line, config_args, error, its message
CASES = {
    "an endless recursion": (
        "def deeper(n): deeper(fc_layer(n, 1))\ndeeper(data_layer('x', 1))",
        "",
        DataError,
        "^config.py line 2.*RecursionError",
    ),
    "a misspelt layer": (
        "fc_layr(1)",
        "",
        ConfigError,
        "line 2: name 'fc_layr' is not defined; did you mean 'fc_layer'",
    ),
    "a misspelt import": (
        "from paddle.trainer_config_helpers import fc_layr",
        "",
        ConfigError,
        "line 2: cannot import name 'fc_layr' from 'paddle.trainer_config_helpers'; did you mean 'fc_layer'",
    ),
    "a misspelt attribute": (
        "layers.fc_layr(1)",
        "",
        ConfigError,
        "paddle.trainer_config_helpers.layers has no 'fc_layr'",
    ),
    "a package that is not there": ("import paddle.v2", "", ConfigError, "line 2: No module named 'paddle.v2'"),
    "an unknown argument of a function": (
        "data_layer('x', 1, sise=2)",
        "",
        ConfigError,
        r"data_layer\(\): got an unexpected keyword argument 'sise'; its arguments are name, size",
    ),
    "an unknown argument of a class": ("ParamAttr(nme='w')", "", ConfigError, "unexpected keyword argument 'nme'"),
    "a missing argument of a class": ("AdamaxOptimizer()", "", ConfigError, "missing 2 required positional arguments"),
    "a value that the message cannot hold": (
        "eos_layer(data_layer('x', 1), -1)",
        "",
        ConfigError,
        r"eos_layer\(name='__eos_layer_0__'\): eos_id is -1; it does not fit into the field",
    ),
    "a bad value of config_args": ("get_config_arg('n', int, 1)", "n=a", ConfigError, "'a', which is not of type int"),
    "a bad bool of config_args": ("get_config_arg('n', bool)", "n=yes", ConfigError, "n=yes; a bool is one of True, 1"),
    "a config_arg that must be given": (
        "get_config_arg('n', int)",
        "",
        ConfigError,
        "not in config_args and has no default",
    ),
    "config_args without a value": (
        "",
        "n",
        ConfigError,
        "^config_args has the item 'n'; items must have the form name=value",
    ),
    "an exception of the script": ("raise ValueError('mine')", "", DataError, "^config.py line 2: ValueError: mine$"),
    "an exception of several lines": (
        "raise ValueError('one\\n  two')",
        "",
        DataError,
        "^config.py line 2: ValueError: one two$",
    ),
    "an undefined name": ("zebra", "", DataError, "line 2: NameError: name 'zebra' is not defined$"),
    "an assertion": ("assert 1 == 2, 'no'", "", DataError, "line 2: AssertionError: no"),
    "a missing file of the script": ("open('nosuch')", "", DataError, "line 2: FileNotFoundError: .*'nosuch'"),
    "a missing module of the script": (
        "import nosuch",
        "",
        DataError,
        "line 2: ModuleNotFoundError: No module named 'nosuch'",
    ),
    "a library's exception": (
        "import json\njson.loads('{')",
        "",
        DataError,
        "^config.py line 3: JSONDecodeError|^config.py line 3: json",
    ),
    "a syntax error": ("x = (", "", DataError, r"^config.py line 2: SyntaxError: '\(' was never closed"),
    "a print statement": ("print 'a'", "", DataError, "line 2: SyntaxError: Missing parentheses"),
    "a script that exits": ("import sys\nsys.exit('enough')", "", DataError, "line 3: SystemExit: enough"),
    "an exception of the outermost kind": (
        "class Stop(BaseException): pass\nraise Stop('enough')",
        "",
        DataError,
        "line 3: .*Stop: enough",
    ),
    "a size beyond the message": (
        "data_layer('x', 2 ** 64)",
        "",
        ConfigError,
        r"data_layer\(name='x'\): size is 18446744073709551616; it must be an integer of 64 bits",
    ),
    "a parameter beyond the message": (
        "fc_layer(data_layer('x', 2 ** 40), 2 ** 40, name='f')",
        "",
        ConfigError,
        r"fc_layer\(name='f'\): the parameter '_f.w0' would have 1208925819614629174706176 values",
    ),
    "a computed number beyond its field": (
        "img_conv_layer(data_layer('x', 27), (2 ** 33, 3), 3, num_channels=3, name='c', padding=2 ** 33)",
        "",
        ConfigError,
        r"img_conv_layer\(name='c'\): .* is 8589934592; it does not fit into the field",
    ),
    "a step that is no function": (
        "recurrent_group(None, data_layer('x', 3), name='g')",
        "",
        ConfigError,
        r"recurrent_group\(name='g'\): step is None; it must be a function",
    ),
    "a name that is no text": (
        r"data_layer('a\udc80', 1)",
        "",
        ConfigError,
        r"data_layer\(name='a\\udc80'\): name is 'a\\udc80'; it must be a text in UTF-8",
    ),
    "a raw layer of an unknown layer": (
        "Layer(name='x', type='fc', size=3, inputs=['nosuch'])",
        "",
        ConfigError,
        r"Layer\(name='x'\): inputs is 'nosuch'; there is no such layer yet",
    ),
    "an attribute that is no number": (
        "Bias(initial_std='q')",
        "",
        ConfigError,
        r"Bias\(\): initial_std is 'q'; it must be a number",
    ),
    "a recurrent group without end": (
        "model_type('recurrent_nn')\ndata_layer('x', 1)\nRecurrentLayerGroupBegin('g', ['x'], ['h'])",
        "",
        ConfigError,
        r"config.py: the recurrent group 'g' has no end; call RecurrentLayerGroupEnd\('g'\)",
    ),
    "a working directory that the script removed": (
        "import os\nos.mkdir('gone')\nos.chdir('gone')\nos.rmdir('../gone')\ndata_layer('x', 0)",
        "",
        ConfigError,
        "config.py line 6: data_layer",
    ),
    "bytes that are no text": ("\udcff", "", DataError, "^config.py"),
}


@pytest.mark.parametrize("text, config_args, kind, message", CASES.values(), ids=CASES.keys())
def test_an_error_names_the_line_and_whose_mistake_it_was(parse_text, config_dir, text, config_args, kind, message):
    if "\udcff" in text:
        (config_dir / "config.py").write_bytes(b"x = '\xff'\n")
        with pytest.raises(kind, match=message):
            parse_config("config.py")
        return
    with pytest.raises(kind, match=message) as caught:
        parse_text(text, config_args)
    assert "\n" not in str(caught.value)
    assert type(caught.value) is kind


@pytest.mark.parametrize("path", ["nosuch.py", ".", "/dev/zero", "m" * 256])
def test_a_script_that_cannot_be_read_is_a_missing_input(config_dir, path):
    with pytest.raises(MissingInputError, match="cannot be read"):
        parse_config(path)


def test_an_error_in_a_module_names_its_line_and_the_line_that_led_there(parse_text, config_dir):
    (config_dir / "net.py").write_text(
        "from paddle.trainer_config_helpers import *\n\ndef net():\n    return data_layer('x', 0)\n"
    )
    message = r"^net.py line 4 \(from config.py line 3\): data_layer\(name='x'\): size is 0"
    with pytest.raises(ConfigError, match=message):
        parse_text("import net\nnet.net()")


def test_get_config_arg_in_a_module_is_explained(parse_text, config_dir):
    (config_dir / "net.py").write_text("x = get_config_arg('x', int, 1)\n")
    message = (
        r"^net.py line 1 .*'get_config_arg' is not defined; a config calls get_config_arg\(...\) without an import, "
        "any other module adds the line `from paddle.trainer.config_parser import get_config_arg`"
    )
    with pytest.raises(ConfigError, match=message):
        parse_text("import net")


HELPERS_LINE = "; add the line `from paddle.trainer_config_helpers import *`"
PROVIDER_LINE = "; add the line `from paddle.trainer.PyDataProvider2 import *`"
# a config without the import that it needs, and the end of its message
FORGOTTEN = {
    "settings(batch_size=1)": f"line 1: name 'settings' is not defined{HELPERS_LINE}",
    "layer_math.exp(1)": f"line 1: name 'layer_math' is not defined{HELPERS_LINE}",
    "@provider(input_types={})\ndef p(s, f): pass": f"line 1: name 'provider' is not defined{PROVIDER_LINE}",
    "from paddle.trainer_config_helpers import integer_value": (
        f"line 1: cannot import name 'integer_value' from 'paddle.trainer_config_helpers'{PROVIDER_LINE}"
    ),
    "from paddle.trainer.config_parser import settings": (
        f"line 1: cannot import name 'settings' from 'paddle.trainer.config_parser'{HELPERS_LINE}"
    ),
    "import paddle.trainer_config_helpers as h\nh.get_config_arg('n', int, 1)": (
        "line 2: paddle.trainer_config_helpers has no 'get_config_arg'; a config calls get_config_arg(...) without an "
        "import, any other module adds the line `from paddle.trainer.config_parser import get_config_arg`"
    ),
    "os.getcwd()": "line 1: NameError: name 'os' is not defined; add the line `import os`",
    "np.zeros(3)": "line 1: NameError: name 'np' is not defined; add the line `import numpy as np`",
}


@pytest.mark.parametrize("text", FORGOTTEN)
def test_a_forgotten_import_is_told_with_its_line(config_dir, text):
    (config_dir / "config.py").write_text(text)
    with pytest.raises((ConfigError, DataError)) as caught:
        parse_config("config.py")
    assert str(caught.value) == f"config.py {FORGOTTEN[text]}"


def test_no_hint_proposes_the_word_that_was_written():
    for name in ("Import", *names.built("v1"), *names.PROVIDER_NAMES, *names.helper_names()):
        assert names.suggestion(name).startswith(("; add the line `from ", "; a config calls ")), name


def test_the_names_of_providers_are_those_of_their_module():
    modules = {"cPickle", "collections", "functools", "itertools", "logging"}
    assert {*names.PROVIDER_NAMES} | modules == {*PyDataProvider2.__all__}


def test_a_module_of_the_language_has_the_names_of_the_others(parse_text):
    """As in v0.10, whose layers module imported the attributes, evaluators and poolings."""
    config = parse_text("from paddle.trainer_config_helpers.layers import ParamAttr, MaxPooling\ndata_layer('x', 1)")
    assert len(config.model_config.layers) == 1


def test_a_missing_imported_config_is_a_missing_input(parse_text):
    with pytest.raises(MissingInputError, match=r"config.py line 2: the config script nosuch\.conf cannot be read"):
        parse_text("Import('nosuch.conf')")


@pytest.mark.parametrize(
    "error",
    [
        KeyError("ours"),
        NameError("name 'Layer' is not defined", name="Layer"),
        NameError("name 'fc_layr' is not defined", name="fc_layr"),
        ModuleNotFoundError("No module named 'paddle.ours'", name="paddle.ours"),
    ],
    ids=repr,
)
def test_our_own_mistake_stays_an_exception(parse_text, monkeypatch, error):
    def broken(*_arguments):
        raise error

    monkeypatch.setattr("trainer.config.building.layer.add_parameter", broken)
    with pytest.raises(type(error), match=str(error)):
        parse_text("fc_layer(data_layer('x', 1), 1)")


def test_empty_items_of_config_args_are_nothing():
    assert parse_args("a=1,,b= x,") == {"a": "1", "b": " x"}
    assert parse_args("") == {}
