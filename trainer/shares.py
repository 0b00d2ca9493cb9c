"""A network whose batches are cut into shares, which as many threads compute at the same time.

Source: spec/trainer.md sections 5.4 and 6.1; gserver/gradientmachines/MultiGradientMachine.cpp of v0.10.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kernels import flush_denormals
from proto.ModelConfig_pb2 import ModelConfig
from pserver import glog
from pserver.crew import Crew, Worker, run_together
from trainer.arguments import Argument
from trainer.network import Batch, Network, OnFinal
from trainer.parameters import ParameterTable
from trainer.rng import Stream

SMALL_S = 0.0005  # a share that takes less is not worth a thread
SHARES = "shares"  # no layer's name: what `carried` gives


class Shares:
    """The networks of all shares; to a session it looks like one.

    All have the same values; the gradients end up in `parameters`, added in the order of the shares, so that a run can
    be repeated bit for bit. The calling thread computes the first share. A share without samples is left out. Between
    batches the threads can do other work: `crew`.

    Args: streams: draw the random numbers of the shares; as many as there are shares.
    Thread safety: none; one thread calls.
    """

    def __init__(self, config: ModelConfig, parameters: ParameterTable, streams: Sequence[Stream]) -> None:
        self.config = config
        self.parameters = parameters
        tables = [parameters, *(parameters.replicate() for _ in streams[1:])]
        self._networks = [Network(config, table) for table in tables]
        self._streams = list(streams)
        self._workers = [Worker(f"share {number}", flush_denormals) for number in range(1, len(streams))]
        self._are_small = False
        self.shares: Sequence[Network] = ()  # the networks whose outputs are those of a batch, one after the other
        self.output_names = self._networks[0].output_names
        self.crew = Crew(len(streams), self._run)

    def watch(self, *, gradients_of: Sequence[str] | set[str] = (), clipping: bool = False) -> None:
        """Keep the gradients of some layers' outputs, and log where errors are clipped."""
        for network in self._networks:
            network.watch(gradients_of=gradients_of, clipping=clipping)

    def carried(self) -> dict[str, Any]:
        """Return what the shares take from batch to batch: of each its stream's state and what its network carries."""
        pairs = zip(self._streams, self._networks, strict=True)
        return {SHARES: [[stream.state, network.carried()] for stream, network in pairs]}

    def carry_on(self, state: Mapping[str, Any]) -> None:
        """Go on from that; with another number of shares each begins anew."""
        states = state.get(SHARES, [])
        if len(states) != len(self._networks):
            glog.warning(f"the checkpoint is of --trainer_count={len(states)}: the random numbers of the shares differ")
            return
        for stream, network, (drawn, carried) in zip(self._streams, self._networks, states, strict=True):
            stream.state = drawn
            network.carry_on(carried)

    def is_data_or_cost(self, name: str) -> bool:
        """Return whether a layer neither computes values of its own nor is read by others."""
        return self._networks[0].is_data_or_cost(name)

    def forward(self, batch: Batch, stream: Stream | None = None, *, is_training: bool | None = None) -> None:
        """Run a batch; the outputs of the shares stay valid until the next call.

        Args: as of a network, but the dropout masks are drawn from the shares' own streams.
        """
        count = len(self._networks)
        parts = cut_batch(batch, count)
        active = [number for number in range(count) if parts[number] is not None]
        self.shares = [self._networks[number] for number in active]
        self._run(
            [
                partial(
                    self._networks[number].forward,
                    parts[number] or {},
                    None if stream is None else self._streams[number],
                    is_training=is_training,
                )
                for number in active
            ]
        )
        for network in self.shares:
            if network.parameters is not self.parameters:
                self.parameters.follow_replica(network.parameters)

    def cost(self) -> float:
        """Return the cost of the last batch: the plain sum over all output layers, in double."""
        return sum(network.cost() for network in self.shares)

    def find_bad_cost(self) -> str:
        """Return the name of the first output layer with a number that is infinite or no number, or ""."""
        return next(filter(None, (network.find_bad_cost() for network in self.shares)), "")

    def backward(self, on_final: OnFinal | None = None) -> None:
        """Add the gradients of the last batch's cost to those of the parameters; sums over the samples.

        Args: on_final: as of a network; here no gradient is complete before the shares are added up.
        """
        self._run([partial(self._go_back, network) for network in self.shares])
        for network in self.shares:
            if network.parameters is not self.parameters:
                self.parameters.add_gradients_of(network.parameters)

    def close(self) -> None:
        """End the threads; one that computes is not awaited for long."""
        for worker in self._workers:
            worker.close()

    def _go_back(self, network: Network) -> None:
        if network.parameters is not self.parameters:
            network.parameters.clear_gradients()
        network.backward()

    def _run(self, tasks: Sequence[Callable[[], object]]) -> None:
        """Do as many tasks as there are shares, or fewer, at the same time; of errors that of the first counts.

        Tasks that take less time than it costs to hand them over are done one after the other.
        """
        start = time.perf_counter()
        if self._are_small:
            for task in tasks:
                task()
            self._are_small = time.perf_counter() - start < 2 * len(tasks) * SMALL_S
        else:
            run_together(self._workers, tasks)
            self._are_small = time.perf_counter() - start < SMALL_S


AnyNetwork = Network | Shares


def cut_batch(batch: Batch, count: int) -> list[dict[str, Argument] | None]:
    """Return the shares of a batch, in the same memory; None for those without samples.

    Share i has the samples [n * i / count, n * (i + 1) / count).
    """
    samples = max((slot.sequences for slot in batch.values()), default=0)
    bounds = [samples * number // count for number in range(count + 1)]
    return [
        {name: slot.cut(first, stop) for name, slot in batch.items()} if first < stop else None
        for first, stop in itertools.pairwise(bounds)
    ]
