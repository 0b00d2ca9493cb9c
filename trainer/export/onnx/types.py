"""Guesses the types of data layers from the layers that read them, for a model whose file has no types. No I/O."""

from __future__ import annotations

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from trainer.data.input_types import DataType, InputType, SequenceType

# types of layers that read sequences alone
_READ_SEQUENCES = frozenset(
    {"average", "crf", "crf_decoding", "ctc", "gated_recurrent", "kmax_seq_score", "lstmemory", "max", "mdlstmemory"}
) | frozenset({"recurrent", "row_conv", "seq_slice", "seqconcat", "seqlastins", "seqreshape", "subseq", "warp_ctc"})
# types of layers that read ids, with the positions of these inputs
_READ_IDS = {
    "crf": (1,),
    "crf_decoding": (1,),
    "ctc": (1,),
    "eos_id": (0,),
    "multiplex": (0,),
    "subseq": (1, 2),
    "warp_ctc": (1,),
}
# types of layers whose inputs after the first one have a row for each sequence
_READ_ROWS = frozenset({"seq_slice", "sub_nested_seq", "subseq"})


def infer_types(model: ModelConfig) -> dict[str, InputType]:
    """Return the types of the data layers: ids where a table is looked up, and sequences where a layer needs them.

    A layer that computes rows passes on what its readers need. What no layer says is dense, and without sequences.
    """
    levels: dict[str, int] = {}
    ids: set[str] = set()
    for record in model.sub_models:
        for link in record.in_links:
            levels[link.layer_name] = 2 if link.has_subseq else 1
        for memory in record.memories:
            if memory.is_sequence and memory.boot_layer_name:
                levels[memory.boot_layer_name] = max(levels.get(memory.boot_layer_name, 0), SequenceType.SEQUENCE)
    # from the last layer to the first
    for layer in reversed(model.layers):
        own = levels.get(layer.name, 0)
        for position, one in enumerate(layer.inputs):
            name = one.input_layer_name
            levels[name] = max(levels.get(name, 0), _needed_levels(layer, position, own))
            if one.proj_conf.type == "table" or position in _READ_IDS.get(layer.type, ()):
                ids.add(name)
    found = {}
    for layer in model.layers:
        if layer.type == "data":
            kind = DataType.Index if layer.name in ids else DataType.Dense
            found[layer.name] = InputType(int(layer.size), levels.get(layer.name, 0), kind)
    return found


def _needed_levels(layer: LayerConfig, position: int, own: int) -> int:
    """Return how many levels an input of a layer has, as far as the layer says."""
    by_parts = layer.trans_type == "seq"
    if layer.type == "expand":
        return max(own, 2 if by_parts else 1) if position else int(by_parts)
    if layer.type in _READ_ROWS and position:
        return SequenceType.NO_SEQUENCE
    if layer.type == "sub_nested_seq":
        return SequenceType.SUB_SEQUENCE
    if layer.type in ("average", "max", "seqlastins"):
        return max(own + 1, 2 if by_parts else 1)
    if layer.type in _READ_SEQUENCES or layer.active_type == "sequence_softmax":
        return max(own, SequenceType.SEQUENCE)
    if any(one.proj_conf.type == "context" for one in layer.inputs):
        return max(own, SequenceType.SEQUENCE)
    return own
