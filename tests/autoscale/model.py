"""A cluster in pure Python: nodes, a scheduler with priorities, Jobs, a Deployment, and the autoscaler's decisions.

Time goes in ticks. CPUs are whole thousandths, the only resource; all else that the experiment's pods ask for fits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from paddle_cluster.master.autoscaler.packing import ClusterRoom, Demand
from paddle_cluster.master.autoscaler.plan import Change, Past, TrainerJob, make_plan, remember

TICK_S = 0.25
START_S = 1.0  # from a node to Running
STOP_S = 1.0  # from deletion or preemption until the room is free
BINDS, PREEMPTIONS = 25, 10  # of one tick at most: 100 and 40 a second
LOOK_S = 1.0  # between two decisions of the autoscaler
TRAINER, SERVER, SERVICE = -10, 0, 100  # priorities


@dataclass(eq=False)
class ModelPod:
    owner: str
    cpu: int
    priority: int
    created: float
    node: int | None = None
    nominated: int | None = None  # node where room is made for it
    ready: float = math.inf
    gone: float = math.inf  # when it is deleted at last

    @property
    def rank(self) -> tuple[int, float]:
        return (-self.priority, self.created)


@dataclass
class Owner:
    """A controller of pods: a Deployment, a ReplicaSet, or the trainers of a job."""

    name: str
    cpu: int
    priority: int
    wanted: int
    least: int = 0
    most: int = 0  # 0: not elastic
    past: Past = field(default_factory=Past)
    pods: list[ModelPod] = field(default_factory=list)


class ModelCluster:
    """The cluster. `sizes`: CPUs of each node in thousandths; `base`: what the system's own pods have of each."""

    def __init__(self, sizes: list[int], base: int, *, elastic: bool = True, preempts: bool = True) -> None:
        self.sizes, self.free = sizes, [size - base for size in sizes]
        self.owners: dict[str, Owner] = {}
        self.now, self.looked, self.elastic, self.preempts = 0.0, -math.inf, elastic, preempts
        self.changes: list[tuple[float, str, Change]] = []

    def add(self, owner: Owner) -> Owner:
        return self.owners.setdefault(owner.name, owner)

    def tick(self) -> None:
        self.now += TICK_S
        self._control()
        self._schedule()
        if self.elastic and self.now - self.looked >= LOOK_S:
            self.looked = self.now
            self._decide()

    def running(self, name: str) -> int:
        return sum(pod.ready <= self.now < pod.gone for pod in self.owners[name].pods)

    def all_pods(self) -> Iterator[ModelPod]:
        return (pod for owner in self.owners.values() for pod in owner.pods)

    def _control(self) -> None:
        for owner in self.owners.values():
            for pod in [pod for pod in owner.pods if pod.gone <= self.now]:
                owner.pods.remove(pod)
                if pod.node is not None:
                    self.free[pod.node] += pod.cpu
            alive = [pod for pod in owner.pods if pod.gone == math.inf]
            # as controllers do: those without a node first, then the youngest
            for pod in sorted(alive, key=lambda pod: (pod.node is not None, -pod.created))[: -owner.wanted or None]:
                if len(alive) > owner.wanted:
                    alive.remove(pod)
                    self._delete(pod)
            for _ in range(owner.wanted - len(owner.pods)):  # podReplacementPolicy: Failed
                owner.pods.append(ModelPod(owner.name, owner.cpu, owner.priority, self.now))

    def _delete(self, pod: ModelPod) -> None:
        pod.gone = self.now + (STOP_S if pod.node is not None else 0.0)

    # ---- the scheduler
    def _schedule(self) -> None:
        binds = preemptions = 0
        failed: set[tuple[int, int]] = set()
        waiting = [pod for pod in self.all_pods() if pod.node is None and pod.gone == math.inf]
        nominated = Counter({node: 0 for node in range(len(self.free))})
        for pod in waiting:
            if pod.nominated is not None:
                nominated[pod.nominated] += pod.cpu
        for pod in sorted(waiting, key=lambda pod: pod.rank):
            shape = (pod.cpu, pod.priority)
            if binds >= BINDS or shape in failed:
                continue
            if pod.nominated is not None:
                nominated[pod.nominated] -= pod.cpu
            node = max(
                range(len(self.free)), key=lambda node: (self.free[node] - nominated[node]) / self.sizes[node] * 1.0
            )
            if self.free[node] - nominated[node] < pod.cpu:
                node = self._find(pod, nominated)
            if node is not None:
                pod.node, pod.ready, pod.nominated = node, self.now + START_S, None
                self.free[node] -= pod.cpu
                binds += 1
            elif pod.nominated is not None:
                nominated[pod.nominated] += pod.cpu  # its victims are not gone yet
            elif not (self.preempts and preemptions < PREEMPTIONS and self._preempt(pod, nominated)):
                failed.add(shape)
            else:
                preemptions += 1

    def _find(self, pod: ModelPod, nominated: Counter[int]) -> int | None:
        fitting = [node for node in range(len(self.free)) if self.free[node] - nominated[node] >= pod.cpu]
        return fitting[0] if fitting else None

    def _preempt(self, pod: ModelPod, nominated: Counter[int]) -> bool:
        victims: dict[int, list[ModelPod]] = {}
        leaving = Counter[int]()
        for other in self.all_pods():
            if other.node is not None and other.gone == math.inf and other.priority < pod.priority:
                victims.setdefault(other.node, []).append(other)
            elif other.node is not None and other.gone != math.inf:
                leaving[other.node] += other.cpu
        choices = []
        for node, those in victims.items():
            room = self.free[node] - nominated[node] + leaving[node]
            those.sort(key=lambda one: one.rank, reverse=True)
            count = next((k for k in range(len(those) + 1) if room + sum(v.cpu for v in those[:k]) >= pod.cpu), None)
            if count is not None:
                choices.append((count, node))
        if not choices:
            return False
        count, node = min(choices)
        for victim in victims[node][:count]:
            self._delete(victim)
        pod.nominated = node
        nominated[node] += pod.cpu
        return True

    # ---- the autoscaler
    def jobs(self) -> list[TrainerJob]:
        found = []
        for owner in self.owners.values():
            if owner.most:
                alive = [pod for pod in owner.pods if pod.gone == math.inf]
                waiting = [pod for pod in alive if pod.node is None]
                found.append(
                    TrainerJob(
                        owner.name,
                        owner.least,
                        owner.most,
                        owner.wanted,
                        (owner.cpu,),
                        placed=Counter(pod.node for pod in alive if pod.node is not None),
                        waiting=len(waiting),
                        waiting_since=min((pod.created for pod in waiting), default=math.inf),
                        past=owner.past,
                    )
                )
        return found

    def room(self) -> ClusterRoom:
        rooms = list(self.free)
        demands = Counter[int]()
        for owner in self.owners.values():
            for pod in owner.pods:
                if pod.node is not None and owner.most:
                    rooms[pod.node] += pod.cpu
                elif pod.node is None and not owner.most and pod.gone == math.inf:
                    demands[pod.cpu] += 1
        return ClusterRoom([(room,) for room in rooms], [Demand((cpu,), count) for cpu, count in demands.items()])

    def _decide(self) -> None:
        jobs = self.jobs()
        for change in make_plan(self.room(), jobs, self.now).changes:
            owner = self.owners[jobs[change.job].key]
            owner.wanted, owner.past = change.after, remember(owner.past, change, self.now)
            self.changes.append((self.now, owner.name, change))
