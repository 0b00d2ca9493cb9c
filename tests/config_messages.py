"""Looks for parts of a config's message by name."""


def layer_of(config, name):
    return next(layer for layer in config.model_config.layers if layer.name == name)


def layers_of(config, kind):
    """The layers of a type."""
    return [layer for layer in config.model_config.layers if layer.type == kind]


def parameter_of(config, name):
    return next(one for one in config.model_config.parameters if one.name == name)


def sources(layer):
    """The names of the layers that a layer reads."""
    return [entry.input_layer_name for entry in layer.inputs]
