"""A job without data is told how both forms of configs name their data."""

from types import SimpleNamespace

import pytest

from paddle_base.runtime.errors import ConfigError
from trainer.training import testing
from trainer.training.parts import Parts


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (
            testing.Testing,
            r"a test_list to define_py_data_sources2, or call TestData\(...\) in a config of the raw form",
        ),
        (Parts.training_data, r"a train_list to define_py_data_sources2, or call TrainData\(...\) in a config of the"),
    ],
)
def test_a_job_without_data_names_both_forms(start, said):
    with pytest.raises(ConfigError, match=said):
        start(SimpleNamespace(test=None, train=None))
