"""How the output of a layer is represented in a graph of ONNX. No I/O.

The network of this project joins the rows of all samples below one another; a graph of ONNX has a dimension for each
level in their place:

- Dense values of a layer of size S are [batch, S] float32. An image is a row, as in v0.10: its channels, rows and
  columns stand in S in this order. A layer of images reshapes rows to [rows, channels, height, width], and back.
- Ids are [batch] int64; maxid with a beam has several ids in a row, [batch, beam].
- Sparse slots are [batch, S] float32: the numbers (or 1) in the columns that a sample names, and 0 elsewhere.
- A sequence is PADDED: [batch, time, S] float32, or [batch, time] int64 of ids, with the number of frames of each
  sample in a second tensor, [batch] int64: `lengths`. Batch and time are symbolic, and a sequence may be empty.
- A nested sequence is [batch, outer, inner, S]; `lengths` [batch] counts the sub-sequences, and `inner` [batch, outer]
  counts the frames of each of them (0 for the sub-sequences that are padding).

So a value of `levels` levels has 1 + `levels` leading dimensions, and a layer that computes each frame by itself is
the same nodes for all three. A data layer NAME that is a sequence is the graph's inputs NAME and NAME.lengths, and of
nested sequences NAME.inner_lengths, too; outputs likewise.

Padding has unspecified content: a bias, log or 1/x is applied to it as to all frames, so it may be infinite or NaN. A
layer that mixes frames (pooling, softmax of a sequence, recurrence, context) must therefore replace padding with
`Where`, never multiply it by 0. Sequences of a graph's output have zeros as padding. The padding of two layers whose
sequences have the same lengths has the same length, because the inputs of the graph do (`Graph` does not check it).
Each level has at least one place, also in a batch without a frame (`network.declare`).

Layers inside a recurrent group are the same functions, in a graph of the step (`Graph.inner`), where a frame is a value
without levels, and a sub-sequence is a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Value:
    """The output of a layer.

    Attributes: name: the tensor. size: the number of columns; for ids the number of possible ids. is_ids: whether it is
        int64 ids, without a dimension of columns. lengths, inner: the tensors of the lengths of a sequence and of its
        sub-sequences; "" without. extras: further outputs of the layer by name, for get_output layers. choices: the
        number of ids of a row; if it is not 1, ids have a last dimension of this extent. is_batch: whether the first
        dimension is the batch; it is not after a layer that makes rows anew, such as resize.
    """

    name: str
    size: int
    is_ids: bool = False
    lengths: str = ""
    inner: str = ""
    extras: Mapping[str, Value] = field(default_factory=dict)
    choices: int = 1
    is_batch: bool = True

    @property
    def levels(self) -> int:
        """The number of levels of sequences: 0, 1 or 2."""
        return bool(self.lengths) + bool(self.inner)

    def with_name(self, name: str, size: int | None = None) -> Value:
        """Return dense values of a new tensor, with the sequences of this value."""
        size = self.size if size is None else size
        return Value(name, size, lengths=self.lengths, inner=self.inner, is_batch=self.is_batch)

    def with_ids(self, name: str, size: int | None = None, choices: int = 1) -> Value:
        """Return ids of a new tensor, with the sequences of this value."""
        return replace(self.with_name(name, size), is_ids=True, choices=choices)

    def with_extras(self, extras: Mapping[str, Value]) -> Value:
        """Return this value with further outputs by name."""
        return replace(self, extras=extras)
