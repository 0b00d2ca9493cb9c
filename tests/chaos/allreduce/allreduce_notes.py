"""What the workers of a trial have in common: their settings, and the file that each process writes.

The file lies in the directory that CHAOS_LEDGER names. It has JSON lines: one when the process begins, one for each
commit, and one when it ends. The line of a commit has the samples of the whole step, which all ranks have exchanged.
"""

import hashlib
import json
import os
import time
from pathlib import Path

from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.membership import WORKER

EPOCHS, SAMPLES, BATCH = (int(os.environ[f"CHAOS_{name}"]) for name in ("EPOCHS", "SAMPLES", "BATCH"))
PACE_S = float(os.environ["CHAOS_PACE"])  # seconds of a step
HURRY = os.environ.get("CHAOS_HURRY", "")  # a file; while it exists, a step takes no longer than it needs


class Notes:
    """The file of this process."""

    def __init__(self):
        path = Path(os.environ["CHAOS_LEDGER"]) / os.environ["PADDLE_ELASTIC_INCARNATION"]
        self._file = path.open("ab", buffering=0)
        self._write(pid=os.getpid(), host=os.environ["HOROVOD_HOSTNAME"], local_rank=os.environ["HOROVOD_LOCAL_RANK"])

    def commit(self, state, arrays):
        """Note a commit. `arrays`: what all ranks have to have the same bits of."""
        self._write(
            step=state.step, generation=WORKER.placement.generation, rank=operations.rank(), size=operations.size(),
            epoch=state.epoch, batch=state.batch, weights=digest(arrays),
        )  # fmt: skip

    def end(self, state, weights):
        """Note the end of the work."""
        self._write(end=state.step, weights=[float(w).hex() for w in weights], seen=state.seen.tolist())

    def _write(self, **fields):
        """Add a line by a single write, so that a killed process leaves no half line."""
        self._file.write(json.dumps(fields).encode() + b"\n")


def digest(arrays):
    """Return a digest of the bits of arrays."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


def pace():
    """Wait, so that harms have the time to come in the middle of the work."""
    if not (HURRY and os.path.exists(HURRY)):  # noqa: PTH110
        time.sleep(PACE_S)
