"""What a round costs a server and a trainer: a line fitted to measurements, and what it predicts for other jobs.

No I/O. A round moves `part` bytes from every trainer to every server, and as many back. With T trainers and S servers:

    a server:   fixed + T x message + T x part x byte + part x step
    a trainer:  fixed + S x message + S x part x byte

are seconds of the processor. `fixed` is what a round costs without messages. `step` is what a server does once for all
trainers with each byte of its part: the optimiser's step.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SERVER_COSTS = ("fixed", "message", "byte", "step")
TRAINER_COSTS = ("fixed", "message", "byte")
BYTES = 4  # of a parameter


class Job(NamedTuple):
    """The size of a job."""

    trainers: int
    servers: int
    parameters: int

    @property
    def part(self) -> float:
        """The bytes that a trainer sends to a server in a round."""
        return BYTES * self.parameters / self.servers

    @property
    def messages(self) -> int:
        """The number of messages of a round, each of which is a request and its answer."""
        return self.trainers * self.servers

    def server_factors(self) -> list[float]:
        """Return the factors of SERVER_COSTS."""
        return [1.0, self.trainers, self.trainers * self.part, self.part]

    def trainer_factors(self) -> list[float]:
        """Return the factors of TRAINER_COSTS."""
        return [1.0, self.servers, self.servers * self.part]


class Fit(NamedTuple):
    """A fitted line.

    `costs`: (k,), at least 0.  `residuals`: (n,), what the line gives for each measurement relative to the measured
    value, minus 1.
    """

    costs: npt.NDArray[np.float64]
    residuals: npt.NDArray[np.float64]

    def at(self, factors: Sequence[float]) -> float:
        """Return what the line gives."""
        return float(self.costs @ np.asarray(factors))


def fit(factors: Sequence[Sequence[float]], measured: Sequence[float]) -> Fit:
    """Return the line with the least sum of squares of the relative residuals, among those without negative costs.

    Measurements differ by a factor of thousands, and the error of each is a share of it; so residuals are relative.

    Args: factors: (n, k).  measured: (n,), above 0.
    Raises: ValueError: there are fewer measurements than costs.
    """
    rows = np.asarray(factors, float) / np.asarray(measured, float)[:, None]
    count = rows.shape[1]
    if len(rows) < count:
        raise ValueError(f"{len(rows)} measurements do not determine {count} costs")
    scale = np.maximum(np.abs(rows).max(axis=0), np.finfo(float).tiny)  # bytes and messages differ by many powers of 10
    best, least = np.zeros(count), np.inf
    # the best line without negative costs is the best line of some of the costs, of which there are few
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(count), n + 1) for n in range(count)):
        columns = list(chosen)
        found = np.linalg.lstsq(rows[:, columns] / scale[columns], np.ones(len(rows)))[0]
        costs = np.zeros(count)
        costs[columns] = found / scale[columns]
        squares = float(((rows @ costs - 1) ** 2).sum())
        if (found >= 0).all() and squares < least:
            best, least = costs, squares
    return Fit(best, rows @ best - 1)


class Cluster(NamedTuple):
    """Machines among which the trainers and the servers of a job are divided evenly.

    `processors`: of a machine.  `network`: bytes a second that a machine sends, and that it receives; infinite if all
    programs are on one machine.
    """

    machines: int
    processors: int
    network: float = np.inf


def find_bounds(job: Job, cluster: Cluster, server: Fit, trainer: Fit) -> Mapping[str, float]:
    """Return the least seconds of a round that each limit allows; the round takes at least as long as the longest.

    A server is one thread, and so is a trainer's client. A message within a machine takes nothing of the network.
    """
    serving, training = server.at(job.server_factors()), trainer.at(job.trainer_factors())
    servers, trainers = job.servers / cluster.machines, job.trainers / cluster.machines
    # what a machine sends: gradients of its trainers to other servers, values of its servers to other trainers
    sent = job.part * (trainers * (job.servers - servers) + servers * (job.trainers - trainers))
    return {
        "server": serving,
        "trainer": training,
        "processors": (servers * serving + trainers * training) / cluster.processors,
        "network": sent / cluster.network,
    }


def find_limit(bounds: Mapping[str, float]) -> tuple[str, float]:
    """Return the name and the seconds of the longest bound."""
    name = max(bounds, key=lambda one: bounds[one])
    return name, bounds[name]
