"""The networks of the recorded runs of `paddle.v2`, with their trained parameters, in onnxruntime.

A recording has no types of data layers, so these are found from the layers that read them.
"""

from pathlib import Path

import numpy as np
import pytest
from exporting import TOLERANCE, compare_exported, random_slot
from google.protobuf import text_format

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from trainer.export.model import TrainedModel
from trainer.export.onnx.files import to_onnx
from trainer.export.onnx.types import infer_types
from trainer.v2.parameters import Parameters

SHARED = Path(__file__).parents[5] / "shared" / "golden" / "v2" / "runs"
QUICK = {"digits_mlp", "recommender", "semantic_roles", "sentiment_conv", "translation", "word2vec"}
RUNS = sorted(path.parent.name for path in SHARED.glob("*/model.prototxt"))


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.golden) for name in RUNS]
)
def test_a_recorded_network_gives_the_same_numbers_in_onnxruntime(name):
    model = text_format.Parse((SHARED / name / "model.prototxt").read_text(), ModelConfig())
    with (SHARED / name / "final.tar.gz").open("rb") as file:
        table = Parameters.from_tar(file).make_table(model)
    types = infer_types(model)
    proto = to_onnx(TrainedModel(model, table, types))
    for samples in (1, 7):
        rng = np.random.default_rng(samples)
        lengths = rng.integers(1, 6, samples)
        batch = {one: random_slot(types[one], samples, rng, lengths) for one in model.input_layer_names}
        found = compare_exported(proto, model, table, batch, types, longer=samples % 2)
        assert max(found.values()) < TOLERANCE, found
