"""The modules of v0.10's `paddle` and of Horovod that are not here: an import says what replaces them, and where.

A module of this project always comes first, because the finder below is the last one.
"""

import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_V2 = "a program of 2017 imports paddle.v2: see docs/v2.md"
_FLUID = "fluid came after v0.10: use the layers and trainer.SGD of paddle.v2, see docs/v2.md"
_ARRAYS = "with other libraries than PyTorch, call paddle.elastic with numpy arrays: see docs/worker-script.md"
_SERVICE = "the messages between trainers and parameter servers are other ones: see docs/protocol.md"
MODULES: Mapping[str, str] = {
    "paddle.elastic.keras": _ARRAYS,
    "paddle.elastic.mxnet": _ARRAYS,
    "paddle.elastic.tensorflow": _ARRAYS,
    "paddle.fluid": _FLUID,
    "paddle.proto.OptimizerConfig_pb2": _SERVICE,
    "paddle.proto.ParameterServerConfig_pb2": _SERVICE,
    "paddle.proto.ParameterService_pb2": _SERVICE,
    "paddle.reader": _V2,
    "paddle.utils.dump_v2_config": _V2,
    "paddle.utils.image_multiproc": (
        "read and crop images with paddle.utils.image_util in the provider, which runs beside the training: see "
        "docs/provider.md"
    ),
    "paddle.utils.merge_model": "use the command paddle merge_model: see docs/checkpoints.md",
    "paddle.utils.predefined_net": (
        "use simple_img_conv_pool, img_conv_group or vgg_16_network of paddle.trainer_config_helpers: see "
        "docs/configs.md"
    ),
    "paddle.utils.torch2paddle": (
        "write each parameter as a file of a header of 16 bytes and float32 values: see docs/compat.md"
    ),
    "paddle.v2.fluid": _FLUID,
    "py_paddle": (
        "a program trains and predicts by paddle.v2: see docs/v2.md; with a config, paddle train --job=test "
        "--predict_output_dir=DIR predicts: see docs/your-own-job.md"
    ),
}


_PARSER = (
    "an inner part of v0.10's parser: parse_config(config, args) returns the whole TrainerConfig message: see "
    "docs/configs.md"
)
_INNER = """
    Cfg LayerBase Operator Projection begin_parse config_assert config_class config_func config_layer define_cost
    g_config g_layer_map g_parameter_map init_config_environment make_config_environment make_get_config_arg
    make_importer register_parse_config_hook update_g_config"""
# public names of v0.10 that modules of this project do not have
MEMBERS: Mapping[str, Mapping[str, str]] = {
    "paddle.trainer.config_parser": dict.fromkeys(_INNER.split(), _PARSER),
    "paddle.utils.make_model_diagram": {"make_diagram": "use the command paddle make_diagram: see docs/configs.md"},
    "paddle.utils.plotcurve": {"plot_paddle_curve": "use the command paddle plotcurve: see docs/report.md"},
}


def member(module: str, name: str) -> str:
    """Return what replaces a name in a module of v0.10, as `; ...`; "" for other names."""
    said = MEMBERS.get(module, {}).get(name)
    return f"; {said}" if said else ""


def member_of(module: str) -> Callable[[str], Any]:
    """Return `__getattr__` for a module, whose error says what replaces a name of v0.10."""

    def get(name: str) -> Any:
        raise AttributeError(f"module {module!r} has no attribute {name!r}{member(module, name)}")

    return get


def pointer(name: str) -> str:
    """Return what replaces a module of the table, or a module inside one; "" for other modules."""
    parts = name.split(".")
    return next((MODULES[one] for n in range(len(parts), 0, -1) if (one := ".".join(parts[:n])) in MODULES), "")


class _OlderModules:
    """The finder: it finds nothing, and its error says where to go on."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for a module of the table, which is not here; return None for any other."""
        said = pointer(fullname)
        if said:
            raise ModuleNotFoundError(f"No module named {fullname!r}; {said}", name=fullname)
        return None


def install() -> None:
    """Let imports of the modules say what replaces them."""
    if not any(isinstance(finder, _OlderModules) for finder in sys.meta_path):
        sys.meta_path.append(_OlderModules())
