"""Settings for the optimiser, the local updater, and the spelling of predictions."""

import contextlib

import numpy as np
import pytest

from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.proto.TrainerConfig_pb2 import OptimizationConfig
from paddle_base.runtime.errors import ConfigError, VolumeError
from pserver.optim.settings import Optimization, ParameterSpec
from trainer.arrays.arguments import Argument, Sparse
from trainer.arrays.parameters import ParameterTable
from trainer.storage.predictions import PredictionFile
from trainer.updaters.local import LocalUpdater, Updater
from trainer.updaters.optimizer_settings import Sending, list_oddities, read_optimization, read_sending


def settings(**fields):
    return OptimizationConfig(**{"batch_size": 4, "algorithm": "sgd", "learning_rate": 0.5, **fields})


def test_an_updater_has_only_the_methods_that_it_needs():
    """Six updaters each wrote two to four methods that return at once."""

    class Counting(Updater):
        steps = 0

        def connect(self, restored=None):
            return None

        def step(self, samples, checkpoint=False):
            self.steps += 1
            return checkpoint

        def gather_checkpoint(self, own):
            return None

        def finish_pass(self, own=None):
            pass

    updater = Counting()
    updater.check()
    updater.start_pass(3)
    updater.prefetch({})
    assert updater.begin_step(4) is None
    with updater.averaged():
        assert updater.step(4, checkpoint=True) is True
    assert updater.rates(None) is None
    updater.finish()
    updater.abort("why")
    with pytest.raises(TypeError, match="abstract"):
        Updater()


def test_all_settings_of_the_optimiser_are_read():
    found = read_optimization(
        settings(
            learning_method="adam", learning_rate_schedule="exp", learning_rate_decay_a=0.5, learning_rate_decay_b=8
        ),
        local=True,
    )
    assert found == Optimization("adam", 0.5, "exp", 0.5, 8.0, "", 0.9, 0.999, 1e-8, 1e-6, 0.95, 0, None)


def test_a_limit_of_the_average_is_known_from_no_limit():
    found = read_optimization(settings(average_window=0.5, max_average_window=100, ada_rou=0.9), local=True)
    assert (found.average_window, found.max_average_window, found.ada_rou) == (0.5, 100, 0.9)


@pytest.mark.parametrize(
    ("fields", "local", "message"),
    [
        ({"algorithm": "owlqn"}, True, "Unsupported algorithm: owlqn"),
        ({"num_batches_per_send_parameter": 2}, True, "in local training it must be 1"),
        ({"learning_method": "delta"}, False, "learning_method 'delta' is not known; known: adadelta"),
        ({"learning_method": "adagrad2"}, True, "learning_method 'adagrad2' is not known"),
        ({"batch_size": 0}, True, "batch_size=0"),
    ],
)
def test_settings_that_are_not_supported_are_named(fields, local, message):
    with pytest.raises(ConfigError, match=message):
        read_optimization(settings(**fields), local=local)


def test_asynchronous_training_is_the_synchronous_one_without_servers():
    config = settings(algorithm="async_sgd", async_lagged_grad_discard_ratio=2.5)
    assert read_optimization(config, local=True).algorithm == "sgd"
    found = read_optimization(config, local=False)
    assert (found.algorithm, found.async_lagged_grad_discard_ratio) == ("async_sgd", 2.5)


def test_how_often_trainers_speak_with_the_servers():
    assert read_sending(settings(), trainers=1) == Sending()
    assert read_sending(settings(num_batches_per_get_parameter=3), trainers=1) == Sending(batches_per_get=3)
    often = {"num_batches_per_send_parameter": 4, "delta_add_rate": 2.0}
    assert read_sending(settings(**often), trainers=4) == Sending(4, 1, 0.5)
    elastic = settings(**often, center_parameter_update_method="elastic_average")
    assert read_sending(elastic, trainers=4) == Sending(4, 1, 0.5, is_elastic=True)


@pytest.mark.parametrize(
    ("fields", "trainers", "message"),
    [
        ({"num_batches_per_send_parameter": 2}, 1, "needs more than one trainer: --num_gradient_servers is 1"),
        (
            {"num_batches_per_send_parameter": 2, "center_parameter_update_method": "median"},
            2,
            "center_parameter_update_method is 'median'; with num_batches_per_send_parameter=2 it must be average or",
        ),
        ({"num_batches_per_send_parameter": 0}, 2, "num_batches_per_send_parameter is 0; it must be at least 1"),
        ({"num_batches_per_get_parameter": -1}, 2, "num_batches_per_get_parameter is -1; it must be at least 1"),
    ],
)
def test_impossible_exchanges_are_named(fields, trainers, message):
    with pytest.raises(ConfigError, match=message):
        read_sending(settings(**fields), trainers=trainers)
    assert read_sending(settings(center_parameter_update_method="median"), trainers=1) == Sending()


def test_settings_of_the_exchange_that_the_original_ignored_or_could_not_do_are_named():
    plain = [ParameterSpec("w", 2, gradient_clipping_threshold=1.0, num_batches_regularization=4, decay_rate=0.1)]

    def oddities(sending, **settings):
        return list_oddities(plain, Optimization(**settings), local=False, sending=sending)

    assert oddities(Sending()) == []
    assert ["the original ignored this setting" in line for line in oddities(Sending(batches_per_get=2))] == [True]
    assert ["does not clip" in line for line in oddities(Sending(4))] == [True]
    assert ["does not clip" in line or "decays in every" in line for line in oddities(Sending(5, 2))][:2] == [True] * 2
    assert "come with every exchange" in oddities(Sending(5, 2))[2]
    by_pass = oddities(Sending(), algorithm="async_sgd", learning_rate_schedule="pass_manual")
    assert ["do not count passes for dense parameters" in line for line in by_pass] == [True]


def test_clipping_is_warned_of_in_local_training_only():
    clipped = [ParameterSpec("w", 2, gradient_clipping_threshold=1.0)]
    assert "does not clip gradients" in list_oddities(clipped, Optimization(), local=True)[0]
    assert list_oddities(clipped, Optimization(), local=False) == []


def test_a_local_step_changes_the_networks_own_values_unclipped():
    table = ParameterTable([ParameterConfig(name="w", size=2, gradient_clipping_threshold=0.1)])
    table["w"].value[:] = [1, 2]
    updater = LocalUpdater(table, Optimization(learning_rate=0.5))
    table["w"].gradient[:] = [2, -4]
    updater.start_pass()
    updater.step(1)
    updater.finish_pass()
    assert table["w"].value.tolist() == [0, 4]


def test_predictions_are_spelt_output_by_output(tmp_path):
    file = PredictionFile(str(tmp_path), 3)
    sparse = Sparse(9, np.array([0, 2, 2]), np.array([4, 7]), np.array([0.5, 2], np.float32))
    plain = Sparse(9, np.array([0, 2, 2]), np.array([4, 7]))
    values = np.array([[0.648047, 1e-7], [1, 2]], np.float32)
    outputs = [Argument(ids=np.array([0, 1])), Argument(value=values), Argument(sparse=sparse), Argument(sparse=plain)]
    with file:
        file.write(dict(zip("abcd", outputs, strict=True)))
    assert (tmp_path / "rank-00003").read_text() == "0;0.648047 1e-07;4:0.5 7:2;4 7;\n1;1 2;;;\n"


def test_earlier_predictions_stay_until_all_new_ones_are_there(tmp_path):
    """A test whose model was missing emptied the file, and one with a fault in the middle left half of it."""
    (tmp_path / "rank-00000").write_text("1;\n2;\n")
    for fault in (ValueError("no such row"), None):
        with contextlib.suppress(ValueError), PredictionFile(str(tmp_path), 0) as file:
            for _ in range(2):
                file.write({"a": Argument(ids=np.array([7]))})
            assert (tmp_path / "rank-00000").read_text() == "1;\n2;\n"
            if fault is not None:
                raise fault
        assert (tmp_path / "rank-00000").read_text() == ("1;\n2;\n" if fault else "7;\n7;\n")
    with PredictionFile(str(tmp_path), 0):
        pass
    assert (tmp_path / "rank-00000").read_text() == ""


def test_every_frame_of_a_sequence_is_a_row_and_the_first_output_says_how_many(tmp_path):
    frames = Argument(value=np.array([[1], [2], [3]], np.float32), starts=np.array([0, 2, 2, 3]))
    with PredictionFile(str(tmp_path), 0) as file:
        file.write({"a": frames, "b": Argument(ids=np.array([7, 8, 9]), starts=frames.starts)})
        file.write({"b": Argument(ids=np.array([5])), "a": frames})  # what the original does: case predict_outputs
        with pytest.raises(ConfigError, match=r"an output has fewer rows than the first output, .*: a 3, b 2"):
            file.write({"a": frames, "b": Argument(ids=np.array([7, 8]))})
    assert (tmp_path / "rank-00000").read_text() == "1;7;\n2;8;\n3;9;\n5;1;\n"


def test_predictions_that_cannot_be_written_are_a_volume_error(tmp_path):
    with pytest.raises(VolumeError, match=r"--predict_output_dir: cannot make .*/a/b: No such file"):
        PredictionFile(str(tmp_path / "a" / "b"), 0)
