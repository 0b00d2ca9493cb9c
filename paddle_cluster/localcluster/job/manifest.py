"""Parse the YAML of a Job into a `JobSpec`, and reject what the Kubernetes API server rejects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from paddle_cluster.localcluster.errors import ManifestError

Object = Mapping[str, Any]

# exceptions of PyYAML for a value that does not fit its tag, for example `!!int ""`, and for too many nested lists
_WRONG_VALUE = (ValueError, LookupError, ArithmeticError, AttributeError, RecursionError)
HIDDEN = "(not shown)"
ACTIONS = ("FailJob", "FailIndex", "Ignore", "Count")  # of a rule of podFailurePolicy


def is_hidden(name: str) -> bool:
    """Return whether the value of a variable is printed nowhere, because its name says that it is a secret."""
    return re.search("SECRET|TOKEN|PASSWORD|KEY", name.upper()) is not None


@dataclass(frozen=True)
class Rule:
    """One rule of a podFailurePolicy: it tests the exit code (operator and values), or the pod's conditions."""

    action: str
    operator: str = ""
    values: frozenset[int] = frozenset()
    container: str = ""
    conditions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class EnvVar:
    """One entry of `env`: a text (`value`), or a valueFrom (`source`), which is resolved for each pod."""

    name: str
    value: str = ""
    source: Object | None = None


@dataclass(frozen=True)
class VolumeMount:
    """One entry of `volumeMounts`."""

    volume: str
    path: str
    sub_path: str = ""


@dataclass(frozen=True)
class Volume:
    """One entry of `volumes`; this package creates empty directories, and the user supplies all other volumes.

    is_optional: whether the volume is an optional Secret or ConfigMap, which becomes an empty directory here.
    secret: the name of the Secret.
    """

    name: str
    kind: str
    claim: str = ""
    is_optional: bool = False
    secret: str = ""

    @property
    def is_empty_dir(self) -> bool:
        """Whether each pod gets its own new directory."""
        return self.kind == "emptyDir" or self.is_optional


@dataclass(frozen=True)
class Container:
    """A container of the pod: the only one, or one that runs to its end before it."""

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    mounts: tuple[VolumeMount, ...] = ()
    resources: Object = field(default_factory=dict)


@dataclass(frozen=True)
class JobSpec:
    """The parts of a Job that this package implements; the API server has the same defaults."""

    name: str
    container: Container
    init_containers: tuple[Container, ...] = ()
    namespace: str = "default"
    parallelism: int = 1
    completions: int | None = 1
    indexed: bool = False
    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    rules: tuple[Rule, ...] = ()
    replace_terminating: bool = True
    active_deadline_seconds: float | None = None
    grace_seconds: float = 30.0
    volumes: tuple[Volume, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    service_account: str = "default"
    mounts_token: bool = True

    @property
    def containers(self) -> tuple[Container, ...]:
        """All containers, in the order in which they run."""
        return (*self.init_containers, self.container)


class _StrictLoader(yaml.SafeLoader):
    """Refuses an object that has the same key twice, as kubectl does; PyYAML silently uses the last value."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Raise ManifestError if an object has the same key twice."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        keys: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in keys:
                raise ManifestError(f"line {key.start_mark.line + 1}: this object has the key {key.value!r} twice")
            keys.add(key.value)
        return node


def parse_job(text: str, name: str | None = None) -> JobSpec:
    """Return the Job of a manifest of one or more documents.

    Args: name: the Job's name, if the manifest has several Jobs.
    Raises: ManifestError: if the text is not YAML, if it has no Job with this name, if it has several Jobs and no name
    is given, or if the Job cannot run here.
    """
    try:
        documents = [document for document in yaml.load_all(text, _StrictLoader) if document is not None]
    except yaml.YAMLError as error:
        raise ManifestError(f"not YAML: {_describe(error)}") from error
    except _WRONG_VALUE as error:
        what = _without_texts(str(error))
        raise ManifestError(f"a value is too large, nested too deeply, or does not fit its type ({what})") from error
    try:
        return _choose_job(documents, name)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:  # a list in place of an object
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ManifestError(
            f"the Job does not have the structure of a Job ({what}): kubectl create --dry-run=server shows the place"
        ) from error


def _describe(error: yaml.YAMLError) -> str:
    """Return what is wrong and where, without the lines of the manifest, which may have a secret."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    parts = []
    for text, mark in ((error.context, error.context_mark), (error.problem, error.problem_mark)):
        where = [f"line {mark.line + 1}, column {mark.column + 1}"] if mark else []
        parts += [" in ".join([*([_without_texts(text)] if text else []), *where])] if text or where else []
    return ", ".join(parts)


def _without_texts(text: str) -> str:
    """Return a message of PyYAML or Python without quoted parts of the manifest, but with characters and <tokens>."""
    return re.sub(r"""(["'])(?!<)(?:(?!\1).){2,}\1""", HIDDEN, " ".join(text.split()))


def _choose_job(documents: Sequence[Any], name: str | None) -> JobSpec:
    objects = [each for document in documents for each in _objects(document)]
    jobs = [each for each in objects if each.get("kind") == "Job"]
    if not jobs:
        kinds = ", ".join(str(each.get("kind")) for each in objects)
        raise ManifestError(f"no object of kind Job in the manifest (found: {kinds or 'nothing'})")
    names = [str(_mapping(job, "metadata", "Job").get("name")) for job in jobs]
    if name is None and len(jobs) > 1:
        raise ManifestError(f"{len(jobs)} Jobs in the manifest ({', '.join(names)}): choose one with --job")
    if name is not None and name not in names:
        raise ManifestError(f"no Job {name!r} in the manifest (found: {', '.join(names)})")
    return _job(jobs[0 if name is None else names.index(name)])


def _objects(document: Any) -> Iterator[Object]:
    if not isinstance(document, dict):
        raise ManifestError(f"a document is a {type(document).__name__}, expected an object")
    if document.get("kind") == "List":
        for item in document.get("items") or []:
            yield from _objects(item)
    else:
        yield document


def _job(document: Object) -> JobSpec:
    if document.get("apiVersion") != "batch/v1":
        raise ManifestError(f"apiVersion is {document.get('apiVersion')!r}, expected batch/v1")
    metadata = _mapping(document, "metadata", "Job")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise ManifestError("metadata.name is missing: the pods are selected by this name")
    if not re.fullmatch(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?", name):
        raise ManifestError(f"metadata.name is {name!r}: expected at most 63 lower case letters, digits, '-' and '.'")
    spec = _mapping(document, "spec", "Job")
    template = _mapping(spec, "template", "spec")
    template_metadata = template.get("metadata") or {}
    pod = _mapping(template, "spec", "spec.template")
    _refuse(spec, pod)
    volumes = tuple(_volume(entry) for entry in pod.get("volumes") or [])
    parallelism, completions = _counts(spec)
    rules = parse_rules(spec.get("podFailurePolicy"), per_index=spec.get("backoffLimitPerIndex") is not None)
    return JobSpec(
        name=name,
        container=_only_container(pod, volumes),
        init_containers=tuple(_container(entry, volumes) for entry in pod.get("initContainers") or []),
        namespace=metadata.get("namespace") or "default",
        parallelism=parallelism,
        completions=completions,
        indexed=_is_indexed(spec, completions),
        backoff_limit=_integer(spec, "backoffLimit", 6),
        backoff_limit_per_index=_optional_integer(spec, "backoffLimitPerIndex"),
        max_failed_indexes=_optional_integer(spec, "maxFailedIndexes"),
        rules=rules,
        replace_terminating=_replaces_terminating(spec, bool(rules)),
        active_deadline_seconds=_optional_integer(spec, "activeDeadlineSeconds"),
        grace_seconds=float(_integer(pod, "terminationGracePeriodSeconds", 30)),
        volumes=volumes,
        labels={str(key): str(value) for key, value in (template_metadata.get("labels") or {}).items()},
        annotations={str(key): str(value) for key, value in (template_metadata.get("annotations") or {}).items()},
        service_account=pod.get("serviceAccountName") or "default",
        mounts_token=pod.get("automountServiceAccountToken") is not False,
    )


def _refuse(spec: Object, pod: Object) -> None:
    """Reject properties that this machine does not support, instead of ignoring them."""
    policy = pod.get("restartPolicy")
    if policy != "Never":
        raise ManifestError(f"spec.template.spec.restartPolicy is {policy!r}: only Never is supported here")
    if any(entry.get("restartPolicy") for entry in pod.get("initContainers") or []):
        raise ManifestError("spec.template.spec.initContainers: one with a restartPolicy is not supported here")
    if spec.get("suspend"):
        raise ManifestError("spec.suspend is true: the Job would never start a pod")


def _counts(spec: Object) -> tuple[int, int | None]:
    parallelism = _optional_integer(spec, "parallelism")
    completions = _optional_integer(spec, "completions")
    if parallelism is None and completions is None:
        return 1, 1
    return (1 if parallelism is None else parallelism), completions


def _is_indexed(spec: Object, completions: int | None) -> bool:
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in ("Indexed", "NonIndexed"):
        raise ManifestError(f"spec.completionMode is {mode!r}, expected Indexed or NonIndexed")
    if mode == "Indexed" and completions is None:
        raise ManifestError("spec.completions is missing: an Indexed Job needs it")
    return bool(mode == "Indexed")


def _replaces_terminating(spec: Object, has_rules: bool) -> bool:
    policy = spec.get("podReplacementPolicy", "Failed" if has_rules else "TerminatingOrFailed")
    if policy not in ("Failed", "TerminatingOrFailed"):
        raise ManifestError(f"spec.podReplacementPolicy is {policy!r}, expected Failed or TerminatingOrFailed")
    if has_rules and policy != "Failed":
        raise ManifestError("spec.podReplacementPolicy must be Failed if there is a podFailurePolicy")
    return bool(policy == "TerminatingOrFailed")


def _only_container(pod: Object, volumes: tuple[Volume, ...]) -> Container:
    containers = pod.get("containers")
    if not isinstance(containers, list) or len(containers) != 1:
        count = len(containers) if isinstance(containers, list) else 0
        raise ManifestError(f"spec.template.spec.containers has {count} entries: a pod runs one container here")
    return _container(containers[0], volumes)


def _container(entry: Object, volumes: tuple[Volume, ...]) -> Container:
    known = {volume.name for volume in volumes}
    mounts = tuple(
        VolumeMount(str(mount["name"]), str(mount["mountPath"]).rstrip("/") or "/", str(mount.get("subPath") or ""))
        for mount in entry.get("volumeMounts") or []
    )
    for mount in mounts:
        if mount.volume not in known:
            raise ManifestError(
                f"volumeMounts: {mount.volume!r} is not a volume of the pod ({', '.join(sorted(known))})"
            )
        if mount.sub_path.startswith("/") or ".." in mount.sub_path.split("/"):
            raise ManifestError(f"volumeMounts: the subPath {mount.sub_path!r} leads out of the volume")
    if entry.get("envFrom"):
        raise ManifestError("envFrom: there are no ConfigMaps and Secrets here; give the values with --env")
    return Container(
        name=str(entry.get("name") or "container"),
        image=str(entry.get("image") or ""),
        command=_strings(entry, "command"),
        args=_strings(entry, "args"),
        working_dir=str(entry.get("workingDir") or ""),
        env=tuple(_env_var(item) for item in entry.get("env") or []),
        mounts=mounts,
        resources=entry.get("resources") or {},
    )


def _env_var(item: Object) -> EnvVar:
    name = str(item.get("name") or "")
    value = item.get("value")
    if value is not None and not isinstance(value, str):
        what = HIDDEN if not name or is_hidden(name) else repr(value)
        raise ManifestError(f"env {name}: the value {what} is not a text; the API server requires quotes")
    if not re.fullmatch(r"[^=\0]+", name) or "\0" in (value or ""):
        begin, equals, _ = name.partition("=")
        what = repr(f"{begin}={HIDDEN}" if equals and is_hidden(begin) else name)
        raise ManifestError(f"env {what}: this is no name for a variable, or the value contains a NUL")
    source = item.get("valueFrom")
    if source is not None and not (
        isinstance(source, dict) and all(isinstance(each, dict) for each in source.values())
    ):
        what = HIDDEN if is_hidden(name) else repr(source)
        raise ManifestError(f"env {name}: valueFrom is {what}, expected an object such as fieldRef")
    return EnvVar(name, value or "", source)


def _volume(entry: Object) -> Volume:
    kinds = [key for key in entry if key != "name"]
    claim = (entry.get("persistentVolumeClaim") or {}).get("claimName") or ""
    kind = kinds[0] if kinds else "emptyDir"
    is_optional = kind in ("secret", "configMap") and bool((entry[kind] or {}).get("optional"))
    secret = str((entry.get("secret") or {}).get("secretName") or "")
    return Volume(str(entry["name"]), kind, str(claim), is_optional, secret)


def _mapping(parent: Object, key: str, where: str) -> Object:
    value = parent.get(key)
    if not isinstance(value, dict):
        raise ManifestError(f"{where}.{key} is missing, or is not an object")
    return value


def _strings(entry: Object, key: str) -> tuple[str, ...]:
    values = entry.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        kinds = [type(value).__name__ for value in values] if isinstance(values, list) else type(values).__name__
        raise ManifestError(f"{key} is {kinds}: a list of texts is needed (quote numbers)")
    return tuple(values)


def _optional_integer(parent: Object, key: str) -> int | None:
    value = parent.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise ManifestError(f"{key} is {value!r}: a number of 0 or more, below 2**31, is needed")
    return value


def _integer(parent: Object, key: str, default: int) -> int:
    value = _optional_integer(parent, key)
    return default if value is None else value


def parse_rules(policy: Any, per_index: bool) -> tuple[Rule, ...]:
    """Return the rules of a `podFailurePolicy` object.

    Raises: ManifestError: if an action or operator is unknown, if exit codes are not ascending or occur twice, or if
    the operator In has the value 0.
    """
    rules = []
    for number, entry in enumerate((policy or {}).get("rules") or []):
        where = f"podFailurePolicy.rules[{number}]"
        action = entry.get("action")
        if action not in ACTIONS:
            raise ManifestError(f"{where}.action is {action!r}: expected one of {', '.join(ACTIONS)}")
        if action == "FailIndex" and not per_index:
            raise ManifestError(f"{where}.action FailIndex needs backoffLimitPerIndex")
        codes, conditions = entry.get("onExitCodes"), entry.get("onPodConditions")
        if bool(codes) == bool(conditions):
            raise ManifestError(f"{where} needs either onExitCodes or onPodConditions")
        if codes:
            rules.append(_exit_code_rule(action, codes, where))
        else:
            pairs = tuple((str(item.get("type")), str(item.get("status", "True"))) for item in conditions)
            rules.append(Rule(action, conditions=pairs))
    return tuple(rules)


def _exit_code_rule(action: str, codes: Mapping[str, Any], where: str) -> Rule:
    operator, values = codes.get("operator"), codes.get("values") or []
    if operator not in ("In", "NotIn"):
        raise ManifestError(f"{where}.onExitCodes.operator is {operator!r}, expected In or NotIn")
    if not values or not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        raise ManifestError(f"{where}.onExitCodes.values is {values!r}: a list of numbers is needed")
    if list(values) != sorted(set(values)):
        raise ManifestError(f"{where}.onExitCodes.values must be ascending, without repetitions: {sorted(set(values))}")
    if operator == "In" and 0 in values:
        raise ManifestError(f"{where}.onExitCodes.values must not contain 0 if the operator is In")
    return Rule(action, operator, frozenset(values), str(codes.get("containerName") or ""))
