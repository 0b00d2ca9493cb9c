"""A process that stores a snapshot and is killed in the middle: FOLDER STEP before|after."""

import os
import pathlib
import signal
import sys

import numpy as np
from tasks_wire import ElasticWire

from paddle_base.registry.directory import DirectoryClaim, DirectoryRegistry
from paddle_base.runtime import durable_files
from pserver.life import snapshots as of_snapshots
from pserver.life.recovery import recover
from pserver.life.snapshots import Snapshots, SnapshotStore


def kill_at(owner: object, name: str, when: str) -> None:
    real = getattr(owner, name)

    def call(*arguments: object, **more: object) -> object:
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        real(*arguments, **more)
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    setattr(owner, name, call)


def main(folder: str, step: str, when: str) -> None:
    registry = DirectoryRegistry(pathlib.Path(folder) / "registry", 60.0)
    claim = registry.claim("ps/0", "")
    assert claim is not None
    wire, directory = ElasticWire(), pathlib.Path(folder) / "snapshots"
    snapshots = Snapshots([wire.service], SnapshotStore(claim, 0, directory))
    found = recover([wire.service], registry, 0, directory)
    assert found is not None
    snapshots.resume(found[1])
    wire.trainer(0).join().push_alone(2, np.ones(7))
    print("stores", wire.service.steps, flush=True)
    owners = {
        "mkdir": (pathlib.Path, "mkdir"),
        "write_file": (durable_files, "write_file"),
        "replace": (pathlib.Path, "replace"),
        "sync_directory": (durable_files, "sync_directory"),
        "put": (DirectoryClaim, "put"),
        "remove": (of_snapshots, "remove_if_possible"),
    }
    kill_at(*owners[step], when)
    snapshots.store_last()


if __name__ == "__main__":
    main(*sys.argv[1:])
