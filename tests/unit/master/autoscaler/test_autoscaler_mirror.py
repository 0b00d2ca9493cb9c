"""Which namespaces the autoscaler leaves alone, while the others are managed."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from paddle_base.runtime.kubernetes.client import ApiClient, ApiPlace, ApiProblem
from paddle_cluster.master.autoscaler.facts import read_pod
from paddle_cluster.master.autoscaler.mirror import STALE_S, ClusterMirror, Mirror

REFUSAL = ApiProblem("pods is forbidden", 403)
LONG = 600.0  # --start_timeout


@pytest.fixture
def cluster(tmp_path: object) -> ClusterMirror:
    """A cluster whose nodes and namespaces were read a moment ago."""
    place = ApiPlace("127.0.0.1", "1", tmp_path)  # type: ignore[arg-type]
    made = ClusterMirror(lambda: ApiClient(place), ["science", "arts"], threading.Event(), 60.0)
    for mirror in made._mirrors:
        hear(mirror, 0.0)
    return made


def hear(mirror: Mirror[object], ago: float) -> None:
    mirror.heard = time.monotonic() - ago


def refuse(cluster: ClusterMirror, name: str, ago: float, heard: float) -> None:
    """Let a namespace be refused for some time, and last be heard of some time ago."""
    (part,) = (each for each in cluster._parts if each.name == name)
    for mirror in (part.pods, part.jobs):
        mirror._refused = (time.monotonic() - ago, REFUSAL)
        hear(mirror, heard)


def left_out(cluster: ClusterMirror) -> list[str]:
    return [part.name for part in cluster._parts if part.is_left_out]


def test_a_refused_namespace_stops_no_other_whatever_the_time_of_the_start(cluster: ClusterMirror) -> None:
    """With --start_timeout above a minute, all jobs waited for the rest of it."""
    refuse(cluster, "arts", 20.0, 20.0)
    assert cluster.check(LONG) is None and left_out(cluster) == [] and cluster.is_current
    refuse(cluster, "arts", 40.0, STALE_S + 1)
    assert not cluster.is_current
    assert cluster.check(LONG) is None and left_out(cluster) == ["arts"] and cluster.is_current


def test_a_namespace_that_was_never_read_is_left_out_too(cluster: ClusterMirror) -> None:
    refuse(cluster, "arts", STALE_S / 2, float("inf"))
    assert cluster.check(LONG) is None and left_out(cluster) == []  # its rights may still come
    refuse(cluster, "arts", STALE_S + 1, float("inf"))
    assert cluster.check(LONG) is None and left_out(cluster) == ["arts"] and cluster.is_current


def test_a_namespace_whose_rights_come_back_is_managed_again(cluster: ClusterMirror) -> None:
    refuse(cluster, "arts", STALE_S + 1, STALE_S + 1)
    cluster.check(LONG)
    for mirror in (cluster._parts[1].pods, cluster._parts[1].jobs):
        mirror._refused = None
        hear(mirror, 0.0)
    assert cluster.check(LONG) is None and left_out(cluster) == []


def test_if_all_are_refused_the_whole_time_counts(cluster: ClusterMirror) -> None:
    for name in ("science", "arts"):
        refuse(cluster, name, LONG - 1, LONG)
    assert cluster.check(LONG) is None and left_out(cluster) == []
    for name in ("science", "arts"):
        refuse(cluster, name, LONG + 1, LONG)
    assert cluster.check(LONG) is REFUSAL


def test_how_long_a_pod_waits_is_measured_by_the_clock_of_the_autoscaler(cluster: ClusterMirror) -> None:
    """With a clock that was ahead, each pod counted as refused at once, and each rise of a job was taken back."""
    pods = cluster._parts[0].pods
    waiting = read_pod({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}})
    assert waiting is not None
    pods._facts = {"a": waiting}
    assert cluster.pods(1000.0)["a"].created == 1000.0
    pods._facts["b"] = waiting
    found = cluster.pods(1010.0)
    assert (found["a"].created, found["b"].created) == (1000.0, 1010.0)
    pods._facts = {"a": replace(waiting, node="n"), "b": waiting}
    assert cluster.pods(1020.0)["a"] == pods._facts["a"]
    assert list(cluster._waiting) == ["b"]
