"""The demos of the legacy, written again for these tests from their description (specification 17), with dictionaries
of a few words: how many layers and parameters they have, what goes in and what comes out, and details of each."""

import pickle
import shutil
from pathlib import Path

import pytest

from trainer.config import parse_config

# old scripts leave it to the interpreter to close their files
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

DEMOS = Path(__file__).parents[2] / "golden" / "demos"
COST = ["__cost_0__"]
TEXT = (["word", "label"], COST)
PREDICT = (["word"], ["__maxid_layer_0__", "__fc_layer_0__"])
PREDICT_DEEP = (["word"], ["__maxid_layer_0__", "__fc_layer_7__"])
TRAFFIC = [f"label_{5 * n}min" for n in range(1, 25)]
SRL = ["word_data", *(f"ctx_{place}_data" for place in ("n2", "n1", "0", "p1", "p2")), "verb_data", "mark_data"]
CHUNKS = ["word", "pos", "chunk", "features"]
DIMS = "is_predict=1,dict_len=9,label_len=5,pred_len=4"

# config: config_args, layers, parameters, (inputs, outputs)
CASES = [
    ("quick_start/trainer_config.lr.py", "", 4, 2, TEXT),
    ("quick_start/trainer_config.emb.py", "", 6, 3, TEXT),
    ("quick_start/trainer_config.cnn.py", "", 8, 5, TEXT),
    ("quick_start/trainer_config.lstm.py", "", 8, 6, TEXT),
    ("quick_start/trainer_config.bidi-lstm.py", "", 13, 9, TEXT),
    ("quick_start/trainer_config.db-lstm.py", "", 22, 41, TEXT),
    ("quick_start/trainer_config.resnet-lstm.py", "", 17, 15, TEXT),
    ("quick_start/trainer_config.lr.py", "is_predict=1", 3, 2, PREDICT),
    ("quick_start/trainer_config.emb.py", "is_predict=1", 5, 3, PREDICT),
    ("quick_start/trainer_config.cnn.py", "is_predict=1", 7, 5, PREDICT),
    ("quick_start/trainer_config.lstm.py", "is_predict=1", 7, 6, PREDICT),
    ("quick_start/trainer_config.bidi-lstm.py", "is_predict=1", 12, 9, PREDICT),
    ("quick_start/trainer_config.db-lstm.py", "is_predict=1", 21, 41, PREDICT_DEEP),
    ("quick_start/trainer_config.resnet-lstm.py", "is_predict=1", 16, 15, PREDICT),
    (
        "recommendation/trainer_config.py",
        "",
        28,
        31,
        (
            ["movie_id", "title", "genres", "user_id", "gender", "age", "occupation", "rating"],
            ["__mse_cost_0__"],
        ),
    ),
    ("recommendation/trainer_config.py", "is_predict=1", 26, 31, None),
    ("mnist/light_mnist.py", "", 16, 26, (["pixel", "label"], COST)),
    ("mnist/light_mnist.py", "is_predict=1", 14, 26, (["pixel"], ["__fc_layer_0__"])),
    ("mnist/vgg_16_mnist.py", "", 32, 68, (["pixel", "label"], COST)),
    ("mnist/vgg_16_mnist.py", "is_predict=1", 30, 68, (["pixel"], ["__fc_layer_1__"])),
    ("introduction/trainer_config.py", "", 4, 2, (["x", "y"], ["__mse_cost_0__"])),
    ("sentiment/trainer_config.py", "", 13, 18, TEXT),
    ("sentiment/trainer_config.py", "is_test=1", 13, 18, TEXT),
    ("sentiment/trainer_config.py", "is_predict=1", 11, 18, (["word"], ["__fc_layer_3__"])),
    ("sentiment/trainer_config.py", "net=bidirectional", 13, 9, TEXT),
    ("image_classification/vgg_16_cifar.py", "", 32, 68, (["image", "label"], COST)),
    ("image_classification/vgg_16_cifar.py", "is_predict=1", 30, 68, (["image"], ["__fc_layer_1__"])),
    ("sequence_tagging/linear_crf.py", "", 7, 2, (CHUNKS, ["__crf_layer_0__"])),
    ("sequence_tagging/rnn_crf.py", "", 12, 14, (CHUNKS, ["__crf_layer_0__"])),
    (
        "seqToseq/translation/train.conf",
        "",
        49,
        30,
        (["source_language_word", "target_language_word", "target_language_next_word"], COST),
    ),
    (
        "seqToseq/translation/gen.conf",
        "",
        49,
        30,
        (["source_language_word", "sent_id"], ["__beam_search_predict__"]),
    ),
    (
        "seqToseq/paraphrase/train.conf",
        "",
        49,
        30,
        (["source_language_word", "target_language_word", "target_language_next_word"], COST),
    ),
    ("semantic_role_labeling/db_lstm.py", "", 36, 53, ([*SRL, "target"], ["crf"])),
    ("semantic_role_labeling/db_lstm.py", "is_test=1", 36, 53, ([*SRL, "target"], ["crf"])),
    ("semantic_role_labeling/db_lstm.py", DIMS, 34, 53, (SRL, ["crf_dec_l"])),
    (
        "traffic_prediction/trainer_config.py",
        "",
        97,
        73,
        (["link_encode", *TRAFFIC], [f"cost_{5 * n}min" for n in range(1, 25)]),
    ),
    (
        "traffic_prediction/trainer_config.py",
        "is_predict=1",
        73,
        73,
        (["link_encode"], [f"__maxid_layer_{n}__" for n in range(24)]),
    ),
    ("gan/gan_conf.py", "mode=generator", 5, 10, (["noise"], ["gen_layer1"])),
    ("gan/gan_conf.py", "mode=generator_training", 11, 20, (["noise", "label"], ["__cross_entropy_0__"])),
    ("gan/gan_conf.py", "mode=discriminator_training", 7, 10, (["sample", "label"], ["__cross_entropy_0__"])),
    ("gan/gan_conf_image.py", "mode=generator", 8, 20, (["noise"], ["gen_layer_h4_convt"])),
    ("gan/gan_conf_image.py", "mode=generator_training,data=cifar", 16, None, (["noise", "label"], None)),
    ("gan/gan_conf_image.py", "mode=discriminator_training", 9, None, (["sample", "label"], None)),
    ("vae/vae_conf.py", "", None, None, (["x_batch"], ["__mixed_5__"])),
    ("vae/vae_conf.py", "is_generating=1", 3, 4, (["noise"], ["__fc_layer_1__"])),
    (
        "model_zoo/resnet/resnet.py",
        "",
        128,
        267,
        (["input", "label"], ["res5_3_branch2c_conv", "res5_3_branch2c_bn"]),
    ),
    ("model_zoo/resnet/resnet.py", "is_predict=1", 126, 267, (["input"], ["output"])),
]


def fields(side):
    if side == "movie":
        return [
            {"type": "id", "min": 1, "max": 30, "count": 30, "is_key": True},
            {"type": "embedding", "name": "title", "dict": dict.fromkeys("abcdef"), "seq": "sequence"},
            {"type": "one_hot_dense", "name": "genres", "dict": dict.fromkeys("xyz")},
        ]
    return [
        {"type": "id", "min": 1, "max": 20, "count": 20, "is_key": True},
        *(
            {"type": "embedding", "name": name, "dict": dict.fromkeys(keys), "seq": "no_sequence"}
            for name, keys in (("gender", "FM"), ("age", "1234567"), ("occupation", "abcdefghi"))
        ),
    ]


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines))


def write_data(directory):
    """Write the dictionaries that the demos read while they are parsed."""
    words = [f"word{number}" for number in range(9)]
    write_lines(directory / "quick_start/data/dict.txt", [f"{word}\t{number}" for number, word in enumerate(words)])
    write_lines(directory / "sentiment/data/pre-imdb/dict.txt", [f"{word}\t7" for word in words])
    write_lines(directory / "sentiment/data/pre-imdb/labels.list", ["neg\t0", "pos\t1"])
    for corpus in ("pre-wmt14", "wmt14_model", "pre-paraphrase"):
        for side in ("src", "trg"):
            write_lines(directory / f"seqToseq/data/{corpus}/{side}.dict", ["<s>", "<e>", "<unk>", *words])
    for name, count in (("word", 9), ("target", 5), ("verb", 4)):
        write_lines(directory / f"semantic_role_labeling/data/{name}Dict.txt", words[:count])
    meta = {side: {"__meta__": {"raw_meta": fields(side), "feature_map": []}} for side in ("movie", "user")}
    (directory / "recommendation/data").mkdir()
    (directory / "recommendation/data/meta.bin").write_bytes(pickle.dumps(meta, protocol=2))


@pytest.fixture
def parse_demo(config_dir, monkeypatch):
    """Parse a demo's config in the demo's directory."""
    shutil.copytree(DEMOS, config_dir, dirs_exist_ok=True)
    write_data(config_dir)

    def parse(config, config_args=""):
        demo = config.split("/")[0]
        monkeypatch.chdir(config_dir / demo)
        return parse_config(config.partition("/")[2], config_args)

    return parse


@pytest.mark.parametrize("config, config_args, layers, parameters, order", CASES)
def test_a_demo_has_its_layers_parameters_inputs_and_outputs(
    parse_demo, config, config_args, layers, parameters, order
):
    model = parse_demo(config, config_args).model_config
    found = len(model.layers), len(model.parameters)
    assert found == (layers or found[0], parameters or found[1])
    if order:
        assert list(model.input_layer_names) == order[0]
        assert order[1] is None or list(model.output_layer_names) == order[1]
    root = model.sub_models[0]
    assert root.input_layer_names == model.input_layer_names
    assert root.output_layer_names == model.output_layer_names
    members = [name for sub_model in model.sub_models for name in sub_model.layer_names]
    assert sorted(members) == sorted(layer.name for layer in model.layers)
