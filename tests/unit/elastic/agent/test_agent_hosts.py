"""Which hosts can have workers, by what their agents answer."""

from __future__ import annotations

import threading

import pytest
from waiting import until

from paddle_base.runtime.errors import LostPeerError, PeerUnreachableError
from paddle_base.runtime.network.interfaces import find_way
from paddle_cluster.elastic.agent.client import AgentClient
from paddle_cluster.elastic.agent.hosts import AgentHosts, AgentPolicy
from paddle_cluster.elastic.agent.protocol import AgentState
from paddle_cluster.elastic.discovery import FixedHosts, FoundHosts

Answers = dict[str, AgentState]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """What the agent at an address answers; without an entry it does not."""
    found: Answers = {}

    def read_state(client: AgentClient) -> AgentState:
        if client.address not in found:
            raise PeerUnreachableError(f"no agent answers at {client.address}")
        return found[client.address]

    monkeypatch.setattr(AgentClient, "read_state", read_state)
    return found


def test_a_host_counts_while_its_agent_answers_and_has_its_name_as_uid(
    answers: Answers, capfd: pytest.CaptureFixture[str]
) -> None:
    hosts = AgentHosts(FixedHosts({"127.0.0.2": 2, "127.0.0.3": 1}), "s", AgentPolicy(timeout=0.0, is_everywhere=True))
    answers["127.0.0.2"] = AgentState("a", 0, False)
    for _ in range(3):
        found = hosts.find_available_hosts_and_slots()
        assert (found, found.uids) == ({"127.0.0.2": 2}, {"127.0.0.2": "a"})
    answers["127.0.0.3"] = AgentState("b", 0, False)
    assert hosts.find_available_hosts_and_slots().uids == {"127.0.0.2": "a", "127.0.0.3": "b"}
    answers["127.0.0.2"] = AgentState("a", 2, True)
    assert list(hosts.find_available_hosts_and_slots()) == ["127.0.0.3"]
    log = capfd.readouterr().err
    assert log.count("no worker can start on 127.0.0.3 now") == 1
    assert log.count("the agent of 127.0.0.3 answers") == 1


def test_an_agent_that_misses_a_question_is_not_gone(answers: Answers) -> None:
    hosts = AgentHosts(FixedHosts({"127.0.0.2": 2}), "s", AgentPolicy(timeout=3600.0, is_everywhere=True))
    answers["127.0.0.2"] = AgentState("a", 0, False)
    assert hosts.find_available_hosts_and_slots()
    answers.clear()
    assert hosts.find_available_hosts_and_slots().uids == {"127.0.0.2": "a"}


def test_this_machine_needs_no_agent_and_another_one_needs_a_secret(answers: Answers) -> None:
    hosts = AgentHosts(FixedHosts({"localhost": 2, "192.0.2.1": 1}), "s", AgentPolicy())
    found = hosts.find_available_hosts_and_slots()
    assert (found, found.uids) == ({"localhost": 2}, {})
    assert hosts.find("localhost", 0.0) is None
    with pytest.raises(RuntimeError, match=r"192.0.2.1 is another machine .* start `paddle elastic agent` on it"):
        AgentHosts(FixedHosts({"192.0.2.1": 1}), "", AgentPolicy()).find_available_hosts_and_slots()


def test_a_host_is_called_by_the_address_that_the_discovery_gives(answers: Answers) -> None:
    inner = FixedHosts(FoundHosts({"pod-0": 1}, {"pod-0": "uid"}, {"pod-0": "10.0.0.1"}))
    hosts = AgentHosts(inner, "s", AgentPolicy(port=7, is_everywhere=True))
    answers["10.0.0.1"] = AgentState("a", 0, False)
    assert hosts.find_available_hosts_and_slots().uids == {"pod-0": "a"}
    inner.set(FoundHosts({"pod-0": 1}, {"pod-0": "uid"}, {"pod-0": "10.0.0.2"}))
    assert hosts.find_available_hosts_and_slots() == {}
    client = hosts.find("pod-0", 0.0)
    assert client is not None and (client.address, client.port) == ("10.0.0.2", 7)
    with pytest.raises(LostPeerError, match="does not find pod-1"):
        hosts.find("pod-1", 0.0)


def test_the_first_look_of_a_driver_that_goes_on_waits_for_all_agents(answers: Answers) -> None:
    hosts = AgentHosts(FixedHosts({"127.0.0.2": 1}), "s", AgentPolicy(is_everywhere=True), settle_s=60.0)
    agent = hosts._find_agent("127.0.0.2", "127.0.0.2")
    assert agent is not None
    questions = []

    def ask() -> None:
        questions.append(1)
        if len(questions) == 3:
            answers["127.0.0.2"] = AgentState("a", 0, False)

    before = AgentClient.read_state
    try:
        AgentClient.read_state = lambda client: (ask(), before(client))[1]  # type: ignore[method-assign]
        assert hosts.find_available_hosts_and_slots() == {"127.0.0.2": 1}
    finally:
        AgentClient.read_state = before  # type: ignore[method-assign]
    assert len(questions) == 3


def test_an_agent_that_does_not_answer_hides_no_other_one(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look took 5 s while a host was lost: the workers of another one that left had no time to do so."""
    monkeypatch.setattr("paddle_cluster.elastic.agent.hosts.ANSWER_S", 0.01)
    hosts = AgentHosts(FixedHosts({"127.0.0.2": 1, "127.0.0.3": 1}), "s", AgentPolicy(is_everywhere=True))
    answers["127.0.0.3"] = AgentState("b", 0, False)
    may_answer, before = threading.Event(), AgentClient.read_state

    def read_state(client: AgentClient) -> AgentState:
        if client.address == "127.0.0.2":
            assert may_answer.wait(60.0)
        return before(client)

    monkeypatch.setattr(AgentClient, "read_state", read_state)
    until(lambda: list(hosts.find_available_hosts_and_slots()) == ["127.0.0.3"], "the second host")
    answers["127.0.0.3"] = AgentState("b", 0, True)
    until(lambda: not hosts.find_available_hosts_and_slots(), "no host")
    answers["127.0.0.2"] = AgentState("a", 0, False)
    may_answer.set()
    until(lambda: list(hosts.find_available_hosts_and_slots()) == ["127.0.0.2"], "the first host")


def test_an_agent_that_has_lost_a_worker_has_no_room_until_it_answers(answers: Answers) -> None:
    """The next generation began on the host that was just lost, and had to be given up, too."""
    policy = AgentPolicy(timeout=3600.0, is_everywhere=True)
    hosts = AgentHosts(FixedHosts({"127.0.0.2": 1, "127.0.0.3": 1}), "s", policy)
    for host in ("127.0.0.2", "127.0.0.3"):
        answers[host] = AgentState(host, 0, False)
    assert len(hosts.find_available_hosts_and_slots()) == 2
    del answers["127.0.0.2"]
    assert len(hosts.find_available_hosts_and_slots()) == 2
    client = hosts.find("127.0.0.2", 0.0)
    assert client is not None
    losing = threading.Thread(target=client.report_loss)
    losing.start()
    while losing.is_alive():
        found = hosts.find_available_hosts_and_slots()
    assert list(found) == ["127.0.0.3"]
    answers["127.0.0.2"] = AgentState("127.0.0.2", 0, False)
    assert len(hosts.find_available_hosts_and_slots()) == 2


def test_the_way_to_an_address_of_this_machine_is_loopback() -> None:
    assert find_way("127.0.0.3").startswith("127.")
