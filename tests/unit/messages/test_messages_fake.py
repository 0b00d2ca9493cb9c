"""Server and members together, over the fake network: joining, requests, silence, coming back."""

import itertools

import pytest
from control_programs import AddingMember, AddingServer, client_core, server_core
from fake_network import FakeClient, FakeNetwork

from paddle_base.messages.envelope import JOIN, Envelope, MemberId, encode
from paddle_base.messages.errors import ClosedError, NoAnswerError, RequestRefusedError
from paddle_base.messages.server_core import MOST_RIVALS, Dispatcher, ServerCore, ServerEffect
from paddle_base.runtime.schema import SchemaError


class Stage:
    """A network with a server."""

    def __init__(self, **options: float) -> None:
        self.network = FakeNetwork()
        self.adding = AddingServer()
        self.dispatcher = Dispatcher(server_core(**options), self.adding, self.network.notes.append)
        self.server = self.network.serve("10.0.0.1", self.dispatcher)

    def join(self, uid: str = "a", incarnation: int = 1, realm: str = "job-1") -> tuple[FakeClient, AddingMember]:
        member = AddingMember()
        core = client_core(uid, incarnation, realm, delays=lambda: itertools.repeat(1.0))
        client = self.network.join("10.0.0.1", core, member)
        self.network.run()
        return client, member


def join_message(uid: str, incarnation: int) -> bytes:
    member = {"uid": uid, "incarnation": incarnation}
    return encode(Envelope(JOIN, {"protocol": "adding/1", "realm": "job-1", "member": member, "hello": {"name": "a"}}))


def test_a_member_joins_asks_and_leaves() -> None:
    stage = Stage()
    client, member = stage.join()
    assert client.caller.trouble == ""
    assert client.ask("add", {"number": 4}, 5.0) == {"total": 4}
    client.close()
    assert member.heard == ["welcome of server.1: 0"]
    assert stage.adding.heard == ["a.1 joined", "a.1 lost: it has left"]
    with pytest.raises(ClosedError, match="the server: it was closed"):
        client.caller.submit("add", {"number": 4}, 5.0)


def test_a_push_goes_to_all_or_to_some() -> None:
    stage = Stage()
    members = {uid: stage.join(uid)[1] for uid in "abc"}
    stage.dispatcher.call(ServerCore.push, "tell", {"text": "all"})
    two = [MemberId("b", 1), MemberId("b", 2), MemberId("z", 1)]
    stage.dispatcher.call(ServerCore.push, "tell", {"text": "two"}, two)
    stage.network.run()
    assert [len(members[uid].heard) for uid in "abc"] == [2, 3, 2]
    assert stage.dispatcher.core.joined == [MemberId("a", 1), MemberId("b", 1), MemberId("c", 1)]


def test_a_request_can_be_answered_later() -> None:
    stage = Stage()
    client, _ = stage.join()
    early, late = client.caller.submit("wait", {}, 60.0), client.caller.submit("wait", {}, 60.0)
    stage.network.run()
    assert not early.done()
    stage.dispatcher.call(ServerCore.answer, stage.adding.waiting[0], {})
    stage.dispatcher.call(ServerCore.refuse, stage.adding.waiting[1], "over", "it is over")
    stage.dispatcher.call(ServerCore.answer, stage.adding.waiting[1], {})  # too late: nothing happens
    stage.network.run()
    assert early.result(0) == {}
    with pytest.raises(RequestRefusedError, match="it is over"):
        late.result(0)


@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [
        (13, "unlucky", "13 is not added"),
        (66, "failed", "an error in the server: ZeroDivisionError: a fault"),
        (99, "failed", "an error in the server: SchemaError: the answer to add has no total"),
    ],
)
def test_what_the_handler_refuses_or_fails_at_is_told(number: int, code: str, reason: str) -> None:
    stage = Stage()
    client, _ = stage.join()
    with pytest.raises(RequestRefusedError, match=reason) as caught:
        client.ask("add", {"number": number}, 5.0)
    assert caught.value.code == code
    assert stage.dispatcher.core.counts[code] >= 1
    assert client.ask("add", {"number": 1}, 5.0) == {"total": 1}
    assert bool(stage.network.notes) == (code == "failed")


def test_a_message_that_fails_in_the_server_ends_its_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    client, _ = stage.join()
    other, _ = stage.join("b")
    whole = ServerCore.receive

    def receive(core: ServerCore, route: bytes, data: bytes, now: float) -> list[ServerEffect]:
        if b"1313" in data:
            raise RecursionError("a bug")
        return whole(core, route, data, now)

    monkeypatch.setattr(ServerCore, "receive", receive)
    client.caller.submit("add", {"number": 1313}, 0.5)
    stage.network.run()
    assert "a.1 lost: a message of the member caused an error in the server" in stage.adding.heard
    assert stage.dispatcher.core.counts["failed"] >= 1 and "RecursionError: a bug" in stage.network.notes[0]
    assert other.ask("add", {"number": 2}, 5.0) == {"total": 2}


def test_a_fault_of_a_members_handler_ends_nothing() -> None:
    stage = Stage()
    client, member = stage.join()
    stage.dispatcher.call(ServerCore.push, "tell", {"text": "fail"})
    stage.dispatcher.call(ServerCore.push, "tell", {"text": "next"})
    stage.network.run()
    assert member.heard[-1] == "tell: next"
    assert "ZeroDivisionError" in stage.network.notes[0]
    assert client.caller.trouble == ""


@pytest.mark.parametrize(("kind", "body"), [("multiply", {}), ("add", {}), ("add", {"number": "1"})])
def test_a_wrong_request_is_not_sent(kind: str, body: dict[str, object]) -> None:
    client, _ = Stage().join()
    with pytest.raises(SchemaError):
        client.caller.submit(kind, body, 5.0)


@pytest.mark.parametrize(("kind", "body"), [("multiply", {}), ("tell", {}), ("tell", {"text": 1})])
def test_a_wrong_push_is_not_sent(kind: str, body: dict[str, object]) -> None:
    with pytest.raises(SchemaError):
        Stage().dispatcher.call(ServerCore.push, kind, body)


def test_a_request_waits_for_the_join_until_its_deadline() -> None:
    stage = Stage()
    stage.server.close()
    client, _ = stage.join()
    answer = client.caller.submit("add", {"number": 1}, 7.0)
    stage.network.advance(6.9)
    assert not answer.done()
    stage.network.advance(0.2)
    with pytest.raises(NoAnswerError, match="has not answered add within 7 s: no connection to the server can"):
        answer.result(0)


def test_a_request_without_an_answer_says_when_the_server_was_last_heard() -> None:
    stage = Stage()
    client, _ = stage.join()
    with pytest.raises(NoAnswerError, match="has not answered wait within 3 s: the request was sent"):
        client.ask("wait", {}, 3.0)


def test_a_repeated_request_is_handled_once() -> None:
    stage = Stage()
    client, member = stage.join()
    answer = client.caller.submit("add", {"number": 5}, 60.0)
    client.caller.step(lambda core: core.tick(stage.network.now))
    for command in client.caller.take_commands():  # it arrives, and the answer is lost with the connection
        stage.dispatcher.receive(client.route, command.data, stage.network.now)  # type: ignore[union-attr]
    stage.network.cut(client)
    stage.network.advance(5.0)
    assert not answer.done()
    stage.network.mend(client)
    stage.network.advance(2.0)
    assert answer.result(0) == {"total": 5}
    assert stage.adding.total == 5
    assert member.heard == [
        "welcome of server.1: 0",
        "disconnected: the connection is gone",
        "welcome of server.1: 5",
    ]


def test_an_open_request_outlives_the_connection() -> None:
    stage = Stage()
    client, _ = stage.join()
    answer = client.caller.submit("wait", {}, 60.0)
    stage.network.run()
    stage.network.cut(client)
    stage.network.mend(client)
    stage.dispatcher.call(ServerCore.answer, stage.adding.waiting[0], {})
    stage.network.advance(2.0)
    assert answer.result(0) == {}
    assert len(stage.adding.waiting) == 1


def test_a_member_that_hangs_is_lost_by_name_and_comes_back() -> None:
    stage = Stage(silence=10.0)
    client, member = stage.join()
    other, _ = stage.join("b")
    stage.network.freeze(client)
    stage.network.advance(10.5)
    assert stage.adding.heard[-1].startswith("a.1 lost: the member has been silent for 1")
    assert stage.dispatcher.core.joined == [MemberId("b", 1)]
    stage.network.mend(client)
    stage.network.advance(3.0)
    assert stage.adding.heard[-1] == "a.1 joined"
    assert member.heard[-1] == "welcome of server.1: 0"
    assert other.caller.trouble == ""


def test_a_server_that_hangs_is_noticed() -> None:
    stage = Stage()
    client, member = stage.join()
    stage.server.is_open = False  # nothing is closed, but nothing answers
    stage.network.advance(10.5)
    assert member.heard[-1].startswith("disconnected: the server has been silent for 1")
    assert client.caller.trouble


def test_beats_keep_both_sides_through_long_quiet() -> None:
    stage = Stage()
    client, member = stage.join()
    stage.network.advance(120.0)
    assert client.caller.trouble == ""
    assert member.heard == ["welcome of server.1: 0"]
    assert stage.adding.heard == ["a.1 joined"]


def test_a_new_server_is_heard_as_another() -> None:
    stage = Stage()
    client, member = stage.join()
    stage.adding.total = 7
    stage.network.serve("10.0.0.1", Dispatcher(server_core(), stage.adding, stage.network.notes.append))
    stage.network.advance(3.0)
    assert member.heard[-1] == "welcome of server.1: 7"
    assert client.ask("add", {"number": 1}, 5.0) == {"total": 8}


@pytest.mark.parametrize("other", [2, 0], ids=["a later start", "an earlier start by a clock that was set back"])
def test_a_place_belongs_to_the_process_that_took_it_first(other: int) -> None:
    """A child with the environment of its parent took its place, because it had begun later."""
    stage = Stage()
    first, _ = stage.join("a", 1)
    second, heard = stage.join("a", other)
    assert (
        "the place of a belongs to its process 1, which is connected; waiting for a sign of its life"
        in second.caller.trouble
    )
    stage.network.advance(4.0)
    assert (
        f"connected and works; this process {other} is another one; a place has one process: end"
        in second.caller.trouble
    )
    with pytest.raises(ClosedError):
        second.caller.submit("add", {"number": 1}, 5.0)
    assert not heard.heard and stage.adding.heard == ["a.1 joined"]
    assert first.ask("add", {"number": 1}, 5.0) == {"total": 1}


@pytest.mark.parametrize("other", [2, 0], ids=["a later start", "an earlier start by a clock that was set back"])
def test_a_restarted_process_takes_its_place_when_the_connection_of_the_old_one_has_ended(other: int) -> None:
    """With a clock that was set back, the place was refused for ever."""
    stage = Stage()
    old, _ = stage.join("a", 1)
    stage.network.cut(old)
    new, _ = stage.join("a", other)
    assert new.caller.trouble == "" and stage.dispatcher.core.joined == [MemberId("a", other)]
    stage.network.mend(old)
    stage.network.advance(4.0)
    assert f"process {other} has taken the place of a.1" in old.caller.trouble
    assert stage.dispatcher.core.joined == [MemberId("a", other)]


def test_a_connection_whose_end_nobody_has_noticed_is_found_by_the_restarted_process() -> None:
    stage = Stage()
    old, _ = stage.join("a", 1)
    old.is_cut, old.route = True, b""  # killed: its socket is closed, and the server has sent nothing since
    new, _ = stage.join("a", 2)
    stage.network.advance(1.25)  # the second try
    assert new.caller.trouble == "" and stage.adding.heard[-2:] == ["a.1 lost: the connection is gone", "a.2 joined"]


def test_the_place_of_a_silent_process_is_free_at_the_end_of_the_silence() -> None:
    stage = Stage()
    old, _ = stage.join("a", 1)
    stage.network.freeze(old)
    new, _ = stage.join("a", 2)
    stage.network.advance(9.0)
    assert stage.dispatcher.core.joined == [MemberId("a", 1)] and "waiting for a sign" in new.caller.trouble
    stage.network.advance(3.0)
    assert stage.dispatcher.core.joined == [MemberId("a", 2)] and new.caller.trouble == ""


def test_the_processes_that_wait_for_a_place_are_bounded() -> None:
    core = server_core()
    core.receive(b"1", join_message("a", 1), 0.0)
    for number in range(2, 100):
        core.receive(b"%d" % number, join_message("a", number), 1.0)
    assert len(core._sessions["a"].rivals) == MOST_RIVALS


def test_a_member_of_another_job_is_kept_out_and_told() -> None:
    stage = Stage()
    client, _ = stage.join(realm="job-2")
    assert "the member belongs to 'job-2'; this server belongs to 'job-1'" in client.caller.trouble
    assert stage.dispatcher.core.counts["realm"] == 1
    assert stage.dispatcher.core.joined == []


def test_a_join_that_the_application_refuses_is_tried_again() -> None:
    stage = Stage()
    stage.adding.refused = "not yet"
    client, _ = stage.join()
    assert client.caller.trouble == "the server has refused this member: not yet"
    stage.adding.refused = ""
    stage.network.advance(2.0)
    assert client.caller.trouble == ""


def test_there_is_a_bound_on_open_requests() -> None:
    client, _ = Stage().join()
    for _ in range(64):
        client.caller.submit("wait", {}, 5.0)
    with pytest.raises(SchemaError, match="64 requests"):
        client.caller.submit("wait", {}, 5.0)


def test_there_is_a_bound_on_members_and_the_lost_make_room() -> None:
    stage = Stage(most_members=2)
    first, _ = stage.join("a")
    stage.join("b")
    third, _ = stage.join("c")
    assert "2 members have joined; no more are accepted" in third.caller.trouble
    stage.network.cut(first)
    stage.network.advance(2.0)
    assert third.caller.trouble == ""
