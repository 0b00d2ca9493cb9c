"""The settings of the optimiser and the servers, which the settings() call of the config determines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paddle_base.proto.TrainerConfig_pb2 import OptimizationConfig
from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError
from pserver.optim.methods import METHODS, check_supported, list_ignored, unknown
from pserver.optim.settings import Optimization, ParameterSpec

AVERAGE, ELASTIC_AVERAGE = "average", "elastic_average"


@dataclass(frozen=True)
class Sending:
    """The settings of the exchange of data between a trainer and the servers.

    `batches_per_send` > 1: the trainer takes its own steps and sends the changes of its values; the servers add `rate`
    times the changes. `is_elastic`: after an exchange the trainer continues from its own values, instead of the values
    of the servers. `batches_per_get`: the trainer fetches the values after this number of gradients. `shrink`: the
    amount by which the values of tables with L1 are nearer to zero in the trainer than on the servers.
    """

    batches_per_send: int = 1
    batches_per_get: int = 1
    rate: float = 1.0
    is_elastic: bool = False
    shrink: float = 0.0


def has_sparse_rows(parameters: Sequence[ParameterSpec]) -> bool:
    """Return whether any parameter has sparse updates, that is, a batch updates only the rows that it touches."""
    return any(p.sparse_update and not p.is_static for p in parameters)


def refuse_l1(parameters: Sequence[ParameterSpec]) -> None:
    """Check that a single optimiser for all parameters supports the decay of every parameter.

    Raises: ConfigError: a single optimiser does not support the decay of a parameter; the text names the parameter.
    """
    for p in parameters:
        if p.decay_rate_l1 and not p.is_static:
            raise ConfigError(
                f"parameter {p.name} has L1 decay (l1_rate), which local training of dense parameters cannot do, as in "
                "the original (SgdLocalUpdater); take l1_rate out of its ParamAttr, or train with parameter servers"
            )


def read_optimization(config: OptimizationConfig, *, local: bool) -> Optimization:
    """Return the settings that the optimiser needs.

    Raises: ConfigError: a setting is unsupported or invalid; the text names it.
    """
    if not config.HasField("batch_size"):
        raise ConfigError("the config does not call settings(batch_size=..., learning_rate=...)")
    if config.batch_size < 1:
        raise ConfigError(f"settings(batch_size={config.batch_size}): it must be at least 1")
    if config.algorithm not in ("sgd", "async_sgd"):
        raise ConfigError(
            f"settings: Unsupported algorithm: {config.algorithm}; supported is sgd, which settings() takes when "
            "learning_method is one of the optimisers"
        )
    if local and config.num_batches_per_send_parameter > 1:
        raise ConfigError(
            f"settings: num_batches_per_send_parameter is {config.num_batches_per_send_parameter}; in local training "
            "it must be 1"
        )
    if config.learning_method not in METHODS:
        raise unknown(config.learning_method)
    optimization = Optimization(
        learning_method=config.learning_method,
        learning_rate=config.learning_rate,
        learning_rate_schedule=config.learning_rate_schedule,
        learning_rate_decay_a=config.learning_rate_decay_a,
        learning_rate_decay_b=config.learning_rate_decay_b,
        learning_rate_args=config.learning_rate_args,
        adam_beta1=config.adam_beta1,
        adam_beta2=config.adam_beta2,
        adam_epsilon=config.adam_epsilon,
        ada_epsilon=config.ada_epsilon,
        ada_rou=config.ada_rou,
        average_window=config.average_window,
        max_average_window=config.max_average_window if config.HasField("max_average_window") else None,
        algorithm="sgd" if local else config.algorithm,
        async_lagged_grad_discard_ratio=config.async_lagged_grad_discard_ratio,
    )
    check_supported(optimization)
    return optimization


def read_sending(config: OptimizationConfig, *, trainers: int) -> Sending:
    """Return the settings of the exchange of data between trainers and servers.

    Raises: ConfigError: a setting is invalid; the text names it.
    """
    send, get = config.num_batches_per_send_parameter, config.num_batches_per_get_parameter
    for name, value in (("send", send), ("get", get)):
        if value < 1:
            raise ConfigError(f"settings: num_batches_per_{name}_parameter is {value}; it must be at least 1")
    shrink = config.shrink_parameter_value
    if send == 1:
        return Sending(batches_per_get=get, shrink=shrink)
    method = config.center_parameter_update_method
    if method not in (AVERAGE, ELASTIC_AVERAGE):
        raise ConfigError(
            f"settings: center_parameter_update_method is '{method}'; with num_batches_per_send_parameter={send} it "
            f"must be {AVERAGE} or {ELASTIC_AVERAGE}"
        )
    if trainers < 2:
        raise ConfigError(
            f"settings: num_batches_per_send_parameter is {send}, which needs more than one trainer: "
            f"--num_gradient_servers is {trainers}; set num_batches_per_send_parameter to 1"
        )
    return Sending(send, get, config.delta_add_rate / trainers, method == ELASTIC_AVERAGE, shrink)


def refuse_own_steps(config: OptimizationConfig) -> None:
    """Check that the trainers take no steps of their own. A job with a master does not support such steps.

    Raises: ConfigError: the text names the setting.
    """
    for name, value in (
        ("num_batches_per_send_parameter", config.num_batches_per_send_parameter),
        ("num_batches_per_get_parameter", config.num_batches_per_get_parameter),
    ):
        if value != 1:
            raise ConfigError(
                f"settings: {name} is {value}; with a master (--store_dir, --etcd_endpoints) it must be 1"
            )


def list_missing(config: OptimizationConfig, sending: Sending) -> list[str]:
    """Return a sentence for each setting without effect in this kind of training."""
    if not config.shrink_parameter_value or sending.shrink:
        return []
    return [
        f"settings: shrink_parameter_value={config.shrink_parameter_value:g} has no effect here: it shrinks rows of "
        "sparse_update parameters with L1 when a trainer fetches them from servers, in a job of fixed size"
    ]


def list_oddities(
    parameters: Sequence[ParameterSpec],
    optimization: Optimization,
    *,
    local: bool,
    algorithm: str = "sgd",
    sending: Sending | None = None,
) -> list[str]:
    """Return a sentence for each setting that has no effect because it had no effect in v0.10.

    Also return a sentence for a setting that had no effect in v0.10 and has an effect now.
    """
    sending = sending or Sending()
    takes_own_steps = sending.batches_per_send > 1
    is_common = (local or takes_own_steps) and not has_sparse_rows(parameters)
    found = list_ignored(parameters, optimization, per_parameter=not is_common)
    trained = [p for p in parameters if not p.is_static]
    if local and algorithm == "async_sgd":
        found.append("local training is synchronous (algorithm async_sgd, which is_async sets)")
    if is_common and any(p.gradient_clipping_threshold > 0 for p in trained):
        found.append("local training of dense parameters does not clip gradients (gradient_clipping_threshold)")
    later = {1, sending.batches_per_send if takes_own_steps and not sending.is_elastic else 1}
    if is_common and any(p.num_batches_regularization not in later and p.decay_rate for p in trained):
        found.append("local training of dense parameters decays in every batch (num_batches_regularization)")
    if takes_own_steps and sending.batches_per_get > 1:
        found.append("values come with every exchange (num_batches_per_get_parameter)")
    lines = [f"{sentence}, as in the original; the setting has no effect" for sentence in found]
    if not takes_own_steps and sending.batches_per_get > 1:
        lines.append(
            f"num_batches_per_get_parameter={sending.batches_per_get}: the trainers fetch new values with every "
            f"{sending.batches_per_get}th push; the original ignored this setting"
        )
    # the warning is only about dense services, because sparse services count passes
    if not local and optimization.is_asynchronous and "pass" in optimization.learning_rate_schedule:
        lines.append(
            f"learning_rate_schedule '{optimization.learning_rate_schedule}': servers do not count passes for dense "
            "parameters in asynchronous training, as in the original; the learning rate stays at its first value"
        )
    return lines


def warn_of_settings(
    config: OptimizationConfig,
    parameters: Sequence[ParameterSpec],
    optimization: Optimization,
    sending: Sending,
    *,
    local: bool,
) -> None:
    """Log a warning for each setting that does not do what its name says."""
    oddities = list_oddities(parameters, optimization, local=local, algorithm=config.algorithm, sending=sending)
    for sentence in [*oddities, *list_missing(config, sending)]:
        glog.warning(sentence)
