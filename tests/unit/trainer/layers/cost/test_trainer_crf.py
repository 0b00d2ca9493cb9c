"""Conditional random fields and connectionist temporal classification against sums over every single path."""

import itertools

import numpy as np
import pytest
from each import each
from layer_checks import check_cost_gradients, make_network

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument

CLASSES = 3
STARTS = np.array([0, 4, 4, 5, 8])
LABEL_STARTS = np.array([0, 2, 3, 3, 5])
LABELS = np.array([1, 1, 2, 1, 2])  # of the sequences of 4, 0, 1 and 3 frames: 1 1, 2, nothing, 1 2


def build(kind, with_fc=True, inputs=("x", "label"), size=CLASSES, active_type="", **extra):
    config = ModelConfig(type="nn", output_layer_names=["out"])
    for name in ("raw", "label", "weight"):
        config.layers.add(name=name, type="data", size=1 if name == "weight" else CLASSES)
    if with_fc:
        below = config.layers.add(name="x", type="fc", size=CLASSES, active_type=active_type)
        below.inputs.add(input_layer_name="raw", input_parameter_name="below")
        config.parameters.add(name="below", size=CLASSES * CLASSES, dims=[CLASSES, CLASSES])
    layer = config.layers.add(name="out", type=kind, size=size, **extra)
    for one in inputs:
        layer.inputs.add(input_layer_name=one if with_fc or one != "x" else "raw")
    if kind.startswith("crf"):
        layer.inputs[0].input_parameter_name = "crfw"
        config.parameters.add(name="crfw", size=CLASSES * (CLASSES + 2), dims=[CLASSES + 2, CLASSES])
    return make_network(config)


def slots(of_frames=True):
    rng = np.random.default_rng(3)
    label = Argument(ids=rng.integers(0, CLASSES, STARTS[-1]).astype(np.int32), starts=STARTS)
    return {
        "raw": Argument(value=rng.normal(size=(STARTS[-1], CLASSES)), starts=STARTS),
        "label": label if of_frames else Argument(ids=LABELS, starts=LABEL_STARTS),
        "weight": Argument(value=np.array([[0.5], [2.0], [3.0], [0.25]])),
    }


def check_gradients(network, table, batch):
    check_cost_gradients(network, table, lambda: network.forward(batch), np.random.default_rng(4), abs=1e-8)
    for parameter in table:
        assert (parameter.gradient != 0).any(), parameter.name


# ----- Conditional random fields -----


def path_score(x, path, parameter):
    start, end, move = parameter[0], parameter[1], parameter[2:]
    moves = sum(move[a, b] for a, b in itertools.pairwise(path))
    return start[path[0]] + end[path[-1]] + sum(row[one] for row, one in zip(x, path, strict=True)) + moves


def all_paths(length):
    return list(itertools.product(range(CLASSES), repeat=length))


@pytest.mark.parametrize("shift", [0, 1000])
def test_crf_cost_is_minus_the_logarithm_of_the_share_of_the_path_among_all(shift):
    network, table = build("crf", with_fc=False)
    batch = slots()
    table["crfw"].value += shift  # makes every score larger, and no path likelier
    cost = network.forward(batch)["out"]
    parameter = table["crfw"].value.reshape(CLASSES + 2, CLASSES)
    expected = []
    for begin, end in itertools.pairwise(STARTS):
        x, path = batch["raw"].value[begin:end], batch["label"].ids[begin:end]
        if begin == end:
            expected.append(0)
            continue
        scores = [path_score(x, one, parameter) for one in all_paths(end - begin)]
        expected.append(np.logaddexp.reduce(scores) - path_score(x, path, parameter))
    np.testing.assert_allclose(cost.value[:, 0], expected, rtol=1e-10, atol=1e-12)
    assert cost.starts is None


@pytest.mark.parametrize("inputs", [("x", "label"), ("x", "label", "weight")])
def test_crf_gradients_agree_with_finite_differences(inputs):
    network, table = build("crf", inputs=inputs)
    check_gradients(network, table, slots())


def test_weights_of_frames_are_refused_in_a_crf():
    """They ended as a bug: operands could not be broadcast."""
    batch = slots() | {"weight": Argument(value=np.ones((STARTS[-1], 1)), starts=STARTS)}
    with pytest.raises(DataError, match=r"8 weights for 4 sequences"):
        build("crf", inputs=("x", "label", "weight"))[0].forward(batch)


def test_weights_of_a_crf_weigh_the_sequences():
    batch = slots()
    plain = build("crf")[0].forward(batch)["out"].value
    weighted = build("crf", inputs=("x", "label", "weight"))[0].forward(batch)["out"].value
    np.testing.assert_allclose(weighted, plain * batch["weight"].value)


def test_coeff_of_a_crf_scales_all_its_gradients_and_not_its_cost():
    results = []
    for coeff in (1.0, 0.5):
        network, table = build("crf", coeff=coeff)
        cost = network.forward(slots())["out"].value
        network.backward()
        results.append((cost, table.gradients.copy()))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_allclose(results[0][1] * 0.5, results[1][1])


def test_crf_decoding_finds_the_path_of_the_highest_score():
    network, table = build("crf_decoding", with_fc=False, inputs=("x",))
    batch = slots()
    found = network.forward(batch)["out"]
    parameter = table["crfw"].value.reshape(CLASSES + 2, CLASSES)
    best = []
    for begin, end in itertools.pairwise(STARTS):
        if begin != end:
            x = batch["raw"].value[begin:end]
            best += max(all_paths(end - begin), key=lambda path, x=x: path_score(x, path, parameter))
    assert found.ids.tolist() == best
    assert found.value is None and found.starts is STARTS


def test_crf_decoding_with_labels_gives_the_errors_of_the_frames():
    batch = slots()
    found = build("crf_decoding", inputs=("x", "label"))[0].forward(batch)["out"]
    np.testing.assert_array_equal(found.value[:, 0], found.ids != batch["label"].ids)
    assert 0 < found.value.sum() < len(found.value)


def test_the_first_of_equally_good_paths_is_taken():
    network, table = build("crf_decoding", with_fc=False, inputs=("x",))
    table.values[:] = 0
    batch = {**slots(), "raw": Argument(value=np.zeros((STARTS[-1], CLASSES)), starts=STARTS)}
    assert not network.forward(batch)["out"].ids.any()


@pytest.mark.parametrize("kind", ["crf", "ctc"])
def test_a_batch_of_empty_sequences_costs_nothing(kind):
    network, table = build(kind, active_type="softmax")
    starts = np.array([0, 0, 0])
    nothing = Argument(value=np.zeros((0, CLASSES)), starts=starts)
    label = Argument(ids=np.zeros(0, np.int32), starts=starts)
    cost = network.forward({"raw": nothing, "label": label, "weight": nothing})["out"]
    network.backward()
    assert cost.value.tolist() == [[0], [0]]
    assert not table.gradients.any()


# ----- Connectionist temporal classification -----


def collapse(path, blank):
    return tuple(label for label, _ in itertools.groupby(path) if label != blank)


def ctc_costs(y, blank):
    for (begin, end), (first, last) in zip(itertools.pairwise(STARTS), itertools.pairwise(LABEL_STARTS), strict=True):
        wanted = tuple(LABELS[first:last])
        paths = [one for one in all_paths(end - begin) if collapse(one, blank) == wanted] if end > begin else []
        total = sum(np.prod(y[np.arange(begin, end), one]) for one in paths)
        yield -np.log(total) if paths else 0


def softmax(z):
    e = np.exp(z)
    return e / e.sum(axis=1, keepdims=True)


def test_warp_ctc_cost_is_that_of_all_paths_that_collapse_to_the_labels():
    batch = slots(of_frames=False)
    cost = build("warp_ctc", with_fc=False, blank=0)[0].forward(batch)["out"].value
    expected = list(ctc_costs(softmax(batch["raw"].value), blank=0))
    assert np.count_nonzero(expected) == 3  # the sequence without frames has no path
    np.testing.assert_allclose(cost[:, 0], expected, rtol=1e-10)


def test_ctc_takes_probabilities_and_the_last_class_is_its_blank():
    batch = slots(of_frames=False)
    y = softmax(batch["raw"].value)
    shifted = {
        **batch,
        "raw": Argument(value=np.roll(y, -1, axis=1), starts=STARTS),
        "label": Argument(ids=LABELS - 1, starts=LABEL_STARTS),
    }
    cost = build("ctc", with_fc=False)[0].forward(shifted)["out"].value
    np.testing.assert_allclose(cost[:, 0], list(ctc_costs(y, blank=0)), rtol=1e-10)


@pytest.mark.parametrize("norm_by_times", [False, True])
@pytest.mark.parametrize(("kind", "active_type"), [("ctc", "softmax"), ("warp_ctc", "")])
def test_ctc_gradients_agree_with_finite_differences(kind, active_type, norm_by_times):
    network, table = build(kind, active_type=active_type, norm_by_times=norm_by_times)
    batch = slots(of_frames=False)
    if kind == "ctc":
        batch["label"] = Argument(ids=LABELS - 1, starts=LABEL_STARTS)
    if norm_by_times:  # concerns the gradient only, so take sequences of one length and scale it back
        batch["raw"] = Argument(value=batch["raw"].value, starts=np.array([0, 4, 8]))
        batch["label"] = Argument(ids=batch["label"].ids[:3], starts=np.array([0, 2, 3]))
        network.forward(batch)
        network.backward()
        normed = table.gradients.copy()
        plain, plain_table = build(kind, active_type=active_type)
        plain.forward(batch)
        plain.backward()
        np.testing.assert_allclose(normed * 4, plain_table.gradients)
    else:
        check_gradients(network, table, batch)


def test_too_few_frames_for_the_labels_cost_nothing():
    """Two equal labels need a blank between them, so three frames."""
    network, table = build("warp_ctc")
    x = Argument(value=np.ones((2, CLASSES)), starts=np.array([0, 2]))
    cost = network.forward({**slots(), "raw": x, "label": Argument(ids=np.array([1, 1]), starts=np.array([0, 2]))})
    network.backward()
    assert cost["out"].value.tolist() == [[0]]
    assert not table.gradients.any()


# ----- What is refused -----


@each(
    ("kind", "label", "error", "message"),
    [
        ("crf", Argument(ids=np.full(8, 3), starts=STARTS), DataError, "label 3 is not in"),
        ("crf", Argument(ids=np.zeros(5, int), starts=LABEL_STARTS), DataError, "same lengths"),
        ("crf", Argument(value=np.zeros((8, 1)), starts=STARTS), ConfigError, "labels of ids"),
        ("crf_decoding", Argument(ids=np.full(8, -1), starts=STARTS), DataError, "label -1 is not in"),
        ("warp_ctc", Argument(ids=np.array([1, 0]), starts=np.array([0, 1, 1, 2, 2])), DataError, "is the blank, 0"),
        ("ctc", Argument(ids=np.array([1, 2]), starts=np.array([0, 1, 1, 2, 2])), DataError, "is the blank, 2"),
        ("ctc", Argument(ids=np.array([1, 1]), starts=np.array([0, 2])), DataError, "the label has 1"),
        ("ctc", Argument(ids=np.array([1, 1])), ConfigError, "in sequences"),
    ],
)
def test_labels_that_do_not_fit_are_refused_by_name(kind, label, error, message):
    with pytest.raises(error, match=message) as caught:
        build(kind)[0].forward({**slots(), "label": label})
    assert "layer out" in str(caught.value)
