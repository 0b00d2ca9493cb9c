"""What configs parse to, byte for byte as the legacy printed it."""

import re
import shutil
from pathlib import Path

import pytest
from each import each
from google.protobuf import text_format

from paddle_base.proto import ModelConfig_pb2, TrainerConfig_pb2
from trainer.config import as_v0_10, parse_config, to_text

GOLDEN = Path(__file__).parents[4] / "golden" / "config"
SHARED = Path(__file__).parents[6] / "shared" / "golden"
CUT = re.compile(r"load_data_args: .*")

CONFIGS = {
    "shared_fc": """
settings(learning_rate=1e-4, batch_size=1000)
a = data_layer(name='feature_a', size=200)
b = data_layer(name='feature_b', size=200)
fc_param = ParamAttr(name='fc_param', initial_max=1.0, initial_min=-1.0)
bias_param = ParamAttr(name='bias_param', initial_mean=0.0, initial_std=0.0)
softmax_param = ParamAttr(name='softmax_param', initial_max=1.0, initial_min=-1.0)
hidden_a = fc_layer(input=a, size=200, param_attr=fc_param, bias_attr=bias_param)
hidden_b = fc_layer(input=b, size=200, param_attr=fc_param, bias_attr=bias_param)
predict = fc_layer(input=[hidden_a, hidden_b], param_attr=[softmax_param, softmax_param], bias_attr=False, size=10,
                   act=SoftmaxActivation())
outputs(classification_cost(input=predict, label=data_layer(name='label', size=10)))
""",
    "layer_activations": """
din = data_layer(name='input', size=100)
acts = [TanhActivation, SigmoidActivation, SoftmaxActivation, IdentityActivation, LinearActivation, ExpActivation,
        ReluActivation, BReluActivation, SoftReluActivation, STanhActivation, AbsActivation, SquareActivation]
outputs([fc_layer(input=din, size=100, act=act(), name='layer_%d' % i) for i, act in enumerate(acts)])
""",
    "test_fc": """
din = data_layer(name='data', size=100)
fc = fc_layer(input=trans_layer(input=din), size=100, bias_attr=False)
mask = data_layer(name='mask', size=100)
outputs(fc, selective_fc_layer(input=din, select=mask, size=100, act=SigmoidActivation()))
""",
    "test_repeat_layer": """
din = data_layer(name='data', size=30)
outputs(repeat_layer(input=din, num_repeats=10, as_row_vector=True),
        repeat_layer(input=din, num_repeats=10, act=TanhActivation(), as_row_vector=False))
""",
    "test_smooth_l1": """
outputs(smooth_l1_cost(input=data_layer(name='input', size=300), label=data_layer(name='label', size=300)))
""",
    "test_cost_layers": """
seq_in = data_layer(name='input', size=200)
labels = data_layer(name='labels', size=5000)
probs = data_layer(name='probs', size=10)
xe_label = data_layer(name='xe-label', size=10)
hidden = fc_layer(input=seq_in, size=4)
outputs(
    ctc_layer(input=seq_in, label=labels),
    warp_ctc_layer(input=seq_in, label=labels, blank=0),
    crf_layer(input=hidden, label=data_layer(name='crf_label', size=4)),
    rank_cost(left=data_layer(name='left', size=1), right=data_layer(name='right', size=1),
              label=data_layer(name='label', size=1)),
    lambda_cost(input=data_layer(name='list_feature', size=100), score=data_layer(name='list_scores', size=1)),
    cross_entropy(input=probs, label=xe_label),
    cross_entropy_with_selfnorm(input=probs, label=xe_label),
    huber_regression_cost(input=seq_in, label=labels),
    huber_classification_cost(input=data_layer(name='huber_probs', size=1),
                              label=data_layer(name='huber_label', size=1)),
    multi_binary_label_cross_entropy(input=probs, label=xe_label),
    sum_cost(input=hidden),
    nce_layer(input=hidden, label=labels))
""",
    "test_l2_distance_layer": "outputs(l2_distance_layer(data_layer('x', 128), data_layer('y', 128)))",
    "test_row_l2_norm_layer": "outputs(row_l2_norm_layer(data_layer('input', 300)))",
    "test_factorization_machine": "outputs(factorization_machine(data_layer('data', 1024), factor_size=10))",
    "test_scale_shift_layer": """
data = data_layer('data', 100)
outputs(scale_shift_layer(data, bias_attr=False), scale_shift_layer(data))
""",
    "test_multiplex_layer": """
outputs(multiplex_layer(input=[data_layer(name='index', size=1)] +
                              [data_layer(name='data%d' % i, size=30) for i in (1, 2, 3)]))
""",
    "test_print_layer": """
din = data_layer(name='input', size=100)
print_layer(input=din)
outputs(din)
""",
    "test_resize_layer": "outputs(resize_layer(input=data_layer(name='input', size=300), size=150))",
    "unused_layers": "outputs(sampling_id_layer(input=data_layer(name='probs', size=100)))",
    # images
    "img_layers": """
img = data_layer(name='image', size=256 * 256)
conv = img_conv_layer(input=img, num_channels=1, num_filters=64, filter_size=(32, 32), padding=(1, 1), dilation=(1, 1),
                      stride=(1, 1), act=LinearActivation())
bn = batch_norm_layer(input=conv, act=ReluActivation())
norm = img_cmrnorm_layer(input=bn, size=32)
pool = img_pool_layer(input=conv, pool_size=32, pool_type=MaxPooling())
outputs(pool, norm)
""",
    "test_BatchNorm3D": """
data = data_layer(name='data3D', size=120 * 3, width=20, height=6, depth=3)
outputs(batch_norm_layer(input=data, num_channels=1, img3D=True))
""",
    "test_bilinear_interp": """
data = data_layer(name='data', size=2304)
conv = img_conv_layer(input=data, filter_size=3, num_channels=1, num_filters=16, padding=1, act=LinearActivation(),
                      bias_attr=True)
bilinear = bilinear_interp_layer(input=conv, out_size_x=64, out_size_y=64)
pool = img_pool_layer(input=bilinear, num_channels=16, pool_size=2, stride=2, pool_type=MaxPooling())
outputs(fc_layer(input=pool, size=384, bias_attr=False))
""",
    "test_deconv3d_layer": """
data = data_layer(name='data', size=12096 * 3, height=48, width=42, depth=6)
img_conv3d_layer(input=data, name='deconv3d_1', num_filters=16, num_channels=3, filter_size=3, stride=2, padding=1,
                 groups=1, bias_attr=True, shared_biases=True, trans=True, layer_type='deconv3d',
                 act=LinearActivation())
deconv = img_conv3d_layer(input=data, name='deconv3d_2', num_filters=16, num_channels=3, filter_size=[3, 3, 3],
                          stride=[2, 2, 2], padding=[1, 1, 1], groups=1, bias_attr=True, shared_biases=True,
                          trans=True, layer_type='deconv3d', act=LinearActivation())
outputs(deconv)
""",
    "test_detection_output_layer": """
loc = data_layer(name='input_loc', size=16, height=16, width=1)
conf = data_layer(name='input_conf', size=8, height=1, width=8)
boxes = data_layer(name='priorbox', size=32, height=4, width=8)
outputs(detection_output_layer(input_loc=loc, input_conf=conf, priorbox=boxes, num_classes=21, nms_threshold=0.45,
                               nms_top_k=400, keep_top_k=200, confidence_threshold=0.01, background_id=0,
                               name='test_detection_output'))
""",
    "test_maxout": """
data = data_layer(name='data', size=2304, height=48, width=48)
conv = img_conv_layer(input=data, filter_size=3, num_channels=1, num_filters=16, padding=1, act=LinearActivation(),
                      bias_attr=True)
maxout = maxout_layer(input=conv, num_channels=16, groups=2)
pool = img_pool_layer(input=maxout, num_channels=8, pool_size=2, stride=2, pool_type=MaxPooling())
conv2 = img_conv_layer(input=pool, filter_size=3, num_channels=8, num_filters=128, padding=1, act=LinearActivation(),
                       bias_attr=True)
maxout2 = maxout_layer(input=conv2, num_channels=128, groups=4)
block = block_expand_layer(input=maxout2, num_channels=32, stride_x=1, stride_y=1, block_x=1, block_y=6)
outputs(fc_layer(input=block, size=384, bias_attr=False))
""",
    "test_pad": """
data = data_layer(name='data', size=2016, height=48, width=42)
conv = img_conv_layer(input=data, filter_size=3, num_channels=1, num_filters=16, padding=1, act=LinearActivation(),
                      bias_attr=True)
pool = img_pool_layer(input=conv, num_channels=16, pool_size=2, stride=2, pool_type=MaxPooling())
outputs(pad_layer(input=pool, pad_c=[2, 3], pad_h=[1, 2], pad_w=[3, 1]))
""",
    "test_pooling3D_layer": """
data_2d = data_layer(name='data_2d', size=6000, height=20, width=10)
outputs(img_pool_layer(input=data_2d, name='pool___2d', num_channels=30, pool_size=5, stride=3, padding=1,
                       pool_type=AvgPooling()))
data_3d = data_layer(name='data_3d_1', size=60000, depth=10, height=20, width=10)
outputs(img_pool3d_layer(input=data_3d, name='pool_3d_1', num_channels=30, pool_size=5, stride=3, padding=1,
                         pool_type=AvgPooling()))
outputs(img_pool3d_layer(input=data_3d, name='pool_3d_2', num_channels=30, pool_size=[5, 5, 5], stride=[3, 3, 3],
                         padding=[1, 1, 1], pool_type=MaxPooling()))
""",
    "test_prelu_layer": """
data = data_layer(name='input', size=300, height=10, width=10)
prelu_layer(input=data, num_channels=3)
prelu_layer(input=data, num_channels=3, partial_sum=1)
prelu_layer(input=data, num_channels=3, partial_sum=5)
prelu_layer(input=data, num_channels=3, channel_shared=True)
outputs(prelu_layer(input=data, num_channels=3, channel_shared=False))
""",
    "test_roi_pool_layer": """
data = data_layer(name='data', size=3 * 14 * 14, height=14, width=14)
rois = data_layer(name='rois', size=10)
conv = img_conv_layer(input=data, filter_size=3, num_channels=3, num_filters=16, padding=1, act=LinearActivation(),
                      bias_attr=True)
outputs(roi_pool_layer(input=conv, rois=rois, pooled_width=7, pooled_height=7, spatial_scale=1. / 16))
""",
    "test_scale_sub_region_layer": """
data = data_layer(name='data', size=2016, height=48, width=42)
outputs(scale_sub_region_layer(input=data, indices=data_layer(name='indices', size=6), value=0.0))
""",
    "test_spp_layer": """
data = data_layer(name='data', size=3200, height=20, width=10)
outputs(spp_layer(input=data, pyramid_height=2, num_channels=16, pool_type=MaxPooling()))
""",
    # sequences and recurrent layers: the configs are from the specification, section 18
    "last_first_seq": """
data = data_layer('data', 30)
levels = [AggregateLevel.TO_SEQUENCE, AggregateLevel.TO_NO_SEQUENCE]
picked = [pick(data, agg_level=level) for pick in (first_seq, last_seq) for level in levels]
outputs(picked + [pick(data, agg_level=AggregateLevel.TO_NO_SEQUENCE, stride=5) for pick in (first_seq, last_seq)])
""",
    "test_expand_layer": """
data, data_seq = data_layer('data', 30), data_layer('data_seq', 30)
outputs(expand_layer(data, data_seq, expand_level=ExpandLevel.FROM_SEQUENCE),
        expand_layer(data, data_seq, expand_level=ExpandLevel.FROM_NO_SEQUENCE))
""",
    "test_kmax_seq_socre_layer": """
outputs(kmax_seq_score_layer(fc_layer(data_layer('input_seq', 128), 1, act=ExpActivation()), beam_size=5))
""",
    "test_row_conv": "outputs(row_conv_layer(data_layer('data', 2560), context_len=19, act=ReluActivation()))",
    "test_seq_concat_reshape": """
data1, data2 = data_layer('data1', 30), data_layer('data2', 30)
outputs([seq_concat_layer(data1, data2), seq_reshape_layer(data1, 5)])
""",
    "test_seq_slice_layer": """
word, starts, ends = data_layer('word', 128), data_layer('starts', 5), data_layer('ends', 5)
outputs(seq_slice_layer(word, starts, ends), seq_slice_layer(word, starts, None), seq_slice_layer(word, None, ends))
""",
    "test_sub_nested_seq_select_layer": """
outputs(sub_nested_seq_layer(data_layer('input_seq', 300), selected_indices=data_layer('input', 5)))
""",
    "test_lstmemory_layer": """
outputs(lstmemory(data_layer('data', 128), reverse=True, gate_act=TanhActivation(), act=TanhActivation(), size=32))
""",
    "test_grumemory_layer": """
outputs(grumemory(data_layer('data', 120), size=40, reverse=True, gate_act=TanhActivation(), act=SigmoidActivation()))
""",
    "simple_rnn_layers": """
hidden = fc_layer(data_layer('data', 200), 200, act=SigmoidActivation())
rnn = recurrent_layer(hidden, act=SigmoidActivation())
rnn2 = recurrent_layer(hidden, act=SigmoidActivation(), reverse=True)
def projected(size):
    return fc_layer(hidden, size, act=LinearActivation(), bias_attr=False)
lstm1 = lstmemory(projected(800), act=SigmoidActivation())
lstm2 = lstmemory(projected(800), act=SigmoidActivation(), reverse=True)
gru1 = grumemory(projected(600), act=SigmoidActivation())
gru2 = grumemory(projected(600), act=SigmoidActivation(), reverse=True)
outputs(last_seq(rnn), first_seq(rnn2), last_seq(lstm1), first_seq(lstm2), last_seq(gru1), first_seq(gru2))
""",
    "shared_gru": """
settings(learning_rate=1e-4, batch_size=1000)
data_a, data_b = data_layer('data_a', 100), data_layer('data_b', 100)
mixed_param, gru_param = ParamAttr(name='mixed_param'), ParamAttr(name='gru_param')
gru_bias = ParamAttr(name='gru_bias', initial_mean=0., initial_std=0.)
softmax_param = ParamAttr(name='softmax_param')
grus = [simple_gru(data, 200, mixed_param_attr=mixed_param, mixed_bias_param_attr=False, gru_bias_attr=gru_bias,
                   gru_param_attr=gru_param) for data in (data_a, data_b)]
predict = fc_layer([last_seq(gru) for gru in grus], 10, param_attr=[softmax_param, softmax_param], bias_attr=False,
                   act=SoftmaxActivation())
outputs(classification_cost(predict, data_layer('label', 10)))
""",
}
OPTIMIZERS = ("Sgd", "Momentum", "AdaGrad", "RMSProp", "Adam")
RUNS = {f"trace_lr_{name}": f"in_order=1,optimizer={name}" for name in OPTIMIZERS}


@pytest.fixture
def lr_dir(config_dir):
    for name in ("lr.py", "text_task.py"):
        shutil.copy(GOLDEN.parent / "runs" / "configs" / name, config_dir)
    (config_dir / "data").mkdir()
    (config_dir / "data" / "dict.txt").write_text("unk\t-1\n" + "".join(f"w{i:05d}\t1\n" for i in range(1, 2001)))
    return config_dir


@each("name", CONFIGS)
def test_a_network_prints_as_its_golden_text(parse_text, name):
    golden = (GOLDEN / "protostr" / f"{name}.protostr").read_text()
    assert to_text(parse_text(CONFIGS[name]).model_config) + "\n" == golden


# goldens that spell a number as no other does (`min: -10`), or lack the last empty line
MESSAGES = {
    "test_clip_layer": "outputs(clip_layer(data_layer('input', 300), min=-10, max=10))",
    "test_dot_prod_layer": "outputs(dot_prod_layer(data_layer('vector1', 10), data_layer('vector2', 10)))",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_network_is_the_message_of_its_golden_text(parse_text, name):
    golden = (GOLDEN / "protostr" / f"{name}.protostr").read_text()
    assert parse_text(MESSAGES[name]).model_config == text_format.Parse(golden, ModelConfig_pb2.ModelConfig())


def test_two_data_sources_give_the_golden_message(parse_text):
    config = parse_text("""
define_py_data_sources2(train_list='train.list', test_list='test.list', module=['a', 'b'], obj=('c', 'd'))
settings(learning_rate=1e-3, batch_size=1000)
outputs(data_layer(name='a', size=10))""")
    # its text spells two numbers as integers, so messages are compared (with the presence of fields)
    golden = (GOLDEN / "protostr" / "test_split_datasource.protostr").read_text()
    assert config == text_format.Parse(golden, TrainerConfig_pb2.TrainerConfig())


@pytest.mark.parametrize("case", RUNS)
def test_the_network_of_a_run_prints_as_v0_10_printed_it(lr_dir, case):
    config = parse_config("lr.py", RUNS[case])
    assert to_text(config.model_config) + "\n" == (GOLDEN / "lr" / f"{case}.model_config.txt").read_text()


@pytest.mark.parametrize("case", RUNS)
def test_the_whole_config_of_a_run_prints_as_v0_10_printed_it(lr_dir, case):
    text = to_text(as_v0_10(parse_config("lr.py", RUNS[case]))) + "\n"
    golden = (GOLDEN / "lr" / f"{case}.trainer_config.txt").read_text()
    assert CUT.sub("", text) == CUT.sub("", golden)


def test_shuffled_training_with_a_test_list_prints_as_v0_10_printed_it(lr_dir):
    config = parse_config("lr.py")
    golden = (GOLDEN / "lr" / "qs_lr_dist_2ps.trainer_config.txt").read_text()
    assert CUT.sub("", to_text(as_v0_10(config)) + "\n") == CUT.sub("", golden)
    assert to_text(config.model_config) + "\n" == (GOLDEN / "lr" / "qs_lr_local.model_config.txt").read_text()


def test_prediction_prints_as_v0_10_printed_it(lr_dir):
    golden = (GOLDEN / "lr" / "qs_lr_local.predict.model_config.txt").read_text()
    assert to_text(parse_config("lr.py", "is_predict=1").model_config) + "\n" == golden


def test_copied_goldens_are_those_of_the_shared_folder():
    if not SHARED.is_dir():
        pytest.skip("../shared is not there")
    for copy in (GOLDEN / "protostr").iterdir():
        assert copy.read_bytes() == (SHARED / "protostr" / copy.name).read_bytes()
    for case in RUNS:
        for kind in ("model_config.txt", "trainer_config.txt"):
            assert (GOLDEN / "lr" / f"{case}.{kind}").read_bytes() == (SHARED / "runs" / case / kind).read_bytes()


def test_text_read_back_prints_the_same_and_binary_read_back_is_the_same(lr_dir):
    config = parse_config("lr.py")  # 12 digits lose a little of initial_std, so only the texts are equal
    text = to_text(config)
    assert to_text(text_format.Parse(text, TrainerConfig_pb2.TrainerConfig())) == text
    model = ModelConfig_pb2.ModelConfig()
    model.ParseFromString(config.model_config.SerializeToString())
    assert model == config.model_config
