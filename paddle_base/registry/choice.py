"""Choose the registry (etcd or a directory) and the job's name from the flags of a program."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from paddle_base.registry.directory import DirectoryRegistry
from paddle_base.registry.interface import Registry
from paddle_base.runtime.errors import ConfigError, UsageError

DEFAULT_JOB = "job"
DIRECTORY = "registry"  # name of the registry's directory below the job's directory
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def open_registry(endpoints: Sequence[str], directory: Path | None, job: str, ttl: float = 5.0) -> Registry:
    """Return the registry of a job.

    Args: endpoints: addresses of the members of etcd; ignored if `directory` is given.  ttl: seconds after which the
        claims of a silent process expire.
    Raises: UsageError: an endpoint is malformed.  ConfigError: the library for etcd is not installed.
        PeerUnreachableError: etcd does not answer.
    """
    if directory is not None:
        return DirectoryRegistry(directory / job / DIRECTORY, ttl)
    registry = import_etcd("paddle_base.registry.etcd").EtcdRegistry(endpoints, job, ttl)
    registry.check()
    return cast(Registry, registry)


def import_etcd(module: str) -> Any:
    """Return a module of the etcd client.

    Raises: ConfigError: the library for etcd is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as exc:
        raise ConfigError(
            f"--etcd_endpoints needs the package etcd3gw ({exc}); install it with "
            "pip install 'paddle-on-kubernetes[etcd]', or use --store_dir"
        ) from exc


def name_job(flag: str, environment: str, name: str = "job") -> str:
    """Return the name of the job: the first of `flag`, `environment` and DEFAULT_JOB that is not empty.

    Args: flag, environment: values of the flag and of its environment variable.  name: the flag's name, for the error.

    Raises: UsageError: the name cannot be a part of a path or key.
    """
    job = flag or environment or DEFAULT_JOB
    if not _JOB.fullmatch(job):
        raise UsageError(
            f"--{name} is '{job}'; the name of a job has at most 200 letters, digits, '.', '_' and '-', and begins "
            "with a letter or digit"
        )
    return job
