"""Detection: boxes by hand, the cost against plain loops and finite differences, and what is found."""

import numpy as np
import pytest
from layer_checks import compare

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.layers import LAYERS
from trainer.layers.image.boxes import decode, encode, match, overlaps, suppress
from trainer.network.check_grads import CheckedVariable

CLASSES, IMAGES = 3, 2


def make(kind, conf, sources):
    """A layer whose inputs' layers have these (size, height, width)."""
    config = LayerConfig(name="tested", type=kind)
    for number, _ in enumerate(sources):
        config.inputs.add(input_layer_name=f"input{number}", **(conf if number == 0 else {}))
    layer = LAYERS[kind](config, ParameterTable([]))
    layer.input_configs = [
        LayerConfig(name=f"input{n}", size=s[0], height=s[1], width=s[2]) for n, s in enumerate(sources)
    ]
    return layer


def test_overlap_is_the_common_share():
    boxes = np.array([[0, 0, 2, 2], [0, 0, 1, 1]], float)
    others = np.array([[1, 1, 3, 3], [0, 0, 2, 2], [5, 5, 6, 6], [2, 0, 3, 2]], float)
    np.testing.assert_allclose(overlaps(boxes, others), [[1 / 7, 1, 0, 0], [0, 1 / 4, 0, 0]])


def test_codes_are_relative_to_priors():
    prior, variance = np.array([[0.2, 0.2, 0.6, 0.4]]), np.array([[0.1, 0.1, 0.2, 0.2]])
    box = np.array([[0.3, 0.1, 0.5, 0.5]])
    code = encode(prior, variance, box)
    np.testing.assert_allclose(code, [[0, 0, np.log(0.5) / 0.2, np.log(2) / 0.2]], atol=1e-12)
    np.testing.assert_allclose(decode(prior, variance, code), box)


def test_every_box_gets_its_best_prior_and_other_priors_the_box_they_fit():
    priors = np.array([[0, 0, 1, 1], [0, 0, 0.9, 1], [0.5, 0, 1.5, 1], [3, 3, 4, 4]], float)
    boxes = np.array([[0, 0, 1, 1], [1, 0, 2, 1], [7, 7, 8, 8]], float)
    found, largest = match(priors, boxes, 0.8)
    # box 1 overlaps prior 2 by a third only, but has no better one; box 2 touches none
    assert found.tolist() == [0, 0, 1, -1]
    np.testing.assert_allclose(largest, [1, 0.9, 1 / 3, 0], atol=1e-12)
    assert match(priors, boxes, 0.95)[0].tolist() == [0, -1, 1, -1]


def test_of_overlapping_boxes_the_best_stays():
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3], [4, 4, 5, 5]], float)
    scores = np.array([0.5, 0.9, 0.7, 0.1])
    assert suppress(boxes, scores, least=0.1, most_overlap=0.5, count=0).tolist() == [1, 2]
    assert suppress(boxes, scores, least=0.1, most_overlap=0.95, count=0).tolist() == [1, 2, 0]
    assert suppress(boxes, scores, least=0.0, most_overlap=0.95, count=2).tolist() == [1, 2]


def test_prior_boxes_lie_around_the_places_of_the_map():
    conf = {"priorbox_conf": {"min_size": [4], "max_size": [9], "aspect_ratio": [4], "variance": [0.1, 0.1, 0.2, 0.2]}}
    layer = make("priorbox", conf, [(6, 1, 2), (3 * 10 * 20, 10, 20)])
    out = layer.forward([Argument(value=np.zeros((2, 6))), Argument(value=np.zeros((2, 600)))]).value
    assert out.shape == (1, 2 * 4 * 8)
    boxes = out.reshape(2, 4, 8)
    np.testing.assert_allclose(boxes[..., 4:], np.broadcast_to([0.1, 0.1, 0.2, 0.2], (2, 4, 4)))
    # the first place's centre is (5, 5): 4 x 4, 6 x 6, 8 x 2, 2 x 8
    halves = np.array([[2, 2], [3, 3], [4, 1], [1, 4]])
    expected = np.hstack([5 - halves, 5 + halves]) / [20, 10, 20, 10]
    np.testing.assert_allclose(boxes[0, :, :4], expected)
    np.testing.assert_allclose(boxes[1, :, :4], expected + np.array([0.5, 0, 0.5, 0]))


def loss_layer():
    """Priors at the four places of a map of 2 x 2 (inputs 2 and 4) and one more (inputs 3 and 5)."""
    conf = {
        "num_classes": CLASSES,
        "overlap_threshold": 0.5,
        "neg_pos_ratio": 1.0,
        "neg_overlap": 0.4,
        "background_id": 0,
        "input_num": 2,
    }
    sources = [(40, 0, 0), (6, 0, 0), (16, 2, 2), (4, 0, 0), (12, 2, 2), (3, 0, 0)]
    return make("multibox_loss", {"multibox_loss_conf": conf}, sources)


def loss_inputs(rng, starts=(0, 2, 3)):
    priors = np.array([[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1], [0.2, 0.2, 0.8, 0.8]])
    priors = np.hstack([priors, np.tile([0.1, 0.1, 0.2, 0.2], (5, 1))])
    labels = np.array([[1, 0.05, 0, 0.5, 0.45, 0], [2, 0.5, 0.5, 0.9, 1, 0], [1, 0.25, 0.2, 0.8, 0.75, 0]])
    predictions = [rng.normal(size=(IMAGES, size)) for size in (16, 4, 12, 3)]
    first = Argument(value=priors.reshape(1, -1)), Argument(value=labels[: starts[-1]], starts=np.array(starts))
    return [*first, *(Argument(value=one) for one in predictions)], priors, labels


def test_the_cost_of_predicted_boxes_equals_loops():
    inputs, priors, labels = loss_inputs(np.random.default_rng(1))
    out = loss_layer().forward(inputs).value
    # C, H, W: number 4 * place of a map is that of plane 0 and so on
    matches = [{0: 0, 3: 1}, {4: 2}]
    cost = 0.0
    for image in range(IMAGES):
        places, scores = np.empty((5, 4)), np.empty((5, CLASSES))
        for place in range(4):
            places[place] = [inputs[2].value[image, plane * 4 + place] for plane in range(4)]
            scores[place] = [inputs[4].value[image, plane * 4 + place] for plane in range(CLASSES)]
        places[4], scores[4] = inputs[3].value[image], inputs[5].value[image]
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        for prior, label in matches[image].items():
            box = labels[label, 1:5]
            size = priors[prior, 2:4] - priors[prior, :2]
            shift = (box[:2] + box[2:] - priors[prior, :2] - priors[prior, 2:4]) / 2 / size
            target = np.concatenate([shift, np.log((box[2:] - box[:2]) / size)]) / [0.1, 0.1, 0.2, 0.2]
            for d in np.abs(places[prior] - target):
                cost += d * d / 2 if d < 1 else d - 0.5
            cost -= np.log(shares[prior, int(labels[label, 0])])
        rest = sorted(set(range(5)) - set(matches[image]), key=lambda prior: -shares[prior, 1:].max())
        for prior in rest[: len(matches[image])]:
            cost -= np.log(shares[prior, 0])
    np.testing.assert_allclose(out, np.full((IMAGES, 1), cost / 3), rtol=1e-10)


@pytest.mark.parametrize("starts", [(0, 2, 3), (0, 0, 2), (0, 0, 0)])
def test_multibox_loss_gradients_agree_with_finite_differences(starts):
    rng = np.random.default_rng(2)
    inputs, *_ = loss_inputs(rng, starts)
    layer = loss_layer()
    layer.forward(inputs)
    flows = layer.backward(np.ones((IMAGES, 1)), [False, False, True, True, True, True])
    assert flows[:2] == [None, None]
    variables = [CheckedVariable(f"input {at}", inputs[at].value, flows[at].copy()) for at in range(2, 6)]
    compare(lambda: layer.forward(inputs).value[0, 0], variables, rng, rel=1e-5, abs=1e-8)
    assert all(starts[-1] == 0 or at in (3, 5) or flows[at].any() for at in range(2, 6))


@pytest.mark.parametrize("label", [-1, CLASSES])
def test_a_label_that_is_no_class_is_refused(label):
    inputs, _, labels = loss_inputs(np.random.default_rng(1))
    wrong = labels.copy()
    wrong[1, 0] = label
    inputs[1] = Argument(value=wrong, starts=inputs[1].starts)
    with pytest.raises(DataError, match=r"class is not in \[0, 3\)"):
        loss_layer().forward(inputs)


def output_layer(**fields):
    conf = {
        "num_classes": CLASSES,
        "nms_threshold": 0.5,
        "nms_top_k": 10,
        "background_id": 0,
        "input_num": 1,
        "keep_top_k": 5,
        "confidence_threshold": 0.2,
        **fields,
    }
    return make("detection_output", {"detection_output_conf": conf}, [(24, 0, 0), (12, 0, 0), (9, 0, 0)])


def output_inputs():
    priors = np.array([[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.45], [0.6, 0.6, 1.2, 0.9]])
    variances = np.ones((3, 4))
    shares = np.array([[[0.1, 0.6, 0.3], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]], [[0.9, 0.05, 0.05]] * 3])
    return [
        Argument(value=np.hstack([priors, variances]).reshape(1, -1)),
        Argument(value=np.zeros((2, 12))),
        Argument(value=np.log(shares).reshape(2, 9)),
    ]


def test_detection_gives_the_best_boxes_of_each_class():
    out = output_layer().forward(output_inputs()).value
    expected = [[0, 1, 0.7, 0, 0, 0.5, 0.45], [0, 2, 0.8, 0.6, 0.6, 1, 0.9], [0, 2, 0.3, 0, 0, 0.5, 0.5]]
    np.testing.assert_allclose(out, expected, atol=1e-12)


def test_detection_keeps_the_best_of_all_classes():
    out = output_layer(keep_top_k=2).forward(output_inputs()).value
    np.testing.assert_allclose(out[:, :3], [[0, 1, 0.7], [0, 2, 0.8]], atol=1e-12)


def test_detection_may_find_nothing():
    assert output_layer(confidence_threshold=0.9).forward(output_inputs()).value.shape == (0, 7)


def test_predictions_of_another_size_are_refused():
    inputs = output_inputs()
    inputs[0] = Argument(value=np.zeros((1, 16)))
    with pytest.raises(ConfigError, match="inputs 1 to 1 have 12 values a row; 2 priors need 8"):
        output_layer().forward(inputs)
