"""Choose the pods of an Indexed Job that begin an attempt if some pods are gone. No I/O.

A pod that is not live is gone in two cases: the last attempt ran without the pod, or the other pods have waited
REJOIN_TIMEOUT for it. An attempt does not wait for pods that are gone. The live pod with the lowest index becomes the
leader as soon as all pods with a lower index are gone. The leader's launcher begins an attempt with the live pods whose
launchers are connected to the leader.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from paddle_cluster.launcher.cluster.pods import IdMap, PodStatus
from paddle_cluster.launcher.errors import NotReadyError
from paddle_cluster.launcher.layout import PodLayout
from paddle_cluster.launcher.text import JsonObject, list_some

# Seconds for the launcher of a live pod to connect to the leader. The launcher finds the leader by calls to the API
# server, and the interval between these calls can be as long as JOIN_S.
JOIN_S = 60.0

# what helps if the launcher of a live pod does not connect to that of trainer 0
WITHOUT_LAUNCHER = "see the logs of these pods, and let NetworkPolicies allow CONF_PADDLE_CONTROL_PORT"


@dataclasses.dataclass(frozen=True)
class Quorum:
    """The pods that an attempt begins with, and the absent pods (in the form of JobRecord.absent)."""

    members: Sequence[PodStatus]  # the members in the order of their completion indexes and of their trainer ids
    layout: PodLayout  # layout of the attempt
    absent: Sequence[JsonObject]

    @property
    def ids(self) -> IdMap:
        """The trainer ids of the members: consecutive numbers in the order of their indexes."""
        ids = IdMap.of_pods(self.members)
        dense = ((pod.ip, number) for number, pod in enumerate(self.members))
        return IdMap(
            dense, pod_uids=ids.pod_uids, job_uid=ids.job_uid, places=ids.places, uids=ids.uids, indexes=ids.indexes
        )


def find_live(pods: Sequence[PodStatus], layout: PodLayout) -> dict[int, PodStatus] | None:
    """Return {index: live pod}, or None if two pods have the same index or an index is outside the layout."""
    live = [pod for pod in pods if pod.is_live]
    found = {pod.index: pod for pod in live if pod.index is not None and pod.index < layout.pods}
    is_distinct = len(found) == len(live) == len({pod.ip for pod in live})
    return dict(sorted(found.items())) if is_distinct else None


def find_gone(live: Collection[int], layout: PodLayout, known: Collection[int], *, is_over: bool) -> set[int]:
    """Return the indexes of the pods that the attempt does not wait for.

    Args: live: indexes of the live pods. known: indexes of the pods that were absent from the last attempt. is_over:
        whether the wait has lasted REJOIN_TIMEOUT.
    """
    return {index for index in range(layout.pods) if index not in live and (is_over or index in known)}


def choose_leader(live: Mapping[int, PodStatus], gone: Collection[int]) -> PodStatus | None:
    """Return the pod that the other launchers connect to, or None while a pod with a lower index may still start."""
    first = min(live, default=None)
    if first is None or any(index not in gone for index in range(first)):
        return None
    return live[first]


def choose_members(
    live: Mapping[int, PodStatus],
    gone: Collection[int],
    layout: PodLayout,
    silent: Collection[str],
    late: Collection[str],
) -> list[PodStatus]:
    """Return the pods with which the leader begins an attempt.

    Args: silent: addresses of live pods whose launchers are not connected to the leader. late: addresses of pods whose
        time to connect has passed; the attempt begins without pods that are both silent and late.
    Raises: NotReadyError: the leader waits for a pod or a launcher.
    """
    missing = [index for index in range(layout.pods) if index not in live and index not in gone]
    if missing:
        named = list_some([*map(str, missing)], ", ")
        raise NotReadyError(f"waiting for pods {named}; kubectl describe says why they are not there")
    awaited = [pod for pod in live.values() if pod.ip in silent and pod.ip not in late]
    if awaited:
        places = [f"pod {pod.index} at {pod.ip} ({pod.place})" for pod in awaited]
        raise NotReadyError(f"waiting for the launchers of {list_some(places, ', ')}; {WITHOUT_LAUNCHER}")
    return [pod for pod in live.values() if pod.ip not in silent]


def find_absent(
    members: Sequence[PodStatus],
    layout: PodLayout,
    known: Sequence[JsonObject],
    places: Mapping[int, str],
    since: float,
) -> list[JsonObject]:
    """Return the pods absent from an attempt: index, place, and the start of the absence (epoch seconds).

    Args: known: pods that were absent from the last attempt. places: {index: name of a pod of the last attempt}. since:
        start of the absence of all pods that are not in `known`.
    """
    there = {pod.index for pod in members}
    before = {int(one["index"]): one for one in known}
    return [
        before.get(index) or {"index": index, "place": places.get(index, ""), "since": since}
        for index in range(layout.pods)
        if index not in there
    ]
