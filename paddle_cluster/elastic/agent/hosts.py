"""Finds the hosts that can run workers: this machine, and machines on which an agent answers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, LostPeerError, PaddleError
from paddle_cluster.elastic.agent.client import AgentClient
from paddle_cluster.elastic.agent.protocol import AgentState
from paddle_cluster.elastic.constants import AGENT_PORT
from paddle_cluster.elastic.discovery import FoundHosts, HostDiscovery
from paddle_cluster.elastic.launching.processes import check_local
from paddle_cluster.elastic.membership.members import Hearing

PROBES = 64  # maximum number of simultaneous requests to agents
ANSWER_S = 1.0  # maximum seconds that a discovery waits for answers; it is short, because the wait delays all hosts
MOST_KNOWN = 100_000  # maximum number of hosts whose agents are remembered
DEAF_S = 60.0  # seconds without any agent's answer until all agents count as lost; by default, agents end workers then
SETTLE_S = 0.1  # seconds between two requests to an agent in the first discovery
LOOKS_S = 5.0  # maximum seconds that `_lose` waits for the next two discoveries
LONGEST_WAIT_S = 600.0  # maximum seconds that `find` waits until the discovery has found a first host


class AgentPolicy(NamedTuple):
    """How a driver uses agents.

    Attributes: port: port of all agents.  timeout: seconds of silence after which an agent and its workers are lost.
        is_everywhere: whether the workers of this machine run under an agent, too.
    """

    port: int = AGENT_PORT
    timeout: float = 10.0
    is_everywhere: bool = False


class _KnownAgent:
    """An agent that was asked for its state.

    Attributes: state: the last answer.  heard: time of the last answer in seconds of `time.monotonic`.  problem:
        error of the last request; empty: the agent has answered.  is_lost: the agent has lost a worker, and has not
        answered since then.
    """

    def __init__(self, client: AgentClient) -> None:
        self.client = client
        self.state: AgentState | None = None
        self.heard = 0.0
        self.problem = ""
        self.is_lost = False
        self.asked: Future[None] | None = None
        self._probed: Future[None] | None = None

    @property
    def is_asked(self) -> bool:
        """Whether a request is in progress."""
        return self.asked is not None and not self.asked.done()

    def ask(self) -> None:
        """Ask the agent and store the answer."""
        try:
            state = self.client.read_state()
        except PaddleError as exc:
            self.problem = str(exc)
            return
        self.state, self.heard, self.problem, self.is_lost = state, time.monotonic(), "", False

    def probe(self, pool: ThreadPoolExecutor) -> None:
        """Probe the machine of an agent that does not answer, if no probe is in progress."""
        if self._probed is None or self._probed.done():
            self._probed = pool.submit(self.client.probe)

    def has_room(self, now: float, timeout: float) -> bool:
        """Return whether the agent can run workers: its last answer is recent, and the agent is not about to end."""
        if self.state is None or self.state.is_leaving or self.is_lost:
            return False
        return not self.problem or self.client.measure_silence(self.heard, now) < timeout


class AgentHosts(HostDiscovery):
    """A discovery that runs another discovery, and keeps the hosts that can run workers now.

    The unique id of a host is the name of its agent.

    Args: secret: secret of the job; without a secret there are no agents.  settle_s: seconds that the first discovery
        waits for silent agents, because a driver that takes over workers has to find the hosts of all workers at once.

    Attributes: hearing: times at which agents have answered; they show whether this driver is cut off from the network.

    Thread safety: `find` may be called from any thread; only a single thread may run the discovery.
    """

    def __init__(self, inner: HostDiscovery, secret: str, policy: AgentPolicy, settle_s: float = 0.0) -> None:
        self._inner, self._secret, self._policy, self._settle_s = inner, secret, policy, settle_s
        self.hearing = Hearing(max(DEAF_S, policy.timeout))
        self._pool = ThreadPoolExecutor(PROBES, "agents")
        self._changed = threading.Condition()
        self._local: set[str] = set()
        self._agents: dict[str, _KnownAgent] = {}
        self._noted: dict[str, str] = {}  # by host: the last logged problem of the agent
        self._looks = 0  # number of discoveries that have begun
        self._is_stopped = False

    def find_available_hosts_and_slots(self) -> FoundHosts:
        """Run the other discovery, then ask the agents of the found hosts.

        Raises: every exception of the other discovery.  RuntimeError: a host is another machine, and there is no
            secret.
        """
        with self._changed:
            self._looks += 1
            self._changed.notify_all()
        found = self._inner.find_available_hosts_and_slots()
        addresses: dict[str, str] = getattr(found, "addresses", {})
        asked = {host: self._find_agent(host, addresses.get(host, host)) for host in found}
        remote = {host: agent for host, agent in asked.items() if agent is not None}
        for host, known in self._agents.items():
            known.client.is_listed = host in found
        self._ask(remote)
        slots, uids, now = {}, {}, time.monotonic()
        for host, agent in asked.items():
            if agent is None:
                slots[host] = found[host]
            elif agent.state is not None and agent.has_room(now, self._policy.timeout):
                slots[host], uids[host] = found[host], agent.state.agent
            self._note(host, agent)
        return FoundHosts(slots, uids, addresses)

    def stop(self) -> None:
        """End a running discovery, and every wait for a host."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        getattr(self._inner, "stop", lambda: None)()

    def find(self, host: str, seconds: float) -> AgentClient | None:
        """Return the agent of a host, or None if the host is this machine.

        The wait for the first host is long, because the discovery finds nothing while the API server is down. As soon
        as any host is known, the wait for the given host is at most `seconds`.

        Raises: LostPeerError: the discovery does not find the host.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self._local or self._agents, LONGEST_WAIT_S)
            self._changed.wait_for(lambda: self._is_stopped or host in self._local or host in self._agents, seconds)
            if host not in self._local and host not in self._agents:
                raise LostPeerError(f"the discovery of hosts does not find {host} any more")
            agent = self._agents.get(host)
            return None if agent is None else agent.client

    def _lose(self, client: AgentClient) -> None:
        """Exclude an agent until it answers again.

        The call waits at most LOOKS_S seconds until two further discoveries have begun. The first of them has then
        ended, and has excluded the agent.
        """
        with self._changed:
            for agent in self._agents.values():
                if agent.client is client:
                    agent.is_lost = True
            wanted = self._looks + 2
            self._changed.wait_for(lambda: self._is_stopped or self._looks >= wanted, LOOKS_S)

    def _find_agent(self, host: str, address: str) -> _KnownAgent | None:
        """Return the agent of a host, or None for this machine."""
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
                self._agents.clear()  # a discovery may name new hosts without end; those in use are found again
            self._agents[host] = agent
            self._changed.notify_all()
        return agent

    def _ask(self, agents: dict[str, _KnownAgent]) -> None:
        """Send a request to each agent that has no request in progress, and wait briefly for the answers."""
        until = time.monotonic() + self._settle_s
        self._settle_s = 0.0
        while agents:
            for agent in agents.values():
                if agent.is_asked:
                    agent.probe(self._pool)
                    continue
                if agent.asked is not None:
                    agent.asked.result()  # `result` raises only a programming error; `ask` handles all other errors
                agent.asked = self._pool.submit(agent.ask)
            wait([agent.asked for agent in agents.values() if agent.asked is not None], ANSWER_S)
            is_settled = not any(one.problem or one.is_asked for one in agents.values())
            if self._is_stopped or is_settled or time.monotonic() >= until:
                return
            time.sleep(SETTLE_S)

    def _note(self, host: str, agent: _KnownAgent | None) -> None:
        """Log once per host that its agent does not answer, and once that the agent answers again."""
        problem = "" if agent is None else agent.problem
        before = self._noted.get(host, "")
        if problem and not before:
            self._noted[host] = problem
            glog.warning(f"no worker can start on {host} now: {problem}")
        elif before and not problem:
            del self._noted[host]
            glog.info(f"the agent of {host} answers")
