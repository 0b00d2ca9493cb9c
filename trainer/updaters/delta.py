"""The updater for num_batches_per_send_parameter > 1.

It takes several steps in this process, and then exchanges values with the servers. The setting
center_parameter_update_method selects one of two forms of an exchange:

average            The servers add rate * sum(values - values of the last exchange), where the sum is over the trainers.
                   The new values of the servers replace the values of the trainers.
elastic_average    The servers add rate * sum(values - values of the servers). The values of each trainer move by
                   rate * (values - values of the servers) towards the values of the servers.

The rate is delta_add_rate / number of trainers. The values of the servers, which are also called the centre, therefore
move by delta_add_rate times the mean of the changes.

Source: RemoteParameterUpdater.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.processor.thread_pool import SINGLE_THREAD, ThreadPool
from pserver.optim.delta import DELTA
from pserver.optim.settings import Array, Optimization, ParameterSpec
from pserver.optim.weight_decay import separate_decay
from pserver.store.snapshot import VALUES, CheckpointState, Part
from trainer.arrays.dense_parameters import DenseParameters
from trainer.arrays.encoding import decoding
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.updaters.local import MASKS, LocalUpdater
from trainer.updaters.optimizer_settings import Sending
from trainer.updaters.remote import DenseUpdater

if TYPE_CHECKING:
    from pserver.client.client import Client

OWN_STATE = "optimiser"  # in a checkpoint, the key of the updater's state in the state of a trainer
MOST_DECAY = 0.1  # maximum decay that the servers apply in one exchange


@dataclass
class StepsSinceExchange:
    """The steps of this trainer since its last exchange with the servers."""

    batches: int = 0
    samples: int = 0
    wants_checkpoint: bool = False


class DeltaUpdater(DenseUpdater):
    """A separate optimiser in each trainer. Every few batches the servers collect the changes of the trainers' values.

    The averages of `average_window` are on the servers. A checkpoint waits for the next exchange. The trainers then
    store the states of their own optimisers on the servers.

    Args: trainers: number of trainers. is_first: whether this is trainer 0.
    Raises: ConfigError: the settings of a parameter are inconsistent, or the method does not support them.
    """

    def __init__(
        self,
        table: ParameterTable | DenseParameters,
        optimization: Optimization,
        sending: Sending,
        client: Client,
        *,
        trainers: int,
        is_first: bool,
        pool: ThreadPool = SINGLE_THREAD,
    ) -> None:
        self._sending, self._is_first = sending, is_first
        own, served = share_decay(
            [parameter.spec() for parameter in table],
            sending,
            trainers=trainers,
            is_asynchronous=optimization.is_asynchronous,
        )
        self._served = served, replace(optimization, learning_method=DELTA, delta_add_rate=sending.rate)
        self._local = LocalUpdater(table, replace(optimization, average_window=0.0), pool=pool, parameters=own)
        super().__init__(table, client, self._local.pruning, has_averages=bool(optimization.average_window))
        self._base = np.empty_like(table.values)  # the values of the last exchange
        self._delta = np.empty_like(table.values)
        # this trainer's own values between two passes, when the table has the servers' values; else None
        self._kept: Array | None = None
        self._since = StepsSinceExchange()
        self._is_in_pass = False

    def connect(self, restored: CheckpointState | None = None) -> dict[str, Any] | None:
        """Join every server. Trainer 0 sends its values or a checkpoint, and the other trainers receive the values."""
        own = self._join(*self._served, restored)
        if own is not None:
            with decoding("an optimiser"):
                self._pruning.go_on(own.get(MASKS, {}))
                self._go_on(own.get(OWN_STATE))
        self._base[:] = self._table.values
        return own

    def _go_on(self, described: dict[str, Any] | None) -> None:
        """Restore the stored state. The values of this trainer are restored when the pass begins."""
        if described is None:
            return
        centre = self._table.values.copy()
        data = self._client.fetch_blob(described["bytes"])
        arrays, start = {}, 0
        for name, kind, count in described["arrays"]:
            arrays[name] = np.frombuffer(data, kind, count, start)
            start += arrays[name].nbytes
        self._local.put_back(Part(described["counters"], arrays))
        if self._sending.is_elastic:
            self._kept = self._table.values.copy()
        self._table.values[:] = centre

    def _leave_state(self) -> dict[str, Any]:
        """Store the state of this trainer's optimiser on the servers, and return its description."""
        part = self._local.take()
        arrays = dict(part.arrays)
        if self._kept is not None:
            arrays[VALUES] = self._kept
        data = bytearray().join(array.tobytes() for array in arrays.values())
        self._client.leave_blob(memoryview(data))
        listed = [[name, array.dtype.str, array.size] for name, array in arrays.items()]
        return {OWN_STATE: {"counters": part.counters, "arrays": listed, "bytes": len(data)}}

    def start_pass(self, batch: int = 0) -> None:
        """Wait for all trainers. If this trainer has its own values, continue from these values."""
        self._client.start_pass(batch)
        self._is_in_pass = True
        if self._kept is not None:
            self._table.values[:] = self._kept
            self._kept = None

    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Take a step in this process. When an exchange is due, exchange the changes with the servers."""
        self._local.step(samples)
        self._since.batches += 1
        self._since.samples += samples
        self._since.wants_checkpoint |= checkpoint
        if self._since.batches < self._sending.batches_per_send:
            return False
        checkpoint, self._since.wants_checkpoint = self._since.wants_checkpoint, False
        return self._exchange(checkpoint)

    def _exchange(self, checkpoint: bool = False) -> bool:
        """Send the changes since the last exchange to the servers. Return whether a checkpoint is due."""
        values, delta, samples = self._table.values, self._delta, self._since.samples
        self._since.batches = self._since.samples = 0
        if not self._sending.is_elastic:
            np.subtract(values, self._base, out=delta)
            is_due = self._client.push_pull(delta, values, samples, checkpoint=checkpoint)
            self._base[:] = values
            return is_due
        self._client.fetch_values(delta)
        np.subtract(values, delta, out=delta)
        is_due = self._client.push(delta, samples, checkpoint=checkpoint)
        delta *= np.float32(self._sending.rate)
        values -= delta
        return is_due

    def gather_checkpoint(self, own: dict[str, Any]) -> CheckpointState | None:
        """Send this trainer's state. Trainer 0 collects the states of all trainers and of the servers."""
        return self._client.gather_checkpoint({**self._with_masks(own), **self._leave_state()})

    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """Send the last changes to the servers, wait for the other trainers, and take the servers' values."""
        described = own and self._with_masks(own)
        is_due = bool(self._since.batches) and self._exchange()
        # after trainer 0 has ended the pass, no checkpoint is written, even if a trainer requests one
        if described and not self._is_first:
            described = {**described, **self._leave_state()}
            if is_due:
                self._client.gather_checkpoint(described)
        self._local.finish_pass()
        self._is_in_pass = False
        if self._sending.is_elastic:
            self._kept = self._table.values.copy()
        self._client.finish_pass(self._table.values, described)
        self._base[:] = self._table.values

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """A context in which the table has the averages of the servers, if the config asks for averages.

        Without averages, the table has the values of the servers inside a pass with elastic_average.
        """
        is_centre = self._sending.is_elastic and self._is_in_pass and not self._has_averages
        with self._replaced(self._client.fetch_values) if is_centre else super().averaged():
            yield

    def rates(self, parameter: Parameter) -> Array | None:
        """Return the rate of each element in this trainer's last step, if the method has separate rates."""
        return self._local.rates(parameter)


def share_decay(
    parameters: Sequence[ParameterSpec], sending: Sending, *, trainers: int, is_asynchronous: bool
) -> tuple[list[ParameterSpec], list[ParameterSpec]]:
    """Return the settings of all parameters for the steps of the trainers, and their settings for the servers.

    If num_batches_regularization of a parameter equals num_batches_per_send_parameter, the servers apply the
    parameter's decay, once in each exchange. The rate of this decay is the rate of the parameter, times `sending.rate`,
    times the number of batches and, for synchronous exchanges, times the number of trainers. All other parameters decay
    in the steps of the trainers. With elastic_average all parameters decay in the steps of the trainers. Servers do not
    clip.

    Raises: ConfigError: the servers' decay is above MOST_DECAY, or is combined with momentum.
    """
    own, served = [], []
    for p in parameters:
        plain = replace(
            p,
            momentum=0.0,
            decay_rate=0.0,
            decay_rate_l1=0.0,
            num_batches_regularization=1,
            gradient_clipping_threshold=0.0,
        )
        if not p.is_static and p.num_batches_regularization > 1:
            separate_decay(p)  # raises an error if the parameter has momentum
        decays = bool(p.decay_rate or p.decay_rate_l1) and not p.is_static
        if sending.is_elastic or not decays or p.num_batches_regularization != sending.batches_per_send:
            own.append(p)
            served.append(plain)
            continue
        scale = sending.rate * p.num_batches_regularization * (1 if is_asynchronous else trainers)
        l2, l1 = p.decay_rate * scale, p.decay_rate_l1 * scale
        if max(l1, l2) > MOST_DECAY:
            raise ConfigError(
                f"parameter {p.name}: with num_batches_regularization={p.num_batches_regularization} and "
                f"{'delta_add_rate of one trainer' if is_asynchronous else 'delta_add_rate'} its decay on the servers "
                f"is {max(l1, l2):g} in each exchange; it must be at most {MOST_DECAY:g}: choose a smaller decay"
            )
        own.append(replace(p, decay_rate=0.0, decay_rate_l1=0.0, num_batches_regularization=1))
        served.append(replace(plain, decay_rate=l2, decay_rate_l1=l1))
    return own, served
