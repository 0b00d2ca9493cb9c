"""Errors of configs: one line with the user's file and line, and the exit code that says whose mistake it was."""

import pytest
from each import each

from paddle.trainer import PyDataProvider2, PyDataProviderWrapper
from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError
from trainer.config import parse_args, parse_config
from trainer.config.building import names
from trainer.config.scripts import script_errors
from trainer.config.scripts.python2 import compile_script
from trainer.data.checks import user_code

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
    "a package that is not there": ("import paddle.v3", "", ConfigError, "line 2: No module named 'paddle.v3'"),
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
    "a missing file of the script": (
        "open('nosuch')",
        "",
        MissingInputError,
        "line 2: FileNotFoundError: .*'nosuch'; the name is relative to /.*, the directory in which the program was",
    ),
    "a missing file with an absolute name": ("open('/no/such')", "", MissingInputError, "line 2: .*'/no/such'$"),
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
    "an unknown argument of a class and its own": (
        "L2Regularization(weight=0.1)",
        "",
        ConfigError,
        r"unexpected keyword argument 'weight'; its arguments are rate$",
    ),
    "settings by position": (
        "Settings(4)",
        "",
        ConfigError,
        r"Settings\(\): too many positional arguments; give each argument by its name, as name=value$",
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


def test_a_file_that_the_script_does_not_find_is_a_missing_input(parse_text, config_dir):
    """It ended with the status of wrong data, and did not say from where the name counts."""
    with pytest.raises(MissingInputError) as caught:
        parse_text("words = open('data/dict.txt')")
    message = "config.py line 2: FileNotFoundError: [Errno 2] No such file or directory: 'data/dict.txt'"
    started = f"{config_dir}, the directory in which the program was started"
    assert str(caught.value) == f"{message}; the name is relative to {started}"
    with pytest.raises(MissingInputError, match=r"'/no/dict.txt'$"):
        parse_text("words = open('/no/dict.txt')")


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
    "x = DenseSlot(3)": (
        "line 1: name 'DenseSlot' is not defined; add the line `from paddle.trainer.PyDataProviderWrapper import *`"
    ),
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


@each(
    ("name", "said"),
    [
        ("L1Regularization", r"v0.10 has none: ParamAttr\(l1_rate=...\) sets L1"),
        (
            "define_py_data_source",
            "add the line `from paddle.trainer_config_helpers.data_sources import define_py_data_source`",
        ),
        ("config_layer", "a config cannot define layer types"),
    ],
)
def test_a_name_that_nothing_resembles_is_explained(parse_text, name, said):
    """The close names were proposed: L2Regularization, crf_layer."""
    with pytest.raises(ConfigError, match=f"line 2: name '{name}' is not defined; {said}"):
        parse_text(name)


PORTING = "; if this is Python 2, docs/porting.md says what to write"


@each(
    ("text", "end"),
    [
        ("print 'a'", PORTING),
        ("raise ValueError, 'x'", PORTING),
        ("x = 0777", PORTING),
        ("x = (", "was never closed"),
        ("lines = file('a')", "name 'file' is not defined; Python 3 writes open(name)"),
        ("import StringIO", "No module named 'StringIO'; Python 3 writes from io import StringIO"),
        ("from itertools import izip", "; Python 3 writes zip"),
        ("import string\nstring.letters", "has no attribute 'letters'; Python 3 writes string.ascii_letters"),
        ("'a'.decode('utf-8')", "; Python 3 writes the text itself, because files are opened as UTF-8"),
        ("import os\nos.letters", "has no attribute 'letters'"),
        ("zebra", "name 'zebra' is not defined"),
    ],
)
def test_what_python_3_writes_is_told_in_configs_and_in_providers(config_dir, text, end):
    """Python's own errors name what is missing, and not what replaces it."""
    (config_dir / "config.py").write_text(text)
    with pytest.raises(DataError) as caught:
        parse_config("config.py")
    assert str(caught.value).endswith(end)
    with pytest.raises(DataError) as caught, user_code("import"):
        exec(compile_script(text, str(config_dir / "provider.py")), {})
    assert str(caught.value).endswith(end) and "provider.py:" in str(caught.value)


def test_a_module_that_a_package_of_this_program_hides_is_told_to_take_another_name(config_dir):
    """The message said that the package has no such name, which the user's file has."""
    (config_dir / "trainer.py").write_text("def net(): pass")
    (config_dir / "config.py").write_text("from trainer import net")
    with pytest.raises(DataError, match="; this program has a package trainer, which hides a module of that name"):
        parse_config("config.py")
    assert not script_errors.hidden_module_hint("json") and not script_errors.hidden_module_hint("paddle.v3")


def test_no_hint_proposes_the_word_that_was_written():
    of_providers = (*names.PROVIDER_NAMES, *names.WRAPPER_NAMES)
    for name in ("Import", *names.built("v1"), *of_providers, *names.helper_names()):
        assert names.suggestion(name).startswith(("; add the line `from ", "; a config calls ")), name


def test_the_names_of_providers_are_those_of_their_module():
    modules = {"cPickle", "collections", "functools", "itertools", "logging"}
    assert {*names.PROVIDER_NAMES} | modules == {*PyDataProvider2.__all__}
    assert {*names.WRAPPER_NAMES, "provider"} == {*PyDataProviderWrapper.__all__}


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
