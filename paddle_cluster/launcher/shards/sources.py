"""Where the shards of the job are: on the volume, or in the bucket that JOB_INPUT names.

A shard of a bucket is copied to a directory beside ./data first, so that it is checked as a shard of the volume is.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from paddle_base.remote.addresses import Address
from paddle_base.remote.patience import Patience
from paddle_base.remote.stores import open_store
from paddle_base.remote.transfer import download
from paddle_base.remote.tree import download_all
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import say
from paddle_cluster.launcher.volume import volume_errors

COPIES = Path(".job-input")  # in the work directory
MARKER = "prepared.json"


def shard_of(config: LauncherConfig, number: int) -> Path:
    """Return the directory with the files of a shard; a shard of a bucket is copied if it is not there yet.

    Raises: MissingInputError: JOB_INPUT has no such shard.  VolumeError: the work directory cannot be written.
    PaddleError: see `Patience`.
    """
    if config.job_input is None:
        return config.job_dir / str(number) / "data"
    shard = COPIES / str(number) / "data"
    if not shard.is_dir():
        part = COPIES / f"{number}.part"
        with volume_errors(part):
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
        address = config.job_input.below(f"{number}/data/")
        paths = download_all(address, part, _patience(config))
        say(f"copied {len(paths)} files of {address}")
        with volume_errors(shard):
            shard.parent.mkdir(exist_ok=True)
            part.rename(shard)
    return shard


def marker_of(config: LauncherConfig) -> Path:
    """Return the path of the data job's marker, which need not exist. Raises: see `shard_of`."""
    if config.job_input is None:
        return config.job_dir / MARKER
    marker = COPIES / MARKER
    if not marker.exists():
        address, patience = config.job_input.below(MARKER), _patience(config)
        store = open_store(address)
        file = patience.begin().repeat(lambda: store.find(address), address)
        if file is not None:
            with volume_errors(COPIES):
                COPIES.mkdir(exist_ok=True)
            download(store, file, marker, patience.begin())
    return marker


def place_of_job(config: LauncherConfig) -> Path | Address:
    """Return the directory that has the shards, for messages."""
    return config.job_input or config.job_dir


def remove_copies() -> None:
    """Remove the copies of shards of a bucket."""
    shutil.rmtree(COPIES, ignore_errors=True)


def _patience(config: LauncherConfig) -> Patience:
    return Patience("JOB_INPUT", config.input_timeout, "raise INPUT_TIMEOUT, or check the server", say)
