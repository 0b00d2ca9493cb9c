"""Layers for object detection: prior boxes, the loss, detected boxes, and pooling of regions.

Source: legacy trainer_config_helpers/layers.py and config_parser.py; spec/config.md section 6, "Image".
"""

from __future__ import annotations

from typing import Any

from trainer.config.building.argument_errors import ArgumentError, to_float, to_list, to_size, to_text, wrong
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerBuilder, LayerOutput, columns_of, to_layer, to_layers
from trainer.config.language.maps.geometry import channels_of, set_map, to_count


@helper("layers", prefix="priorbox")
def priorbox_layer(
    input: Any,
    image: Any,
    aspect_ratio: Any,
    variance: Any,
    min_size: Any,
    max_size: Any = (),
    name: str | None = None,
) -> LayerOutput:
    """Return the prior boxes of each pixel of a map, and their variances.

    The result does not depend on the values of the inputs, only on their sizes.

    Args:
        input: the map.
        image: the data layer of the images, which must have height and width.
        aspect_ratio: further aspect ratios of the boxes besides 1; for each ratio r, 1 / r is used, too.
        variance: the variances of the four numbers of a box.
        min_size: sizes of boxes in pixels of the image.
        max_size: further sizes; each pair of a min_size and a max_size gives a box of the size
            sqrt(min_size * max_size).
    """
    source, picture = to_layer("input", input), to_layer("image", image)
    if picture.layer_type != "data" or not picture.width or not picture.height:
        raise wrong("image", image, "it must be a data_layer with height and width")
    ratios, variances = to_list(aspect_ratio), to_list(variance)
    if len(variances) != 4:
        raise wrong("variance", variance, "it must be four numbers")
    boxes = 4 * (2 * len(ratios) + 1 + len(to_list(max_size)))
    pixels = columns_of(source) // channels_of(source, None)
    layer = LayerBuilder(to_text("name", name), "priorbox", size=pixels * boxes * 2)
    message = layer.add_input(source).priorbox_conf
    layer.add_input(picture)
    message.min_size.extend(to_size("min_size", item) for item in to_list(min_size))
    message.max_size.extend(to_size("max_size", item) for item in to_list(max_size))
    message.aspect_ratio.extend(to_float("aspect_ratio", item) for item in ratios)
    message.variance.extend(to_float("variance", item) for item in variances)
    return layer.output([source, picture], num_filters=boxes)


def _predictions(input_loc: Any, input_conf: Any) -> list[LayerOutput]:
    locations, confidences = to_layers("input_loc", input_loc), to_layers("input_conf", input_conf)
    if len(locations) != len(confidences):
        raise ArgumentError(
            f"there are {len(locations)} input_loc and {len(confidences)} input_conf; the numbers must be equal"
        )
    return [*locations, *confidences]


@helper("layers", prefix="multibox_loss")
def multibox_loss_layer(
    input_loc: Any,
    input_conf: Any,
    priorbox: Any,
    label: Any,
    num_classes: int,
    overlap_threshold: float = 0.5,
    neg_pos_ratio: float = 3.0,
    neg_overlap: float = 0.5,
    background_id: int = 0,
    name: str | None = None,
) -> LayerOutput:
    """Return the cost of predicted boxes and classes against the true boxes and classes."""
    predictions = _predictions(input_loc, input_conf)
    inputs = [to_layer("priorbox", priorbox), to_layer("label", label), *predictions]
    layer = LayerBuilder(to_text("name", name), "multibox_loss", size=1)
    for source in inputs:
        layer.add_input(source)
    message = layer.message.inputs[0].multibox_loss_conf
    message.num_classes = to_size("num_classes", num_classes)
    message.overlap_threshold = to_float("overlap_threshold", overlap_threshold)
    message.neg_pos_ratio = to_float("neg_pos_ratio", neg_pos_ratio)
    message.neg_overlap = to_float("neg_overlap", neg_overlap)
    message.background_id = to_count("background_id", background_id)
    message.input_num = len(predictions) // 2
    return layer.output(inputs)


@helper("layers", prefix="detection_output")
def detection_output_layer(
    input_loc: Any,
    input_conf: Any,
    priorbox: Any,
    num_classes: int,
    nms_threshold: float = 0.45,
    nms_top_k: int = 400,
    keep_top_k: int = 200,
    confidence_threshold: float = 0.01,
    background_id: int = 0,
    name: str | None = None,
) -> LayerOutput:
    """Return the detected boxes, without boxes that overlap a better box."""
    predictions = _predictions(input_loc, input_conf)
    inputs = [to_layer("priorbox", priorbox), *predictions]
    kept = to_size("keep_top_k", keep_top_k)
    layer = LayerBuilder(to_text("name", name), "detection_output", size=kept * 7)
    for source in inputs:
        layer.add_input(source)
    message = layer.message.inputs[0].detection_output_conf
    message.num_classes = to_size("num_classes", num_classes)
    message.nms_threshold = to_float("nms_threshold", nms_threshold)
    message.nms_top_k = to_size("nms_top_k", nms_top_k)
    message.keep_top_k = kept
    message.confidence_threshold = to_float("confidence_threshold", confidence_threshold)
    message.background_id = to_count("background_id", background_id)
    message.input_num = len(predictions) // 2
    return layer.output(inputs)


@helper("layers", prefix="roi_pool")
def roi_pool_layer(
    input: Any,
    rois: Any,
    pooled_width: int,
    pooled_height: int,
    spatial_scale: float,
    num_channels: int | None = None,
    name: str | None = None,
) -> LayerOutput:
    """Reduce each region of interest to maps of pooled_width x pooled_height maxima.

    Args: spatial_scale: size of the maps relative to the image; the regions are given in pixels of the image.
    """
    source, regions = to_layer("input", input), to_layer("rois", rois)
    channels = channels_of(source, num_channels)
    layer = LayerBuilder(to_text("name", name), "roi_pool")
    message = layer.add_input(source).roi_pool_conf
    layer.add_input(regions)
    message.pooled_width = to_size("pooled_width", pooled_width)
    message.pooled_height = to_size("pooled_height", pooled_height)
    message.spatial_scale = to_float("spatial_scale", spatial_scale)
    set_map(layer, channels, message.pooled_width, message.pooled_height)
    return layer.output([source, regions])
