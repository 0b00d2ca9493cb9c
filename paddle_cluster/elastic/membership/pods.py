"""Read the hosts from the pods that the Kubernetes API lists. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from paddle_base.runtime import glog

SLOTS = "paddle/slots"  # annotation of a pod: number of workers in the pod
MOST_SLOTS = 1024
MOST_PODS = 10_000
SELECTOR = "app.kubernetes.io/part-of=paddle,app.kubernetes.io/component=worker"


class PodHost(NamedTuple):
    """A pod that can run workers."""

    name: str
    slots: int
    address: str
    uid: str


def read_pods(pods: Iterable[Mapping[str, Any]], default_slots: int) -> tuple[list[PodHost], list[str]]:
    """Return the hosts in the order of the ranks, the oldest first, and the problems of unusable pods.

    A pod is a host if the pod runs, is Ready, has an address and is not being deleted. Pods that were created in the
    same second are sorted by name.

    Args: default_slots: number of slots of a pod without the annotation `paddle/slots`.
    """
    found: list[tuple[str, str, PodHost]] = []
    problems: list[str] = []
    for pod in pods:
        try:
            host = _read_pod(pod, default_slots)
            created = str(pod["metadata"].get("creationTimestamp") or "")
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            problems.append(glog.clean(f"a pod cannot be used: {exc}", 200))
            continue
        if host is not None and len(found) < MOST_PODS:
            found.append((created, host.name, host))
    return [host for _, _, host in sorted(found, key=lambda one: one[:2])], problems


def _read_pod(pod: Mapping[str, Any], default_slots: int) -> PodHost | None:
    metadata, status = pod["metadata"], pod.get("status") or {}
    if metadata.get("deletionTimestamp") or status.get("phase") != "Running" or not status.get("podIP"):
        return None
    ready = [one.get("status") for one in status.get("conditions") or [] if one.get("type") == "Ready"]
    if ready != ["True"]:
        return None
    name, address, uid = str(metadata["name"]), str(status["podIP"]), str(metadata["uid"])
    text = (metadata.get("annotations") or {}).get(SLOTS)
    slots = default_slots if text is None else _read_slots(name, text)
    return PodHost(name, slots, address, uid) if slots else None


def _read_slots(name: str, text: Any) -> int:
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()) or int(text[:9]) > MOST_SLOTS:
        raise ValueError(f"{name} has the annotation {SLOTS}={text!r}; it has to be a number up to {MOST_SLOTS}")
    return int(text[:9])
