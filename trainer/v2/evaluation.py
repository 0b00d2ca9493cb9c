"""Make layers in the current parse of the config language."""

from __future__ import annotations

from collections.abc import Iterable

from trainer.config.building.state import current
from trainer.v2.graph import LayerCall, Made, name_layers, walk


def make_layers(wanted: Iterable[LayerCall], made: Made, group: LayerCall | None = None) -> None:
    """Make layers and what they need, in the order of the walk, and the evaluators whose inputs are all made.

    Args: group: the recurrent group whose step is made; None outside of groups.
    Raises: ConfigError: a layer has wrong arguments; the text names the function and the layer.
    """
    parse = current()
    layers = walk(wanted, made, group)
    name_layers(layers, parse.reserved)
    for layer in layers:
        made[layer] = layer.make(made, parse.names)
        for child in layer.children:
            if child not in made and all(one in made for one in child.parents()):
                name_layers([child], parse.reserved)
                made[child] = child.make(made, parse.names)
