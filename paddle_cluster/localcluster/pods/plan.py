"""Pure functions that compute a pod's command line and environment from the Job's container and the pod's identity."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from paddle_base.runtime.kubernetes.text import parse_quantity
from paddle_cluster.localcluster.errors import ManifestError, OptionError
from paddle_cluster.localcluster.job.manifest import HIDDEN, EnvVar, JobSpec, Volume, VolumeMount, is_hidden
from paddle_cluster.localcluster.pods.paths import PathMap, Replacement
from paddle_cluster.localcluster.pods.scripts import FOLDER, LAUNCHER, START_SCRIPT, name_scripts

TOKEN_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"
JOB_SECRET = "paddle-secret"  # the Secret of our manifests; here each run makes it itself (docs/security.md)
SHORTEST_SECRET = 8  # minimum characters of a text that is hidden inside other texts
WORK_DIRECTORIES = ("/work", "/root")  # the image's default of WORK_DIR, and the tutorial's value


@dataclass(frozen=True)
class Host:
    """The properties of this machine for the pods of a Job; all paths are absolute.

    Args:
        directories: volume name -> directory, for the volumes that the user supplies.
        secret_directory: one of these directories, whose secret this run has made.
        entrypoint: a file that replaces the image's /root/start.sh.
        launcher: a file that replaces the image's /root/start_paddle.py.
        inherited: variables that the image would set.
        api_host, api_port: the address of the API server.
        extra_env: variables given by --env, which override all others.
        has_tini: whether the program tini is on PATH.
    """

    directories: Mapping[str, str]
    entrypoint: str | None
    launcher: str | None
    inherited: Mapping[str, str]
    api_host: str
    api_port: int
    extra_env: Mapping[str, str] = field(default_factory=dict)
    has_tini: bool = False
    secret_directory: str = ""


@dataclass(frozen=True)
class PodIdentity:
    """The identity of a pod. root: the pod's directory. token_directory: the files of the pod's service account."""

    name: str
    uid: str
    ip: str
    index: int | None
    root: str
    token_directory: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PodPlan:
    """A program to start: directories to create first, its working directory, command line and environment."""

    directories: tuple[str, ...]
    working_directory: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    replacements: tuple[Replacement, ...]


# ----- volumes -----


def match_volumes(job: JobSpec, given: Mapping[str, str]) -> dict[str, str]:
    """Return volume name -> directory for all volumes except emptyDirs.

    Args: given: volume name or claim name -> directory.

    Raises: OptionError: if a given name is no volume of the pod, or a mounted volume has no directory.
    """
    found: dict[str, str] = {}
    names = {volume.name for volume in job.volumes} | {volume.claim for volume in job.volumes if volume.claim}
    for name in given:
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise OptionError(f"--volume {name}: the pods have no such volume or claim (they have: {known})")
    mounted = {mount.volume for container in job.containers for mount in container.mounts}
    for volume in job.volumes:
        directory = given.get(volume.name, given.get(volume.claim) if volume.claim else None)
        if directory is not None:
            found[volume.name] = directory
        elif not volume.is_empty_dir and volume.name in mounted and volume.secret != JOB_SECRET:
            raise OptionError(f"{_describe(volume)} needs a directory: --volume {volume.name}=DIR")
    return found


def volumes_to_read(job: JobSpec) -> set[str]:
    """Return the volumes from which the pods read the directory JOB_PATH/JOB_NAME, which another Job has made.

    A Job that makes the directory itself does not have both variables in its own container, or it has no JOB_PATH
    on a volume.
    """
    values = {variable.name: variable.value for variable in job.container.env}
    path = values.get("JOB_PATH") if values.get("JOB_NAME") else None
    return {mount.volume for mount in job.container.mounts if path and f"{mount.path}/".startswith(f"{path}/")}


def job_directories(job: JobSpec, directories: Mapping[str, str], env: Mapping[str, str]) -> list[str]:
    """Return the directories JOB_PATH/JOB_NAME on this machine, of a Job that reads such a directory.

    Args: directories: volume -> directory.  env: variables that override those of the manifest.
    """
    names = {variable.name: variable.value for variable in job.container.env} | dict(env)
    return [f"{directories[each]}/{names['JOB_NAME']}" for each in sorted(volumes_to_read(job)) if each in directories]


def _describe(volume: Volume) -> str:
    return f"volume {volume.name} (claim {volume.claim})" if volume.claim else f"volume {volume.name} ({volume.kind})"


def _mount_path(mount: VolumeMount, host: Host, identity: PodIdentity) -> tuple[str, str]:
    """Return a path in the pod and the directory that it stands for.

    A directory of the volume that is mounted under its own name stands for the whole volume, so that the paths beside
    it, such as a JOB_PATH, have a meaning here too: no pod is kept from the other directories.
    """
    base = host.directories.get(mount.volume, f"{identity.root}/{mount.volume}")
    if mount.sub_path and mount.path.endswith(f"/{mount.sub_path}"):
        return mount.path.removesuffix(f"/{mount.sub_path}"), base
    return mount.path, f"{base}/{mount.sub_path}" if mount.sub_path else base


def _work_directory(job: JobSpec, mounts: Mapping[str, str], identity: PodIdentity) -> str:
    for path in WORK_DIRECTORIES:
        if path in mounts:
            return mounts[path]
    return f"{identity.root}/work"


# ----- environment -----


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace $(NAME) in a text as Kubernetes does: unknown names stay, and $$(NAME) is a literal $(NAME)."""

    def value(match: re.Match[str]) -> str:
        if match.group(1):
            return match.group()[1:]
        return env.get(match.group(2), match.group())

    return re.sub(r"(\$?)\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)", value, text)


def _field_value(path: str, name: str, job: JobSpec, identity: PodIdentity) -> str:
    subscript = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if subscript:
        return (identity.labels if subscript[1] == "labels" else identity.annotations).get(subscript[2], "")
    values: dict[str, str] = {
        "metadata.name": identity.name,
        "metadata.namespace": job.namespace,
        "metadata.uid": identity.uid,
        "spec.nodeName": "localhost",
        "spec.serviceAccountName": job.service_account,
        "status.hostIP": identity.ip,
        "status.podIP": identity.ip,
        "status.podIPs": identity.ip,
    }
    if path not in values:
        raise ManifestError(f"env {name}: fieldRef {path!r} is unknown")
    return values[path]


def _resource_value(reference: Mapping[str, Any], resources: Mapping[str, Any], name: str) -> str:
    """Return the value of a `resourceFieldRef`: the resource divided by the divisor, rounded up.

    Raises: ManifestError: if the container does not state this resource (a cluster would use the node's value).
    """
    field = str(reference.get("resource", ""))
    kind, _, resource = field.partition(".")
    stated = (resources.get(kind) or {}).get(resource)
    if stated is None:
        raise ManifestError(f"env {name}: the container states no {field}")
    try:
        divisor = parse_quantity(str(reference.get("divisor") or "1")) or 1
        return str(math.ceil(parse_quantity(str(stated)) / divisor))
    except ValueError as error:
        raise ManifestError(f"env {name}: {error}") from error


def _reference(variable: EnvVar, job: JobSpec, identity: PodIdentity) -> str | None:
    """Return the value of a valueFrom, or None for an optional key of a ConfigMap or Secret (there are none here)."""
    source = variable.source or {}
    if "fieldRef" in source:
        return _field_value(str(source["fieldRef"].get("fieldPath")), variable.name, job, identity)
    if "resourceFieldRef" in source:
        return _resource_value(source["resourceFieldRef"], job.container.resources, variable.name)
    for kind in ("secretKeyRef", "configMapKeyRef"):
        if kind in source:
            if source[kind].get("optional"):
                return None
            name = variable.name
            raise OptionError(
                f"env {name} comes from a {kind[:-6]}, which this machine lacks: give it by --env {name}=VALUE"
            )
    raise ManifestError(f"env {variable.name}: valueFrom {', '.join(source) or 'nothing'} is unknown")


def _build_env(job: JobSpec, host: Host, identity: PodIdentity, mapped: Callable[[str], str]) -> dict[str, str]:
    env = dict(host.inherited)
    if host.has_tini:
        env["TINI_SUBREAPER"] = "1"  # prevents a warning of tini, which is not process 1 here
    env["HOSTNAME"] = identity.name if identity.index is None else f"{job.name}-{identity.index}"
    env["KUBERNETES_SERVICE_HOST"] = host.api_host
    env["KUBERNETES_SERVICE_PORT"] = env["KUBERNETES_SERVICE_PORT_HTTPS"] = str(host.api_port)
    if identity.index is not None:
        env["JOB_COMPLETION_INDEX"] = str(identity.index)
    for variable in job.container.env:
        if variable.name in host.extra_env:
            value: str | None = host.extra_env[variable.name]
        elif variable.source:
            value = _reference(variable, job, identity)
        else:
            # replace paths before `expand`, because `expand` inserts values in which the paths are already replaced
            value = expand(mapped(variable.value), env)
        if value is not None:
            env[variable.name] = value
    return env


# ----- command -----


def build_argv(job: JobSpec, host: Host, env: Mapping[str, str], paths: PathMap) -> list[str]:
    """Return the command line (`command` or the image's entrypoint, then `args`), without tini if tini is missing here.

    Raises: OptionError: if the image's entrypoint is needed and was not found.
    """
    command = list(job.container.command)
    if not command:
        if host.entrypoint is None:
            raise OptionError("the container has no command, and no start.sh was found: name it with --entrypoint FILE")
        command = ["tini", "--", START_SCRIPT]
    command += job.container.args
    if command[:2] == ["tini", "--"] and not host.has_tini:
        command = command[2:]
    has_folder = any(mount.path == FOLDER for mount in job.container.mounts)
    command = name_scripts(command, job.container.working_dir, has_folder)
    if "/" in command[0] and not command[0].startswith("/"):
        command[0] = f"/{command[0]}"  # the image's working directory is /
    return [expand(word, env) for word in paths.replace_command(command)]


# ----- the complete plan -----


def plan_pod(job: JobSpec, host: Host, identity: PodIdentity) -> PodPlan:
    """Return the program to start for a pod's container, and all replacements of paths and variables.

    Raises: OptionError, ManifestError: if a value is not available here.
    """
    mounts = dict(_mount_path(mount, host, identity) for mount in job.container.mounts)
    work = _work_directory(job, mounts, identity)
    scripts = {START_SCRIPT: host.entrypoint, LAUNCHER: host.launcher}
    found = {path: to for path, to in scripts.items() if to is not None}
    paths = PathMap({TOKEN_DIRECTORY: identity.token_directory, **mounts, **found})
    extra_env = {name: paths.replace(value) for name, value in host.extra_env.items()}
    env = _build_env(job, replace(host, extra_env=extra_env), identity, paths.replace)
    argv = build_argv(job, host, env, paths)
    ours = {"WORK_DIR": work, "SERVICE_ACCOUNT_DIR": identity.token_directory, "POD_IP": identity.ip}
    # the trainer's default, eth0, is not the interface with the pod's address here
    if "CONF_PADDLE_NIC" in env or "JOB_NAME" in env:
        ours["CONF_PADDLE_NIC"] = identity.ip
    if "/tmp" in mounts:
        ours["TMPDIR"] = mounts["/tmp"]
    told = _tell(job, paths, mounts, scripts, host, env, ours)
    env = {**env, **ours, **extra_env}
    cwd = job.container.working_dir
    is_of_image = cwd in ("", "/") or (cwd.rstrip("/") == FOLDER and FOLDER not in mounts)
    working_directory = f"{identity.root}/cwd" if is_of_image else paths.replace(cwd)
    made = (working_directory, work, *mounts.values())
    return PodPlan(tuple(dict.fromkeys(made)), working_directory, tuple(argv), env, told)


def _tell(
    job: JobSpec,
    paths: PathMap,
    mounts: Mapping[str, str],
    scripts: Mapping[str, str | None],
    host: Host,
    env: Mapping[str, str],
    ours: Mapping[str, str],
) -> tuple[Replacement, ...]:
    """Return the replacements, in which placeholders replace secrets, and the values that differ between the pods."""
    own = "<the pod's own directory>"
    account = "<token, CA and namespace>" if job.mounts_token else "<empty: no account is mounted>"
    shared = set(host.directories.values())
    special = {"SERVICE_ACCOUNT_DIR": account, "POD_IP": "<the pod's address>"}
    special["CONF_PADDLE_NIC"] = special["POD_IP"]

    def shown(path: str) -> str:
        if path == host.secret_directory:
            return "<a secret that this run has made>"
        return path if any(path == each or path.startswith(f"{each}/") for each in shared) else own

    told = [Replacement("mount", path, shown(target)) for path, target in sorted(mounts.items())]
    stated = {variable.name: variable.value or "(reference)" for variable in job.container.env}
    secrets = {value for name, value in {**env, **host.extra_env}.items() if is_hidden(name)}
    for variable in job.container.env:
        was_mapped = variable.name not in host.extra_env and paths.replace(variable.value) != variable.value
        # what `ours` replaces is told below, with a placeholder, because it differs between the pods
        if was_mapped and env[variable.name] == ours.get(variable.name, env[variable.name]):
            if is_hidden(variable.name):
                told.append(Replacement("env", variable.name, "(replaced, not shown)"))
            else:
                told.append(Replacement("env", f"{variable.name}={variable.value}", shown(env[variable.name])))
    told += [Replacement("script", path, to) for path, to in scripts.items() if to is not None and path in paths.met]
    changed = [(name, value) for name, value in ours.items() if env.get(name) != value]
    told += [
        Replacement("env", f"{name}={stated[name]}" if name in stated else name, special.get(name) or shown(value))
        for name, value in changed
    ]
    for name, value in host.extra_env.items():
        if is_hidden(name):
            told.append(Replacement("env", name, "(given, not shown)"))
        else:
            told.append(Replacement("env", f"{name}={stated.get(name, '(unset)')}", value))
            if paths.replace(value) != value:
                told.append(Replacement("env", f"{name}={value}", shown(paths.replace(value))))
    return tuple(_hide(each, secrets) for each in told)


def _hide(told: Replacement, secrets: Set[str]) -> Replacement:
    """Return a replacement without secrets that another variable contains, for example by $(NAME).

    A short text or a path is left, because it also occurs where it is no secret.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET and not secret.startswith("/"):
            told = Replacement(told.what, told.before.replace(secret, HIDDEN), told.after.replace(secret, HIDDEN))
    return told
