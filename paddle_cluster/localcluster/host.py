"""Provide what a Job needs from this machine: the manifest's file, the entrypoint, directories, and variables."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path

from paddle_base.runtime.environment import find_misspelt
from paddle_cluster.localcluster.errors import ManifestError, MissingError, OptionError
from paddle_cluster.localcluster.job.manifest import Container, JobSpec, parse_job
from paddle_cluster.localcluster.pods.plan import JOB_SECRET, Host, PodIdentity, PodPlan, plan_pod
from paddle_cluster.localcluster.pods.scripts import FOLDER, LAUNCHER, START_SCRIPT, find_scripts

PROJECT = Path(__file__).resolve().parents[2]
INHERITED = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ")
TRAINERS = "CONF_PADDLE_GRADIENT_NUM"  # the number of pods for which the launcher of each pod waits
MOST_MANIFEST_BYTES = 16 << 20  # the API server accepts at most 3 MiB for one object


def load_job(path: str | Path, name: str | None = None) -> JobSpec:
    """Return the Job of a manifest file (`-`: standard input).

    Args: name: the Job's name, if the file has several Jobs.
    Raises: MissingError: if the file cannot be read. ManifestError: if the file is too large or not UTF-8, and see
    `parse_job`.
    """
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(MOST_MANIFEST_BYTES + 1)
        else:
            with Path(path).open("rb") as file:  # may also be a pipe: <(kustomize build)
                data = file.read(MOST_MANIFEST_BYTES + 1)
    except OSError as error:
        raise MissingError(f"cannot be read: {error.strerror or error}") from error
    if len(data) > MOST_MANIFEST_BYTES:
        raise ManifestError(f"more than {MOST_MANIFEST_BYTES >> 20} MiB: this is no manifest; give the YAML of a Job")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(f"byte {error.start} is not UTF-8: save it as UTF-8") from error
    return parse_job(text, name)


def find_entrypoint(manifest: str | Path) -> Path | None:
    """Return the entrypoint start.sh, or None if there is none.

    The function looks in the parent of the manifest's directory, in the manifest's directory, in the current
    directory, and in the project that this package belongs to; an installed package has no start.sh.
    """
    folder = Path(manifest).resolve().parent
    candidates = [each / "start.sh" for each in (folder.parent, folder, Path.cwd(), PROJECT)]
    return next((each for each in candidates if os.path.isfile(each)), None)  # noqa: PTH113 - it never fails


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
        try:
            is_file = stat.S_ISREG(script.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            is_file = False
        except OSError as error:
            raise MissingError(f"--entrypoint {entrypoint}: {error.strerror}") from error
        if not is_file:
            raise MissingError(f"--entrypoint {entrypoint}: no such file")
        if not os.access(script, os.X_OK):
            raise OptionError(f"--entrypoint {entrypoint}: not executable (chmod +x)")
        # as in the image, where both scripts lie in one directory
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


def check_variables(env: Mapping[str, str], job: JobSpec, entrypoint: str | None) -> None:
    """Check that no given variable looks misspelt, and that the Job has the pods for which its launchers wait.

    Raises: OptionError: if a name resembles a variable of the manifest or of the entrypoint, or the pods are too few.
    """
    wanted, pods = env.get(TRAINERS, ""), min(job.parallelism, job.completions or job.parallelism)
    if wanted.isdecimal() and int(wanted[:9]) > pods:
        raise OptionError(
            f"--env {TRAINERS}={wanted}: the Job has {pods} pods, so its pods would wait for others without end; "
            "change parallelism, completions and the variable in the manifest, and SPLIT_COUNT of the data"
        )
    known = {variable.name for each in job.containers for variable in each.env}
    if entrypoint is not None:
        with contextlib.suppress(OSError, UnicodeDecodeError):  # make_host refuses what cannot be read
            known.update(re.findall(r"\b[A-Z][A-Z0-9_]+\b", Path(entrypoint).read_text(encoding="utf-8")))
    for name, close in find_misspelt(env, known).items():
        if sorted(name) == sorted(close) or _differ_in_a_letter(name, close):
            raise OptionError(f"--env {name}: did you mean {close}? A variable of your own belongs in the manifest")


def _differ_in_a_letter(one: str, other: str) -> bool:
    """Return whether two names differ in one letter: names of different variables often have the same beginning."""
    changes = difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return sum(max(a - b, c - d) for kind, b, a, d, c in changes if kind != "equal") <= 1


def make_directories(volumes: Mapping[str, str], read: Set[str] = frozenset()) -> dict[str, str]:
    """Return the volumes' directories as absolute paths without links and `..`; missing directories are created.

    Args: read: names of the volumes that must exist, because the Job reads its own directory there.
    Raises: OptionError: if a path is not a directory, cannot be created, or must exist.
    """
    found = {}
    for name, directory in volumes.items():
        path = resolve(directory)
        if name in read and not os.path.exists(path):  # noqa: PTH110 - it never fails
            hint = _suggest(path)
            raise OptionError(
                f"--volume {name}={directory}: no such directory{hint}; the Job reads its own directory there, which "
                "the data Job makes"
            )
        if os.path.exists(path) and not os.path.isdir(path):  # noqa: PTH110, PTH112 - they never fail
            raise OptionError(f"--volume {name}={directory}: this is no directory; name the directory of the volume")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"--volume {name}={directory}: {error.strerror}") from error
        found[name] = str(path)
    return found


def plan_trial(job: JobSpec, host: Host, identity: PodIdentity) -> PodPlan:
    """Plan all containers of a pod before any pod starts, and return the plan of the pod's own container.

    Raises: OptionError, ManifestError: if a value or a script is not available here.
    """
    check_variables(host.extra_env, job, host.entrypoint)
    for each in job.containers:  # the last is the pod's own
        plan = plan_pod(replace(job, container=each), host, identity)
        check_scripts(plan, each)
    return plan


def check_scripts(plan: PodPlan, container: Container) -> None:
    """Check that the image's scripts, as a container names them, are files of this machine.

    A path on a volume is not checked, because an earlier container or command may make the file.

    Raises: OptionError: if such a script is nowhere.
    """
    scripts = (START_SCRIPT, LAUNCHER)
    values = [plan.env.get(variable.name, "") for variable in container.env]  # a shell may start `$SCRIPT`
    for path in (*find_scripts(plan.argv), *(value for value in values if value in scripts)):
        if path in scripts:
            raise OptionError(f"the container starts {path}, and no start.sh was found: name it with --entrypoint FILE")
        in_image = not path.startswith("/") and container.working_dir.rstrip("/") in ("", FOLDER)
        on_volume = any(path.startswith(f"{each}/") for each in plan.directories)
        if in_image or (path.startswith("/") and not on_volume and not os.path.isfile(path)):  # noqa: PTH113
            raise OptionError(
                f"the container starts {path}, which is not here; the image has {START_SCRIPT}: name that"
            )


def _suggest(path: Path) -> str:
    """Return the directory beside a missing path whose name resembles the path's, as a question."""
    with contextlib.suppress(OSError):
        names = [each.name for each in path.parent.iterdir() if each.is_dir()]
        for close in difflib.get_close_matches(path.name, names, 1):
            return f"; did you mean {path.with_name(close)}?"
    return ""


def with_secret(host: Host, job: JobSpec, directory: Path) -> Host:
    """Return the host with a new secret for the pods that mount the Secret JOB_SECRET and got no directory for it."""
    names = [each.name for each in job.volumes if each.secret == JOB_SECRET and each.name not in host.directories]
    if not names:
        return host
    directory.mkdir(mode=0o700)
    (directory / "secret").write_text(f"{secrets.token_hex(32)}\n")
    directories = {**host.directories, **dict.fromkeys(names, str(directory))}
    return replace(host, directories=directories, secret_directory=str(directory))


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
