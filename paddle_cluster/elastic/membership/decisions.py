"""Decides what follows after every worker of a generation has reported, and assigns the slots of the next generation.

The decision depends on the states of all workers:

- If at least one state is SUCCESS, the job is over.
- If all states are FAILURE, the job has failed.
- If some states are FAILURE and all others are READY, hosts that have reached the failure limit are blacklisted, and
  the workers resume.
- If all states are READY, the hosts have changed, and the workers resume.

Source: Horovod 0.28, `horovod/runner/elastic/registration.py`. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from paddle_cluster.elastic.constants import RESET_LIMIT_EXCEEDED_MESSAGE
from paddle_cluster.elastic.hosts import HostInfo, SlotInfo, complete_slots, get_host_assignments

READY = "READY"
SUCCESS = "SUCCESS"
FAILURE = "FAILURE"

Slot = tuple[str, int]  # host and local rank
NO_RANK = 1 << 31  # larger than every rank


class GenerationPlan(NamedTuple):
    """The slots of a generation, by host and by rank."""

    hosts: dict[str, list[SlotInfo]]
    ranks: dict[int, SlotInfo]

    @classmethod
    def of(cls, slots: Sequence[SlotInfo]) -> GenerationPlan:
        """Return the plan of these slots; the slots of a host keep their order."""
        hosts: dict[str, list[SlotInfo]] = {}
        for one in slots:
            hosts.setdefault(one.hostname, []).append(one)
        return cls(hosts, {one.rank: one for one in slots})

    @property
    def slots(self) -> dict[Slot, int]:
        """The rank of each slot."""
        return {(one.hostname, one.local_rank): rank for rank, one in self.ranks.items()}


class MembershipDecision(NamedTuple):
    """The decision after the last report of a generation.

    Attributes: is_over: whether the job stops; if not, the workers resume.  blacklist: hosts to exclude.  reason: text
        for the log.  error: reason why the job fails, independent of the exit codes; None: the exit codes decide.
    """

    is_over: bool
    blacklist: tuple[str, ...]
    reason: str
    error: str | None = None


def decide(
    states: Mapping[Slot, str],
    is_charged: Callable[[str], bool],
    is_blacklisted: Callable[[str], bool],
    resets: int,
    reset_limit: int | None,
) -> MembershipDecision:
    """Return the decision for the states of all workers of a generation.

    Args: is_charged: returns whether a host with a failure in this generation has reached the failure limit.
        resets: number of times that the workers have resumed.
    """
    failed = [slot for slot, state in states.items() if state == FAILURE]
    succeeded = sum(state == SUCCESS for state in states.values())
    if succeeded:
        return MembershipDecision(True, (), f"{succeeded} of {len(states)} workers have succeeded")
    if len(failed) == len(states):
        return MembershipDecision(True, (), f"all {len(states)} workers have failed")
    blacklist = tuple(host for host in dict.fromkeys(host for host, _ in failed) if is_charged(host))
    hosts = {host for host, _ in states}
    if all(host in blacklist or is_blacklisted(host) for host in hosts):
        return MembershipDecision(True, blacklist, f"workers have failed on every host: {', '.join(sorted(hosts))}")
    if reset_limit is not None and resets >= reset_limit:
        text = RESET_LIMIT_EXCEEDED_MESSAGE.format(reset_limit)
        return MembershipDecision(True, blacklist, text, text)
    return MembershipDecision(False, blacklist, f"{len(failed)} of {len(states)} workers have failed")


def assign_slots(
    hosts: Sequence[HostInfo], survivors: Mapping[Slot, int], min_num_proc: int, max_num_proc: int | None
) -> list[SlotInfo]:
    """Return the slots of a generation in the order of their ranks.

    Rank 0 sends its state to the other ranks. Therefore hosts with a survivor come before hosts without a survivor,
    and the survivors of a host come before its new workers. Within these groups the previous order is kept. The local
    rank of a slot never changes.

    Args: survivors: by slot, the previous rank of each worker that has the state of the job.
    Raises: ValueError: there are fewer slots than `min_num_proc`.
    """
    sizes = {host.hostname: host.slots for host in hosts}
    first: dict[str, int] = {}  # by host: smallest previous rank of the survivors whose slots still exist
    for (host, local_rank), rank in survivors.items():
        if local_rank < sizes.get(host, 0):
            first[host] = min(rank, first.get(host, rank))
    order = sorted(hosts, key=lambda host: first.get(host.hostname, NO_RANK))
    slots = get_host_assignments(order, min_num_proc, max_num_proc)
    position = {host.hostname: number for number, host in enumerate(order)}

    def place(slot: SlotInfo) -> tuple[int, int, int]:
        old = survivors.get((slot.hostname, slot.local_rank), NO_RANK)
        return position[slot.hostname], old, slot.local_rank

    slots.sort(key=place)
    for rank, slot in enumerate(slots):
        slot.rank = rank
    return slots


def keep_slots(slots: Iterable[SlotInfo], kept: Collection[Slot]) -> list[SlotInfo]:
    """Return new slots for those that are kept, with the ranks 0, 1, ... in the given order."""
    left = [one for one in slots if (one.hostname, one.local_rank) in kept]
    found = [SlotInfo(one.hostname, rank, one.local_rank, 0) for rank, one in enumerate(left)]
    complete_slots(found)
    return found


def compare_slots(before: Collection[Slot], after: Collection[Slot]) -> int:
    """Return the difference between an earlier and a later set of slots, as flags of `HostUpdateResult`."""
    return (1 if set(before) - set(after) else 0) | (2 if set(after) - set(before) else 0)
