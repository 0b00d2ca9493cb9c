"""Provide what a Job needs from this machine: the manifest's file, the entrypoint, directories, and variables."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from localcluster.errors import MissingError, OptionError
from localcluster.job.manifest import JobSpec, parse_job
from localcluster.pods.plan import Host

INHERITED = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ")


def load_job(path: str | Path, name: str | None = None) -> JobSpec:
    """Return the Job of a manifest file (`-`: standard input).

    Args: name: the Job's name, if the file has several Jobs.
    Raises: MissingError: if the file cannot be read. ManifestError: see `parse_job`.
    """
    try:
        text = sys.stdin.read() if str(path) == "-" else Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise MissingError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return parse_job(text, name)


def find_entrypoint(manifest: str | Path) -> Path | None:
    """Return the entrypoint start.sh, or None if there is none.

    The function looks in the parent of the manifest's directory, in the manifest's directory, and in the current
    directory.
    """
    folder = Path(manifest).resolve().parent
    candidates = (folder.parent / "start.sh", folder / "start.sh", Path.cwd() / "start.sh")
    return next((each for each in candidates if each.is_file()), None)


def inherited_env(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a pod gets from this machine; PATH begins with the directory of Python and `paddle`."""
    env = {name: environ[name] for name in INHERITED if name in environ}
    env.setdefault("LANG", "C.UTF-8")
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', os.defpath)}"
    env["PYTHONUNBUFFERED"] = "1"  # the image sets this variable, too
    return env


def make_host(
    directories: Mapping[str, str], entrypoint: str | Path | None, env: Mapping[str, str], api_host: str, api_port: int
) -> Host:
    """Return the properties of this machine for the pods of a Job.

    Raises: MissingError: if the entrypoint does not exist. OptionError: if the entrypoint is not executable.
    """
    script = launcher = None
    if entrypoint is not None:
        script = Path(entrypoint).absolute()
        if not script.is_file():
            raise MissingError(f"--entrypoint {entrypoint}: no such file")
        if not os.access(script, os.X_OK):
            raise OptionError(f"--entrypoint {entrypoint}: not executable (chmod +x)")
        launcher = script.with_name("start_paddle.py")
    inherited = inherited_env(os.environ)
    return Host(
        directories,
        str(script) if script else None,
        str(launcher) if launcher else None,
        inherited,
        api_host,
        api_port,
        dict(env),
        shutil.which("tini", path=inherited["PATH"]) is not None,
    )


def make_directories(volumes: Mapping[str, str]) -> dict[str, str]:
    """Return the volumes' directories as absolute paths without links and `..`; missing directories are created.

    Raises: OptionError: if a path is not a directory, or cannot be created.
    """
    found = {}
    for name, directory in volumes.items():
        path = resolve(directory)
        if path.exists() and not path.is_dir():
            raise OptionError(f"--volume {name}={directory}: this is no directory; name the directory of the volume")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"--volume {name}={directory}: {error.strerror}") from error
        found[name] = str(path)
    return found


def make_logs(logs: str | Path) -> Path:
    """Return the directory for the pods' outputs as an absolute path without links; it is created if it is missing.

    Raises: OptionError: if the directory cannot be created.
    """
    path = resolve(logs)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--logs {logs}: {error.strerror}") from error
    return path


def resolve(directory: str | Path) -> Path:
    """Return an absolute path without links and `..`; all spellings of a directory give the same path.

    A circular link stays in the path, and the first use of the path raises an error.
    """
    return Path(os.path.realpath(directory))
