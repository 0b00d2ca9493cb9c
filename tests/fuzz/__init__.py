"""Attacks on the pserver, and `python -m fuzz`, which goes on with seeds that the tests have not tried."""

import os


def seeds(count: int) -> range:
    """Return the seeds of a test: from 0 in `make test`, from FUZZ_SEED in `make fuzz`."""
    first = int(os.environ.get("FUZZ_SEED", "0"))
    return range(first, first + count)
