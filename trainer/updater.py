"""From gradients to new values: an optimiser in this process, or the parameter servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from proto.TrainerConfig_pb2 import OptimizationConfig
from pserver import blocks
from pserver.errors import ConfigError
from pserver.rules import Optimization, ParameterSpec, check_supported, list_ignored
from pserver.shard import Shard
from trainer.parameters import ParameterTable

if TYPE_CHECKING:
    from pserver.client import Client


class Updater(Protocol):
    """Changes the table's values by its gradients, in place."""

    def connect(self) -> None:
        """Prepare for the first pass, with the values that the table has now; trainer 0's win."""

    def check(self) -> None:
        """Return if the others are still there, as far as is known; never waits.

        Raises: LostPeerError: naming who is gone.
        """

    def start_pass(self) -> None:
        """Begin a pass; waits for the other trainers."""

    def step(self, samples: int) -> None:
        """Make one step with the gradients of a batch of so many samples."""

    def finish_pass(self) -> None:
        """End a pass; waits for the other trainers, and takes the values that all of them made."""

    def finish(self) -> None:
        """Leave after the last pass."""

    def abort(self, reason: str) -> None:
        """Leave because of an error, and tell the others why."""


class LocalUpdater:
    """One optimiser for all parameters, in this process; it does not clip gradients, as the legacy did not."""

    def __init__(self, table: ParameterTable, optimization: Optimization) -> None:
        self._table = table
        parameters = [parameter.spec() for parameter in table]
        self._shard = Shard(parameters, blocks.whole(parameters), optimization, clip=False)
        table.adopt(self._shard.values)

    def connect(self) -> None:
        """Nothing to do."""

    def check(self) -> None:
        """There are no others."""

    def start_pass(self) -> None:
        """Nothing to wait for."""

    def step(self, samples: int) -> None:
        """Make one optimiser step."""
        self._shard.step(self._table.gradients, samples)

    def finish_pass(self) -> None:
        """Count the pass."""
        self._shard.finish_pass()

    def finish(self) -> None:
        """Nothing to leave."""

    def abort(self, reason: str) -> None:
        """Nobody to tell."""


class RemoteUpdater:
    """The parameter servers: pushes the gradients, waits for the step of all trainers, pulls the new values."""

    def __init__(self, table: ParameterTable, optimization: Optimization, client: Client) -> None:
        self._table = table
        self._optimization = optimization
        self._client = client

    def connect(self) -> None:
        """Join every server; trainer 0 gives its values, the others take them."""
        self._client.join([parameter.spec() for parameter in self._table], self._optimization)
        self._client.initialise(self._table.values)

    def check(self) -> None:
        """Ask the heartbeat."""
        self._client.check()

    def start_pass(self) -> None:
        """Wait for all trainers."""
        self._client.start_pass()

    def step(self, samples: int) -> None:
        """Push the gradients and pull the values."""
        self._client.push_pull(self._table.gradients, self._table.values, samples)

    def finish_pass(self) -> None:
        """Wait for the trainers that still have batches, then pull the values."""
        self._client.finish_pass(self._table.values)

    def finish(self) -> None:
        """Say goodbye."""
        self._client.goodbye()

    def abort(self, reason: str) -> None:
        """Tell the servers why this trainer leaves."""
        self._client.abort(reason)


def read_optimization(config: OptimizationConfig, *, local: bool) -> Optimization:
    """Return the settings that the optimiser needs.

    Raises: ConfigError: naming the setting that is not supported yet, or impossible.
    """
    if not config.HasField("batch_size"):
        raise ConfigError("the config does not call settings(batch_size=..., learning_rate=...)")
    if config.batch_size < 1:
        raise ConfigError(f"settings(batch_size={config.batch_size}): it must be at least 1")
    asked = {
        f"algorithm '{config.algorithm}'": config.algorithm == "owlqn",
        "asynchronous training (is_async)": config.algorithm == "async_sgd" and not local,
        "model_average": config.average_window > 0,
        "num_batches_per_send_parameter over 1": config.num_batches_per_send_parameter > 1,
    }
    for what in (name for name, given in asked.items() if given):
        raise ConfigError(f"settings: {what} is not supported yet; supported is synchronous sgd")
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
    )
    check_supported(optimization)
    return optimization


def list_oddities(parameters: list[ParameterSpec], optimization: Optimization, *, local: bool) -> list[str]:
    """Return a sentence for each setting that has no effect, because it had none in the legacy either."""
    found = list_ignored(parameters, optimization)
    if local and any(p.gradient_clipping_threshold > 0 for p in parameters if not p.is_static):
        found.append("local training of dense parameters does not clip gradients (gradient_clipping_threshold)")
    return [f"{sentence}, as in the original; the setting has no effect" for sentence in found]
