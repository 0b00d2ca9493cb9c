"""Training without servers: the two local modes, averages around tests and saves, pruning."""

import json

import numpy as np
import pytest

from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.runtime.errors import ConfigError
from pserver.optim.settings import Optimization
from pserver.store.snapshot import CheckpointState, Part
from trainer.arrays.parameters import ParameterTable
from trainer.telemetry import log_lines
from trainer.updaters.local import LocalUpdater
from trainer.updaters.optimizer_settings import has_sparse_rows, list_oddities
from trainer.updaters.pruning import choose_kept


def parameter(name="w", rows=1, columns=2, hook=None, **fields):
    config = ParameterConfig(name=name, size=rows * columns, dims=[rows, columns], **fields)
    if hook is not None:
        config.update_hooks.add(type="pruning", sparsity_ratio=hook)
    return config


def start(*configs, values=1.0, method="momentum", log_clipping=False, **settings):
    table = ParameterTable(configs)
    for one in table:
        one.value[:] = values
    updater = LocalUpdater(table, Optimization(method, 0.5, **settings), log_clipping=log_clipping)
    updater.connect()
    updater.start_pass()
    return table, updater


def specs(*configs):
    return [one.spec() for one in ParameterTable(configs)]


# ----- Modes -----


def test_one_sparse_parameter_gives_all_of_them_an_optimiser_of_their_own():
    """Clipping and L1, which plain local training does not have, work beside a sparse parameter."""
    table, updater = start(
        parameter("table", 3, 2, sparse_update=True),
        parameter("frozen", is_static=True),
        parameter("w", gradient_clipping_threshold=2.0),
        parameter("l1", decay_rate_l1=0.5),
    )
    table.clear_gradients()
    table["table"].add_rows(np.array([2, 0, 2]), np.ones((3, 2), np.float32))
    table["w"].add_gradient(np.array([8, 1], np.float32))
    table["l1"].add_gradient(np.zeros(2, np.float32))
    updater.step(1)
    assert table["table"].matrix(3, 2).tolist() == [[0.5, 0.5], [1, 1], [0, 0]]
    assert table["w"].value.tolist() == [0, 0.5]
    assert table["l1"].value.tolist() == [0.75, 0.75]
    assert table["frozen"].value.tolist() == [1, 1]


def test_a_row_that_is_not_touched_decays_for_tests_and_saves_and_at_the_end_of_the_pass():
    table, updater = start(parameter("table", 2, 1, sparse_update=True, decay_rate=0.5), values=8.0)
    table.clear_gradients()
    table["table"].add_rows(np.array([0]), np.zeros((1, 1), np.float32))
    updater.step(1)
    assert table["table"].value.tolist() == pytest.approx([6.4, 8])
    with updater.averaged():
        assert table["table"].value.tolist() == pytest.approx([6.4, 6.4])
    table.clear_gradients()
    updater.step(1)
    assert table["table"].value.tolist() == pytest.approx([6.4, 6.4])
    updater.finish_pass()
    assert table["table"].value.tolist() == pytest.approx([5.12, 5.12])


def test_l1_of_dense_parameters_is_refused_with_what_to_do():
    with pytest.raises(ConfigError, match=r"parameter w has L1 decay .* take l1_rate out"):
        start(parameter(decay_rate_l1=0.1))
    start(parameter(decay_rate_l1=0.1, is_static=True))


def test_a_static_table_is_no_sparse_training():
    assert has_sparse_rows(specs(parameter(sparse_update=True)))
    assert not has_sparse_rows(specs(parameter(sparse_update=True, is_static=True), parameter("v")))


def test_settings_without_effect_depend_on_the_mode():
    odd = parameter(gradient_clipping_threshold=1.0, num_batches_regularization=2, decay_rate=0.1)
    sparse = parameter("table", sparse_update=True)
    assert [text.split(" (")[1].split(")")[0] for text in list_oddities(specs(odd), Optimization(), local=True)] == [
        "gradient_clipping_threshold",
        "num_batches_regularization",
    ]
    assert list_oddities(specs(odd, sparse), Optimization(), local=True) == []
    assert list_oddities(specs(odd), Optimization(), local=False) == []


def test_asynchronous_training_is_synchronous_without_servers():
    (sentence,) = list_oddities(specs(parameter()), Optimization(), local=True, algorithm="async_sgd")
    assert sentence.startswith("local training is synchronous") and sentence.endswith("the setting has no effect")


def test_clipping_is_logged_on_demand(capsys):
    for log_clipping in (False, True):
        table, updater = start(
            parameter("table", sparse_update=True),
            parameter("w", gradient_clipping_threshold=2.0),
            log_clipping=log_clipping,
        )
        table.clear_gradients()
        table["w"].add_gradient(np.array([3, 1], np.float32))
        updater.step(1)
        assert ("parameter=w need clipping, max grad=3 avg grad=2" in capsys.readouterr().err) is log_clipping


# ----- Averages -----


def test_tests_and_saves_see_the_average_and_training_goes_on_with_the_values():
    table, updater = start(parameter(), values=0.0, average_window=1.0)
    for _ in range(3):
        table.clear_gradients()
        table["w"].add_gradient(np.array([-2, -4], np.float32))
        updater.step(1)
    with updater.averaged():
        assert table["w"].value.tolist() == [2, 4]
    assert table["w"].value.tolist() == [3, 6]
    with pytest.raises(ZeroDivisionError), updater.averaged():
        raise ZeroDivisionError
    assert table["w"].value.tolist() == [3, 6]


# ----- Rates of elements -----


def test_the_statistics_show_the_rates_of_elements():
    table, updater = start(parameter("a", 1, 1), parameter("s", is_static=True), parameter("w"), method="adagrad")
    table.clear_gradients()
    table["w"].add_gradient(np.array([2, 0], np.float32))
    updater.step(1)
    line = log_lines.statistics_line(table["w"], updater.rates(table["w"]))
    assert line.endswith("max_grad=2           max_lr=       1000 min_lr=        0.5 avg_lr=     500.25")
    assert updater.rates(table["s"]) is None
    assert updater.rates(table["a"]) == pytest.approx([1000])


def test_methods_without_rates_of_elements_show_none():
    table, updater = start(parameter())
    assert updater.rates(table["w"]) is None


# ----- Pruning -----


@pytest.mark.parametrize(
    ("ratio", "kept"), [(0.6, [1, 3]), (0.0, [0, 1, 2, 3, 4]), (1.0, []), (0.5, [1, 3]), (0.4, [0, 1, 3])]
)
def test_the_largest_magnitudes_are_kept_and_of_equal_ones_the_first(ratio, kept):
    values = np.array([0.5, -2, 0.5, 1, 0.25], np.float32)
    assert np.flatnonzero(choose_kept(values, ratio)).tolist() == kept


def test_pruned_values_become_zero_and_stay_so():
    table, updater = start(parameter(columns=4, hook=0.5, momentum=0.5), values=[1, -3, 2, 0.5])
    assert table["w"].value.tolist() == [0, -3, 2, 0]
    for _ in range(2):
        table.clear_gradients()
        table["w"].add_gradient(np.ones(4, np.float32))
        updater.step(1)
    assert table["w"].value.tolist() == [0, -4.25, 0.75, 0]


def test_a_pruned_static_parameter_is_pruned_once():
    table, updater = start(parameter(columns=4, hook=0.5, is_static=True), parameter("v"), values=1.0)
    table.clear_gradients()
    updater.step(1)
    assert table["w"].value.tolist() == [1, 1, 0, 0]


def test_another_hook_is_refused():
    config = parameter()
    config.update_hooks.add(type="dpruning")
    with pytest.raises(ConfigError, match="parameter w: Unknown Hook type: dpruning"):
        start(config)


@pytest.mark.parametrize("ratio", [-0.1, 1.5])
def test_an_impossible_ratio_is_refused(ratio):
    with pytest.raises(ConfigError, match=f"sparsity_ratio of its HookAttr is {ratio}"):
        start(parameter(hook=ratio))


# ----- With servers -----


# ----- Checkpoints -----


def test_another_updater_goes_on_from_what_was_captured():
    """Pruned values stay pruned, also where a kept one has become zero; velocities and counters go over."""
    config = parameter("w", 1, 4, hook=0.5, momentum=0.5)
    table, updater = start(config, values=[4.0, 3.0, 2.0, 1.0])
    other, following = start(config, values=[1.0, 2.0, 3.0, 4.0])
    step(table, updater, [0, 6, 5, 5])
    assert table["w"].value.tolist() == [4, 0, 0, 0]
    gathered = updater.gather_checkpoint({"batches": 1})
    gathered = CheckpointState(
        [Part(one.counters, {name: array.copy() for name, array in one.arrays.items()}) for one in gathered.services],
        json.loads(json.dumps(gathered.trainers)),
    )
    assert following.connect(gathered)["batches"] == 1
    for one in ((table, updater), (other, following)):
        step(*one, [1, 1, 1, 1])
    assert table["w"].value.tolist() == other["w"].value.tolist() == [3.5, -2, 0, 0]
    assert updater.gather_checkpoint({}).services[0].counters == following.gather_checkpoint({}).services[0].counters


def step(table, updater, gradient):
    table.clear_gradients()
    table["w"].add_gradient(np.array(gradient, np.float32))
    assert updater.step(1) is False


def test_a_checkpoint_of_several_services_is_not_for_local_training():
    _, updater = start(parameter())
    gathered = updater.gather_checkpoint({})
    with pytest.raises(ConfigError, match="made with 2 services"):
        updater.connect(CheckpointState(gathered.services * 2, gathered.trainers))
