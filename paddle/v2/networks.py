"""Networks of several layers, for example `paddle.networks.simple_img_conv_pool`."""

from trainer.v2.names import getter, network_names

_NAMES = network_names()
__all__ = [*_NAMES]
__getattr__ = getter(__name__, _NAMES)
