"""Attacks on the pserver. `python -m fuzz` repeats them with further seeds."""

import os


def seeds(count: int) -> range:
    """Return the seeds of a test: from 0 in `make test`, from FUZZ_SEED in `make fuzz`."""
    first = int(os.environ.get("FUZZ_SEED", "0"))
    return range(first, first + count)
