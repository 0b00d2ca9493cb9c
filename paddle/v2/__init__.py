"""`import paddle.v2 as paddle`: the API of the programs of 2017. The implementation is trainer/v2."""

import importlib
import importlib.util
import sys
from types import ModuleType

from paddle.older_modules import pointer
from paddle.v2 import (
    activation,
    attr,
    config_base,
    data_feeder,
    data_type,
    evaluator,
    event,
    inference,
    layer,
    minibatch,
    networks,
    op,
    optimizer,
    parameters,
    pooling,
    topology,
    trainer,
)
from paddle.v2.inference import infer
from paddle.v2.minibatch import batch
from trainer.config.building.names import UnknownName, closest
from trainer.v2.process import init

# imported when a program first uses them: pictures need pillow, data sets requests
_ON_USE = ("dataset", "image", "master", "plot", "reader")


def __getattr__(name: str) -> ModuleType:
    module = f"{__name__}.{name}"
    if name in _ON_USE or pointer(module):  # the import of `fluid` says what replaces it
        return importlib.import_module(module)
    near = closest(name, __all__)
    raise UnknownName(f"module {__name__!r} has no attribute {name!r}{f'; did you mean {near!r}?' if near else ''}")


if importlib.util.find_spec("recordio") is None:  # programs of 2017 import the module of this name
    from paddle.trainer import recordio

    sys.modules["recordio"] = recordio

__all__ = [
    "activation",
    "attr",
    "batch",
    "config_base",
    "data_feeder",
    "data_type",
    "evaluator",
    "event",
    "infer",
    "inference",
    "init",
    "layer",
    "minibatch",
    "networks",
    "op",
    "optimizer",
    "parameters",
    "pooling",
    "topology",
    "trainer",
]
