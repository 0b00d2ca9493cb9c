"""Small networks of layer types that no recorded run has, or of other geometry: for the export to ONNX."""

from dataclasses import dataclass, field, replace

import numpy as np
from exporting import fill, make_positive, random_slot

from trainer.arrays.arguments import Argument, Sparse
from trainer.arrays.parameters import ParameterTable
from trainer.config import parse_config
from trainer.data.input_types import DataType, InputType

HEAD = "from paddle.trainer_config_helpers import *\nsettings(batch_size=7)\n"


def dense(size, levels=0):
    return InputType(size, levels, DataType.Dense)


def index(size, levels=0):
    return InputType(size, levels, DataType.Index)


@dataclass
class Case:
    """A network: the body of a config script, whose outputs are compared, and the types of its slots.

    Attributes: makes: for a slot, a function (samples, generator) -> Argument in place of random numbers. samples: the
        sizes of the batches. renamed: types of layers with another name of the same layer.
    """

    script: str
    slots: dict
    makes: dict = field(default_factory=dict)
    samples: tuple = (1, 7)
    renamed: dict = field(default_factory=dict)

    def parse(self, folder):
        path = folder / "config.py"
        path.write_text(HEAD + self.script)
        model = parse_config(str(path), "").model_config
        for layer in model.layers:
            layer.type = self.renamed.get(layer.type, layer.type)
        return model

    def fill(self, model):
        table = fill(ParameterTable(model.parameters))
        make_positive(model, table)
        return table

    def batch(self, samples, seed=5):
        rng = np.random.default_rng(seed)
        return {
            name: self.makes[name](samples, rng) if name in self.makes else random_slot(kind, samples, rng)
            for name, kind in self.slots.items()
        }


def _rows(make):
    def slot(samples, rng):
        return Argument(value=np.array([make(row, rng) for row in range(samples)], np.float32))

    return slot


def _region(row, rng):
    return [row, *(np.sort(rng.integers(0, 26, (2, 2)), axis=0).reshape(-1))]


def _box(_row, rng):
    return [one for length in (2, 4, 5) for one in np.sort(rng.integers(1, length + 1, 2))]


def _selection(samples, rng):
    columns = np.array([np.sort(rng.permutation(8)[:3]) for _ in range(samples)])
    return Argument(sparse=Sparse(8, np.arange(samples + 1) * 3, columns.reshape(-1)))


IMAGE = "x = data_layer('x', size=2 * 5 * 6, height=5, width=6)\n"
CASES = {
    "arithmetic": Case(
        """
w, x, y = data_layer('w', 1), data_layer('x', 4), data_layer('y', 4)
outputs(clip_layer(x, min=-0.5, max=0.25), scale_shift_layer(x), sum_to_one_norm_layer(x), row_l2_norm_layer(x),
        l2_distance_layer(x, y), dot_prod_layer(x, y), out_prod_layer(x, y), scaling_layer(x, w),
        factorization_machine(x, factor_size=3), slope_intercept_layer(x, slope=0.7, intercept=0.3),
        prelu_layer(x, partial_sum=2, num_channels=1), interpolation_layer([x, y], w))
""",
        {"w": dense(1), "x": dense(4), "y": dense(4)},
    ),
    "products": Case(
        """
w, x, v = data_layer('w', 3), data_layer('x', 4), data_layer('v', 12)
outputs(linear_comb_layer(w, v, size=4), tensor_layer(w, x, size=5), cos_sim(x, v, size=3, scale=2),
        conv_shift_layer(x, w), trans_layer(x), repeat_layer(x, 3), repeat_layer(x, 3, as_row_vector=False))
""",
        {"w": dense(3), "x": dense(4), "v": dense(12)},
    ),
    "products_of_frames": Case(
        """
w, x, v = data_layer('w', 3), data_layer('x', 4), data_layer('v', 12)
outputs(linear_comb_layer(w, v, size=4), tensor_layer(w, x, size=5), cos_sim(x, v, size=3, scale=2),
        conv_shift_layer(x, w), out_prod_layer(x, w), resize_layer(x, size=2), trans_layer(x))
""",
        {"w": dense(3, 1), "x": dense(4, 1), "v": dense(12, 1)},
        {
            name: lambda samples, rng, size=size: random_slot(dense(size, 1), samples, rng, np.arange(samples) % 4)
            for name, size in (("w", 3), ("x", 4), ("v", 12))
        },
    ),
    "selections": Case(
        """
i, x, y = data_layer('i', 2), data_layer('x', 4), data_layer('y', 4)
outputs(multiplex_layer([i, x, y]), eos_layer(i, eos_id=1), maxid_layer(x))
Layer(type='maxid', name='best', beam_size=3, inputs=['x'])
Outputs('best')
""",
        {"i": index(2), "x": dense(4), "y": dense(4)},
    ),
    "selections_of_frames": Case(
        """
i, x, y = data_layer('i', 2), data_layer('x', 4), data_layer('y', 4)
outputs(multiplex_layer([i, x, y]), eos_layer(i, eos_id=1), maxid_layer(x), embedding_layer(i, size=3))
""",
        {"i": index(2, 1), "x": dense(4, 1), "y": dense(4, 1)},
        {
            name: lambda samples, rng, kind=kind: random_slot(kind, samples, rng, np.arange(samples)[::-1] % 5)
            for name, kind in (("i", index(2, 1)), ("x", dense(4, 1)), ("y", dense(4, 1)))
        },
    ),
    "activations": Case(
        """
x = data_layer('x', 4)
outputs(*[addto_layer(x, act=kind()) for kind in (
    BReluActivation, SoftReluActivation, STanhActivation, SquareActivation, AbsActivation, ExpActivation,
    SoftmaxActivation, TanhActivation, SigmoidActivation, ReluActivation, LogActivation, SqrtActivation,
    ReciprocalActivation, SoftSignActivation)])
""",
        {"x": dense(4)},
        {"x": lambda samples, rng: Argument(value=rng.uniform(0.2, 2, (samples, 4)).astype(np.float32))},
    ),
    "selected_columns": Case(
        """
x, y, s = data_layer('x', 4), data_layer('y', 3), data_layer('s', 8)
outputs(selective_fc_layer([x, y], size=8, select=s, act=TanhActivation()))
Layer(type='selective_fc', name='all', size=8, inputs=[Input('x', parameter_name='all.w')],
      has_selected_colums=False, bias=True, active_type='sigmoid')
Outputs('all')
""",
        {"x": dense(4), "y": dense(3), "s": InputType(8, 0, DataType.SparseNonValue)},
        {"s": _selection},
    ),
    "convolution": Case(
        IMAGE
        + """
outputs(img_conv_layer(x, filter_size=3, filter_size_y=2, num_filters=4, num_channels=2, stride=2, stride_y=1,
                       padding=1, padding_y=0, groups=2),
        img_conv_layer(x, filter_size=3, num_filters=3, num_channels=2, shared_biases=False, bias_attr=True),
        img_conv_layer(x, filter_size=2, num_filters=3, num_channels=2, dilation=2, dilation_y=2, padding=1),
        img_conv_layer(x, filter_size=3, num_filters=4, num_channels=2, stride=2, padding=1, groups=2, trans=True),
        img_conv_layer(x, filter_size=2, filter_size_y=3, num_filters=3, num_channels=2, stride=3, padding=0,
                       trans=True, shared_biases=False))
""",
        {"x": dense(60)},
    ),
    "volumes": Case(
        """
x = data_layer('x', size=2 * 3 * 4 * 5, depth=3, height=4, width=5)
conv = img_conv3d_layer(x, filter_size=[2, 3, 2], num_filters=4, num_channels=2, stride=[1, 2, 1], padding=[1, 0, 1])
back = img_conv3d_layer(x, filter_size=2, num_filters=2, num_channels=2, stride=2, padding=1, trans=True)
outputs(conv, back, img_pool3d_layer(x, pool_size=2, num_channels=2, stride=2, padding=0),
        img_pool3d_layer(x, pool_size=3, num_channels=2, stride=2, padding=1, pool_type=AvgPooling()))
""",
        {"x": dense(120)},
    ),
    "pooling": Case(
        IMAGE
        + """
outputs(img_pool_layer(x, pool_size=3, pool_size_y=2, num_channels=2, stride=2, padding=1, padding_y=0),
        img_pool_layer(x, pool_size=2, num_channels=2, stride=2, pool_type=AvgPooling()),
        img_pool_layer(x, pool_size=3, num_channels=2, stride=2, padding=1, pool_type=AvgPooling()),
        img_pool_layer(x, pool_size=3, num_channels=2, stride=2, padding=1, pool_type=AvgPooling(), exclude_mode=True),
        img_pool_layer(x, pool_size=2, num_channels=2, stride=3, ceil_mode=False),
        spp_layer(x, num_channels=2, pool_type=MaxPooling(), pyramid_height=2),
        spp_layer(x, num_channels=2, pool_type=AvgPooling(), pyramid_height=2))
""",
        {"x": dense(60)},
    ),
    "unpooling": Case(
        """
x = data_layer('x', size=2 * 4 * 6, height=4, width=6)
pooled = img_pool_layer(x, pool_size=2, num_channels=2, stride=2, pool_type=MaxWithMaskPooling())
outputs(upsample_layer([pooled, pooled], scale=2))
""",
        {"x": dense(48)},
    ),
    "norms": Case(
        IMAGE
        + """
y = data_layer('y', size=5)
outputs(img_cmrnorm_layer(x, size=5, num_channels=2), img_cmrnorm_layer(x, size=4, num_channels=2),
        cross_channel_norm_layer(x, param_attr=ParamAttr(initial_mean=1, initial_std=0.2)),
        batch_norm_layer(x, num_channels=2), batch_norm_layer(y, bias_attr=False),
        batch_norm_layer(x, num_channels=2, use_global_stats=False))
""",
        {"x": dense(60), "y": dense(5)},
        samples=(2, 7),
    ),
    "batch_norm_of_frames": Case(
        """
y = data_layer('y', size=5)
outputs(batch_norm_layer(y, use_global_stats=False), batch_norm_layer(y))
""",
        {"y": dense(5, 1)},
        samples=(3, 7),
    ),
    "places": Case(
        IMAGE
        + """
small = data_layer('small', size=2 * 3 * 2, height=3, width=2)
conv = img_conv_layer(x, filter_size=1, num_filters=4, num_channels=2, act=LinearActivation())
outputs(pad_layer(x, pad_c=[1, 0], pad_h=[0, 2], pad_w=[1, 1]), rotate_layer(x, height=5, width=6),
        crop_layer(x, offset=[1, 2], axis=2, shape=[7, 2, 3, 4]), crop_layer([x, small], offset=[1, 2], axis=2),
        switch_order_layer(conv, reshape_axis=1), switch_order_layer(conv, reshape_axis=3),
        maxout_layer(conv, groups=2), bilinear_interp_layer(conv, out_size_x=9, out_size_y=4),
        block_expand_layer(x, block_x=3, block_y=2, stride_x=2, stride_y=2, padding_x=1, padding_y=1, num_channels=2))
""",
        {"x": dense(60), "small": dense(12)},
    ),
    "frames_of_images": Case(
        IMAGE
        + """
conv = img_conv_layer(x, filter_size=3, num_filters=4, num_channels=2, padding=1, act=ReluActivation())
outputs(img_pool_layer(conv, pool_size=2, stride=2), batch_norm_layer(conv), pad_layer(x, pad_h=[1, 1]))
""",
        {"x": dense(60, 1)},
    ),
    "sub_regions": Case(
        """
x = data_layer('x', size=2 * 4 * 5, height=4, width=5)
outputs(scale_sub_region_layer(x, data_layer('boxes', 6), value=3.0))
""",
        {"x": dense(40), "boxes": dense(6)},
        {"boxes": _rows(_box)},
    ),
    "regions": Case(
        """
x = data_layer('x', size=2 * 6 * 7, height=6, width=7)
outputs(roi_pool_layer(x, data_layer('regions', 5), pooled_width=3, pooled_height=2, spatial_scale=0.25,
                       num_channels=2))
""",
        {"x": dense(84), "regions": dense(5)},
        {"regions": _rows(_region)},
    ),
    "detection": Case(
        """
image = data_layer('image', size=3 * 16 * 16, height=16, width=16)
x = data_layer('x', size=2 * 3 * 3, height=3, width=3)
priors = priorbox_layer(input=x, image=image, aspect_ratio=[2.0], variance=[0.1, 0.1, 0.2, 0.2], min_size=[4],
                        max_size=[6])
places = img_conv_layer(x, filter_size=1, num_filters=4 * 4, num_channels=2)
kinds = img_conv_layer(x, filter_size=1, num_filters=4 * 3, num_channels=2)
outputs(priors, detection_output_layer(places, kinds, priors, num_classes=3, nms_top_k=9, keep_top_k=11))
""",
        {"x": dense(18), "image": dense(768)},
    ),
    "projections": Case(
        IMAGE
        + """
y, i = data_layer('y', 4), data_layer('i', 5)
w = data_layer('w', size=3 * 2 * 2 * 2)
with mixed_layer(size=4 + 0, bias_attr=True) as a:
    a += full_matrix_projection(y)
    a += trans_full_matrix_projection(y)
    a += table_projection(i)
    a += identity_projection(y)
    a += dotmul_projection(y)
    a += scaling_projection(y)
    a += dotmul_operator(y, y, scale=0.5)
b = mixed_layer(size=2, input=[identity_projection(y, offset=1, size=2)])
c = concat_layer([conv_projection(x, filter_size=3, num_filters=3, num_channels=2, padding=1),
                  conv_projection(x, filter_size=3, num_filters=2, num_channels=2, padding=1, groups=2)])
d = mixed_layer(input=[conv_operator(x, w, filter_size=2, num_filters=3, num_channels=2, stride=2, padding=1)])
e = mixed_layer(input=[conv_operator(x, w, filter_size=2, num_filters=3, num_channels=2, stride=2, padding=1,
                                     trans=True)])
f = mixed_layer(input=[conv_projection(x, filter_size=2, num_filters=3, num_channels=2, stride=2, trans=True)])
g = mixed_layer(input=[slice_projection(img_conv_layer(x, filter_size=1, num_filters=6, num_channels=2),
                                        slices=[(0, 1), (3, 5)])])
outputs(a, b, c, d, e, f, g)
""",
        {"x": dense(60), "y": dense(4), "i": index(5), "w": dense(24)},
    ),
}
CASES |= {
    "convolution_conv": replace(CASES["convolution"], renamed={"exconv": "conv", "exconvt": "convt"}),
    "convolution_cudnn": replace(CASES["convolution"], renamed={"exconv": "cudnn_conv", "exconvt": "cudnn_convt"}),
    "norms_cudnn": replace(CASES["norms"], renamed={"batch_norm": "cudnn_batch_norm"}),
    "mkldnn": replace(CASES["frames_of_images"], renamed={"exconv": "mkldnn_conv", "batch_norm": "mkldnn_batch_norm"}),
}
