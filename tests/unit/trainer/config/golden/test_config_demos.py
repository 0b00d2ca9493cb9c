"""The demos of the legacy, written again for these tests from their description (specification 17), with dictionaries
of a few words: how many layers and parameters they have, what goes in and what comes out, and details of each.

quick_start and recommendation are in examples/: test_config_examples.py."""

from pathlib import Path

import pytest
from config_messages import layer_of, layers_of, parameter_of, sources
from demo_configs import lay_out

from trainer.arrays.parameters import ParameterTable
from trainer.config import parse_config
from trainer.network.network import Network

# old scripts leave it to the interpreter to close their files
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

COST = ["__cost_0__"]
TEXT = (["word", "label"], COST)
TRAFFIC = [f"label_{5 * n}min" for n in range(1, 25)]
SRL = ["word_data", *(f"ctx_{place}_data" for place in ("n2", "n1", "0", "p1", "p2")), "verb_data", "mark_data"]
CHUNKS = ["word", "pos", "chunk", "features"]
DIMS = "is_predict=1,dict_len=9,label_len=5,pred_len=4"

# config: config_args, layers, parameters, (inputs, outputs)
CASES = [
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


@pytest.fixture
def parse_demo(config_dir, monkeypatch):
    """Parse a demo's config in the demo's directory."""
    lay_out(config_dir)

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
    if not config.startswith("model_zoo"):  # its 25 million parameters take their time
        Network(model, ParameterTable(model.parameters))  # refuses types and activations that it does not know


def test_mnist_s_maps_are_rounded_up_by_the_poolings(parse_demo):
    config = parse_demo("mnist/light_mnist.py")
    maps = [(layer.height, layer.width) for layer in layers_of(config, "exconv")]
    assert maps == [(26, 26), (11, 11), (4, 4), (2, 2)]
    assert [layer.height for layer in layers_of(config, "pool")] == [13, 6, 2, 1]
    moving = parameter_of(config, "___batch_norm_0__.w1")
    assert moving.is_static and moving.is_shared
    config = parse_demo("mnist/vgg_16_mnist.py")
    assert config.model_config.parameters[0].momentum == 0.9
    assert config.model_config.parameters[0].decay_rate == 0.0005 * 128
    rates = [layer.drop_rate for layer in layers_of(config, "batch_norm")]
    assert rates == pytest.approx([0.3, 0, 0.4, 0, 0.4, 0.4, 0, 0.4, 0.4, 0, 0])


def test_introduction_calls_its_parameters_w_and_b(parse_demo):
    config = parse_demo("introduction/trainer_config.py")
    weight, bias = config.model_config.parameters
    assert (weight.name, bias.name) == ("w", "b")
    assert (weight.initial_std, bias.initial_std, bias.initial_smart) == (1.0, 1.0, True)
    assert config.data_config.files == "train.list" and not config.HasField("test_data_config")
    assert Path("train.list").read_text().strip() == "no_matter.txt"
    assert config.opt_config.average_window == 0.0


def test_sentiment_averages_and_has_rates_of_its_own(parse_demo):
    config = parse_demo("sentiment/trainer_config.py")
    assert config.opt_config.average_window == 0.5 and not config.opt_config.HasField("max_average_window")
    assert [lstm.reversed for lstm in layers_of(config, "lstmemory")] == [False, True, False]
    assert {(lstm.active_type, lstm.drop_rate) for lstm in layers_of(config, "lstmemory")} == {("relu", 0.5)}
    first, second = parameter_of(config, "___fc_layer_1__.w0"), parameter_of(config, "___fc_layer_1__.w1")
    assert (first.learning_rate, first.initial_smart) == (1e-3, True)
    assert (second.learning_rate, second.initial_std) == (1.0, 0.0)
    assert layer_of(config, "label").size == 1
    assert not parse_demo("sentiment/trainer_config.py", "is_test=1").HasField("data_config")


def test_sequence_tagging_shares_the_transitions_and_updates_sparsely(parse_demo):
    config = parse_demo("sequence_tagging/linear_crf.py")
    weight, transitions = config.model_config.parameters
    assert weight.sparse_update and weight.sparse_remote_update and config.opt_config.use_sparse_remote_updater
    assert (transitions.name, list(transitions.dims), transitions.initial_std) == ("crfw", [26, 24], 0.0)
    assert [one.type for one in config.model_config.evaluators] == ["sum", "chunk"]
    error, chunks = config.model_config.evaluators
    assert (error.name, chunks.name, chunks.chunk_scheme, chunks.num_chunk_types) == ("error", "chunk_f1", "IOB", 11)
    assert list(chunks.input_layers) == ["__crf_decoding_layer_0__", "chunk"]
    assert (config.opt_config.learning_rate_decay_a, config.opt_config.learning_rate_decay_b) == (1e-5, 0.25)


def test_sequence_tagging_has_a_device_per_layer(parse_demo):
    config = parse_demo("sequence_tagging/rnn_crf.py")
    on_cpu = {layer.name for layer in config.model_config.layers if layer.device == -1}
    assert on_cpu == {"chunk", "__crf_layer_0__", "__crf_decoding_layer_0__"}
    assert all(layer.HasField("device") for layer in config.model_config.layers)
    assert {one.name for one in config.model_config.parameters if one.device != 0} == {"crfw"}
    assert [layer.reversed for layer in layers_of(config, "recurrent")] == [False, True]


def test_seq_to_seq_generates_with_the_parameters_that_it_trains(parse_demo):
    train = parse_demo("seqToseq/translation/train.conf")
    generate = parse_demo("seqToseq/translation/gen.conf")
    shapes = [{one.name: list(one.dims) for one in config.model_config.parameters} for config in (train, generate)]
    assert shapes[0] == shapes[1]
    assert "_target_language_embedding" in shapes[0] and "_gru_decoder_update@decoder_group.w1" in shapes[0]
    group = train.model_config.sub_models[-1]
    assert [link.layer_name for link in group.in_links] == ["__embedding_1__"]
    assert [memory.boot_layer_name for memory in group.memories] == ["__concat_0__", "__mixed_0__", "__mixed_1__"]
    assert [memory.link_name for memory in group.memories[:2]] == [f"__memory_{n}__@decoder_group" for n in (2, 3)]
    gates = [layer for layer in train.model_config.layers if layer.name.startswith("gru_decoder_")]
    assert [gate.error_clipping_threshold for gate in gates] == [50, 50, 0, 50]
    (printer,) = generate.model_config.evaluators
    assert (printer.result_file, list(printer.input_layers)) == (
        "./translation/gen_result",
        ["sent_id", "__beam_search_predict__"],
    )
    assert generate.model_config.sub_models[-1].generator.max_num_frames == 250
    assert list(parameter_of(parse_demo("seqToseq/paraphrase/train.conf"), "_source_language_embedding").dims)[1] == 32


def test_semantic_role_labeling_keeps_its_word_vectors(parse_demo):
    config = parse_demo("semantic_role_labeling/db_lstm.py")
    emb = parameter_of(config, "emb")
    assert (emb.HasField("learning_rate"), emb.learning_rate, list(emb.dims)) == (True, 0.0, [9, 32])
    assert (emb.momentum, emb.HasField("momentum"), emb.decay_rate) == (0.0, True, 8e-4)
    assert [lstm.reversed for lstm in layers_of(config, "lstmemory")] == [False, True] * 4
    assert {lstm.active_state_type for lstm in layers_of(config, "lstmemory")} == {"sigmoid"}
    assert len(layer_of(config, "hidden0").inputs) == 8 and layer_of(config, "hidden0").bias_size == 512
    assert (config.opt_config.average_window, config.opt_config.max_average_window) == (0.5, 10000)
    assert layer_of(config, "word_ctx-in_embedding").size == 5
    decoding = layer_of(parse_demo("semantic_role_labeling/db_lstm.py", DIMS), "crf_dec_l")
    assert sources(decoding) == ["output"]


def test_a_gan_holds_one_half_still(parse_demo):
    config = parse_demo("gan/gan_conf.py", "mode=generator_training")
    still = {one.name for one in config.model_config.parameters if one.is_static}
    assert {name for name in still if "_bn.w1" not in name and "_bn.w2" not in name} == {
        one.name for one in config.model_config.parameters if one.name.startswith("_dis_") and "_bn.w1" not in one.name
        and "_bn.w2" not in one.name
    }  # fmt: skip
    assert [one.name for one in config.model_config.evaluators] == ["generator_training_error"]
    assert config.opt_config.adam_beta1 == 0.5
    sizes = [layer.size for layer in layers_of(parse_demo("gan/gan_conf_image.py"), "exconvt")]
    assert sizes == [128 * 7 * 7, 64 * 14 * 14, 28 * 28]


def test_resnet_names_its_outputs_before_they_exist(parse_demo):
    config = parse_demo("model_zoo/resnet/resnet.py")
    assert config.model_config.parameters[0].momentum == 0.9
    assert {one.decay_rate for one in config.model_config.parameters} == {0.0001}
    assert (config.opt_config.algorithm, config.opt_config.learning_rate_schedule) == ("sgd", "discexp")
    assert layers_of(config, "multi-class-cross-entropy")[0].name == "__cost_0__"
    addto = layer_of(config, "res5_3_addto")
    assert (addto.height, addto.width, addto.size) == (7, 7, 2048 * 49)
    assert layer_of(config, "conv1_bn").use_global_stats is False
    assert layer_of(config, "conv1_bn").HasField("use_global_stats")
