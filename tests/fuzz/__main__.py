"""`make fuzz MINUTES=60`: the tests with hostile messages and peers, again and again with other seeds.

The seed of each turn is printed; `PYTHONPATH=tests python -m fuzz --seed N` takes that turn again.
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
    """Take turns until the deadline, or the one of a seed; return the exit status.

    The directory is for temporary files: pytest's own is shared by all runs of a user, and one that cleans it while
    another does fails.
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
