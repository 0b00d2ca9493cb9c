"""`make fuzz MINUTES=60`: the tests with hostile messages and peers, again and again with other seeds.

The seed of each turn is printed; `PYTHONPATH=tests python -m fuzz --seed N` takes that turn again.
"""

import argparse
import os
import random
import subprocess
import sys
import time

TESTS = [
    "unit/pserver/test_fuzz_protocol.py",
    "unit/pserver/test_fuzz_service.py",
    "integration/pserver/test_hostile_peers.py",
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to go on; one turn at least")
    parser.add_argument("--seed", type=int, help="take this turn only")
    options = parser.parse_args()
    deadline = time.monotonic() + 60 * options.minutes
    turns = 0
    while True:
        seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1, 1 << 31)
        print(f"seed {seed}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-x", *(f"tests/{test}" for test in TESTS)]
        status = subprocess.call(command, env=os.environ | {"FUZZ_SEED": str(seed)})
        turns += 1
        if status:
            print(f"found something: PYTHONPATH=tests {sys.executable} -m fuzz --seed {seed}")
            return status
        if options.seed is not None or time.monotonic() > deadline:
            print(f"{turns} turns, nothing found")
            return 0


if __name__ == "__main__":
    sys.exit(main())
