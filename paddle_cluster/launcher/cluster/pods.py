"""Find the live pods in an answer of the API, their ids, and the missing pods. The module does no input or output."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import ipaddress
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.kubernetes.text import shorten
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import TABLE_ROWS, JsonObject, list_some, number_of, objects, part

# seconds that a pod may remain in the list after its deletion is due, because its kubelet may be late by seconds
OVERDUE_S = 30.0
ANSWERED = "answered"  # field of a list of pods: when the API server has answered, by its own clock (epoch seconds)
MEMORY_ADVICE = "raise resources.limits.memory in the Job, or choose smaller batches or a smaller pool_size"


def in_id_order(ids: Mapping[str, int]) -> list[str]:
    """Return the IPs in the order of trainer ids; this order also decides which pserver stores which parameters."""
    return sorted(ids, key=lambda ip: ids[ip])


@dataclasses.dataclass(frozen=True)
class PodStatus:
    """The fields of a Pod object that the launcher reads; absent fields are empty."""

    name: str
    uid: str
    ip: str
    phase: str
    terminating: bool
    index: int | None  # completion index of an Indexed Job
    controller_uid: str
    why: str  # reason and message of the condition that prevents the pod from running
    node: str = ""
    is_overdue: bool = False  # whether a terminating pod is still there OVERDUE_S after its deletion was due
    is_silent: bool = False  # whether the pod's node has stopped reporting; if so, it is unknown whether the pod runs

    @classmethod
    def parse(cls, item: JsonObject, now: float) -> PodStatus:
        """Read a Pod object of the API; fields may be missing.

        Args: now: epoch seconds, by the clock of the API server, which also sets the time of a deletion.
        Raises: ValueError: a field has a wrong type.
        """
        metadata, status, spec = (part(item, name, dict) for name in ("metadata", "status", "spec"))
        labels, notes = part(metadata, "labels", dict), part(metadata, "annotations", dict)
        key = "batch.kubernetes.io/job-completion-index"
        index = part(labels, key, str) or part(notes, key, str)
        owners = [part(owner, "uid", str) for owner in objects(metadata, "ownerReferences") if owner.get("controller")]
        controller = part(labels, "batch.kubernetes.io/controller-uid", str) or part(labels, "controller-uid", str)
        deleted = part(metadata, "deletionTimestamp", str)
        return cls(
            name=part(metadata, "name", str),
            uid=part(metadata, "uid", str),
            ip=parse_address(part(status, "podIP", str)),
            phase=part(status, "phase", str) or "Unknown",
            terminating=bool(deleted),
            index=parse_index(index),
            controller_uid=controller or (owners[0] if owners else ""),
            why=explain_status(status, spec),
            node=part(spec, "nodeName", str),
            is_overdue=now > parse_time(deleted) + OVERDUE_S,
            is_silent=has_silent_node(status),
        )

    @property
    def is_live(self) -> bool:
        """Whether the pod is Running, not terminating and reachable. Only live pods take part in an attempt."""
        return self.phase == "Running" and not self.terminating and bool(self.ip) and not self.is_silent

    @property
    def is_expected(self) -> bool:
        """Whether the pod is live or may become live."""
        return self.phase in ("Pending", "Running", "Unknown") and not self.terminating

    @property
    def state(self) -> str:
        """The pod's phase and its problem. If the pod's node does not report, the text also says what to do."""
        state = "Terminating" if self.terminating else self.phase
        if self.phase == "Running" and not self.ip:
            state += ", no IP yet"
        if self.terminating and (self.is_silent or self.is_overdue):
            return (
                f"{state}, but its node {self.node} does not report, so the pod stays and the Job does not replace it: "
                f"start the node again or, if it is off and stays off, run kubectl taint node {self.node} "
                "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
            )
        if self.is_silent:
            return f"{state}, but its node {self.node} does not report: waiting until it reports or the pod is deleted"
        return state + (f", {self.why}" if self.why else "")

    @property
    def place(self) -> str:
        """The name of the pod, and of its node if it has one."""
        return (self.name or self.ip or "a pod") + (f" on {self.node}" if self.node else "")

    def __str__(self) -> str:
        return f"{self.place}: {self.state}"


def has_silent_node(status: JsonObject) -> bool:
    """Return whether a pod's node has stopped reporting.

    If a node stops reporting, the control plane sets only the condition Ready of its pods to False. A kubelet whose
    containers are not ready also sets the condition ContainersReady to False.
    Source: function MarkPodsNotReady of the Kubernetes node lifecycle controller.
    """
    conditions = {part(one, "type", str): one for one in objects(status, "conditions")}
    ready, containers = conditions.get("Ready", {}), conditions.get("ContainersReady", {})
    if part(status, "phase", str) != "Running" or part(ready, "reason", str) == "ReadinessGatesNotReady":
        return False
    return part(ready, "status", str) == "False" and part(containers, "status", str) == "True"


def parse_address(text: str) -> str:
    """Return the text if it is an IP address or empty. Raises: ValueError: the text is neither."""
    try:
        if text and (not re.fullmatch("[0-9A-Fa-f.:]+", text) or not ipaddress.ip_address(text)):
            raise ValueError(text)
    except ValueError:
        raise ValueError(f"podIP is {shorten(text)}, expected an IP address") from None
    return text


def parse_index(text: str) -> int | None:
    """Return a completion index, or None if the text is empty. Raises: ValueError: the text is not such a number."""
    if text and not re.fullmatch("[0-9]{1,18}", text):
        raise ValueError(f"job-completion-index is {shorten(text)}, expected a number of 0 or more")
    return int(text) if text else None


def parse_time(text: str | None) -> float:
    """Return a time of the API in epoch seconds, or infinity if the text is not a time."""
    try:
        return datetime.datetime.fromisoformat(text or "").timestamp()
    except (ValueError, OverflowError, OSError):
        return math.inf


def explain_status(status: JsonObject, spec: JsonObject) -> str:
    """Return `Reason: message` for the most specific problem in a pod's status.

    The most specific problem is a waiting or terminated container. The second most specific problem is a pod that
    cannot be scheduled. The least specific problem is the reason in the pod's status.
    """
    for container in [*objects(status, "initContainerStatuses"), *objects(status, "containerStatuses")]:
        for state in ("waiting", "terminated"):
            found = part(part(container, "state", dict), state, dict)
            reason, message = part(found, "reason", str), part(found, "message", str)
            code = part(found, "exitCode", int)
            if reason not in ("", "ContainerCreating", "PodInitializing", "Completed"):
                if reason == "OOMKilled":
                    message = describe_memory_limit(spec, part(container, "name", str))
                return join_reason(f"{reason} (exit code {code})" if code else reason, message)
    for condition in objects(status, "conditions"):
        if condition.get("status") == "False" and condition.get("type") == "PodScheduled":
            return join_reason(part(condition, "reason", str) or "Unschedulable", part(condition, "message", str))
    return join_reason(part(status, "reason", str), part(status, "message", str))


def describe_memory_limit(spec: JsonObject, name: str) -> str:
    """Describe the memory limit of a container that ended as OOMKilled, and what to do."""
    limits = [
        part(part(part(container, "resources", dict), "limits", dict), "memory", str)
        for container in objects(spec, "containers")
        if container.get("name") == name
    ]
    if not limits or not limits[0]:
        return (
            "the container has no memory limit, so its node ran out of memory: "
            "set resources.limits.memory, or choose a larger node"
        )
    return f"the container needed more memory than its limit, {limits[0]}: {MEMORY_ADVICE}"


def join_reason(reason: str, message: str) -> str:
    """Return `reason: message`, or only one of the two texts if the other is empty."""
    return ": ".join(text.strip() for text in (reason, message) if text)


def parse_pods(podlist: JsonObject) -> list[PodStatus]:
    """Return the pods of an API answer, or of kubectl, whose list has no time: then the own clock counts.

    Raises: ValueError: a field is wrong; the error's text names the field.
    """
    pods = []
    answered = number_of(podlist.get(ANSWERED))
    now = time.time() if answered is None else answered
    for number, item in enumerate(objects(podlist, "items")):
        try:
            pods.append(PodStatus.parse(item, now))
        except ValueError as problem:
            raise ValueError(f"items[{number}]: {problem}") from None
    return pods


def check_pods(items: list[JsonObject]) -> None:
    """Raise ValueError if a pod has no name, or if two pods have the same name or UID."""
    pods = parse_pods({"items": items})
    for kind, texts in (("name", [pod.name for pod in pods]), ("uid", [pod.uid for pod in pods])):
        if "" in texts and kind == "name":
            raise ValueError(f"items[{texts.index('')}]: metadata.name is missing")
        for text, count in collections.Counter(filter(None, texts)).items():
            if count > 1:
                raise ValueError(f"two pods have the {kind} {shorten(text)}")


def own_pods(config: LauncherConfig, podlist: JsonObject) -> JsonObject:
    """Return the PodList with only the pods that have this pod's controller, or all pods if this pod is not listed.

    Pods of an earlier Job with the same name, and other pods with the same label, have another controller.
    """
    pods = parse_pods(podlist)
    own = find_own(pods, config.pod_ip, config.pod_name)
    if own is None or not own.controller_uid:
        return podlist
    items = zip(objects(podlist, "items"), pods, strict=True)
    return {**podlist, "items": [item for item, pod in items if pod.controller_uid == own.controller_uid]}


def find_own(pods: Sequence[PodStatus], own_ip: str, own_name: str) -> PodStatus | None:
    """Return this pod: the pod named `own_name`, otherwise the pod that has the address `own_ip` and has not ended."""
    named = [pod for pod in pods if pod.name == own_name]
    return next(iter(named or [pod for pod in pods if pod.ip == own_ip and pod.is_expected]), None)


def why_not_ready(pods: Sequence[PodStatus], expected: int, command: str = "", wanted: str = "") -> str:
    """Return "" if exactly `expected` pods are live and distinguishable, otherwise return a text about the problem.

    Args: command: the command that shows why the Job does not create missing pods. wanted: the variables that set the
        expected number of pods.
    """
    wanted = wanted or f"CONF_PADDLE_GRADIENT_NUM is {expected}"
    live = [pod for pod in pods if pod.is_live]
    coming = [pod.name or pod.ip for pod in pods if pod.is_expected]
    if len(coming) > expected:
        return (
            f"{len(coming)} pods exist ({list_some(coming, ', ')}) but {wanted}: "
            "set it to the Job's parallelism and completions"
        )
    if len(live) != expected:
        others = [str(pod) for pod in pods if not pod.is_live]
        shown = f"; {list_some(others, '; ')}" if others else ""
        there = len(coming) + sum(pod.terminating for pod in pods)
        reason = f" ({command} says why the Job creates no more)" if command else ""
        absent = f"; {there} of {expected} pods exist{reason}" if there < expected else ""
        return f"{len(live)} of {expected} Running{shown}{absent}"
    indexes = [str(pod.index) for pod in live if pod.index is not None]
    for kind, keys in (("IP", [pod.ip for pod in live]), ("completion index", indexes)):
        doubled = sorted({key for key in keys if keys.count(key) > 1})
        if doubled:
            names = list_some([pod.name for pod in live], ", ")
            return f"{expected} of {expected} Running, but two of {names} have the {kind} {', '.join(doubled)}"
    beyond = [pod.name for pod in live if pod.index is not None and pod.index >= expected]
    if beyond:
        return f"the completion index of {', '.join(beyond)} is beyond the number of pods: {wanted}"
    lacking = [pod.name for pod in live if pod.index is None]
    if indexes and lacking:
        return f"{list_some(lacking, ', ')} has no completion index, but other pods of the Job have one"
    return ""


def why_incomplete(config: LauncherConfig, pods: Sequence[PodStatus]) -> str:
    """Return a text about the pods that are missing from this Job, or "" if no pod is missing."""
    if any(pod.name == config.pod_name and pod.terminating for pod in pods):
        return f"this pod, {config.pod_name}, is being stopped"
    command = f"kubectl --namespace={config.job_namespace} describe job/{config.job_name}"
    return why_not_ready(pods, config.layout.pods, command, str(config.layout))


def table_of_pods(pods: Sequence[PodStatus], expected: int) -> str:
    """Return a table with one line for each pod. If there are more than TABLE_ROWS pods, the table omits live pods."""
    rows = [(pod.index, pod.place, pod.state) for pod in pods if len(pods) <= TABLE_ROWS or not pod.is_live]
    if any(pod.index is not None for pod in pods):
        rows += [(index, "no pod", "") for index in range(expected) if index not in {pod.index for pod in pods}]
    rows.sort(key=lambda row: (row[0] is None, row[0] or 0))
    left_out = [f"  ... and {len(rows) - TABLE_ROWS} more"] if len(rows) > TABLE_ROWS else []
    width = max((len(place) for _, place, _ in rows), default=0)
    lines = [f"  {'-' if index is None else index:>5}  {place:<{width}}  {state}" for index, place, state in rows]
    return "\n".join([f"  trainer id, pod and node, state of {len(pods)} pods:", *lines[:TABLE_ROWS], *left_out])


class IdMap(dict[str, int]):
    """A map {ip: trainer id}, with the pods and the Job that the ids belong to. `places`: {ip: the pod and its node}.

    `uids`: {ip: the pod's UID}; empty if the ids come from a JobRecord.
    `indexes`: {ip: completion index}; in an attempt without some pods, indexes differ from trainer ids.
    """

    def __init__(
        self,
        ids: Iterable[tuple[str, int]] = (),
        *,
        pod_uids: Iterable[str] = (),
        job_uid: str = "",
        places: Mapping[str, str] | None = None,
        uids: Mapping[str, str] | None = None,
        indexes: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(ids)
        self.pod_uids = sorted(pod_uids)
        self.job_uid = job_uid
        self.places = places or {}
        self.uids = uids or {}
        self.indexes = indexes or {}

    @classmethod
    def of_pods(cls, pods: Sequence[PodStatus]) -> IdMap:
        """Return the ids of live pods: the completion index if all pods have an index, otherwise the rank of the IP.

        IPs are sorted as strings.
        """
        if pods and all(pod.index is not None for pod in pods):
            ids = [(pod.ip, pod.index or 0) for pod in pods]
        else:
            ids = [(ip, number) for number, ip in enumerate(sorted(pod.ip for pod in pods))]
        jobs = {pod.controller_uid for pod in pods}
        return cls(
            ids,
            pod_uids=[pod.uid or pod.ip for pod in pods],
            job_uid=jobs.pop() if len(jobs) == 1 else "",
            places={pod.ip: pod.place for pod in pods},
            uids={pod.ip: pod.uid or pod.ip for pod in pods},
            indexes={pod.ip: pod.index for pod in pods if pod.index is not None},
        )

    def __str__(self) -> str:
        return ", ".join(f"{self[ip]} = {ip}" for ip in in_id_order(self))

    def describe_peers(self, message: str, config: LauncherConfig) -> list[str]:
        """Return a line for each trainer whose IP or host name is in a program's message; the line names its pod."""
        lines = []
        for ip, host in hosts_of(config, self).items():
            named = [text for text in (host, ip) if re.search(rf"\b{re.escape(text)}\b", message)]
            if named and ip != config.pod_ip and ip in self.places:
                lines.append(f"trainer {self[ip]} at {named[0]} is pod {self.places[ip]}")
        return lines


def hosts_of(config: LauncherConfig, ids: Mapping[str, int]) -> dict[str, str]:
    """Return {ip: the host by which programs reach this pod}, in the order of trainer ids.

    The host is the pod's IP. If CONF_PADDLE_POD_SERVICE is set, the host is the pod's name in that Service,
    JOB-INDEX.SERVICE. If the pod is replaced, the new pod has the same name.
    """
    if not config.pod_service:
        return {ip: ip for ip in in_id_order(ids)}
    indexes = {**ids, **(ids.indexes if isinstance(ids, IdMap) else {})}
    return {ip: f"{config.job_name}-{indexes[ip]}.{config.pod_service}" for ip in in_id_order(ids)}


def own_trainer_id(config: LauncherConfig, ids: Mapping[str, int]) -> int:
    """Return this pod's trainer id.

    Raises: ConfigError: this pod's address is not one of the job's addresses (docs/faults.md S8).
    """
    if config.pod_ip not in ids:
        raise ConfigError(
            f"this pod's address {config.pod_ip} is not among the job's pods {', '.join(sorted(ids))}: "
            "set POD_IP by the downward API (fieldRef status.podIP)"
        )
    return ids[config.pod_ip]
