"""`paddle make_diagram CONFIG DOT_FILE [CONFIG_ARGS]` draws the network of a config script for Graphviz."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from paddle.older_modules import member_of
from paddle_base.proto import ModelConfig_pb2
from paddle_base.runtime.durable_files import write_whole_file
from paddle_base.runtime.errors import UsageError
from trainer.command_line import command
from trainer.config import parse_config

USAGE = "usage: paddle make_diagram CONFIG DOT_FILE [CONFIG_ARGS]"


@command("paddle make_diagram", f"{USAGE}\n")
def main(argv: Sequence[str]) -> None:
    """Write the diagram of a config.

    Raises: UsageError: the arguments do not fit USAGE.  VolumeError: the diagram cannot be written.
        ConfigError, DataError, MissingInputError: see parse_config.
    """
    if not 2 <= len(argv) <= 3 or argv[0].startswith("--"):
        raise UsageError(f"give two or three arguments; {USAGE}")
    dot = "\n".join(draw(parse_config(argv[0], *argv[2:]).model_config)) + "\n"
    write_whole_file(Path(argv[1]), [dot.encode()], "the diagram")


def draw(model: ModelConfig_pb2.ModelConfig) -> Iterator[str]:
    """Yield the lines of a Graphviz digraph with boxes for layers, edges for inputs, and dashed clusters for groups.

    Source: python/paddle/utils/make_model_diagram.py of v0.10.
    """
    numbers = {layer.name: number for number, layer in enumerate(model.layers)}
    groups = [group for group in model.sub_models if group.name != "root"]
    inside = {name for group in groups for name in (group.name, *group.layer_names)}
    yield "digraph graphname {"
    yield "node [width=0.375,height=0.25];"
    for index, group in enumerate(groups):
        yield f"subgraph cluster_{index} {{"
        yield "style=dashed;"
        yield f'label = "{group.name} {"<==" if group.reversed else ""}";'
        yield from (_box(numbers[name], model.layers[numbers[name]]) for name in group.layer_names)
        yield "}"
    yield from (_box(number, layer) for number, layer in enumerate(model.layers) if layer.name not in inside)
    for group in groups:
        yield from _links(group, numbers)
    for number, layer in enumerate(model.layers):
        for item in layer.inputs:
            yield f'l{numbers[item.input_layer_name]} -> l{number} [label="{item.input_parameter_name}"];'
    yield "}"


def _box(number: int, layer: ModelConfig_pb2.LayerConfig) -> str:
    label = f"{layer.name} type={layer.type}{' <==' if layer.reversed else ''}"
    second = f"act={layer.active_type} " if layer.active_type else ""
    second += f"bias={layer.bias_parameter_name} " if layer.bias_parameter_name else ""
    return f'l{number} [label="{label}{chr(92) + "l" + second if second else ""}", shape=box];'


def _links(group: ModelConfig_pb2.SubModelConfig, numbers: dict[str, int]) -> Iterator[str]:
    for link in (*group.in_links, *group.out_links):
        yield f"l{numbers[link.layer_name]} -> l{numbers[link.link_name]};"
    for memory in group.memories:
        if memory.boot_layer_name:
            yield f"l{numbers[memory.boot_layer_name]} -> l{numbers[memory.layer_name]};"
        yield f"l{numbers[memory.layer_name]} -> l{numbers[memory.link_name]} [style=dashed];"


__getattr__ = member_of("paddle.utils.make_model_diagram")


if __name__ == "__main__":
    sys.exit(main())
