"""Wait for pods. A wait repeats a call to the API server until the answer is the wanted answer, or until a deadline."""

from __future__ import annotations

import dataclasses
import os
import random
import time
from collections.abc import Callable
from typing import TypeVar

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.network.redaction import Secrets
from paddle_cluster.launcher.cluster.kubernetes import PodApi
from paddle_cluster.launcher.cluster.pods import IdMap, in_id_order, parse_pods
from paddle_cluster.launcher.errors import ApiError, NotReadyError
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import JsonObject, say

Answer = TypeVar("Answer")
LOOK_S = 0.05  # seconds between two checks for a message of the other launchers; a check reads only this memory
LAST_LOOK_S = 1.0  # seconds allowed for all pages of a list that begins at the deadline of a wait
REPEAT_PERIOD_S = 30.0  # seconds after which a wait logs the same obstacle again


@dataclasses.dataclass
class WaitPolicy:
    """The functions with which a wait sleeps and reads the time, and its timeout; tests insert their own clock."""

    timeout_s: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    rng: random.Random = dataclasses.field(default_factory=random.Random)
    say: Callable[[str], None] = say
    limit: str = "START_TIMEOUT"  # the variable that sets the timeout


class Wait:
    """A wait for an answer of the API server, which logs the obstacle, limits the rate of calls and has a deadline."""

    def __init__(self, api: PodApi, policy: WaitPolicy) -> None:
        self.api, self.policy = api, policy
        self.timeout_s, self.limit = policy.timeout_s, policy.limit
        self._began = self._said_at = self._changed_at = policy.clock()
        self.began_at = time.time()  # seconds since the epoch
        self._said, self._failures = "", 0
        self._met: dict[str, float] = {}  # {pod UID: the time of the first call of `known_s` for that pod}

    def extend(self, timeout_s: float, limit: str) -> None:
        """Move the deadline. Args: limit: the variable that sets the timeout."""
        self.timeout_s, self.limit = timeout_s, limit

    @property
    def waited_s(self) -> float:
        """Seconds since the start of this wait."""
        return self.policy.clock() - self._began

    def known_s(self, uid: str) -> float:
        """Return the seconds since the first call of this function for a pod."""
        now = self.policy.clock()
        return now - self._met.setdefault(uid, now)

    def begin_again(self) -> None:
        """Restart the timeout, because the awaited event is certain to happen and only its time is unknown."""
        self._began, self.began_at = self.policy.clock(), time.time()

    def list_pods(self) -> JsonObject:
        """Return a PodList; a list that begins at the deadline has LAST_LOOK_S for all its pages. Raises: ApiError."""
        return self.api.list_pods(max(LAST_LOOK_S, self._began + self.timeout_s - self.policy.clock()))

    def until(self, ask: Callable[[], Answer], look: Callable[[], Answer | bool | None] | None = None) -> Answer:
        """Call `ask`, with pauses, until it raises no NotReadyError, and return its answer.

        Args: look: a second source of answers, which is called more often. If it returns True, `ask` is called at once.
        Raises: see `pause`.
        """
        while True:
            try:
                return ask()
            except NotReadyError as obstacle:
                heard = self.pause(obstacle, look)
            if heard is not None and not isinstance(heard, bool):
                return heard

    def pause(self, obstacle: NotReadyError, look: Callable[[], Answer] | None = None) -> Answer | None:
        """Sleep until the next call is allowed. Log the obstacle when it is new, and again every REPEAT_PERIOD_S.

        Args: look: its answer ends the pause. Returns: this answer, or None.
        Raises: PaddleError: the deadline has passed, or the obstacle is fatal; the obstacle determines the class of the
            error.
        """
        backoff_s = self._back_off(obstacle)
        text, now, deadline = str(obstacle), self.policy.clock(), self._began + self.timeout_s
        if text != self._said:
            self._changed_at = now
        if text != self._said or now - self._said_at >= REPEAT_PERIOD_S:
            self.policy.say(f"waiting: {text}")
            self._said, self._said_at = text, now
        if now >= deadline:
            raise obstacle.final(f"gave up after {self.timeout_s:g} s ({self.limit}): {text}")
        pause_s = max(self.api.interval(now - self._changed_at), backoff_s) * self.policy.rng.uniform(1.0, 1.3)
        return self._sleep_until(now + min(pause_s, max(deadline - now, 0.01)), look)

    def _back_off(self, obstacle: NotReadyError) -> float:
        """Return the minimum pause before the next call, which grows with consecutive failures. Raises: PaddleError."""
        if not isinstance(obstacle, ApiError):
            self._failures = 0
            return 0.0
        if obstacle.fatal:
            raise obstacle.final(str(obstacle)) from obstacle
        self._failures += 1
        return max(min(15.0, 0.25 * 2.0**self._failures), obstacle.retry_after_s)

    def _sleep_until(self, end: float, look: Callable[[], Answer] | None) -> Answer | None:
        if not look:
            self.policy.sleep(max(0.0, end - self.policy.clock()))  # `end` may already have passed
            return None
        while (left_s := end - self.policy.clock()) > 0:
            found = look()
            if found is not None:
                return found
            self.policy.sleep(min(LOOK_S, max(left_s, 0.001)))
        return None


def with_number_of_pods(config: LauncherConfig, policy: WaitPolicy, secrets: Secrets) -> LauncherConfig:
    """Return the config; if the environment does not set the number of pods, set it to the Job's parallelism.

    Raises: PaddleError: the deadline has passed. ConfigError: the config needs more pods than the Job has.
    """
    if os.environ.get("CONF_PADDLE_GRADIENT_NUM"):
        return config
    api = PodApi(config, secrets=secrets, is_number_known=False)
    pods = Wait(api, policy).until(api.read_parallelism)
    say(f"CONF_PADDLE_GRADIENT_NUM is not set: this Job has {pods} {'pod' if pods == 1 else 'pods'}")
    found = LauncherConfig.from_env({**os.environ, "CONF_PADDLE_GRADIENT_NUM": str(pods)})
    if found.layout.pods > pods:
        there = "1 pod" if pods == 1 else f"{pods} pods"
        wanted = f"CONF_PADDLE_PSERVER_NUM is {found.pserver_num}, but this Job has only {there}"
        raise ConfigError(f"{wanted}; set CONF_PADDLE_GRADIENT_NUM, and raise parallelism and completions")
    return found


def is_first_live(api: PodApi, ids: IdMap) -> bool:
    """Return whether the API server lists trainer 0's pod as live. Return True if the API server does not answer."""
    first = in_id_order(ids)[0]
    try:
        live = {(pod.ip, pod.uid or pod.ip) for pod in parse_pods(api.list_pods()) if pod.is_live}
    except ApiError:
        return True
    return any(ip == first and uid in ids.pod_uids for ip, uid in live)


def is_whole(api: PodApi, ids: IdMap) -> bool:
    """Return whether the API server lists every pod of the set as live. Return True if the API server does not answer.

    In a large job only trainer 0's launcher checks all pods, and announces the next attempt to the other launchers.
    """
    if api.indexes:
        return True
    try:
        live = {pod.uid or pod.ip for pod in parse_pods(api.list_pods()) if pod.is_live}
    except ApiError:
        return True
    return live.issuperset(ids.pod_uids)
