"""Layers over sequences: pooling, selecting, joining, cutting and repeating.

Source: legacy trainer_config_helpers/layers.py; spec/config.md section 6, "Sequence".
"""

from __future__ import annotations

from typing import Any

from trainer.config.building.argument_errors import to_int, to_list, to_size, to_text, wrong
from trainer.config.building.attrs import ParameterAttribute
from trainer.config.building.declare import helper
from trainer.config.building.layer import (
    LayerBuilder,
    LayerOutput,
    columns_of,
    to_activation,
    to_layer,
    to_parameter_attr,
)
from trainer.config.building.log import logger
from trainer.config.building.names import public
from trainer.config.language.layers.levels import AggregateLevel, ExpandLevel, to_level
from trainer.config.language.poolings import AvgPooling, BasePoolingType, MaxPooling


def _build(
    name: str | None, kind: str, inputs: list[LayerOutput], size: int | None, layer_attr: Any = None, **more: Any
) -> LayerBuilder:
    layer = LayerBuilder(to_text("name", name), kind, size=size, extra=layer_attr, **more)
    for source in inputs:
        layer.add_input(source)
    return layer


def _only_attr(bias_attr: Any) -> ParameterAttribute | bool:
    """Return bias_attr if it is a ParamAttr, else False. In a few functions, even True means no bias."""
    return bias_attr if isinstance(bias_attr, ParameterAttribute) else False


def _set_window(layer: LayerBuilder, agg_level: Any, stride: Any) -> None:
    level, step = to_level("agg_level", agg_level), to_int("stride", stride)
    if step != -1 and level == AggregateLevel.TO_SEQUENCE:
        raise wrong("stride", stride, "with agg_level=AggregateLevel.TO_SEQUENCE it must be -1, the whole sub-sequence")
    if step != -1 and step <= 0:
        raise wrong("stride", stride, "it must be a positive integer, or -1 for the whole sequence")
    layer.message.trans_type = level
    layer.message.seq_pool_stride = step


@helper("layers", prefix="seq_pooling")
def pooling_layer(
    input: Any,
    pooling_type: Any = None,
    name: str | None = None,
    bias_attr: Any = None,
    agg_level: str = AggregateLevel.TO_NO_SEQUENCE,
    layer_attr: Any = None,
    *,
    stride: int = -1,
) -> LayerOutput:
    """Pool the rows of each sequence, sub-sequence or window of `stride` rows; the default is the maximum."""
    source = to_layer("input", input)
    pooling = MaxPooling() if pooling_type is None else pooling_type
    if isinstance(pooling, type) and issubclass(pooling, BasePoolingType):
        raise wrong("pooling_type", pooling, f"it must be an object: {pooling.__name__}()")
    # SumPooling and SquareRootNPooling are AvgPoolings, too
    if not isinstance(pooling, MaxPooling | AvgPooling):
        raise wrong(
            "pooling_type", pooling, "it must be MaxPooling(), AvgPooling(), SumPooling() or SquareRootNPooling()"
        )
    layer = _build(
        name, "max" if isinstance(pooling, MaxPooling) else "average", [source], columns_of(source), layer_attr
    )
    _set_window(layer, agg_level, stride)
    if isinstance(pooling, AvgPooling):
        layer.message.average_strategy = pooling.strategy
    elif pooling.output_max_index is not None:
        layer.message.output_max_index = pooling.output_max_index
    layer.add_bias(bias_attr, default=False)
    return layer.output([source])


def _pick(name: str | None, source: LayerOutput, agg_level: Any, stride: Any, layer_attr: Any) -> LayerBuilder:
    layer = _build(name, "seqlastins", [source], columns_of(source), layer_attr)
    _set_window(layer, agg_level, stride)
    return layer


@helper("layers")
def last_seq(
    input: Any,
    name: str | None = None,
    agg_level: str = AggregateLevel.TO_NO_SEQUENCE,
    stride: int = -1,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return the last row of each sequence, sub-sequence or window."""
    source = to_layer("input", input)
    if source.reverse:
        logger.warning(
            "%s: layer %r runs in reverse, so its last row depends on only one frame; its first row, which first_seq "
            "returns, depends on all frames",
            name,
            source.name,
        )
    return _pick(name, source, agg_level, stride, layer_attr).output([source])


@helper("layers")
def first_seq(
    input: Any,
    name: str | None = None,
    agg_level: str = AggregateLevel.TO_NO_SEQUENCE,
    stride: int = -1,
    layer_attr: Any = None,
) -> LayerOutput:
    """Return the first row of each sequence, sub-sequence or window."""
    source = to_layer("input", input)
    if source.reverse is False:
        logger.warning(
            "%s: layer %r is recurrent, so its first row depends on only one frame; its last row, which last_seq "
            "returns, depends on all frames",
            name,
            source.name,
        )
    layer = _pick(name, source, agg_level, stride, layer_attr)
    layer.message.select_first = True
    return layer.output([source])


@helper("layers")
def expand_layer(
    input: Any,
    expand_as: Any,
    name: str | None = None,
    bias_attr: Any = False,
    expand_level: str = ExpandLevel.FROM_NO_SEQUENCE,
    layer_attr: Any = None,
) -> LayerOutput:
    """Repeat each row as often as the corresponding sequence of `expand_as` has rows.

    With FROM_SEQUENCE, each row corresponds to a sub-sequence of `expand_as`.
    """
    inputs = [to_layer("input", input), to_layer("expand_as", expand_as)]
    layer = _build(name, "expand", inputs, columns_of(inputs[0]), layer_attr)
    layer.message.trans_type = to_level("expand_level", expand_level)
    layer.add_bias(_only_attr(bias_attr), default=False)
    return layer.output(inputs)


@helper("layers", prefix="seqconcat")
def seq_concat_layer(
    a: Any, b: Any, act: Any = None, name: str | None = None, layer_attr: Any = None, bias_attr: Any = None
) -> LayerOutput:
    """Join each sequence of `a` with the sequence of `b`."""
    inputs = [to_layer("a", a), to_layer("b", b)]
    if inputs[0].size != inputs[1].size:
        raise wrong("b", b, f"its size must be {inputs[0].size}, the size of 'a'")
    activation = to_activation("act", act)
    layer = _build(name, "seqconcat", inputs, columns_of(inputs[0]), layer_attr, act=activation, supports="DE")
    layer.add_bias(bias_attr, default=False)
    return layer.output(inputs, activation=activation)


@helper("layers", prefix="seqreshape")
def seq_reshape_layer(
    input: Any,
    reshape_size: int,
    act: Any = None,
    name: str | None = None,
    layer_attr: Any = None,
    bias_attr: Any = None,
) -> LayerOutput:
    """Reshape the rows of each sequence to rows of `reshape_size` values; as in v0.10, `act` has no effect."""
    source = to_layer("input", input)
    to_activation("act", act)
    layer = _build(name, "seqreshape", [source], to_size("reshape_size", reshape_size), layer_attr, supports="DE")
    layer.add_bias(bias_attr, default=False)
    return layer.output([source])


@helper("layers", prefix="sub_seq")
def sub_seq_layer(
    input: Any, offsets: Any, sizes: Any, act: Any = None, bias_attr: Any = None, name: str | None = None
) -> LayerOutput:
    """Cut one piece out of each sequence; the layers `offsets` and `sizes` hold the offset and size of each piece."""
    inputs = [to_layer("input", input), to_layer("offsets", offsets), to_layer("sizes", sizes)]
    activation = to_activation("act", act)
    layer = _build(name, "subseq", inputs, columns_of(inputs[0]), act=activation)
    layer.add_bias(_only_attr(bias_attr), default=False)
    return layer.output(inputs)


@helper("layers")
def seq_slice_layer(input: Any, starts: Any, ends: Any, name: str | None = None) -> LayerOutput:
    """Cut pieces out of each sequence.

    If `starts` is None, each piece begins with the first row of the sequence. If `ends` is None, each piece ends with
    the last row of the sequence. outputs() visits only the input, so inputs() must name data layers that are `starts`
    or `ends`.
    """
    source = to_layer("input", input)
    bounds = [
        to_layer(argument, layer) for argument, layer in (("starts", starts), ("ends", ends)) if layer is not None
    ]
    if not bounds:
        raise wrong("starts", starts, "starts or ends must be given")
    if len({layer.size for layer in bounds}) != 1:
        raise wrong("ends", ends, f"its size must be {bounds[0].size}, the size of starts")
    layer = _build(name, "seq_slice", [source, *bounds], columns_of(source))
    if len(bounds) == 1:
        layer.message.select_first = starts is not None
    return layer.output([source])


@helper("layers")
def sub_nested_seq_layer(
    input: Any, selected_indices: Any, name: str | None = None, layer_attr: Any = None
) -> LayerOutput:
    """Keep the sub-sequences whose numbers are in selected_indices; outputs() visits only the input."""
    source = to_layer("input", input)
    inputs = [source, to_layer("selected_indices", selected_indices)]
    return _build(name, "sub_nested_seq", inputs, columns_of(source), layer_attr).output([source])


@helper("layers")
def kmax_seq_score_layer(input: Any, name: str | None = None, beam_size: int = 1) -> LayerOutput:
    """Return, for each sequence, the indices of the beam_size rows with the highest scores."""
    source = to_layer("input", input)
    if source.size != 1:
        raise wrong("input", input, "its size must be 1")
    layer = _build(name, "kmax_seq_score", [source], None)
    layer.message.beam_size = to_size("beam_size", beam_size)
    return layer.output([source], size=1)


@helper("layers")
def row_conv_layer(
    input: Any,
    context_len: int,
    act: Any = None,
    name: str | None = None,
    param_attr: Any = None,
    layer_attr: Any = None,
) -> LayerOutput:
    """Convolve each column with a trained kernel over the current row and the next context_len - 1 rows."""
    source = to_layer("input", input)
    length, size = to_size("context_len", context_len), columns_of(source)
    activation = to_activation("act", act)
    layer = _build(name, "row_conv", [source], size, layer_attr, act=activation, supports="D")
    layer.message.inputs[0].row_conv_conf.context_length = length
    layer.add_weight(0, length * size, [length, size], to_parameter_attr("param_attr", param_attr))
    return layer.output([source], activation=activation)


@public("layers")
class BeamInput:
    """One step of a beam search: the scores of all candidates, the selected candidates, and the correct candidate."""

    def __init__(self, candidate_scores: Any, selected_candidates: Any, gold: Any):
        self.candidate_scores = to_layer("candidate_scores", candidate_scores)
        self.selected_candidates = to_layer("selected_candidates", selected_candidates)
        self.gold = to_layer("gold", gold)
        if self.candidate_scores.size != 1:
            raise wrong("candidate_scores", candidate_scores, "its size must be 1")


@helper("layers")
def cross_entropy_over_beam(input: Any, name: str | None = None) -> LayerOutput:
    """Return the cross entropy of the correct path among all paths of a beam search; each step is a BeamInput."""
    beams = to_list(input)
    if not beams or not all(isinstance(beam, BeamInput) for beam in beams):
        raise wrong("input", input, "it must be a BeamInput or a list of BeamInputs")
    inputs = [layer for beam in beams for layer in (beam.candidate_scores, beam.selected_candidates, beam.gold)]
    return _build(name, "cross_entropy_over_beam", inputs, None).output(inputs, size=1)
