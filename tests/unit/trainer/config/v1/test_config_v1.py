"""What a config finds without an import: layers by type, groups, parameters, data sources (specification 16)."""

import pytest
from config_messages import layer_of, parameter_of
from each import each

from paddle_base.runtime.errors import ConfigError
from trainer.config import parse_config

NETWORK = """
default_initial_std(0.5)
Settings(algorithm='sgd', batch_size=10, learning_rate=0.1, learning_method='momentum')
Inputs('x', 'label')
Outputs('cost')
Layer(name='x', type='data', size=4)
Layer(name='label', type='data', size=3)
Layer(name='hidden', type='fc', size=6, active_type='tanh', inputs=[Input('x', initial_std=0.25), 'x'],
      bias=Bias(parameter_name='shared', learning_rate=2.), drop_rate=0.5)
Layer(name='sum', type='mixed', size=3, active_type='softmax', bias=False,
      inputs=[FullMatrixProjection('hidden', parameter_name='m'), TableProjection('label', initial_std=0.125)])
Layer(name='cost', type='multi-class-cross-entropy', inputs=['sum', 'label'], coeff=2)
Evaluator(name='error', type='classification_error', inputs=['sum', 'label'], top_k=2)
"""


def test_a_config_of_raw_calls_only_needs_no_import(config_dir):
    (config_dir / "raw.py").write_text(NETWORK)
    config = parse_config("raw.py")
    hidden = layer_of(config, "hidden")
    assert (hidden.type, hidden.size, hidden.active_type, hidden.drop_rate) == ("fc", 6, "tanh", 0.5)
    assert [entry.input_parameter_name for entry in hidden.inputs] == ["_hidden.w0", "_hidden.w1"]
    assert [parameter_of(config, f"_hidden.w{k}").initial_std for k in (0, 1)] == [0.25, 0.5]
    assert not parameter_of(config, "_hidden.w0").initial_smart
    shared = parameter_of(config, "shared")
    assert (shared.learning_rate, list(shared.dims), shared.initial_std) == (2.0, [1, 6], 0.5)
    assert [one.name for one in config.model_config.parameters] == [
        "_hidden.w0",
        "_hidden.w1",
        "shared",
        "m",
        "_sum.w1",
    ]
    cost = layer_of(config, "cost")
    assert (cost.size, cost.coeff) == (1, 2.0)
    (evaluator,) = config.model_config.evaluators
    assert (evaluator.name, list(evaluator.input_layers), evaluator.top_k) == ("error", ["sum", "label"], 2)
    assert list(config.model_config.input_layer_names) == ["x", "label"]
    assert config.opt_config.batch_size == 10


# arguments of Layer() beside the name: size of the layer, dims of its parameters, its bias
SHAPES = {
    "type='trans', inputs='x'": (4, [], None),
    "type='resize', inputs='x', size=2": (2, [], None),
    "type='data_norm', inputs='x'": (4, [[5, 4]], None),
    "type='addto', inputs=['x', 'x']": (4, [], [1, 4]),
    "type='concat', inputs=['x', 'y']": (10, [], None),
    "type='recurrent', inputs='x'": (4, [[4, 4]], [1, 4]),
    "type='lstmemory', inputs='x', reversed=True": (1, [[1, 1, 4]], [1, 7]),
    "type='gated_recurrent', inputs='y'": (2, [[2, 6]], [1, 6]),
    "type='mdlstmemory', inputs='z', directions=[True, False]": (2, [[2, 2, 5]], [1, 18]),
    "type='crf', inputs=['x', 'x'], size=4": (4, [[6, 4]], None),
    "type='selective_fc', inputs=['x', 'y'], size=6": (6, [[6, 4]], [1, 6]),
    "type='selective_fc', inputs=['x'], size=6, has_selected_colums=False": (6, [[6, 4]], [1, 6]),
    "type='tensor', inputs=['x', 'y'], size=2": (2, [[4, 6, 2]], [1, 2]),
    "type='hsigmoid', inputs=['x', 'one'], num_classes=5": (1, [[4, 4]], [1, 4]),
    "type='nce', inputs=['x', 'y', 'one'], num_classes=5": (1, [[5, 4]], [1, 5]),
    "type='out_prod', inputs=['x', 'y']": (24, [], None),
    "type='soft_binary_class_cross_entropy', inputs=['x', 'x']": (1, [], None),
    "type='auc-validation', inputs=['x', 'one']": (1, [], None),
    "type='pnpair-validation', inputs=['x', 'one', 'one']": (1, [], None),
    "type='seqreshape', inputs='x', size=2": (2, [], None),
    "type='gather_agent', size=9": (9, [], None),
    "type='cos', inputs=['x', 'x'], cos_scale=5": (1, [], None),
    "type='scale_shift', inputs='x'": (4, [[1, 1]], [1, 1]),
}


@each("arguments", SHAPES)
def test_a_type_has_its_size_and_parameters(parse_text, arguments):
    data = "".join(
        f"Layer('{name}', 'data', size={size})\n" for name, size in (("x", 4), ("y", 6), ("z", 10), ("one", 1))
    )
    config = parse_text(f"{data}Layer(name='l', {arguments})")
    layer = layer_of(config, "l")
    size, dims, bias = SHAPES[arguments]
    assert layer.size == size
    found = {one.name: list(one.dims) for one in config.model_config.parameters}
    assert found.pop("_l.wbias", None) == bias
    assert list(found.values()) == dims
    assert bool(layer.bias_parameter_name) == (bias is not None)


def test_fields_of_a_type_have_their_defaults(parse_text):
    config = parse_text("""
DataLayer('x', size=4, height=2, width=2)
LstmLayer('lstm', 'x', reversed=True, active_gate_type='relu')
MDLstmLayer('md', 'x', directions=True)
MaxLayer('pool', 'x')
SequenceLastInstanceLayer('first', inputs=['x'], select_first=True)
LambdaCost('cost', ['x', 'x'])
FCLayer('fc', Input('x'), size=2, bias=False, active_type='relu', device=3)
GetOutputLayer('state', Input('lstm', input_layer_argument='state'), size=1)""")
    lstm, pool, cost = (layer_of(config, name) for name in ("lstm", "pool", "cost"))
    assert (lstm.reversed, lstm.active_gate_type, lstm.active_state_type) == (True, "relu", "sigmoid")
    assert list(layer_of(config, "md").directions) == [True]
    assert (pool.trans_type, pool.seq_pool_stride, pool.HasField("output_max_index")) == ("non-seq", -1, False)
    assert layer_of(config, "first").select_first
    assert (cost.NDCG_num, cost.max_sort_size, cost.HasField("coeff")) == (5, -1, False)
    assert (layer_of(config, "x").height, layer_of(config, "fc").device) == (2, 3)
    assert layer_of(config, "state").inputs[0].input_layer_argument == "state"


@pytest.mark.parametrize("kind", ["max", "average", "seqlastins", "seqfirstins"])
def test_a_pooling_layer_takes_the_stride_of_v0_10(parse_text, kind):
    text = f"DataLayer('x', size=4)\nLayer('l', '{kind}', inputs='x', stride=3)"
    layer = layer_of(parse_text(text), "l")
    assert layer.seq_pool_stride == 3
    assert (layer.type, layer.select_first) == (kind.replace("first", "last"), kind == "seqfirstins")


def test_the_classes_of_v0_10_that_later_versions_dropped(parse_text):
    config = parse_text("""
DataLayer('x', size=1)
SequenceFirstInstanceLayer('first', 'x')
HuberTwoClass('cost', ['x', 'x'])""")
    assert (layer_of(config, "first").select_first, layer_of(config, "cost").type) == (True, "huber")


def test_image_layers_by_their_shapes(parse_text):
    config = parse_text("""
Layer('image', 'data', size=64)
Layer('conv', 'conv', num_filters=2, active_type='relu', shared_biases=True,
      inputs=Input('image', initial_std=0.1, conv=Conv(filter_size=3, channels=1, padding=1)))
Layer('pool', 'pool', inputs=Input('conv', pool=Pool(pool_type='max-projection', channels=2, size_x=2, stride=2)))
Layer('norm', 'norm', inputs=Input('pool', norm=Norm('cmrnorm-projection', 2, 3, 0.75, 0.5)))
Layer('bn', 'batch_norm', inputs=Input('pool', initial_mean=1., initial_std=0., image=Image(2)), active_type='')
""")
    conv, pool = layer_of(config, "conv"), layer_of(config, "pool")
    assert (conv.type, conv.size, conv.num_filters) == ("exconv", 128, 2)
    assert parameter_of(config, "_conv.w0").initial_std == 0.1
    assert (pool.size, pool.inputs[0].pool_conf.output_x) == (32, 4)
    assert layer_of(config, "norm").inputs[0].norm_conf.scale == 0.25
    assert layer_of(config, "bn").active_type == "" and parameter_of(config, "_bn.w0").initial_mean == 1.0


# a layer of an image of 4 channels, 6 x 6: the layer's size, dims of its first parameter
IMAGES = {
    "'maxout', inputs=Input('image', maxout=MaxOut(channels=4, groups=2))": (72, None),
    "'spp', inputs=Input('image', spp=SpatialPyramidPool('max-projection', 2, 4))": (20, None),
    "'blockexpand', inputs=Input('image', block_expand=BlockExpand(4, block_x=2, block_y=3, stride_x=1, stride_y=1))": (
        24,
        None,
    ),
    "'bilinear_interp', inputs=Input('image', bilinear_interp=BilinearInterp(3, 2, 4))": (24, None),
    "'pad', inputs=Input('image', pad=Pad(4, [1, 1], [0, 1], [2, 0]))": (6 * 7 * 8, None),
    "'row_conv', inputs=Input('image', row_conv=RowConv(3))": (144, [3, 144]),
    "'prelu', inputs='image', partial_sum=36": (144, [1, 4]),
    "'clip', inputs='image', min=-1, max=1": (144, None),
    "'convt', num_filters=2, inputs=Input('image', conv=Conv(2, 4, stride=2))": (2 * 12 * 12, []),
    "'pool', inputs=Input('image', pool=Pool('avg-projection', 4, 2, stride=3, size_y=6))": (12, None),
    "'norm', inputs=Input('image', norm=Norm('cross-channel-norm', 4, 1, 1, 1), initial_mean=20.)": (144, [4, 1]),
    "'scale_sub_region', inputs=['image', 'box'], value=2.0": (144, None),
    "'roi_pool', inputs=['image', 'box'], pooled_width=2, pooled_height=1, spatial_scale=0.5": (8, None),
}


@each("arguments", IMAGES)
def test_a_type_of_image_layer_has_its_size_and_parameter(parse_text, arguments):
    config = parse_text(f"""
image = data_layer('image', 144, height=6, width=6)
Layer('box', 'data', size=6)
Layer('l', {arguments})""")
    size, dims = IMAGES[arguments]
    assert layer_of(config, "l").size == size
    weight = [list(one.dims) for one in config.model_config.parameters if one.name == "_l.w0"]
    assert weight == ([] if dims is None else [dims])


def test_convolution_and_pooling_of_volumes(parse_text):
    config = parse_text("""
data_layer('image', 2 * 4 * 4 * 4, height=4, width=4, depth=4)
Conv3DLayer('c', Input('image', conv=Conv3D(filter_size=3, channels=2, padding=1, filter_size_z=1, padding_z=0)),
            num_filters=5, active_type='relu')
Pool3DLayer('p', Input('c', pool=Pool3d('max-projection', 5, 2, stride=2, size_y=2, size_z=2)))""")
    conv = layer_of(config, "c")
    assert (conv.type, conv.size, conv.active_type) == ("conv3d", 5 * 64, "relu")
    assert (conv.inputs[0].conv_conf.filter_size_z, conv.inputs[0].conv_conf.padding_z) == (1, 0)
    assert parameter_of(config, "_c.w0").size == 5 * 2 * 9
    assert layer_of(config, "p").size == 5 * 8


def test_groups_and_sub_models_by_raw_calls(parse_text):
    config = parse_text("""
model_type('recurrent_nn')
Layer('x', 'data', size=2)
RecurrentLayerGroupBegin('g', in_links=['x'], out_links=[Link('h')], seq_reversed=True)
agent = Memory('h', size=2, boot_bias=Bias(initial_std=0.), boot_bias_active_type='tanh')
Layer('h', 'fc', size=2, inputs=['x', agent], bias=False)
RecurrentLayerGroupEnd('g')
RecurrentLayerGroupWithoutOutLinksBegin('gen', in_links=[])
RecurrentLayerGroupSetGenerator(Generator(max_num_frames=5, eos_layer_name='eos', beam_size=2))
Memory(None, size=3, memory_name='m', boot_with_const_id=1)
Layer('word', 'maxid', inputs='m')
SetMemoryInput('m', 'word')
Layer('eos', 'eos_id', inputs='word', eos_id=0)
RecurrentLayerGroupSetOutLink('word')
RecurrentLayerGroupEnd('gen')
EnableSubmodelSuffix()
SubModelBegin('part')
Layer('x', 'data', size=2)
SubModelEnd('part')
Layer('end', 'trans', inputs='h')""")
    names = [layer.name for layer in config.model_config.layers]
    assert names == [
        *("x", "g", "x@g", "h+delay1@g", "h@g", "h"),
        *("gen", "m@gen", "word@gen", "eos@gen", "word", "x@part", "end"),
    ]
    _, group, generating, part = config.model_config.sub_models
    assert group.reversed and group.memories[0].boot_bias_parameter_name == "_h+delay1@g.wbias"
    assert generating.generator.eos_layer_name == "eos@gen" and generating.generator.num_results_per_sample == 1
    assert generating.memories[0].layer_name == "word@gen"
    assert layer_of(config, "word").type == "data"
    assert not part.is_recurrent_layer_group and list(part.layer_names) == ["x@part"]
    assert layer_of(config, "end").inputs[0].input_layer_name == "h"


def test_data_sources_by_raw_calls(parse_text):
    config = parse_text("""
TrainData(MultiData([SimpleData(files='a.list', feat_dim=3, context_len=0, buffer_capacity=9, data_ratio=4),
                     PyData(files='b.list', load_data_module='m', load_data_object='o', load_thread_num=2)]))
TestData(Data('proto', files='t.list', feat_dim=2, slot_dims=[1, 2], constant_slots=[1.5]))
Layer('x', 'data', size=1)""")
    simple, py = config.data_config.sub_data_configs
    assert config.data_config.type == "multi" and not config.data_config.for_test
    assert (simple.type, simple.files, simple.feat_dim, simple.buffer_capacity) == ("simple", "a.list", 3, 9)
    assert (simple.data_ratio, simple.usage_ratio, simple.is_main_data) == (4, 1.0, True)
    assert (py.type, py.load_data_module, py.load_data_object, py.load_data_args) == ("py", "m", "o", "")
    assert py.file_group_conf.load_thread_num == 2 and not py.file_group_conf.HasField("queue_capacity")
    test = config.test_data_config
    assert test.for_test and list(test.slot_dims) == [1, 2] and list(test.constant_slots) == [1.5]


def test_a_parameter_of_its_own_is_shared_by_name(parse_text):
    config = parse_text("""
Parameter('w', 8, dims=[4, 2], initial_std=0.5, update_hooks=ParameterHook('pruning', sparsity_ratio=0.5))
Layer('x', 'data', size=4)
Layer('fc', 'fc', inputs=Input('x', parameter_name='w'), size=2, bias=False)""")
    (weight,) = config.model_config.parameters
    assert (weight.name, weight.initial_std, weight.update_hooks[0].sparsity_ratio) == ("w", 0.5, 0.5)


@each(
    "call, message",
    [
        ("Layer('l', 'wizard', inputs='x')", r"Layer\(name='l'\): .*; the types of Layer\(\) are addto, agent"),
        ("Layer('l', 'fc', inputs='x')", r"line 3: Layer\(name='l'\): type 'fc' needs size="),
        ("Layer('l', 'fc', inputs='y', size=2)", "inputs is 'y'; there is no such layer yet"),
        ("Layer('l', 'fc', inputs='x', size=2, reversed=True)", "argument 'reversed'; its own arguments are none"),
        ("Layer('l', 'eos_id', inputs='x')", "type 'eos_id' needs eos_id="),
        ("Layer('l', 'lstmemory', inputs='x')", "the size of its input is 6; it must be a multiple of 4"),
        ("Layer('l', 'trans', inputs='x', size=3)", "size is 3; it must be 6"),
        ("Layer('l', 'conv', inputs='x', num_filters=1)", r"type 'conv' needs an Input\(..., conv=...\)"),
        ("Layer('l', 'interpolation', inputs='x')", "needs at least 2 inputs; there are 1"),
        ("Layer('l', 'mixed', inputs=[IdentityProjection('x')], speed=3)", "type 'mixed' has no argument 'speed'"),
        ("Layer('l', 'clip', inputs='x', min=0, max=1, mx=3)", "unexpected keyword argument 'mx'"),
        ("Evaluator('e', 'sum', inputs='x', speed=3)", "an evaluator has no argument 'speed'"),
        ("Input('x', initial_st=3)", "there is no attribute 'initial_st'"),
        ("Conv(3)", r"Conv\(\) takes filter_size, channels,"),
        ("TrainData('x')", "data_config is 'x'; it must be the result of SimpleData"),
        ("TrainData(SimpleData()); TrainData(SimpleData())", "the training data is defined twice"),
        ("SubModelBegin('a'); SubModelBegin('b'); SubModelEnd('a')", "'b@a' must be ended before 'a'"),
        ("RecurrentLayerGroupBegin('g', [], [])", r"call model_type\('recurrent_nn'\) first"),
        ("SubModelEnd('a')", "there is no sub-model to end"),
        (
            "model_type('recurrent_nn'); RecurrentLayerGroupBegin('g', ['nosuch'], [])",
            "the input 'nosuch', which does not",
        ),
    ],
    ids=str,
)
def test_impossible_raw_calls_are_refused(parse_text, call, message):
    with pytest.raises(ConfigError, match=message):
        parse_text("Layer('x', 'data', size=6)\n" + call)


def test_a_module_of_the_user_imports_raw_functions_from_the_parser(parse_text, config_dir):
    (config_dir / "old_net.py").write_text(
        "from paddle.trainer.config_parser import *\nfrom paddle.trainer import config_parser\n"
        "def net():\n    Layer('x', 'data', size=2)\n    config_parser.Layer('y', 'trans', inputs='x')\n"
    )
    config = parse_text("import old_net\nold_net.net()")
    assert [layer.name for layer in config.model_config.layers] == ["x", "y"]


SPARSE_STORAGE = """
x = data_layer('x', 6)
Layer(name='p', type='fc', inputs=[Input('x', format='csc', nnz=8)], size=3, bias=False)
default_compact_func(lambda name: (True, 'csr', True) if name == '_q.w0' else (False, '', False))
Layer(name='q', type='fc', inputs=['x'], size=3, bias=Bias())
"""


def test_a_parameter_of_sparse_storage_has_as_many_values_as_the_config_says(parse_text):
    """format and nnz were left out of the message, so that the parameter was dense."""
    parameters = {one.name: one for one in parse_text(SPARSE_STORAGE).model_config.parameters}
    p, q, bias = (parameters[name] for name in ("_p.w0", "_q.w0", "_q.wbias"))
    assert (p.size, list(p.dims), p.is_sparse, p.format) == (8, [6, 3], True, "csc")
    assert not p.HasField("need_compact")
    assert (q.size, q.is_sparse, q.format, q.need_compact) == (18, True, "csr", True)
    assert bias.HasField("is_sparse") and not bias.is_sparse


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("default_compact_func(1)", "it must be a function of a parameter's name"),
        ("default_compact_func(lambda name: True)\nLayer(name='p', type='fc', inputs=['x'], size=3)", "must return"),
        ("Input('x', format='csr')", "nnz is None; it must be an integer"),
        (
            "Layer(name='s', type='selective_fc', inputs=[Input('x', format='csr', nnz=4)], size=3, "
            "has_selected_colums=False)",
            "format is 'csr'; sparse storage is for layers of type fc",
        ),
    ],
)
def test_sparse_storage_that_is_said_in_half_is_refused(parse_text, call, what):
    with pytest.raises(ConfigError, match=what):
        parse_text(f"data_layer('x', 6)\n{call}")
