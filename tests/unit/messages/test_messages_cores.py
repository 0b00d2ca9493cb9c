"""What a server and a member make of single messages."""

import itertools

import pytest
from control_programs import client_core, server_core
from each import each

from paddle_base.messages.client_core import (
    ClientCore,
    ClientSend,
    ClientState,
    CloseConnection,
    Disconnected,
    OpenConnection,
)
from paddle_base.messages.envelope import BEAT, JOIN, Envelope, MemberId, decode, encode, error
from paddle_base.messages.server_core import FORGET_S, MemberAsked, MemberJoined, MemberLost, ServerCore, ServerSend

JOINING = {
    "protocol": "adding/1",
    "realm": "job-1",
    "member": {"uid": "a", "incarnation": 1},
    "hello": {"name": "a"},
}


def joined_server(**options: float) -> ServerCore:
    core = server_core(**options)
    core.receive(b"1", encode(Envelope(JOIN, JOINING)), 0.0)
    core.welcome(MemberId("a", 1), {"total": 0})
    return core


def only_error(effects: list[object]) -> str:
    [send] = effects
    assert isinstance(send, ServerSend)
    return str(decode(send.data).body["code"])


def test_a_quiet_member_is_sent_a_beat_by_which_a_closed_connection_is_found() -> None:
    core = joined_server(silence=10.0, probe=2.0)
    assert core.tick(1.9) == []
    assert core.tick(2.0) == [ServerSend(b"1", encode(Envelope(BEAT)))]
    core.receive(b"1", encode(Envelope(BEAT)), 2.1)
    assert core.tick(4.0) == []
    assert core.tick(4.2) == [ServerSend(b"1", encode(Envelope(BEAT)))]
    assert core.broken(b"1", "its connection is gone") == [MemberLost(MemberId("a", 1), "its connection is gone")]
    assert core.tick(4.3) == []


def test_a_member_is_told_nothing_before_its_welcome() -> None:
    """The welcome has the whole state; a change before it would be about a state that the member does not have."""
    core = server_core()
    core.receive(b"1", encode(Envelope(JOIN, JOINING)), 0.0)
    assert core.push("tell", {"text": "news"}) == []
    assert core.push("tell", {"text": "news"}, [MemberId("a", 1)]) == []
    core.welcome(MemberId("a", 1), {"total": 0})
    assert core.push("tell", {"text": "news"}) == [ServerSend(b"1", encode(Envelope("tell", {"text": "news"})))]


@each(
    ("change", "code"),
    [
        ({"protocol": "adding/2"}, "protocol"),
        ({"realm": "job-2"}, "realm"),
        ({"hello": {}}, "schema"),
        ({"hello": None}, "schema"),
        ({"member": {"uid": "", "incarnation": 1}}, "schema"),
        ({"member": "a"}, "schema"),
        ({"more": 1}, "schema"),
    ],
)
def test_a_wrong_join_is_answered_and_counted(change: dict[str, object], code: str) -> None:
    core = server_core()
    assert only_error(core.receive(b"1", encode(Envelope(JOIN, {**JOINING, **change})), 0.0)) == code
    assert core.counts == {code: 1}
    assert core.joined == []


@each(
    ("data", "code"),
    [
        (b"noise", "form"),
        (b"", "form"),
        (b'{"v":9}', "version"),
        (encode(Envelope("multiply", {}, 1)), "kind"),
        (encode(Envelope("tell", {"text": "x"}, 1)), "kind"),
        (encode(Envelope("add", {}, 1)), "schema"),
        (encode(Envelope("add", {"number": 1}, 0)), "repeated"),
        (encode(Envelope(JOIN, {**JOINING, "member": {"uid": "b", "incarnation": 1}})), "joined"),
    ],
)
def test_a_wrong_message_of_a_member_is_answered_and_counted(data: bytes, code: str) -> None:
    core = joined_server()
    assert only_error(core.receive(b"1", data, 1.0)) == code
    assert core.counts == {code: 1}
    assert core.joined == [MemberId("a", 1)]


def test_who_has_not_joined_can_only_join() -> None:
    assert only_error(joined_server().receive(b"2", encode(Envelope("add", {"number": 1}, 1)), 1.0)) == "join"


def test_an_answer_is_kept_until_the_member_has_it() -> None:
    core = joined_server()
    question = encode(Envelope("add", {"number": 1}, 1, 1))
    [asked] = core.receive(b"1", question, 1.0)
    assert isinstance(asked, MemberAsked)
    assert core.receive(b"1", question, 1.0) == []  # it is being handled
    answer = core.answer(asked, {"total": 1})
    assert core.receive(b"1", question, 1.0) == answer
    core.receive(b"1", encode(Envelope(BEAT, {}, 0, 2)), 1.0)
    assert only_error(core.receive(b"1", question, 1.0)) == "repeated"


def test_more_open_requests_than_a_member_may_have_are_refused() -> None:
    core = joined_server()
    for number in range(1, 65):
        core.receive(b"1", encode(Envelope("wait", {}, number, 1)), 1.0)
    assert only_error(core.receive(b"1", encode(Envelope("wait", {}, 65, 1)), 1.0)) == "busy"


def test_a_member_that_is_lost_for_long_is_forgotten() -> None:
    core = joined_server(silence=10.0)
    core.receive(b"1", encode(Envelope("wait", {}, 1, 1)), 1.0)
    assert len(core.tick(11.0)) == 1
    assert core.tick(12.0) == []
    back = encode(Envelope(JOIN, JOINING))
    [joined] = core.receive(b"2", back, 30.0)
    assert isinstance(joined, MemberJoined) and joined.is_back
    core.tick(40.0)
    core.tick(30.0 + FORGET_S)
    [joined] = core.receive(b"3", back, 30.0 + FORGET_S)
    assert isinstance(joined, MemberJoined) and not joined.is_back


def test_a_member_joins_by_another_connection_and_the_old_one_counts_no_more() -> None:
    core = joined_server()
    core.receive(b"2", encode(Envelope(JOIN, JOINING)), 1.0)
    core.welcome(MemberId("a", 1), {"total": 0})
    assert only_error(core.receive(b"1", encode(Envelope(BEAT)), 1.0)) == "join"
    assert core.broken(b"1", "gone") == []
    assert core.joined == [MemberId("a", 1)]


# ----- A member


def connecting(**options: float) -> ClientCore:
    core = client_core(delays=lambda: itertools.repeat(1.0), **options)
    assert core.tick(0.0) == [OpenConnection()]
    return core


def joined_client() -> ClientCore:
    core = connecting()
    core.opened(0.0)
    core.receive(encode(Envelope("joined", {"server": {"uid": "s", "incarnation": 1}, "welcome": {"total": 0}})), 0.0)
    assert core.state is ClientState.JOINED
    return core


def test_a_connection_that_takes_too_long_is_tried_again() -> None:
    core = connecting(silence=5.0)
    assert core.due() == 5.0
    assert core.tick(5.0) == [CloseConnection()]
    assert core.trouble == "connecting has taken more than 5 s"
    assert core.due() == 6.0
    assert core.tick(6.0) == [OpenConnection()]


def test_a_server_that_does_not_answer_the_join_is_given_up() -> None:
    core = connecting(silence=5.0)
    core.opened(1.0)
    assert core.tick(6.0) == [CloseConnection()]
    assert core.trouble == "joining has taken more than 5 s"


def test_a_member_beats_when_it_has_nothing_to_say() -> None:
    core = joined_client()
    assert core.due() == 2.0
    [beat] = core.tick(2.0)
    assert isinstance(beat, ClientSend) and decode(beat.data).kind == BEAT
    assert core.due() == 4.0


def test_a_server_that_has_lost_this_member_is_joined_again() -> None:
    core = joined_client()
    number, _ = core.submit("add", {"number": 1}, 60.0, 1.0)
    effects = core.receive(error("join", "this connection has not joined", number), 1.0)
    assert effects == [CloseConnection(), Disconnected("this connection has not joined")]
    core.tick(2.0)
    core.opened(2.0)
    welcome = encode(Envelope("joined", {"server": {"uid": "s", "incarnation": 1}, "welcome": {"total": 0}}))
    assert decode(core.receive(welcome, 2.0)[1].data) == Envelope("add", {"number": 1}, number, number)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "data",
    [
        b"noise",
        encode(Envelope("tell", {"text": 1})),
        encode(Envelope("add", {"number": 1}, 1)),
        encode(Envelope("reply", {"total": "x"}, 1)),
        encode(Envelope("error", {})),
    ],
)
def test_a_wrong_message_of_the_server_is_counted_and_dropped(data: bytes) -> None:
    core = joined_client()
    core.submit("add", {"number": 1}, 60.0, 0.0)
    assert core.receive(data, 1.0) == []
    assert sum(core.counts.values()) == 1
    assert core.state is ClientState.JOINED


def test_answers_to_nothing_are_ignored() -> None:
    core = joined_client()
    assert core.receive(encode(Envelope("reply", {"total": 1}, 5)), 1.0) == []
    assert core.receive(error("x", "y", 5), 1.0) == []
    assert core.receive(error("x", "y"), 1.0) == []
    assert core.failed("x", 1.0) != []
    assert core.failed("x", 1.0) == []
    assert core.receive(encode(Envelope(BEAT)), 1.0) == []
    assert core.opened(1.0) == []
