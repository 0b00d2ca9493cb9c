"""How a trainer joins a master's job: its name there, the digest of its config, and the list that it offers."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from master.client import MasterClient
from master.store.choice import open_store
from messages.envelope import MemberId
from proto.DataConfig_pb2 import DataConfig
from proto.TrainerConfig_pb2 import TrainerConfig
from registry.choice import name_job
from runtime import glog
from runtime.environment import read_environment
from runtime.errors import ConfigError, DataError
from runtime.gflags import read_seconds
from trainer.data.loading import read_arguments
from trainer.flags import Values

LONGEST_UID = 200
STORE_TTL_S = 10.0  # of the store; only a master that leads makes use of it


def name_trainer(flag: str, environ: Mapping[str, str]) -> str:
    """Return what the master calls this trainer: the flag, else the UID of its pod, else a name of its own.

    Raises: ConfigError: it is too long.
    """
    name = flag or environ.get("POD_UID", "") or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    if len(name) > LONGEST_UID:
        raise ConfigError(f"--trainer_uid (or POD_UID) has {len(name)} characters; it may have {LONGEST_UID}")
    return name


def join_job(
    flags: Values, environ: Mapping[str, str], config: TrainerConfig, look: Callable[[], None], *, is_own: bool
) -> MasterClient:
    """Return a client of the job's master, which has let this trainer in.

    Args: look: is called several times a second while an answer of the master is waited for; may raise.
        is_own: whether a config script wrote `config` in this process.
    Raises: PeerUnreachableError: no master has answered within --wait.  ConfigError: the job has another config.
    """
    job = read_environment(environ)
    name = name_job(flags.job_name, job.job, "job_name")
    directory = Path(flags.store_dir) if flags.store_dir else None
    member = MemberId(name_trainer(flags.trainer_uid, environ), time.time_ns() // 1_000_000)
    glog.info(f"joining job '{name}' as {member}")
    master = MasterClient(
        open_store(flags.endpoints, directory, name, STORE_TTL_S),
        name,
        member,
        secret=job.secret,
        config=digest_config(config, is_own=is_own),
        patience=read_seconds("wait", flags.wait),
    )
    master.look = look
    try:
        number = master.number
    except BaseException:
        master.close()
        raise
    glog.info(f"this is trainer {number} of job '{name}', which has {master.num_passes} passes")
    if "num_passes" in flags.given and flags.num_passes != master.num_passes:
        glog.warning(f"--num_passes={flags.num_passes} has no effect: the master's job has {master.num_passes} passes")
    return master


def check_entries(entries: Sequence[str], list_name: str) -> None:
    """Return if each entry of the list can be a task.

    Raises: DataError: the list is empty, or an entry is blank.
    """
    if not entries:
        raise DataError(f"the list of training data {list_name} is empty; name at least one file in it")
    blank = next((line for line, entry in enumerate(entries, 1) if not entry.strip()), None)
    if blank is not None:
        raise DataError(f"line {blank} of the list of training data {list_name} is blank; a task needs a name")


def digest_config(config: TrainerConfig, *, is_own: bool) -> str:
    """Return a SHA-256, in hexadecimal, of what the trainers of a job have in common.

    That is the network, the settings of the optimiser and the provider of the training data with its arguments, but no
    path: the file list has a digest of its own.
    """
    data = DataConfig()
    data.CopyFrom(config.data_config)
    for field in ("files", "load_data_args"):
        data.ClearField(field)
    whole = hashlib.sha256()
    for message in (config.model_config, config.opt_config, data):
        whole.update(message.SerializePartialToString(deterministic=True) + b"\0")
    for part in spell(read_arguments(config.data_config, is_own=is_own)):
        whole.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return whole.hexdigest()


def spell(value: Any) -> Iterable[str]:
    """Yield texts that are the same for equal plain values in every process; of another value its type.

    A set has another order in every process, and the pickle of an object may have its address.
    """
    if isinstance(value, Mapping):
        yield f"{{{len(value)}"
        for key, one in value.items():
            yield from spell(key)
            yield from spell(one)
    elif isinstance(value, list | tuple):
        yield f"[{len(value)}"
        for one in value:
            yield from spell(one)
    elif isinstance(value, set | frozenset):
        yield f"({len(value)}"
        yield from sorted("\0".join(spell(one)) for one in value)
    elif isinstance(value, str | bytes | int | float | None):
        yield repr(value)
    else:
        yield type(value).__qualname__
