"""Data parallelism in one process: a batch is cut into parts, and threads compute the parts in parallel.

Source: spec/trainer.md sections 5.4 and 6.1; gserver/gradientmachines/MultiGradientMachine.cpp of v0.10.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ContextDecorator
from functools import partial
from typing import Any

from paddle_base.kernels import flush_denormals
from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime import glog
from paddle_base.runtime.processor.thread_pool import ThreadPool, Worker, run_in_turn, run_together
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.network.batch_states import BatchStates
from trainer.network.batch_work import estimate
from trainer.network.network import Batch, Network, OnFinal

SMALL_S = 0.0005  # seconds; a thread for a part that takes less time saves nothing (measured by bench/threads.py)
STATE_KEY = "shares"  # the key of the replicas' states in checkpoints; no layer has this name


class MeasuredTasks:
    """Executes the tasks of one kind of work in threads, or in the calling thread while they are too short for threads.

    Each kind of work has its own object. Otherwise an optimiser step, which is short, would decide that the next
    forward pass, which is long, needs only one thread.
    """

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self._are_small = False

    def run(self, tasks: Sequence[Callable[[], object]]) -> None:
        """Execute the tasks, at most one for each thread. Raise the error of the first failed task."""
        if len(tasks) == 1:
            tasks[0]()
            return
        start = time.perf_counter()
        if self._are_small:
            run_in_turn(tasks)
            self._are_small = time.perf_counter() - start < 2 * len(tasks) * SMALL_S
        else:
            run_together(self._workers, tasks)
            self._are_small = time.perf_counter() - start < SMALL_S


class DataParallelNetwork:
    """Several replicas of a network, with the interface of one network. Each replica computes one part of a batch.

    All replicas have the same parameter values. The gradients of the replicas are added to the gradients of
    `parameters` in the order of the parts. Training is therefore reproducible bit for bit. The calling thread computes
    the first part. A part without samples is skipped. Between batches, `pool` gives other tasks to the threads.

    If cutting does not change the results, a small batch is computed as a whole (trainer/network/batch_work.py).

    Args: streams: one random stream for each replica. always: whether small batches are also cut.
        further: see `Network`.
    Thread safety: only one thread may use the object.
    """

    def __init__(
        self,
        config: ModelConfig,
        parameters: ParameterTable,
        streams: Sequence[Stream],
        *,
        always: bool = False,
        further: Collection[str] = (),
    ) -> None:
        self.config = config
        self._work = None if always or len(streams) < 2 else estimate(config)
        self._has_said = False
        self.parameters = parameters
        tables = [parameters, *(parameters.replicate() for _ in streams[1:])]
        self._networks = [Network(config, table, further) for table in tables]
        self._streams = list(streams)
        self._workers = [Worker(f"replica {number}", flush_denormals) for number in range(1, len(streams))]
        self._passes = {way: MeasuredTasks(self._workers) for way in ("forward", "backward")}
        self.states = BatchStates()  # as in v0.10, several replicas begin every batch with states of zeros
        # the replicas that computed the last batch, in the order of its parts; the outputs of the batch are the joined
        # outputs of these replicas
        self.replicas: Sequence[Network] = ()
        self.output_names = self._networks[0].output_names
        self.pool = ThreadPool(len(streams), MeasuredTasks(self._workers).run)

    def watch(self, *, gradients_of: Sequence[str] | set[str] = (), clipping: bool = False) -> None:
        """Store the gradients of the given layers' outputs. With `clipping`, log each layer that clips its gradient."""
        for network in self._networks:
            network.watch(gradients_of=gradients_of, clipping=clipping)

    def time_layers(self, measure: Callable[[str], ContextDecorator]) -> None:
        """Begin to measure the passes of every layer in the first replica."""
        self._networks[0].time_layers(measure)

    def carried(self) -> dict[str, Any]:
        """Return, for each replica, the state of its random stream and the states that it carries between batches."""
        pairs = zip(self._streams, self._networks, strict=True)
        return {STATE_KEY: [[stream.state, network.carried()] for stream, network in pairs]}

    def carry_on(self, state: Mapping[str, Any]) -> None:
        """Restore states that `carried` returned. If the number of replicas is different, change nothing."""
        states = state.get(STATE_KEY, [])
        if len(states) != len(self._networks):
            glog.warning(
                f"the checkpoint was written with --trainer_count={len(states)}, so the random numbers of the threads "
                "are not those of an uninterrupted run"
            )
            return
        for stream, network, (drawn, carried) in zip(self._streams, self._networks, states, strict=True):
            stream.state = drawn
            network.carry_on(carried)

    def is_data_or_cost(self, name: str) -> bool:
        """Return whether a layer is a data layer or a cost."""
        return self._networks[0].is_data_or_cost(name)

    def forward(self, batch: Batch, stream: Stream | None = None, *, is_training: bool | None = None) -> None:
        """Run a batch. The outputs of the replicas stay valid until the next call.

        Args: see `Network.forward`. The dropout masks are drawn from the streams of the replicas.
        """
        if self._is_small(batch):
            self.replicas = self._networks[:1]
            self._networks[0].forward(batch, None if stream is None else self._streams[0], is_training=is_training)
            return
        parts = cut_batch(batch, len(self._networks))
        active = [number for number, part in enumerate(parts) if part is not None]
        self.replicas = [self._networks[number] for number in active]
        self._passes["forward"].run(
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
        for network in self.replicas:
            if network.parameters is not self.parameters:
                self.parameters.follow_replica(network.parameters)

    def _is_small(self, batch: Batch) -> bool:
        """Return whether the batch is computed as a whole; log the first such batch."""
        if self._work is None or not self._work.is_small(batch) or not count_samples(batch):
            return False
        if not self._has_said:
            self._has_said = True
            count = len(self._networks)
            glog.info(f"--trainer_count={count}: one thread computes small batches, because this is faster")
        return True

    def cost(self) -> float:
        """Return the cost of the last batch: the sum over all output layers, in double precision."""
        return sum(network.cost() for network in self.replicas)

    def find_bad_cost(self) -> str:
        """Return the name of the first output layer with a number that is not finite, or ""."""
        return next(filter(None, (network.find_bad_cost() for network in self.replicas)), "")

    def backward(self, on_final: OnFinal | None = None) -> None:
        """Add the gradients of the last batch's cost, summed over the samples, to the gradients of the parameters.

        Args: on_final: never called, because no gradient is complete before the gradients of all replicas are added.
        """
        if len(self.replicas) == 1:
            self._go_back(self.replicas[0])
        else:
            self._passes["backward"].run([partial(self._go_back, network) for network in self.replicas])
        for network in self.replicas:
            if network.parameters is not self.parameters:
                self.parameters.add_gradients_of(network.parameters)

    def close(self) -> None:
        """End the threads. Wait only briefly for a thread that still computes."""
        for worker in self._workers:
            worker.close()

    def _go_back(self, network: Network) -> None:
        if network.parameters is not self.parameters:
            network.parameters.clear_gradients()
        network.backward()


AnyNetwork = Network | DataParallelNetwork


def count_samples(batch: Batch) -> int:
    """Return the number of samples of a batch. A sample is a sequence, or a row if there are no sequences."""
    return max((slot.sequences for slot in batch.values()), default=0)


def cut_batch(batch: Batch, count: int) -> list[Batch | None]:
    """Return the parts of a batch as views. A part without samples is None.

    Part i of n samples begins with sample n * i // count, and ends before sample n * (i + 1) // count.
    """
    samples = count_samples(batch)
    if count == 1:
        return [batch if samples else None]
    bounds = [samples * number // count for number in range(count + 1)]
    return [
        {name: slot.cut(first, stop) for name, slot in batch.items()} if first < stop else None
        for first, stop in itertools.pairwise(bounds)
    ]
