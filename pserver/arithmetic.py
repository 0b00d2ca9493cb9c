"""Between the wire and the shard: the service's only use of numpy.

The service imports this module when there is something to compute: a server that has not yet imported numpy
answers its first hello 0.15 s sooner.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pserver import blocks, deposits, glog, protocol, snapshot
from pserver.asynchronous import AsynchronousSteps
from pserver.crew import Crew, hire
from pserver.errors import BugError, ConfigError
from pserver.lag import LagLimits
from pserver.rounds import SynchronousRounds
from pserver.row_rounds import RowRounds
from pserver.row_shard import RowShard
from pserver.row_steps import RowSteps
from pserver.rules import Optimization, ParameterSpec
from pserver.shard import Shard
from pserver.table import local_specs

MAX_SERVICES = 1 << 16

Rounds = SynchronousRounds | RowRounds
Steps = AsynchronousSteps | RowSteps
Mode = Rounds | Steps  # what takes the gradients


def describe_setup(parameters: Sequence[ParameterSpec], optimization: Optimization) -> dict[str, Any]:
    """Return the note of INITIALISE: everything that a server must know of the model."""
    return {
        "optimization": dataclasses.asdict(optimization),
        "fields": [field.name for field in dataclasses.fields(ParameterSpec)],
        "parameters": [list(dataclasses.astuple(parameter)) for parameter in parameters],
    }


@functools.cache
def _find_crew(threads: int) -> Crew:
    """Return the crew of so many threads; the services of a process are served in turn and share it."""
    return hire(threads)


class Arrival:
    """A shard whose first values, and the state of a checkpoint where there is one, come in piece by piece.

    Args: hello: trainer 0's hello to this service (which service of how many it is).
        setup: the note of INITIALISE: `describe_setup`, and with a checkpoint its counters, the names of its arrays,
        and the trainers' parts of it.
        limits: which gradients are too old in asynchronous training.  threads: that take a step together.
    Raises: BugError: if the setup does not fit the hello or itself.  ConfigError: if it is not supported.
    """

    def __init__(self, hello: Mapping[str, Any], setup: Mapping[str, Any], limits: LagLimits, threads: int = 1) -> None:
        try:
            fields = setup["fields"]
            parameters = [ParameterSpec(**dict(zip(fields, row, strict=True))) for row in setup["parameters"]]
            optimization = Optimization(**setup["optimization"])
            service, services = int(hello["service"]), int(hello["services"])
            if not 0 <= service < services <= MAX_SERVICES:
                raise BugError(f"service {service} of {services}; at most {MAX_SERVICES} are possible")
            if blocks.digest(parameters) != hello.get("parameters"):
                raise BugError(
                    f"the setup (digest {blocks.digest(parameters)}) is not that of the hello "
                    f"(digest {hello.get('parameters')})"
                )
            self._shard: Shard
            if setup.get("by_rows"):
                tables = local_specs(parameters, services, service)
                self._shard = RowShard(
                    tables, optimization, is_asynchronous=optimization.is_asynchronous, crew=_find_crew(threads)
                )
                slots = self._shard.size
            else:
                _refuse_tables(parameters)
                ranges = blocks.layout(parameters, services)[service]
                self._shard = Shard(parameters, ranges, optimization, per_parameter=True, crew=_find_crew(threads))
                slots = blocks.count_slots(ranges, blocks.block_size(blocks.count_elements(parameters), services))
            self._num_trainers = int(hello["num_trainers"])
            self.trainers = list(setup.get("trainers") or ())
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as exc:
            raise BugError(
                f"the setup of the parameters does not parse ({type(exc).__name__}: {glog.clean(exc)})"
            ) from exc
        except (MemoryError, OverflowError) as exc:
            raise ConfigError(
                f"this service's part of the parameters does not fit into its memory ({glog.clean(exc)}); "
                "use more hosts"
            ) from exc
        self._limits = limits
        self._part = snapshot.take(self._shard)
        self._counters = setup.get("counters")
        self._deposits = deposits.restore(setup.get("deposits"), blocks.count_elements(parameters))
        self._names: list[str] = sorted([*self._part.arrays, *self._deposits]) if self._counters is not None else []
        if setup.get("arrays", self._names) != self._names:
            raise BugError(f"the state has the arrays {setup.get('arrays')}, this service has {self._names}")
        if slots:
            glog.info(f"pserver: new cpuvector: size={slots}", at="ParameterServer2.cpp:306")
        self._targets = {"values": self._shard.values.view("B").data} | {
            f"state {name}": as_bytes(array) for name, array in self._part.arrays.items() if name in self._names
        }
        self._targets |= {f"state {name}": memoryview(data) for name, data in self._deposits.items()}
        self.deposits = deposits.Deposits(blocks.count_elements(parameters))
        self._awaited = {
            (name, piece)
            for name, target in self._targets.items()
            if len(target) or name == "values"  # an empty array of the state is not waited for
            for piece in range(protocol.count_pieces(len(target)))
        }

    @property
    def is_complete(self) -> bool:
        """Whether all is here."""
        return not self._awaited

    def name_of(self, number: int) -> str:
        """Return the name under which an array of the state is added.

        Raises: BugError: if there is none of that number.
        """
        if not 0 <= number < len(self._names):
            raise BugError(f"the state has {len(self._names)} arrays, none of number {number}")
        return f"state {self._names[number]}"

    def add(self, name: str, piece: int, payload: memoryview) -> None:
        """Put a piece of an array in its place.

        Raises: BugError: if it is none of it.
        """
        target = protocol.cut(self._targets[name], piece)
        if (name, piece) not in self._awaited or len(target) != payload.nbytes:
            raise BugError(f"piece {piece} of the {name} has {payload.nbytes} bytes, here it would have {len(target)}")
        target[:] = payload
        self._awaited.discard((name, piece))

    def finish(self) -> Mode:
        """Return what takes the gradients from now on."""
        for name, data in self._deposits.items():
            self.deposits.whole[int(name.removeprefix(deposits.PREFIX))] = data
        if self._counters is not None:
            snapshot.put_back(self._shard, snapshot.Part(self._counters, self._part.arrays))
        glog.info("pserver: setParameter", at="ParameterServer2.cpp:260")
        is_asynchronous = self._shard.optimization.is_asynchronous
        if isinstance(self._shard, RowShard) and is_asynchronous:
            return RowSteps(self._shard, self._num_trainers, self._limits)
        if isinstance(self._shard, RowShard):
            return RowRounds(self._shard)
        if is_asynchronous:
            return AsynchronousSteps(self._shard, self._num_trainers, self._limits)
        return SynchronousRounds(self._shard)


def _refuse_tables(parameters: Sequence[ParameterSpec]) -> None:
    for p in parameters:
        if p.sparse_update and not p.is_static:
            raise BugError(f"parameter {p.name} has sparse_update; its rows belong on a sparse service")


def list_state(shard: Shard, *, copies: bool = False) -> tuple[dict[str, Any], list[tuple[str, str, memoryview]]]:
    """Return the state of a shard for the wire: its counters, and name, dtype and bytes of each array.

    Args: copies: whether the shard goes on before they have been read.
    """
    part = snapshot.take(shard)
    arrays = {name: array.copy() if copies else array for name, array in part.arrays.items()}
    return part.counters, [(name, array.dtype.str, as_bytes(array)) for name, array in arrays.items()]


def values_to_save(rounds: Mode, *, copies: bool) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the averages of the last steps' values where there are such, else the values as of the last step.

    Args: copies: whether the shard goes on before they have been written.
    """
    if rounds.shard.averaging is not None:
        return rounds.shard.averages()
    values = np.frombuffer(rounds.values, np.float32)
    return values.copy() if copies else values


def average(shard: Shard) -> memoryview:
    """Return the averages of the last steps' values for the wire."""
    return as_bytes(shard.averages())


def as_bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the bytes of a contiguous array without copying them."""
    return array.reshape(-1).view(np.uint8).data
