"""The state of one parse. Each parse begins with a new state, so two parses of a script give equal messages.

PaddlePaddle v0.10 kept its settings from one parse to the next in the same process.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from paddle_base.proto import ModelConfig_pb2, ParameterConfig_pb2, TrainerConfig_pb2
from trainer.config.building.argument_errors import ArgumentError


@dataclass
class ParameterDefaults:
    """Default attributes of parameters; settings() and the default_* functions change these defaults."""

    initial_mean: float = 0.0
    initial_std: float = 0.01
    initial_strategy: int = 0
    initial_smart: bool = False
    momentum: float | None = None
    decay_rate: float | None = None
    num_batches_regularization: int | None = None
    gradient_clipping_threshold: float | None = None
    device: int | None = None
    update_hooks: Any = None
    # a function that takes the name of a parameter and returns (is_sparse, format, need_compact)
    compact: Callable[[str], tuple[bool, str, bool]] | None = None


DEFAULT_SETTINGS: Mapping[str, Any] = {
    "batch_size": None,
    "mini_batch_size": None,
    "algorithm": "async_sgd",
    "async_lagged_grad_discard_ratio": 1.5,
    "learning_method": "momentum",
    "gradient_clipping_threshold": None,
    "num_batches_per_send_parameter": None,
    "num_batches_per_get_parameter": None,
    "center_parameter_update_method": None,
    "learning_rate": 1.0,
    "learning_rate_decay_a": 0.0,
    "learning_rate_decay_b": 0.0,
    "learning_rate_schedule": "poly",
    "learning_rate_args": "",
    "l1weight": 0.1,
    "l2weight": 0.0,
    "l2weight_zero_iter": 0,
    "c1": 0.0001,
    "backoff": 0.5,
    "owlqn_steps": 10,
    "max_backoff": 5,
    "average_window": 0,
    "do_average_in_cpu": False,
    "max_average_window": None,
    "ada_epsilon": 1e-6,
    "ada_rou": 0.95,
    "delta_add_rate": 1.0,
    "shrink_parameter_value": 0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
}
DEFAULT_TRAINER_SETTINGS: Mapping[str, Any] = {"save_dir": "./output/model", "init_model_path": None, "start_pass": 0}


def _empty_message() -> TrainerConfig_pb2.TrainerConfig:
    config = TrainerConfig_pb2.TrainerConfig()
    config.model_config.type = "nn"
    config.model_config.sub_models.add(name="root", is_recurrent_layer_group=False)
    return config


@dataclass
class OlderMarks:
    """Facts about layers that only the message of v0.10 contained; the current message does not contain these facts.

    Attributes (layers are given by their full names):
        nested: agents of inputs, and layers of results, in recurrent groups whose steps are sub-sequences.
        whole: agents of memories that are whole sequences.
        static: agents of StaticInputs.
        subtracted: layers that an expression like `layer - 0.5` creates.
        linear: sequence layers that Layer() creates without an activation.
        targets: for a recurrent group, the index of the input that its targetInlink names.
    """

    nested: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    static: set[str] = field(default_factory=set)
    subtracted: set[str] = field(default_factory=set)
    linear: set[str] = field(default_factory=set)
    targets: dict[str, int] = field(default_factory=dict)


@dataclass
class Parse:
    """The unfinished message, and the state that the functions of the language share."""

    args: Mapping[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    config: TrainerConfig_pb2.TrainerConfig = field(default_factory=_empty_message)
    layers: dict[str, ModelConfig_pb2.LayerConfig] = field(default_factory=dict)
    parameters: dict[str, ParameterConfig_pb2.ParameterConfig] = field(default_factory=dict)
    defaults: ParameterDefaults = field(default_factory=ParameterDefaults)
    settings: dict[str, Any] = field(default_factory=lambda: {**DEFAULT_SETTINGS, **DEFAULT_TRAINER_SETTINGS})
    usage_ratio: float = 1.0
    names: Counter[str] = field(default_factory=Counter)
    reserved: set[str] = field(default_factory=set)  # names that automatic names must not take
    initializers: dict[str, Callable[[str], Any]] = field(default_factory=dict)  # by the name of the parameter
    opened: list[ModelConfig_pb2.SubModelConfig] = field(default_factory=list)
    suffix_all_sub_models: bool = False
    marks: OlderMarks = field(default_factory=OlderMarks)
    # functions that change the message; they are called only for a configuration with data sources
    in_jobs: list[Callable[[], None]] = field(default_factory=list)

    @property
    def model(self) -> ModelConfig_pb2.ModelConfig:
        """The network."""
        return self.config.model_config

    @property
    def has_data(self) -> bool:
        """Whether the configuration has data sources so far, and therefore describes a job."""
        return self.config.HasField("data_config") or self.config.HasField("test_data_config")

    @property
    def root(self) -> ModelConfig_pb2.SubModelConfig:
        """The sub-model of all layers outside recurrent groups."""
        return self.model.sub_models[0]

    @property
    def sub_model(self) -> ModelConfig_pb2.SubModelConfig:
        """The sub-model that new layers go to: the open recurrent group, or the root."""
        return self.opened[-1] if self.opened else self.root

    def full_name(self, name: str) -> str:
        """Return a layer's name in the message: `name@group` inside a recurrent group."""
        if self.opened and (self.sub_model.is_recurrent_layer_group or self.suffix_all_sub_models):
            return f"{name}@{self.sub_model.name}"
        return name

    def outer_name(self, name: str) -> str:
        """Return the name that a layer of the enclosing model has in the message."""
        return f"{name}@{self.opened[-2].name}" if len(self.opened) > 1 else name

    def auto_name(self, prefix: str) -> str:
        """Return `__<prefix>_<n>__`; n counts the unnamed calls with this prefix."""
        while True:
            name = f"__{prefix}_{self.names[prefix]}__"
            self.names[prefix] += 1
            if name not in self.reserved:
                return name

    def finish(self) -> None:
        """Make the changes of jobs, and write the settings into the message."""
        if self.has_data:
            for change in self.in_jobs:
                change()
        for message, keys in ((self.config.opt_config, DEFAULT_SETTINGS), (self.config, DEFAULT_TRAINER_SETTINGS)):
            for key in keys:
                if self.settings[key] is not None:
                    setattr(message, key, self.settings[key])

    def add_layer(self, name: str, kind: str) -> ModelConfig_pb2.LayerConfig:
        """Return the message of a new layer; raise ArgumentError if the name is taken."""
        if "@" in name:
            raise ArgumentError(f"the layer's name {name!r} has an @, which is reserved for recurrent groups")
        full_name = self.full_name(name)
        if full_name in self.layers:
            raise ArgumentError(f"there is a layer {full_name!r} already; every layer needs a name of its own")
        layer = self.model.layers.add(name=full_name, type=kind, active_type="")
        self.sub_model.layer_names.append(full_name)
        self.layers[full_name] = layer
        return layer


_parses: list[Parse] = []


def current() -> Parse:
    """Return the current parse; raise ArgumentError if a config function is called outside a configuration."""
    if not _parses:
        raise ArgumentError(
            "the config language can be used only inside a config; use paddle.trainer.config_parser.parse_config"
        )
    return _parses[-1]


@contextlib.contextmanager
def parsing(parse: Parse) -> Iterator[Parse]:
    """Make `parse` the current parse inside the `with` block."""
    _parses.append(parse)
    try:
        yield parse
    finally:
        _parses.pop()
