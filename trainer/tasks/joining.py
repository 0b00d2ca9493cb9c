"""Join the job of a master, with the identity of the trainer, the digest of its config, and its file list."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle_base.messages.envelope import MemberId
from paddle_base.proto.DataConfig_pb2 import DataConfig
from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from paddle_base.registry.choice import name_job, open_registry
from paddle_base.registry.etcd_flags import set_variables
from paddle_base.registry.interface import Registry
from paddle_base.runtime import glog
from paddle_base.runtime.environment import read_environment
from paddle_base.runtime.errors import ConfigError, DataError
from paddle_base.runtime.gflags import read_seconds
from paddle_base.runtime.network.interfaces import find_own_addresses
from paddle_cluster.master.client import MasterClient
from paddle_cluster.master.store.choice import open_store
from trainer.data.loading import read_arguments
from trainer.flags import Values
from trainer.tasks.job_end import EndWatch
from trainer.updaters.tasks.servers import TaskMembership

LONGEST_UID = 200  # maximum number of characters of a trainer's name
STORE_TTL_S = 10.0  # seconds of the store's lease, which only the leader of the masters uses


def name_trainer(flag: str, environ: Mapping[str, str]) -> str:
    """Return the name by which the master knows this trainer.

    It is the value of the flag. Without the flag it is the UID of the pod, and outside of a pod a generated name.

    Raises: ConfigError: the name is too long.
    """
    name = flag or environ.get("POD_UID", "") or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    if len(name) > LONGEST_UID:
        raise ConfigError(f"--trainer_uid (or POD_UID) has {len(name)} characters; it may have at most {LONGEST_UID}")
    return name


@dataclass(frozen=True)
class TaskJob:
    """The job in a store: the master that this trainer joins, and the parameter servers of the job."""

    name: str
    master: MasterClient
    registry: Registry
    membership: TaskMembership

    def close(self, *, leaves: bool) -> None:
        """Close all connections.

        Args: leaves: whether to leave the job. The master then assigns this trainer's tasks to other trainers at once.
        """
        if leaves:
            self.master.look = lambda: None
            self.master.leave()
        self.master.close()
        self.registry.close()


def open_job(
    flags: Values, environ: Mapping[str, str], config: str, look: Callable[[], None], begin: Callable[[], None]
) -> TaskJob:
    """Return the job that the flags select, without waiting.

    Args: config: digest of the config. look: a function that is called every second while this trainer waits; an error
        that it raises ends the wait. begin: a function that is called before this trainer sends the initial values to
        the servers. It is not called if another trainer sends them.
    Raises: UsageError, ConfigError: a flag or a variable is invalid.  PeerUnreachableError: etcd does not answer.
    """
    own = read_environment(environ)
    name = name_job(flags.job_name, own.job, "job_name")
    directory = Path(flags.store_dir) if flags.store_dir else None
    member = MemberId(name_trainer(flags.trainer_uid, environ), time.time_ns() // 1_000_000)
    addresses = find_own_addresses(flags.nics if "nics" in flags.given else "")
    patience = read_seconds("wait", flags.wait)
    set_variables(lambda name: str(getattr(flags, name)), os.environ)
    registry = open_registry(flags.endpoints, directory, name)
    book = open_store(flags.endpoints, directory, name, STORE_TTL_S)
    master = MasterClient(book, name, member, secret=own.secret, config=config, patience=patience)
    master.look = EndWatch(registry, lambda: master.is_joined, look)
    membership = TaskMembership(
        master,
        member.uid,
        member.incarnation,
        job=name,
        secret=own.secret,
        own_addresses=addresses,
        source=addresses[0] if len(addresses) == 1 else "",  # of several, the system's route chooses
        peer_timeout=own.peer_timeout,
        patience=patience,
        look=look,
        begin=begin,
    )
    return TaskJob(name, master, registry, membership)


def join_job(job: TaskJob, flags: Values, offer: Sequence[str]) -> int:
    """Wait until the master accepts this trainer, offer it the file list, and return the number of the current pass.

    Raises: PeerUnreachableError: no master has answered within --wait.
        ConfigError: the job has a different file list or config.  JobOverError: the job is over.
    """
    master = job.master
    glog.info(f"joining job '{job.name}' as {master.member}")
    number = master.number
    glog.identify(number)
    first_pass = master.set_dataset(offer)
    glog.info(f"this is trainer {number} of job '{job.name}', which is in pass {first_pass} of {master.num_passes}")
    if "num_passes" in flags.given and flags.num_passes != master.num_passes:
        glog.warning(f"--num_passes={flags.num_passes} has no effect: the master's job has {master.num_passes} passes")
    return first_pass


def check_entries(entries: Sequence[str], list_name: str) -> None:
    """Check that the list has entries, and that each entry can be a part of a task.

    Raises: DataError: the list is empty, or an entry is blank.
    """
    if not entries:
        raise DataError(f"the list of training data {list_name} is empty; name at least one file in it")
    blank = next((line for line, entry in enumerate(entries, 1) if not entry.strip()), None)
    if blank is not None:
        raise DataError(f"line {blank} of the list of training data {list_name} is blank; a task needs a name")


def digest_config(config: TrainerConfig, *, is_own: bool) -> str:
    """Return the SHA-256, in hexadecimal, of the settings that must be equal in all trainers of a job.

    These settings are the network, the settings of the optimiser, and the provider of the training data with its
    arguments. The name of the list file may differ. The content of the list has its own digest.
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
    """Yield texts that describe a value. Equal values have equal texts in every process.

    A value that is neither plain nor a container is described only by its type. A pickle is not used, because pickles
    of equal values may differ: the order of a set depends on the process, and the pickle of an object may contain a
    memory address.
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
