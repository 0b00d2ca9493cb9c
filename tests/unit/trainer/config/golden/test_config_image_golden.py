"""What configs of image layers parse to, byte for byte as the legacy printed it."""

from pathlib import Path

from each import each

from trainer.config import to_text

GOLDEN = Path(__file__).parents[4] / "golden" / "config" / "protostr"

CONFIGS = {
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
}


@each("name", CONFIGS)
def test_a_network_prints_as_its_golden_text(parse_text, name):
    golden = (GOLDEN / f"{name}.protostr").read_text()
    assert to_text(parse_text(CONFIGS[name]).model_config) + "\n" == golden
