"""Which of the hosts that a discovery finds can have workers: this machine, and others on which an agent answers."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from elastic.agent.client import AgentClient
from elastic.agent.protocol import AgentState
from elastic.constants import AGENT_PORT
from elastic.discovery import FoundHosts, HostDiscovery
from elastic.launching.processes import check_local
from elastic.membership.heartbeats import Hearing
from runtime import glog
from runtime.errors import ConfigError, LostPeerError, PaddleError

PROBES = 64  # agents that are asked at the same time
ANSWER_S = 1.0  # for which one look waits; an agent that is lost answers after seconds, and must not hide others
MOST_KNOWN = 100_000  # names whose agents are remembered
DEAF_S = 60.0  # without any answer, after which agents have ended the workers of a driver that is cut off
SETTLE_S = 0.1  # between two questions of the first look
LOOKS_S = 5.0  # for which two looks are waited for
LONGEST_WAIT_S = 600.0  # for any host


class AgentPolicy(NamedTuple):
    """How agents are used.

    Attributes: port: of all agents.  timeout: seconds of silence after which an agent and its workers are lost.
        is_everywhere: also on this machine.
    """

    port: int = AGENT_PORT
    timeout: float = 10.0
    is_everywhere: bool = False


class _KnownAgent:
    """An agent that was asked.

    Attributes: state: its last answer.  heard: when that was, in seconds of `time.monotonic`.  problem: since then.
        is_lost: it has lost a worker, and has not answered since.
    """

    def __init__(self, client: AgentClient) -> None:
        self.client = client
        self.state: AgentState | None = None
        self.heard = 0.0
        self.problem = ""
        self.is_lost = False
        self.asked: Future[None] | None = None

    @property
    def is_asked(self) -> bool:
        """Whether a question is on its way."""
        return self.asked is not None and not self.asked.done()

    def ask(self) -> None:
        """Take what it answers now."""
        try:
            state = self.client.read_state()
        except PaddleError as exc:
            self.problem = str(exc)
            return
        self.state, self.heard, self.problem, self.is_lost = state, time.monotonic(), "", False

    def has_room(self, now: float, timeout: float) -> bool:
        """Return whether it may have workers: it has answered, not too long ago, and is not about to end."""
        if self.state is None or self.state.is_leaving or self.is_lost:
            return False
        return not self.problem or self.client.measure_silence(self.heard, now) < timeout


class AgentHosts(HostDiscovery):
    """The hosts of another discovery that can have workers now; each with the name of its agent as uid.

    Args: secret: of the job; without one there are no agents.  settle_s: seconds that the first look waits for agents
        that do not answer: a driver that goes on with workers has to see all of their hosts at once.

    Attributes: hearing: whether this driver is cut off from all agents.

    Thread safety: `find` may be called from any thread, the look from one.
    """

    def __init__(self, inner: HostDiscovery, secret: str, policy: AgentPolicy, settle_s: float = 0.0) -> None:
        self._inner, self._secret, self._policy, self._settle_s = inner, secret, policy, settle_s
        self.hearing = Hearing(max(DEAF_S, policy.timeout))
        self._pool = ThreadPoolExecutor(PROBES, "agents")
        self._changed = threading.Condition()
        self._local: set[str] = set()
        self._agents: dict[str, _KnownAgent] = {}
        self._noted: dict[str, str] = {}  # by host: what was said of its agent
        self._looks = 0  # that have begun

    def find_available_hosts_and_slots(self) -> FoundHosts:
        """Ask the other discovery, then every agent.

        Raises: whatever the other discovery does.  RuntimeError: a host is another machine, and there is no secret.
        """
        with self._changed:
            self._looks += 1
            self._changed.notify_all()
        found = self._inner.find_available_hosts_and_slots()
        addresses: dict[str, str] = getattr(found, "addresses", {})
        asked = {host: self._find_agent(host, addresses.get(host, host)) for host in found}
        remote = {host: agent for host, agent in asked.items() if agent is not None}
        self._ask(remote)
        slots, uids, now = {}, {}, time.monotonic()
        for host, agent in asked.items():
            if agent is None:
                slots[host] = found[host]
            elif agent.state is not None and agent.has_room(now, self._policy.timeout):
                slots[host], uids[host] = found[host], agent.state.agent
            self._note(host, agent)
        return FoundHosts(slots, uids, addresses)

    def find(self, host: str, seconds: float) -> AgentClient | None:
        """Return the agent of a host, None for this machine; wait so long for it when another host is known.

        A driver that goes on with workers may begin while the discovery finds nothing, as the API server is away.

        Raises: LostPeerError: the discovery does not find it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._local or self._agents, LONGEST_WAIT_S)
            if not self._changed.wait_for(lambda: host in self._local or host in self._agents, seconds):
                raise LostPeerError(f"the discovery of hosts does not find {host} any more")
            agent = self._agents.get(host)
            return None if agent is None else agent.client

    def _lose(self, client: AgentClient) -> None:
        """Leave out an agent until it answers; wait for a look without it, which is taken in when the next begins."""
        with self._changed:
            for agent in self._agents.values():
                if agent.client is client:
                    agent.is_lost = True
            wanted = self._looks + 2
            self._changed.wait_for(lambda: self._looks >= wanted, LOOKS_S)

    def _find_agent(self, host: str, address: str) -> _KnownAgent | None:
        """Return the agent of a host; None: it is this machine."""
        known = self._agents.get(host)
        if host in self._local or (known is not None and known.client.address == address):
            return known
        if not self._policy.is_everywhere:
            try:
                check_local(address)
            except ConfigError as exc:
                if not self._secret:
                    raise RuntimeError(str(exc)) from exc
            else:
                with self._changed:
                    self._local.add(host)
                    self._changed.notify_all()
                return None
        agent = _KnownAgent(AgentClient(address, self._policy.port, self._secret, self.hearing, self._lose))
        with self._changed:
            if len(self._agents) >= MOST_KNOWN:
                self._agents.clear()
            self._agents[host] = agent
            self._changed.notify_all()
        return agent

    def _ask(self, agents: dict[str, _KnownAgent]) -> None:
        """Ask the agents that no question is on its way to, and wait a moment for the answers."""
        until = time.monotonic() + self._settle_s
        self._settle_s = 0.0
        while agents:
            for agent in agents.values():
                if agent.is_asked:
                    continue
                if agent.asked is not None:
                    agent.asked.result()  # raises what no agent can be the reason of
                agent.asked = self._pool.submit(agent.ask)
            wait([agent.asked for agent in agents.values() if agent.asked is not None], ANSWER_S)
            if time.monotonic() >= until or not any(one.problem or one.is_asked for one in agents.values()):
                return
            time.sleep(SETTLE_S)

    def _note(self, host: str, agent: _KnownAgent | None) -> None:
        """Say once of each host that its agent does not answer, and once that it does again."""
        problem = "" if agent is None else agent.problem
        before = self._noted.get(host, "")
        if problem and not before:
            self._noted[host] = problem
            glog.warning(f"{host} has no agent now, and so no workers: {problem}")
        elif before and not problem:
            del self._noted[host]
            glog.info(f"the agent of {host} answers")


def find_way(address: str) -> str:
    """Return the address of this machine by which it reaches another one, and is reached from there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # sends nothing
        return str(probe.getsockname()[0])
