"""The variables of workers. Names are those of `horovod.runner.common.util.env`."""

from __future__ import annotations

import fnmatch
import os

from paddle_cluster.elastic.launching.config_parser import LOG_LEVELS
from paddle_cluster.elastic.launching.processes import NOT_EXPORTED, keep_exported

LOG_LEVEL_STR = LOG_LEVELS[::-1]
IGNORE_REGEXES = {fnmatch.translate(pattern) for pattern in NOT_EXPORTED}
_PAIRS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def is_exportable(v: str) -> bool:
    """Return whether a worker inherits a variable from the driver."""
    return bool(keep_exported({v: ""}))


def get_env_rank_and_size() -> tuple[int, int]:
    """Return the rank and the number of ranks that the environment names; (0, 1) without such variables.

    Raises: RuntimeError: only one of the two variables is set.
    """
    for names in _PAIRS:
        rank, size = map(os.environ.get, names)
        if rank is not None and size is not None:
            return int(rank), int(size)
        if rank is not None or size is not None:
            raise RuntimeError(
                f"only one of {names[0]} and {names[1]} is set; let `paddle elastic run` set the variables"
            )
    return 0, 1
