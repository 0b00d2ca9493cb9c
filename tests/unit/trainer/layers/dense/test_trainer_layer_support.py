"""The support table of docs/layers.md says what the code, its tests and the golden files say."""

import pkgutil
from importlib import import_module

import layer_support
import pytest

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer import layers
from trainer.config.scripts.python2 import use_directories
from trainer.config.v1.layer_types import _RECORDS, LAYER_TYPES
from trainer.config.v1.layers import LayerType
from trainer.flags import list_warnings, parse_flags
from trainer.layers import LAYERS, find_layer
from trainer.layers.base import Layer
from trainer.layers.mixed.embedding import EmbeddingLayer
from trainer.training.assembly import Assembly


def test_the_table_is_up_to_date():
    assert layer_support.page_table() == layer_support.make_table(), "run .venv/bin/python tests/layer_support.py"


def subclasses(kind):
    return {each for one in kind.__subclasses__() for each in (one, *subclasses(one))}


def test_every_record_has_a_class_and_every_class_a_record():
    """A type stood in five tables, and a type that one of them lacked was noticed by nobody: issue M 2.1."""
    for module in pkgutil.walk_packages(layers.__path__, f"{layers.__name__}."):
        import_module(module.name)
    found = {one for one in subclasses(Layer) if one.__module__.startswith("trainer.") and not one.__subclasses__()}
    assert {kind for kind, one in LAYERS.items() if not issubclass(one, Layer)} == set()
    assert found - {EmbeddingLayer} <= set(LAYERS.values())  # find_layer takes EmbeddingLayer for some of type "mixed"
    assert len({one.type for one in _RECORDS}) == len(_RECORDS)
    names = [name for one in _RECORDS for name in one.names.split()]
    assert len(set(names)) == len(names)


def test_what_the_table_is_made_from_is_found():
    kinds = layer_support.language_types()
    assert {"data", "fc", "exconv", "lstmemory", "crf", "priorbox", "seqconcat"} <= kinds
    assert not [kind for kind in kinds if " " in kind or kind.startswith("_")]
    assert {"fc", "pool", "square_error"} <= layer_support.checked_words() & set(LAYERS)
    assert "no such layer" not in layer_support.checked_words()
    assert layer_support.golden_types("trace_lr_") == {"data", "fc", "multi-class-cross-entropy"}


def test_every_layer_that_gradients_flow_through_is_checked():
    rows = [line.strip("| ").split(" | ")[:5] for line in layer_support.make_table().splitlines()]
    assert len(rows) > 100
    assert not [
        row[0] for row in rows if row[2:4] == ["yes", "no"] or row[1:] in (["projection", "no"], ["operator", "no"])
    ]


def rows_of(table):
    """Return type -> the other columns."""
    lines = table.split("| inside of mixed")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line]
    return {row[0].strip("`"): row[1:] for row in rows}


def test_a_type_that_anybody_knows_stands_in_the_table(monkeypatch):
    """The table left out what neither computes nor has a golden message, as mdlstmemory: issue E 23."""
    page = rows_of(layer_support.page_table())
    assert {"mdlstmemory", "auc-validation", "pnpair-validation", "cross_entropy_over_beam"} <= page.keys()
    assert page.keys() == layer_support.all_types() >= layer_support.REGISTERED
    monkeypatch.setattr(LayerType, "NEWEST", "newest", raising=False)
    assert "newest" in rows_of(layer_support.make_table())
    monkeypatch.setitem(LAYER_TYPES, "newer", LAYER_TYPES["addto"])
    assert "newer" in rows_of(layer_support.make_table())


def test_every_type_computes_and_another_one_is_refused_by_name():
    assert {row[1] for row in rows_of(layer_support.page_table()).values()} == {"yes"}
    with pytest.raises(ConfigError, match="layer one: type 'newest' is not supported yet; supported are addto, "):
        find_layer(LayerConfig(name="one", type="newest"))


NETWORK = """
from paddle.trainer_config_helpers import *
define_py_data_sources2("list", None, "provider", "process")
settings(batch_size=1)
x = data_layer("x", 3)
outputs(x)
"""


@pytest.fixture
def assemble(tmp_path, monkeypatch):
    """A function that starts a job of NETWORK with a change."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list").write_text("a\n")
    (tmp_path / "provider.py").write_text(
        "from paddle.trainer.PyDataProvider2 import *\n"
        "@provider(input_types=[dense_vector(3)])\ndef process(settings, name):\n    yield [1.0, 2.0, 3.0]\n"
    )

    def start(old, new, *flags):
        assert old in NETWORK
        (tmp_path / "config.py").write_text(NETWORK.replace(old, new))
        return Assembly(parse_flags(["--config=config.py", *flags])).training()

    yield start
    use_directories(forget=True)


DATA = 'define_py_data_sources2("list", None, "provider", "process")'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("settings(batch_size=1)", 'Settings(batch_size=1, algorithm="owlqn")', "Unsupported algorithm: owlqn"),
        (
            DATA,
            'TrainData(Data(type="dummy", files="list"))',
            "training data of type 'dummy' is not supported",
        ),
    ],
    ids=["owlqn", "dummy"],
)
def test_what_else_is_missing_is_refused_as_the_page_says(assemble, old, new, message):
    with pytest.raises(ConfigError, match=message) as caught:
        assemble(old, new)
    assert caught.value.exit_code == 78


def test_a_setting_without_effect_is_one_warning(assemble, capsys):
    assemble("settings(batch_size=1)", "Settings(batch_size=1, shrink_parameter_value=0.5, learning_rate=0.1)")
    assert capsys.readouterr().err.count("shrink_parameter_value=0.5 has no effect here") == 1
    assert len(list_warnings(parse_flags(["--feat_file=x"]))) == 1


def test_the_page_names_what_is_missing():
    text = layer_support.PAGE.read_text()
    section = text[text.index("## What else of v0.10 is missing") :].split("\n## ")[0]
    for name in ("owlqn", "PyDataProviderWrapper"):
        assert name in section
