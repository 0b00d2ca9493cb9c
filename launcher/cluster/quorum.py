"""Which pods of an Indexed Job an attempt begins with, where some do not come back. No input or output.

A pod is gone when it is not live and either the last attempt did without it already, or all have waited for it for
REJOIN_TIMEOUT. Pods that are gone are not waited for. The live pod with the lowest index leads the others, once all
pods of a lower index are gone; its launcher begins an attempt with the live pods whose launchers have joined it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from launcher.cluster.layout import PodLayout
from launcher.cluster.pods import IdMap, PodStatus
from launcher.text import JsonObject, list_some

JOIN_S = 60.0  # seconds for the launcher of a live pod to join the leader; it asks the API server that rarely


@dataclasses.dataclass(frozen=True)
class Quorum:
    """The pods that an attempt begins with, and what it does without (as JobRecord.absent has it)."""

    members: Sequence[PodStatus]  # by completion index, which is the order of their trainer ids
    layout: PodLayout  # of the attempt
    absent: Sequence[JsonObject]

    @property
    def ids(self) -> IdMap:
        """The ids of the members: dense, in the order of their indexes."""
        ids = IdMap.of_pods(self.members)
        dense = ((pod.ip, number) for number, pod in enumerate(self.members))
        return IdMap(dense, pod_uids=ids.pod_uids, job_uid=ids.job_uid, places=ids.places, uids=ids.uids)


def find_live(pods: Sequence[PodStatus], layout: PodLayout) -> dict[int, PodStatus] | None:
    """Returns the live pods by index; None where they cannot be told apart, or are more than the layout has."""
    live = [pod for pod in pods if pod.is_live]
    found = {pod.index: pod for pod in live if pod.index is not None and pod.index < layout.pods}
    is_distinct = len(found) == len(live) == len({pod.ip for pod in live})
    return dict(sorted(found.items())) if is_distinct else None


def find_gone(live: Collection[int], layout: PodLayout, known: Collection[int], *, is_over: bool) -> set[int]:
    """Returns the indexes of the pods that are not waited for any more.

    Args: known: indexes that the last attempt did without. is_over: REJOIN_TIMEOUT has passed in this wait.
    """
    return {index for index in range(layout.pods) if index not in live and (is_over or index in known)}


def choose_leader(live: Mapping[int, PodStatus], gone: Collection[int]) -> PodStatus | None:
    """Returns the pod whose launcher the others join, None while a pod of a lower index is waited for."""
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
) -> list[PodStatus] | str:
    """Returns the pods that the leader begins with, or what it still waits for.

    Args: silent: addresses of live pods whose launchers have not joined the leader. late: addresses of pods that have
        had the time for it; the attempt begins without those that are silent.
    """
    missing = [index for index in range(layout.pods) if index not in live and index not in gone]
    if missing:
        return f"waiting for pods {list_some([*map(str, missing)], ', ')}"
    awaited = [pod for pod in live.values() if pod.ip in silent and pod.ip not in late]
    if awaited:
        places = [f"pod {pod.index} at {pod.ip} ({pod.place})" for pod in awaited]
        return f"no word yet from the launchers of {list_some(places, ', ')}"
    return [pod for pod in live.values() if pod.ip not in silent]


def find_absent(
    members: Sequence[PodStatus],
    layout: PodLayout,
    known: Sequence[JsonObject],
    places: Mapping[int, str],
    since: float,
) -> list[JsonObject]:
    """Returns what an attempt does without: each pod's index, place, and since when it is missing (epoch seconds).

    Args: known: what the last attempt did without. places: of its pods, by index. since: of all pods not in `known`.
    """
    there = {pod.index for pod in members}
    before = {int(one["index"]): one for one in known}
    return [
        before.get(index) or {"index": index, "place": places.get(index, ""), "since": since}
        for index in range(layout.pods)
        if index not in there
    ]
