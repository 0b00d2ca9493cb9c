"""define_py_data_sources2 (specification 14)."""

import pickle
from pathlib import Path

import pytest

from paddle_base.runtime.errors import ConfigError, VolumeError


def test_both_sources_are_written_with_all_their_fields(parse_text):
    config = parse_text("define_py_data_sources2('train.list', 'test.list', 'provider', 'process')")
    train, test = config.data_config, config.test_data_config
    assert (train.type, train.files, train.load_data_module, train.load_data_object) == (
        "py2",
        "train.list",
        "provider",
        "process",
    )
    assert (train.for_test, test.for_test, test.files) == (False, True, "test.list")
    for field in ("async_load_data", "load_data_args", "data_ratio", "is_main_data", "usage_ratio"):
        assert train.HasField(field)


def test_a_list_that_is_none_is_no_source(parse_text):
    config = parse_text("define_py_data_sources2(None, 'test.list', 'provider', 'process')")
    assert not config.HasField("data_config") and config.HasField("test_data_config")


ARGS = [{"dictionary": {"a": 1}}, 2.5, {"name": "Zürich \u4e2d"}, {"raw": b"\x00\xff"}]


@pytest.mark.parametrize("args", ARGS, ids=str)
def test_arguments_are_a_pickle_of_protocol_0_whose_bytes_are_latin_1(parse_text, args):
    packed = parse_text(f"define_py_data_sources2('l', None, 'm', 'o', args={args!r})").data_config.load_data_args
    assert packed.encode("latin-1")[:1] != b"\x80"  # which later protocols begin with
    assert pickle.loads(packed.encode("latin-1")) == args


def test_a_text_is_a_finished_pickle_and_nothing_is_empty(parse_text):
    config = parse_text("define_py_data_sources2('l', 'l', 'm', 'o', args=['I3\\n.', None])")
    assert config.data_config.load_data_args == "I3\n."
    assert config.test_data_config.load_data_args == ""


def test_what_map_gave_can_be_an_argument(parse_text):
    packed = parse_text("define_py_data_sources2('l', None, 'm', 'o', args={'words': map(str.upper, ['a', 'b'])})")
    assert pickle.loads(packed.data_config.load_data_args.encode("latin-1")) == {"words": ["A", "B"]}


def test_entries_in_a_python_list_are_written_one_per_line(parse_text, config_dir):
    """The legacy wrote them without separators, so that two entries became one."""
    config = parse_text("define_py_data_sources2(['a.txt', 'b.txt\\n', 'c.txt'], ['no_matter.txt'], 'm', 'o')")
    assert (config.data_config.files, config.test_data_config.files) == ("train.list", "test.list")
    assert (config_dir / "train.list").read_text() == "a.txt\nb.txt\nc.txt\n"
    assert (config_dir / "test.list").read_text() == "no_matter.txt\n"


def test_a_list_that_cannot_be_written_is_a_matter_of_the_volume(parse_text, config_dir):
    (config_dir / "train.list").mkdir()
    with pytest.raises(VolumeError, match=r"the entries of train_list: cannot write train\.list: Is a directory"):
        parse_text("define_py_data_sources2(['a'], None, 'm', 'o')")


@pytest.mark.parametrize(
    "call, message",
    [
        (
            "define_py_data_sources2('l', None, 'm', 'o')\ndefine_py_data_sources2('l', None, 'm', 'o')",
            "config.py line 3: .*the training data is defined twice",
        ),
        ("define_py_data_sources2('l', None, ['m'], 'o')", "must have two items"),
        ("define_py_data_sources2('l', None, 3, 'o')", "module is 3; it must be a text"),
        ("define_py_data_sources2('l', None, 'm', 'o', args=lambda: 1)", "it must be something that can be pickled"),
        ("define_py_data_sources2('l', None, 'm')", "missing a required argument: 'obj'"),
    ],
    ids=str,
)
def test_impossible_sources_are_refused(parse_text, call, message):
    with pytest.raises(ConfigError, match=message):
        parse_text(call)


def test_the_elder_function_makes_sources_of_type_py(parse_text):
    config = parse_text("data_sources.define_py_data_sources('a', 'b', ['m', 'n'], 'o', {'x': 1}, train_async=True)")
    train, test = config.data_config, config.test_data_config
    assert (train.type, test.type, train.async_load_data, test.async_load_data) == ("py", "py", True, False)
    assert (train.load_data_module, test.load_data_module, train.load_data_object) == ("m", "n", "o")
    assert pickle.loads(train.load_data_args.encode("latin-1")) == {"x": 1}


@pytest.mark.parametrize("more, kind", [("", "py"), (", data_cls=None", "py2")])
def test_the_eldest_function_makes_one_source(parse_text, config_dir, more, kind):
    config = parse_text(
        "from paddle.trainer_config_helpers.data_sources import define_py_data_source\n"
        f"define_py_data_source('a', TrainData, 'm', 'o', {{'x': 1}}, True{more})\n"
        f"define_py_data_source(['b'], TestData, 'm', 'o'{more})"
    )
    train, test = config.data_config, config.test_data_config
    assert (train.type, train.files, train.async_load_data, train.for_test) == (kind, "a", True, False)
    assert (train.load_data_module, train.load_data_object) == ("m", "o")
    assert pickle.loads(train.load_data_args.encode("latin-1")) == {"x": 1}
    assert (test.type, test.files, test.async_load_data, test.for_test) == (kind, "test.list", False, True)
    assert (config_dir / "test.list").read_text() == "b\n"
    with pytest.raises(ConfigError, match="cls is 'TrainData'; it must be TrainData or TestData"):
        parse_text("data_sources.define_py_data_source('a', 'TrainData', 'm', 'o')")


def test_a_list_in_the_config_replaces_a_file_of_the_user_only_with_a_warning(parse_text, capsys):
    """A config with train_list=['a'] wrote over the file train.list in silence."""
    source = "define_py_data_sources2(['a', 'b'], None, module='m', obj='f')\nsettings(batch_size=1, learning_rate=1)"
    for _ in range(2):
        parse_text(source)
    assert Path("train.list").read_text() == "a\nb\n" and "replace" not in capsys.readouterr().err
    Path("train.list").write_text("of the user\n")
    parse_text(source)
    told = "the entries of train_list in the config replace the content of the file train.list"
    assert told in capsys.readouterr().err and Path("train.list").read_text() == "a\nb\n"
