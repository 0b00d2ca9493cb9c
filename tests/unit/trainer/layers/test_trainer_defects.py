"""Where the original is wrong, ours is right, and differs from its recorded numbers by that defect alone.

Each test trains a recorded configuration twice: as it is, and with a model of the defect, which is here and nowhere in
the product. With the model ours gives the recorded numbers. docs/compat.md lists the defects by the cases' names.
"""

import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from small_runs import lay_out, read_cases, sample

from trainer.arrays.activations import SequenceSoftmax
from trainer.config.scripts.python2 import use_directories
from trainer.flags import parse_flags
from trainer.layers.cost.class_sampling import ClassCost
from trainer.layers.image.batch_norm import BatchNormLayer
from trainer.layers.mixed.mixed import JoinedProjectionsLayer
from trainer.layers.mixed.projections import ScalingProjection
from trainer.training.assembly import Assembly
from trainer.training.saves import Saves

RECORDED = read_cases()
RATE = 0.05  # learning rate of every configuration
FLAGS = ["--save_dir=out", "--num_passes=2", "--seed=1", "--thread_local_rand_use_global_seed=true", "--dot_period=0"]
FLAGS += ["--use_gpu=false", "--saving_period_by_batches=1"]  # with a test before every save, which draws numbers, too


@pytest.fixture
def train(tmp_path, monkeypatch):
    """A function that trains a case and returns whether the parameters at its end are those that are recorded."""
    monkeypatch.chdir(tmp_path)
    lay_out(tmp_path)

    def run(case, old="", new=""):
        text = (tmp_path / f"{case}.py").read_text()
        assert old in text
        (tmp_path / "config.py").write_text(text.replace(old, new) if old else text)
        use_directories(forget=True)
        shutil.rmtree("out", ignore_errors=True)
        assembly = Assembly(parse_flags(["--config=config.py", *FLAGS]))
        try:
            training = assembly.training()
            training.run()
            training.parts.reporter.end(0)
        finally:
            assembly.end()
        return all(
            np.allclose(sample(Path(path.replace("output", "out"))), values, rtol=2e-5, atol=2e-6)
            for path, values in RECORDED[case]["parameters"].items()
            if path.startswith("output/pass-00001/")
        )

    yield run
    use_directories(forget=True)


def test_sequence_softmax_of_the_original_has_the_derivative_of_its_first_sequence_only(train, monkeypatch):
    """In the other sequences of a batch it hands the gradient on unchanged."""
    assert not train("act_sequence_softmax")
    right = SequenceSoftmax.backward

    def wrong(self, g, y, z, starts=None):
        end = starts[1]
        return np.concatenate([right(self, g[:end], y[:end], z[:end], starts[:2]), g[end:]])

    monkeypatch.setattr(SequenceSoftmax, "backward", wrong)
    assert train("act_sequence_softmax")


@pytest.mark.parametrize("case", ["cost_hsigmoid", "cost_nce"])
def test_costs_of_many_classes_of_the_original_hand_back_gradients_of_weights_updated_already(train, monkeypatch, case):
    """Local training of the original makes a parameter's step inside of the backward pass."""
    assert not train(case)
    right = ClassCost.spread

    def wrong(self, gradient, wanted):
        right(self, gradient, [False] * len(wanted))  # the gradients of the parameters
        results = [None] * len(wanted)
        for position, (x, weight) in enumerate(zip(self._inputs, self._weights, strict=True)):
            updated = weight.value - np.float32(RATE) * weight.peek_gradient()
            results[position] = np.zeros_like(x)
            pieces = gradient[:, None] * updated.reshape(self._nodes, -1)[self._classes]
            np.add.at(results[position], self._rows, pieces)
        return results

    monkeypatch.setattr(ClassCost, "spread", wrong)
    assert train(case)


def test_minus_a_number_of_the_original_adds_the_number(train):
    assert not train("layer_math")
    assert train("layer_math", old="- 0.5", new="+ 0.5")


def test_a_scaling_projection_of_the_original_hands_back_a_gradient_of_its_updated_weight(train, monkeypatch):
    assert not train("mixed_projections")
    right = ScalingProjection.backward

    def wrong(self, gradient, is_wanted):
        right(self, gradient, False)
        return gradient * (self.weight.value - np.float32(RATE) * self.weight.peek_gradient())

    monkeypatch.setattr(ScalingProjection, "backward", wrong)
    assert train("mixed_projections")


def test_batch_norm_of_the_original_moves_its_averages_in_tests_too(train, monkeypatch):
    """With use_global_stats=False."""
    assert not train("batch_norm_global")
    right = BatchNormLayer._normalise_by_batch

    def wrong(self, x, out):
        mean, variance = right(self, x, out)
        if not self.is_training:
            self._move(mean, variance)
        return mean, variance

    @contextmanager
    def save_after_test(self, name, position):  # as the original did
        yield
        self.write(name, position)

    monkeypatch.setattr(BatchNormLayer, "_normalise_by_batch", wrong)
    monkeypatch.setattr(Saves, "before_test", save_after_test)
    assert train("batch_norm_global")


def test_joined_projections_of_the_original_add_an_identity_with_the_wrong_stride(train, monkeypatch):
    """Its rows lie one after the other from its first column on, as if the joined rows were as narrow as it is."""
    assert not train("concat_projections")

    def find(rows, begin, part):
        return rows.reshape(-1)[begin : begin + part.size].reshape(part.shape)

    def wrong_forward(self, inputs):
        rows = np.zeros((len(inputs[0].value), self.size), np.float32)
        parts = [self._projections[position].forward(one) for position, one in enumerate(inputs)]
        rows[:, : self._ends[0]] += parts[0]
        target = find(rows, self._ends[0], parts[1])
        target += parts[1]
        return inputs[0].with_value(rows)

    def wrong_backward(self, gradient, wanted):
        flat = np.ascontiguousarray(gradient)
        first = self._projections[0].backward(flat[:, : self._ends[0]], wanted[0])
        width = self.size - self._ends[0]
        return [first, find(flat, self._ends[0], np.empty((len(flat), width))).copy()]

    monkeypatch.setattr(JoinedProjectionsLayer, "forward", wrong_forward)
    monkeypatch.setattr(JoinedProjectionsLayer, "backward", wrong_backward)
    assert train("concat_projections")
