"""Compare the parameter files of two folders of kept runs: how many have equal bits, and how far the others differ.

usage: compare_bits.py ONE OTHER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

HEADER_BYTES = 16  # before the float32 values of a parameter file


def find_difference(one: Path, other: Path) -> float:
    """Return the largest difference of the values of two parameter files, relative to the largest value."""
    values, others = (np.fromfile(path, np.float32, offset=HEADER_BYTES).astype(np.float64) for path in (one, other))
    return float(np.abs(values - others).max() / max(np.abs(others).max(), 1e-30))


def main() -> None:
    """Print a line for each case."""
    one, other = map(Path, sys.argv[1:])
    for case in sorted(path.name for path in other.iterdir()):
        files = [path.relative_to(other) for path in (other / case).rglob("pass-*/_*") if path.is_file()]
        if not files:
            raise SystemExit(f"compare_bits.py: no parameter file in {other / case}")
        differing = [path for path in files if (one / path).read_bytes() != (other / path).read_bytes()]
        most = max((find_difference(one / path, other / path) for path in differing), default=0.0)
        equal = len(files) - len(differing)
        print(f"{case}: {equal} of {len(files)} parameter files have equal bits; others differ by {most:.1e}")


if __name__ == "__main__":
    main()
