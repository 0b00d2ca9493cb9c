"""Several networks in one model of type multi_nn. Each network has its own data; networks may share parameters.

Source: gserver/gradientmachines/MultiNetwork.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddle_base.proto.ModelConfig_pb2 import ModelConfig, SubModelConfig
from paddle_base.runtime.errors import ConfigError

SEVERAL = "multi_nn"
ROOT = "root"


def list_networks(config: ModelConfig) -> Sequence[ModelConfig | SubModelConfig]:
    """Return the networks of a model of type multi_nn. A model of any other type is itself the only network.

    Raises: ConfigError: a model of type multi_nn has no network.
    """
    if config.type != SEVERAL:
        return [config]
    networks = [one for one in config.sub_models if one.name != ROOT and not one.is_recurrent_layer_group]
    if not networks:
        raise ConfigError("the model has no network; put each network between SubModelBegin(name) and SubModelEnd()")
    return networks


def join_networks(config: ModelConfig) -> ModelConfig:
    """Return one network with the inputs, the outputs and the sum of the costs of all networks.

    Raises: ConfigError: a model of type multi_nn has no network, or a data layer is an input of two networks.
    """
    if config.type != SEVERAL:
        return config
    networks = list_networks(config)
    joined = ModelConfig()
    joined.CopyFrom(config)
    joined.type = "recurrent_nn"  # this type allows recurrent groups but does not require them
    del joined.input_layer_names[:], joined.output_layer_names[:]
    joined.input_layer_names.extend(name for one in networks for name in one.input_layer_names)
    joined.output_layer_names.extend(name for one in networks for name in one.output_layer_names)
    for name in joined.input_layer_names:
        if list(joined.input_layer_names).count(name) > 1:
            raise ConfigError(f"data layer {name} is an input of two networks; give each its own data layers")
    return joined
