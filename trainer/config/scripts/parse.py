"""Execution of a configuration script; the result is the message, or one clear error for any exception of the script.

Source: legacy config_parser.py, parse_config(); spec/config.md section 2.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle_base.proto import ModelConfig_pb2, TrainerConfig_pb2
from paddle_base.runtime.durable_files import read_text_file
from paddle_base.runtime.errors import ConfigError, MissingInputError, StoppedError
from trainer.config import all_names
from trainer.config.building.log import log, logger
from trainer.config.building.names import public
from trainer.config.building.state import Parse, current, parsing
from trainer.config.scripts.python2 import SCRIPT_BUILTINS, SCRIPT_NAME, compile_script, use_directories
from trainer.config.scripts.script_errors import explain

# arguments that `paddle train` passes to each configuration, and arguments that the config language itself reads
_KNOWN_ARGS = frozenset(
    [
        "trainer_id",
        "local",
        "with_cost",
        "use_gpu",
        "parallel_nn",
        "cudnn_version",
        "use_mkldnn",
        "extension_module_name",
    ]
)
_NO_INITIALIZER = (
    "the initializer of ParamAttr has no effect: paddle train draws the initial values of a parameter by initial_mean, "
    "initial_std, initial_max and initial_min"
)


def parse_config(config: str | Path | Callable[[], object], config_args: str = "") -> TrainerConfig_pb2.TrainerConfig:
    """Execute a configuration script and return its message; see `run_config`."""
    return run_config(config, config_args).config


def run_config(config: str | Path | Callable[[], object], config_args: str = "") -> Parse:
    """Execute a configuration script and return the finished parse; each call begins with a new state.

    Args:
        config: the script's path, or a function to call instead.
        config_args: the values for get_config_arg in the form `a=1,b=x`; the last value of a repeated name counts.
    Raises:
        MissingInputError: the script does not exist or cannot be read.
        ConfigError: config_args is malformed, or the script uses the language wrongly or uses an unsupported part.
        DataError: the script's own code raises an exception.
    """
    parse = Parse(args=parse_args(config_args))
    path = Path() if callable(config) else Path(config)
    own = [] if callable(config) else [path.resolve().parent]
    use_directories(Path.cwd(), *own, forget=True)
    with parsing(parse):
        if callable(config):
            _guard(config, str(getattr(config, "__name__", "config")))
        else:
            text = _read(path)
            _guard(lambda: _execute(text, path, _environment(path)), str(path))
        title = str(getattr(config, "__name__", config))
        _check_groups(parse, title)
        _check_layer_names(parse, title)
        parse.finish()
    if parse.initializers:
        log(logging.WARNING, _NO_INITIALIZER, "attrs.py:163")
    for name in parse.args:
        if name not in parse.asked and name not in _KNOWN_ARGS:
            logger.warning("the config never reads the argument %s of config_args with get_config_arg", name)
    return parse


@public("config_parser_utils")
def parse_trainer_config(
    trainer_conf: str | Callable[[], object], config_arg_str: str = ""
) -> TrainerConfig_pb2.TrainerConfig:
    """Return the whole message of a script or function."""
    return parse_config(trainer_conf, config_arg_str)


@public("config_parser_utils")
def parse_network_config(
    network_conf: str | Callable[[], object], config_arg_str: str = ""
) -> ModelConfig_pb2.ModelConfig:
    """Return the network of a script or function."""
    return parse_config(network_conf, config_arg_str).model_config


@public("config_parser_utils")
def parse_optimizer_config(
    optimizer_conf: str | Callable[[], object], config_arg_str: str = ""
) -> TrainerConfig_pb2.OptimizationConfig:
    """Return the settings of a script or function."""
    return parse_config(optimizer_conf, config_arg_str).opt_config


@public("config_parser_utils")
def reset_parser() -> None:
    """Do nothing: each parse begins with a new state."""


def parse_args(config_args: str) -> dict[str, str]:
    """Return the names and values in a text of the form `a=1,b=x`."""
    items = [item for item in (config_args or "").split(",") if item]
    for item in items:
        if item.count("=") != 1:
            raise ConfigError(
                f"config_args has the item {item!r}; items must have the form name=value and be separated by commas, "
                "and no value may contain a comma or an equals sign"
            )
    return dict((name.strip(), value) for name, value in (item.split("=") for item in items))


def _read(path: Path) -> bytes:
    try:
        return read_text_file(path)
    except OSError as error:
        raise MissingInputError(
            f"the config script {path} cannot be read: {error.strerror}; correct its name"
        ) from error


def _guard(run: Callable[[], object], title: str) -> None:
    try:
        run()
    except (KeyboardInterrupt, StoppedError):  # a signal arrived while the script ran
        raise
    except BaseException as error:  # a script can raise SystemExit or its own subclass of BaseException
        explained = explain(error, title)
        if explained is None:
            raise
        raise explained from error


def _execute(text: bytes, path: Path, environment: dict[str, Any]) -> None:
    exec(compile_script(text, str(path)), environment)


def _environment(path: Path) -> dict[str, Any]:
    """Return the names that a script can use without an import."""
    environment: dict[str, Any] = {"__name__": SCRIPT_NAME, "__file__": str(path), "__builtins__": SCRIPT_BUILTINS}
    environment.update(all_names.v1_names())
    environment["Import"] = _importer(path)
    extension = current().args.get("extension_module_name")
    if extension:
        environment.update(importlib.import_module(extension).get_config_funcs(current().config))
    return environment


def _importer(importing: Path) -> Callable[..., None]:
    def Import(config_file: str, local_args: dict[str, Any] | None = None) -> None:
        """Execute another configuration file, and add the names that the file defines to local_args.

        The path config_file is relative to the directory of the importing file.
        """
        path = importing.parent / config_file
        if not Path(config_file).is_absolute():
            current().config.config_files.append(str(path))
        environment = _environment(path)
        own = dict(environment)
        environment.update(local_args or {})
        _execute(_read(path), path, environment)
        if local_args is not None:
            local_args.update({name: value for name, value in environment.items() if own.get(name) is not value})

    return Import


def _check_groups(parse: Parse, title: str) -> None:
    for group in parse.opened:
        if group.is_recurrent_layer_group:
            raise ConfigError(
                f"{title}: the recurrent group {group.name!r} has no end; call RecurrentLayerGroupEnd({group.name!r})"
            )


def _check_layer_names(parse: Parse, title: str) -> None:
    owners: list[ModelConfig_pb2.ModelConfig | ModelConfig_pb2.SubModelConfig] = [parse.model, *parse.model.sub_models]
    for name in (name for one in owners for name in one.input_layer_names):
        if name not in parse.layers:
            raise ConfigError(f"{title}: the input layer {name!r} does not exist")
        kind = parse.layers[name].type
        if kind != "data":
            raise ConfigError(f"{title}: the input layer {name!r} must be a data layer; it is of type {kind}")
    for name in (name for one in owners for name in one.output_layer_names):
        if name not in parse.layers:
            raise ConfigError(f"{title}: the output layer {name!r} does not exist")
