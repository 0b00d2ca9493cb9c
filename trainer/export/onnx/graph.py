"""The builder of a graph of ONNX: nodes, constants, and names that occur once. No I/O.

A method `add` returns the name of a new tensor. The constants of all inner graphs (bodies of Loop and Scan, branches of
If) stand in the outermost graph, whose tensors an inner graph may read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from trainer.export.onnx.values import Value

OPSET = 17  # the default, which every onnxruntime since 1.12 (2022) reads
OLDEST, NEWEST = 17, 21  # the opsets that `Graph.add` can write
AXES_AS_INPUT = 18  # the first opset in which all reductions have their axes as an input
FLOAT, INT64, BOOL, DOUBLE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.DOUBLE

Dims = Sequence[int | str | None]


class Graph:
    """Nodes in the order in which they run.

    Args: parent: the graph that contains this one as an attribute of a node; None: the outermost graph. opset: of the
        outermost graph.
    Attributes: prefix: the name of the layer whose nodes are added, with which the names of new tensors begin.
    """

    def __init__(self, parent: Graph | None = None, opset: int = OPSET) -> None:
        self._parent = parent
        self._root: Graph = parent._root if parent is not None else self
        self.opset: int = parent.opset if parent is not None else opset
        self.prefix: str = parent.prefix if parent is not None else ""
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self._constants: dict[tuple[Any, ...], str] = {}
        self._names: set[str] = set()
        self._masks: dict[tuple[str, str], str] = {}

    # ----- names and constants -----

    def reserve(self, name: str) -> str:
        """Return `name`, which no other tensor gets; of an input, an output or a parameter."""
        self._root._names.add(name)
        return name

    def new_name(self, word: str) -> str:
        """Return a name that no tensor has, which begins with the layer's name."""
        names = self._root._names
        stem = f"{self.prefix}/{word}" if self.prefix else word
        name, number = stem, 0
        while name in names:
            number += 1
            name = f"{stem}_{number}"
        names.add(name)
        return name

    def parameter(self, name: str, values: npt.NDArray[Any]) -> str:
        """Return the tensor of a parameter in a shape that a layer wants. Equal name and shape give the same tensor."""
        return self._keep(("parameter", name, values.shape, values.tobytes()), name, values)

    def constant(self, values: Any, kind: npt.DTypeLike = np.float32) -> str:
        """Return the tensor of a constant: a number, a list or an array."""
        array = np.asarray(values, kind)
        return self._keep((array.dtype.str, array.shape, array.tobytes()), "constant", array)

    def integers(self, values: int | Sequence[Any]) -> str:
        """Return the int64 tensor of a number or of a list, as Reshape, Slice and their like want them."""
        return self.constant(values, np.int64)

    def _keep(self, key: tuple[Any, ...], word: str, array: npt.NDArray[Any]) -> str:
        root = self._root
        if key not in root._constants:
            before, root.prefix = root.prefix, ""
            name = root.new_name(word)
            root.prefix = before
            root.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            root._constants[key] = name
        return root._constants[key]

    # ----- nodes -----

    def add(self, op: str, *inputs: str, word: str = "", **attributes: Any) -> str:
        """Add a node with one output, and return the output. An input "" is one that is left out.

        A reduction has its `axes` as an attribute here, whatever the opset.
        """
        if "axes" in attributes and op.startswith("Reduce") and (op == "ReduceSum" or self.opset >= AXES_AS_INPUT):
            inputs = (*inputs, self.integers(attributes.pop("axes")))
        return self.add_several(op, *inputs, outputs=1, word=word, **attributes)[0]

    def add_several(self, op: str, *inputs: str, outputs: int, word: str = "", **attributes: Any) -> list[str]:
        """Add a node with several outputs, and return them."""
        names = [self.new_name(word or op.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=self.new_name("node"), **attributes))
        return names

    def identity(self, source: str, name: str) -> str:
        """Give a tensor a further name, that of an output; the name must be reserved."""
        self.nodes.append(helper.make_node("Identity", [source], [name], name=self.new_name("node")))
        return name

    def inner(self) -> Self:
        """Return a new graph for the body of a Loop, Scan or If; it may read the tensors that exist here by then."""
        return type(self)(self)

    def input(self, name: str, kind: int, dims: Dims) -> str:
        """Declare an input, whose name is reserved. Dims: a number, the name of a symbol, or None."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(dims)))
        return name

    def output(self, name: str, kind: int, dims: Dims) -> None:
        """Declare a tensor as an output."""
        self.outputs.append(helper.make_tensor_value_info(name, kind, list(dims)))

    def to_proto(self, name: str) -> onnx.GraphProto:
        """Return the message of this graph."""
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs, list(self.initializers.values()))

    # ----- what several families need -----

    def cast(self, tensor: str, kind: int) -> str:
        """Return a tensor with elements of another type: FLOAT, INT64 or BOOL."""
        return self.add("Cast", tensor, to=kind)

    def reshape(self, tensor: str, shape: Sequence[int]) -> str:
        """Return a tensor in another shape; 0 keeps a dimension, and -1 is what is left."""
        return self.add("Reshape", tensor, self.integers(shape))

    def dim(self, tensor: str, axis: int) -> str:
        """Return one extent of a tensor, as int64 [1]."""
        return self.add("Shape", tensor, start=axis, end=axis + 1)

    def slice(self, tensor: str, begin: int, end: int, axis: int = -1) -> str:
        """Return the part [begin, end) of an axis."""
        return self.add(
            "Slice", tensor, self.integers([begin]), self.integers([end]), self.integers([axis]), word="slice"
        )

    def rows(self, value: Value) -> str:
        """Return dense values as [rows, size], whatever the levels; of ids [rows]. See `like`."""
        if not value.levels:
            return value.name
        return self.reshape(value.name, [-1] if value.is_ids else [-1, value.size])

    def like(self, value: Value, rows: str, size: int) -> Value:
        """Return rows [rows, size], which were computed from `rows(value)`, with the sequences of that value."""
        if not value.levels:
            return value.with_name(rows, size)
        leading = self.add("Shape", value.name, start=0, end=1 + value.levels)
        shape = self.add("Concat", leading, self.integers([size]), axis=0)
        return value.with_name(self.add("Reshape", rows, shape), size)

    def split(self, value: Value, *shape: int) -> str:
        """Return dense values with this shape in place of their columns."""
        return self.reshape(value.name, [*[0] * (1 + value.levels), *shape])

    def unsqueeze(self, tensor: str, axis: int) -> str:
        """Return a tensor with a further dimension of extent 1 at `axis`."""
        return self.add("Unsqueeze", tensor, self.integers([axis]))

    def squeeze(self, tensor: str, axis: int) -> str:
        """Return a tensor without the dimension of extent 1 at `axis`."""
        return self.add("Squeeze", tensor, self.integers([axis]))

    def take(self, tensor: str, columns: npt.ArrayLike) -> str:
        """Return the columns of the last dimension with these numbers, in the shape of the numbers."""
        return self.add("Gather", tensor, self.integers(np.asarray(columns).tolist()), axis=-1)

    def range(self, tensor: str, axis: int) -> str:
        """Return 0, 1, ... below an extent of a tensor, as int64."""
        return self.add("Range", self.integers(0), self.squeeze(self.dim(tensor, axis), 0), self.integers(1))

    def is_frame(self, value: Value) -> str:
        """Return which frames of a sequence are no padding: BOOL [batch, time], or [batch, outer, inner] if nested."""
        lengths = value.inner or value.lengths
        key = (value.lengths, value.inner)
        graph: Graph | None = self
        while graph is not None:
            if key in graph._masks:
                return graph._masks[key]
            graph = graph._parent
        self._masks[key] = self.add("Less", self.range(value.name, value.levels), self.unsqueeze(lengths, -1))
        return self._masks[key]

    def packed(self, value: Value) -> str:
        """Return the frames without padding, [frames, size] or, of ids, [frames]."""
        if not value.levels:
            return value.name
        return self.add("Compress", self.rows(value), self.reshape(self.is_frame(value), [-1]), axis=0)

    def masked(self, value: Value, padding: float = 0) -> str:
        """Return the tensor of a sequence with a number in place of its padding."""
        mask = self.is_frame(value)
        if value.is_ids:
            mask = mask if value.choices == 1 else self.unsqueeze(mask, -1)
            return self.add("Where", mask, value.name, self.integers(int(padding)))
        return self.add("Where", self.unsqueeze(mask, -1), value.name, self.constant(padding))
