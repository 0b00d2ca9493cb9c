"""Who a trainer is at the master, what its config is, and which lists make tasks."""

import pickle

import pytest

from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.tasks.joining import check_entries, digest_config, name_trainer, spell


def test_the_name_of_a_trainer():
    assert name_trainer("a", {"POD_UID": "b"}) == "a"
    assert name_trainer("", {"POD_UID": "b"}) == "b"
    first, second = (name_trainer("", {}) for _ in range(2))
    assert first != second and len(first) <= 200
    with pytest.raises(ConfigError, match="has 201 characters; it may have at most 200"):
        name_trainer("x" * 201, {})


def make_config(arguments=None, **fields):
    config = TrainerConfig()
    config.model_config.type = "nn"
    config.opt_config.batch_size = 4
    config.opt_config.algorithm = "sgd"
    data = config.data_config
    data.type, data.files, data.load_data_module, data.load_data_object = "py2", "data/train.list", "module", "process"
    if arguments is not None:
        data.load_data_args = pickle.dumps(arguments, 0).decode("latin-1")
    for name, value in fields.items():
        setattr(config.opt_config if name == "batch_size" else data, name, value)
    return config


def digest(*given, **fields):
    return digest_config(make_config(*given, **fields), is_own=True)


def test_configs_differ_by_network_settings_and_provider_and_not_by_paths():
    same = digest({"words": {"a": 0, "b": 1}, "kinds": {"x", "y", "z"}})
    assert same == digest({"words": {"a": 0, "b": 1}, "kinds": {"z", "y", "x"}}, files="/elsewhere/train.list")
    others = [
        digest(),
        digest({"words": {"b": 1, "a": 0}, "kinds": {"x", "y", "z"}}),
        digest({"words": {"a": 0, "b": 1}, "kinds": {"x", "y"}}),
        digest({"words": {"a": 0, "b": 1}, "kinds": {"x", "y", "z"}}, batch_size=5),
        digest({"words": {"a": 0, "b": 1}, "kinds": {"x", "y", "z"}}, load_data_object="other"),
    ]
    assert len({same, *others}) == 6


class Unlike:
    """An object whose text differs in every process."""


def test_equal_values_are_spelt_alike():
    assert list(spell([1, ("a", None), 2.5, b"c", True])) == list(spell((1, ["a", None], 2.5, b"c", True)))
    assert list(spell({"k": Unlike()})) == list(spell({"k": Unlike()}))
    texts = ["".join(spell(one)) for one in ([1, [2]], [[1], 2], [1, 2], "1", 1, {1: 2}, {1, 2}, [], {}, set())]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("entries", "message"),
    [([], "the list of training data train.list is empty"), (["a", " ", "b"], "line 2 of the list .* is blank")],
)
def test_a_list_that_makes_no_tasks(entries, message):
    with pytest.raises(DataError, match=message):
        check_entries(entries, "train.list")
    check_entries(["a"], "train.list")
