"""Resume a server of a task job from the snapshot in the registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paddle_base.registry.interface import Registry
from paddle_base.registry.records import CheckpointRecord, find_checkpoint
from paddle_base.registry.servers import CHECKPOINTS, INIT_DONE
from paddle_base.runtime.errors import ConfigError, DamagedError
from pserver.life.snapshots import split_content
from pserver.server.tasks.service import TaskService
from pserver.server.tasks.service_snapshot import ServiceSnapshot
from pserver.store.snapshot_files import describe_damage, read_snapshot

DEFAULT_PATH = Path("/checkpoints")  # the default directory of the Go pserver of 2017
BESIDE_REGISTRY = "checkpoints"  # name of the snapshots' directory, which is in the job's directory of --store_dir


def name_directory(path: str, store_dir: Path | None, job: str) -> Path:
    """Return the directory of the snapshots of a job."""
    if path:
        return Path(path).absolute() / job
    return store_dir / job / BESIDE_REGISTRY if store_dir else DEFAULT_PATH / job


def recover(
    services: Sequence[TaskService], registry: Registry, index: int, directory: Path
) -> tuple[CheckpointRecord, Path] | None:
    """Restore the state that the last server with this index has stored; return the snapshot's record and path.

    The result is None if there is no snapshot.

    Raises: DamagedError: the snapshot is damaged, or is missing although the job has begun. LostFileError, VolumeError:
        the snapshot's file cannot be read. ConfigError: the snapshot belongs to a server with other numbers of ports.
    """
    record = find_checkpoint(registry, index)
    if record is None:
        if INIT_DONE in registry.read(INIT_DONE):
            raise DamagedError(
                f"the job has begun, but the registry has no {CHECKPOINTS}{index}, which names the snapshot that "
                f"server {index} resumes from; restore the registry, or begin the job anew under another --job"
            )
        return None
    path = directory / Path(record.path).name
    if not path.exists():  # --checkpoint_path may have changed since the snapshot was stored
        path = Path(record.path)
    for content in read_snapshot(path, record.crc32):
        try:
            number, note = split_content(content)
            if number < len(services):
                services[number].restore(ServiceSnapshot(note, content[1]))
                continue
        except DamagedError as error:
            raise describe_damage(path, error) from error
        raise ConfigError(
            f"the snapshot {path} has service {number}, but this server has {len(services)} services; start this "
            "server with the --ports_num and --ports_num_for_sparse of the server that wrote the snapshot"
        )
    return record, path
