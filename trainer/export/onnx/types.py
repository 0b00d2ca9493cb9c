"""Guesses the types of data layers from the layers that read them, for a model whose file has no types. No I/O."""

from __future__ import annotations

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from trainer.data.input_types import DataType, InputType, SequenceType

# types of layers that read sequences alone
_READ_SEQUENCES = frozenset(
    {"average", "crf", "crf_decoding", "ctc", "gated_recurrent", "kmax_seq_score", "lstmemory", "max", "mdlstmemory"}
) | frozenset({"recurrent", "row_conv", "seq_slice", "seqconcat", "seqlastins", "seqreshape", "subseq", "warp_ctc"})
_NESTED = frozenset({"sub_nested_seq"})


def infer_types(model: ModelConfig) -> dict[str, InputType]:
    """Return the types of the data layers: ids where a table is looked up, and sequences where a layer needs them.

    A layer that computes rows passes on what its readers need. What no layer says is dense, and without sequences.
    """
    levels: dict[str, int] = {}
    ids: set[str] = set()
    for record in model.sub_models:
        for link in record.in_links:
            levels[link.layer_name] = 2 if link.has_subseq else 1
    # from the last layer to the first
    for layer in reversed(model.layers):
        own = levels.get(layer.name, 0)
        for position, one in enumerate(layer.inputs):
            name = one.input_layer_name
            levels[name] = max(levels.get(name, 0), _needed_levels(layer, position, own))
            if one.proj_conf.type == "table" or (layer.type == "crf" and position == 1):
                ids.add(name)
    found = {}
    for layer in model.layers:
        if layer.type == "data":
            kind = DataType.Index if layer.name in ids else DataType.Dense
            found[layer.name] = InputType(int(layer.size), levels.get(layer.name, 0), kind)
    return found


def _needed_levels(layer: LayerConfig, position: int, own: int) -> int:
    """Return how many levels an input of a layer has, as far as the layer says."""
    pools = layer.type in ("average", "max", "seqlastins")
    if layer.type == "expand":
        return max(own, SequenceType.SEQUENCE) if position else max(own - 1, 0)
    if layer.type in _NESTED:
        return 2 if position == 0 else 1
    if pools:
        return max(own + 1, 2 if layer.trans_type == "seq" else 1)
    if layer.type in _READ_SEQUENCES or layer.active_type == "sequence_softmax":
        return max(own, SequenceType.SEQUENCE)
    if any(one.proj_conf.type == "context" for one in layer.inputs):
        return max(own, SequenceType.SEQUENCE)
    return own
