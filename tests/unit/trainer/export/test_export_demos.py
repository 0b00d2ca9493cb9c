"""The demos of v0.10 are exported with random parameters: images, texts, tags, roles, traffic, generators.

The numbers are compared in onnxruntime. Which demos are chains, and become modules of PyTorch, stands beside them.
"""

import numpy as np
import pytest
from demo_configs import lay_out
from exporting import TOLERANCE, compare, fill, make_positive, random_slot

from trainer.arrays.parameters import ParameterTable
from trainer.config import parse_config
from trainer.export.onnx.types import infer_types
from trainer.export.tensors.torch_layers import NotInTorchError, convert_layers
from trainer.export.tensors.torch_module import write_module

# old scripts leave it to the interpreter to close their files
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SIZES = "is_predict=1,dict_len=9,label_len=5,pred_len=4"
BATCH_STATISTICS = "uses the statistics of the batch"
# config: config_args, and why it is no module of PyTorch ("" if it is one)
DEMOS = [
    ("mnist/light_mnist.py", "is_predict=1", ""),
    ("introduction/trainer_config.py", "", ""),
    ("sentiment/trainer_config.py", "is_predict=1", "has 2 inputs"),
    ("image_classification/vgg_16_cifar.py", "is_predict=1", ""),
    ("sequence_tagging/linear_crf.py", "", ""),
    ("sequence_tagging/rnn_crf.py", "", "has 2 inputs"),
    ("semantic_role_labeling/db_lstm.py", SIZES, "has 2 inputs"),
    ("traffic_prediction/trainer_config.py", "is_predict=1", "has the outputs"),
    ("gan/gan_conf.py", "mode=generator", BATCH_STATISTICS),
    ("gan/gan_conf_image.py", "mode=generator", BATCH_STATISTICS),
    ("vae/vae_conf.py", "is_generating=1", ""),
    # its 25 million parameters take their time
    pytest.param("model_zoo/resnet/resnet.py", "is_predict=1", "has 2 inputs", marks=pytest.mark.golden),
]


@pytest.mark.parametrize("config, config_args, no_module", DEMOS)
def test_a_demo_gives_the_same_numbers_in_onnxruntime(config, config_args, no_module, tmp_path, monkeypatch):
    lay_out(tmp_path)
    demo, _, script = config.partition("/")
    monkeypatch.chdir(tmp_path / demo)
    model = parse_config(script, config_args).model_config
    table = fill(ParameterTable(model.parameters), scale=0.05)
    make_positive(model, table)
    types = infer_types(model)
    draw = np.random.default_rng(1)
    batch = {name: random_slot(kind, 2, draw, [3, 5] if kind.seq_type else None) for name, kind in types.items()}
    found = compare(model, table, batch, types)
    assert max(found.values()) < TOLERANCE, found
    layers, refused = convert_layers(model, table)
    if no_module:
        with pytest.raises(NotInTorchError, match=no_module):
            write_module(model, types, layers, refused, "model.pt")
    else:
        assert "class Network(nn.Module)" in write_module(model, types, layers, refused, "model.pt")
