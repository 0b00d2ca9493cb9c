"""`paddle dump_config` prints what v0.10 printed; the message has more fields, those of the legacy's last version."""

import json
import re
import shutil
from pathlib import Path

import pytest

from paddle.utils import dump_config
from trainer.config import as_v0_10, parse_config, to_text

GOLDEN = Path(__file__).parents[4] / "golden"
CUT = re.compile(r"load_data_args: .*")
FIELDS = {
    "movie": [
        {"type": "id", "max": 150},
        {"type": "embedding", "name": "title", "seq": "sequence", "dict": ["x"] * 41},
        {"type": "one_hot_dense", "name": "genres", "dict": ["x"] * 18},
    ],
    "user": [
        {"type": "id", "max": 200},
        {"type": "embedding", "name": "gender", "seq": "no_sequence", "dict": ["x"] * 2},
        {"type": "embedding", "name": "age", "seq": "no_sequence", "dict": ["x"] * 7},
        {"type": "embedding", "name": "occupation", "seq": "no_sequence", "dict": ["x"] * 21},
    ],
}
# golden text: the config and its arguments
RUNS = {
    "trace_emb": ("emb.py", "in_order=1"),
    "trace_cnn": ("cnn.py", "in_order=1"),
    "rec_local": ("recommendation.py", ""),
}


@pytest.fixture
def run_dir(config_dir):
    for path in (GOLDEN / "runs" / "configs").iterdir():
        shutil.copy(path, config_dir)
    (config_dir / "data").mkdir()
    (config_dir / "data" / "dict.txt").write_text("unk\t-1\n" + "".join(f"w{i:05d}\t1\n" for i in range(1, 2001)))
    (config_dir / "data" / "meta.json").write_text(json.dumps({side: {"fields": FIELDS[side]} for side in FIELDS}))
    return config_dir


@pytest.mark.parametrize("run", RUNS)
def test_a_run_prints_as_v0_10_printed_it(run_dir, run):
    golden = (GOLDEN / "config" / "v0_10" / f"{run}.txt").read_text()
    text = to_text(as_v0_10(parse_config(*RUNS[run]))) + "\n"
    assert CUT.sub("", text) == CUT.sub("", golden)


def test_prediction_without_data_prints_as_v0_10_printed_it(run_dir, capsys):
    golden = (GOLDEN / "config" / "v0_10" / "rec_local.predict.txt").read_text()
    assert dump_config.main(["recommendation.py", "is_predict=1"]) == 0
    assert capsys.readouterr().out == golden


def test_a_network_alone_prints_as_the_last_version_printed_it(config_dir, capsys):
    text = "from paddle.trainer_config_helpers import *\noutputs(last_seq(data_layer('x', 2), name='l'))\n"
    (config_dir / "network.py").write_text(text)
    assert dump_config.main(["network.py"]) == 0
    assert "seq_pool_stride: -1" in capsys.readouterr().out


def test_only_fields_of_later_versions_are_taken_out(parse_text):
    config = parse_text("""
x = data_layer('x', 4)
outputs([first_seq(x, name='strided', stride=2), pooling_layer(x, name='pool'), seq_reshape_layer(x, 2, name='cut'),
         addto_layer([x, x], name='sum'), concat_layer([x, x], name='pair'), print_layer(x, name='shown') or x])""")
    layers = {layer.name: layer for layer in config.model_config.layers}
    older = {layer.name: layer for layer in as_v0_10(config).model_config.layers}
    assert layers["pool"].seq_pool_stride == -1 and layers["sum"].HasField("depth")  # the message is as it was
    assert older["strided"].seq_pool_stride == 2 and older["strided"].select_first
    assert not older["pool"].HasField("seq_pool_stride")
    assert [older[name].active_type for name in ("strided", "pool", "cut", "sum", "pair")] == ["linear"] * 3 + ["", ""]
    assert not any(older[name].HasField(field) for name in ("sum", "pair") for field in ("height", "width", "depth"))
    assert layers["shown"].user_arg and not older["shown"].HasField("user_arg")
