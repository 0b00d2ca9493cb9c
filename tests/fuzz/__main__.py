"""`make fuzz MINUTES=60`: run the tests with hostile messages and peers repeatedly, each time with another seed.

The seed of each run is printed; `PYTHONPATH=tests python -m fuzz --seed N` repeats this run.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time

TESTS = [
    "unit/pserver/wire/test_pserver_handshake.py",
    "unit/pserver/wire/test_fuzz_protocol.py",
    "unit/pserver/server/test_fuzz_service.py",
    "unit/elastic/collectives/test_fuzz_collectives.py",
    "integration/pserver/test_hostile_peers.py",
    "integration/pserver/test_hostile_connections.py",
    "integration/pserver/test_hostile_server.py",
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to go on; one turn at least")
    parser.add_argument("--seed", type=int, help="take this turn only")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        return take_turns(options.seed, time.monotonic() + 60 * options.minutes, directory)


def take_turns(only: int | None, deadline: float, directory: str) -> int:
    """Repeat the tests until the deadline, or run them once with a seed; return the exit status.

    The directory is for temporary files. Pytest's default directory is shared by all runs of a user; a run that cleans
    it at the same time as another run fails.
    """
    turns = 0
    while True:
        seed = only if only is not None else random.SystemRandom().randrange(1, 1 << 31)
        print(f"seed {seed}", flush=True)
        files = [f"tests/{test}" for test in TESTS]
        command = [sys.executable, "-m", "pytest", "-q", "-x", f"--basetemp={directory}/pytest", *files]
        status = subprocess.call(command, env=os.environ | {"FUZZ_SEED": str(seed)})
        turns += 1
        if status:
            print(f"found something: PYTHONPATH=tests {sys.executable} -m fuzz --seed {seed}")
            return status
        if only is not None or time.monotonic() > deadline:
            print(f"{turns} turns, nothing found")
            return 0


if __name__ == "__main__":
    sys.exit(main())
