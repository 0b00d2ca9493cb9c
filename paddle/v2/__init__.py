"""`import paddle.v2 as paddle`: the API of the programs of 2017. The implementation is trainer/v2."""

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
from trainer.v2.process import init

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
