"""Layers that detect objects in images. No I/O.

`trainer/layers/image/detection.py` has the definitions.
"""

from __future__ import annotations

from trainer.arrays.arguments import Argument
from trainer.export.onnx.families.images import to_images
from trainer.export.onnx.graph import FLOAT, INT64
from trainer.export.onnx.registry import CannotExportError, LayerExport, exports
from trainer.export.onnx.values import Value
from trainer.layers.image.detection import BOX, FOUND, PRIOR
from trainer.layers.image.pixel_values import region_shape

NOTHING = -1.0  # a score that no threshold admits


@exports("priorbox")
def _prior_boxes(call: LayerExport) -> Value:
    """The boxes depend on the sizes of maps alone, so they are a constant."""
    rows = call.layer.forward([Argument(), Argument()]).value
    assert rows is not None  # the layer always has dense values
    return Value(call.graph.constant(rows), rows.shape[1], is_batch=False)


@exports("roi_pool")
def _region_pool(call: LayerExport) -> Value:
    graph, conf = call.graph, call.config.inputs[0].roi_pool_conf
    channels, height, width = region_shape(call.layer, conf)
    if call.dense(1).size < BOX + 1:
        raise CannotExportError("its regions have fewer than 5 columns")
    regions = graph.slice(graph.packed(call.dense(1)), 0, BOX + 1)
    bins = [conf.pooled_height, conf.pooled_width]
    images = to_images(call, 0, channels, height, width)
    pooled = graph.add("MaxRoiPool", images, regions, pooled_shape=bins, spatial_scale=conf.spatial_scale)
    size = channels * bins[0] * bins[1]
    return Value(graph.reshape(pooled, [-1, size]), size, is_batch=False)


@exports("detection_output")
def _detection_output(call: LayerExport) -> Value:
    graph, conf = call.graph, call.config.inputs[0].detection_output_conf
    priors = graph.reshape(graph.slice(call.dense(0).name, 0, 1, axis=0), [-1, PRIOR])
    places = _join(call, 1, BOX)
    boxes = _decode(call, priors, places)
    scores = _join(call, 1 + conf.input_num, conf.num_classes)
    shares = graph.add("Transpose", graph.add("Softmax", scores, axis=-1), perm=[0, 2, 1])
    found, kept = _suppress(call, boxes, shares)
    image, kind, prior = (graph.slice(found, column, column + 1, axis=1) for column in range(3))
    of_share = graph.add("Concat", image, kind, prior, axis=1)
    share = graph.unsqueeze(graph.add("GatherND", shares, of_share), 1)
    box = graph.add("GatherND", boxes, graph.add("Concat", image, prior, axis=1))
    limited = graph.add("Clip", box, graph.constant(0), graph.constant(1))
    rows = graph.add("Concat", graph.cast(image, FLOAT), graph.cast(kind, FLOAT), share, limited, axis=1)
    if kept:
        rows = _keep_best(call, rows, image, share, kept)
    return Value(rows, FOUND, is_batch=False)


def _join(call: LayerExport, first: int, numbers: int) -> str:
    """Return the predictions of several layers for the priors, [n, priors, numbers]."""
    graph, conf = call.graph, call.config.inputs[0].detection_output_conf
    parts = []
    for position in range(first, first + conf.input_num):
        source, value = call.input_configs[position], call.dense(position)
        pixels = source.height * source.width or conf.height * conf.width
        maps = graph.reshape(value.name, [-1, value.size // pixels, pixels])
        parts.append(graph.reshape(graph.add("Transpose", maps, perm=[0, 2, 1]), [-1, value.size // numbers, numbers]))
    return parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=1)


def _decode(call: LayerExport, priors: str, places: str) -> str:
    """Return the boxes that places relative to priors describe, [n, priors, 4]."""
    graph = call.graph
    low, high = graph.slice(priors, 0, 2), graph.slice(priors, 2, BOX)
    size = graph.add("Sub", high, low)
    centre = graph.add("Div", graph.add("Add", low, high), graph.constant(2))
    scaled = graph.add("Mul", places, graph.slice(priors, BOX, PRIOR))
    centres = graph.add("Add", graph.add("Mul", graph.slice(scaled, 0, 2), size), centre)
    sizes = graph.add("Mul", graph.add("Exp", graph.slice(scaled, 2, BOX)), size)
    halves = graph.add("Div", sizes, graph.constant(2))
    return graph.add("Concat", graph.add("Sub", centres, halves), graph.add("Add", centres, halves), axis=-1)


def _suppress(call: LayerExport, boxes: str, shares: str) -> tuple[str, int]:
    """Return (image, class, prior) of the boxes that no better box suppresses, and how many an image keeps.

    They are ordered by image, by class, and by falling score.
    """
    graph, conf = call.graph, call.config.inputs[0].detection_output_conf
    candidates = shares
    if conf.nms_top_k > 0:  # the best of each class, also if they are suppressed
        count = graph.add("Min", graph.integers([conf.nms_top_k]), graph.dim(shares, 2))
        values, places = graph.add_several("TopK", shares, count, outputs=2, axis=2)
        nothing = graph.add("Expand", graph.constant(NOTHING), graph.add("Shape", shares))
        candidates = graph.add("ScatterElements", nothing, places, values, axis=2)
    is_kind = [[[number != conf.background_id] for number in range(conf.num_classes)]]
    candidates = graph.add("Where", graph.constant(is_kind, bool), candidates, graph.constant(NOTHING))
    found = graph.add(
        "NonMaxSuppression",
        boxes,
        candidates,
        graph.squeeze(graph.dim(shares, 2), 0),
        graph.constant(conf.nms_threshold),
        graph.constant(conf.confidence_threshold),
    )
    return found, max(0, conf.keep_top_k)


def _keep_best(call: LayerExport, rows: str, image: str, share: str, count: int) -> str:
    """Return the rows whose score is among the `count` best of their image, in their order."""
    graph = call.graph
    double = 11  # TensorProto.DOUBLE: exact also if the batch has many images
    key = graph.add(
        "Sub",
        graph.cast(graph.squeeze(share, 1), double),
        graph.add("Mul", graph.cast(graph.squeeze(image, 1), double), graph.constant(2, "float64")),
    )
    many = graph.dim(rows, 0)
    order = graph.add_several("TopK", key, many, outputs=2, axis=0)[1]  # by image, then by falling score
    sorted_images = graph.add("Gather", image, order, axis=0)
    earlier = graph.cast(graph.add("Less", graph.squeeze(image, 1), sorted_images), INT64)
    rank = graph.add("Sub", graph.range(rows, 0), graph.add("ReduceSum", earlier, axes=[1], keepdims=0))
    is_best = graph.add("Less", rank, graph.integers(count))
    none = graph.add("Expand", graph.constant(False, bool), many)
    return graph.add("Compress", rows, graph.add("ScatterElements", none, order, is_best, axis=0), axis=0)
