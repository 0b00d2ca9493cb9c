"""Trainers of a task job come, go, come back, are restarted and are lost; the service goes on."""

import pytest
from fuzz import frames

from paddle_base.runtime.errors import ConfigError, LostPeerError, VolumeError
from paddle_base.runtime.schema import SchemaError
from pserver.server.tasks.roster import MAX_KNOWN, ROSTER, Roster
from pserver.wire import protocol
from pserver.wire.authentication import DATA, HEARTBEAT
from pserver.wire.protocol import Message, MessageFlag, Op


def test_any_number_of_trainers_joins_at_any_time(elastic, capsys):
    one = elastic()
    trainers = one.ready(3)
    assert [trainer.last.op for trainer in trainers] == [Op.INITIALISE, Op.FETCH, Op.FETCH]
    late = one.trainer(200).join()
    assert late.last.op == Op.HELLO and late.last.note["num_trainers"] == 0
    assert "trainer 200 at 10.0.0.9 joined pserver 10.0.0.1:7164 (job 'job', attempt 'ps0.7'); joined trainers: 4" in (
        capsys.readouterr().err
    )
    assert late.fetch().values.tolist() == [0] * 7


def test_the_service_goes_on_when_trainers_are_lost_leave_or_give_up(elastic, capsys):
    one = elastic()
    trainers = one.ready(4)
    trainers[0].ask(Op.GOODBYE)
    assert trainers[0].last.op == Op.GOODBYE
    trainers[1].ask(Op.ABORT, note={"reason": "no data\nfake"})
    one.service.sessions.suspect(trainers[2].token + DATA, one.now)
    one.check(protocol.RECONNECT_GRACE - 0.1)
    assert set(one.service.sessions.trainers) == {2, 3}
    one.check(0.2)
    assert set(one.service.sessions.trainers) == {3}
    one.check(16)
    assert one.service.sessions.trainers == {} and one.service.failure is None
    assert not one.service.sessions.is_done and one.service.sessions.is_used
    assert set(one.closed) == {trainer.token + kind for trainer in trainers for kind in (DATA, HEARTBEAT)}
    said = capsys.readouterr().err
    for part in ("has left", "gave up: no data", "it closed its connection", "it sent nothing for 1"):
        assert part in said
    # a lost one that was only slow hears that it is not known, and joins anew
    trainers[3].push_alone(1, 1.0)
    assert trainers[3].last.op == Op.ERROR or one.unauthenticated[-1].op == Op.ERROR
    assert trainers[3].last.note["exit_code"] == LostPeerError.exit_code
    again = one.trainer(3, token=b"n" * 16).join()
    assert again.last.op == Op.HELLO


def test_a_trainer_that_joins_again_takes_the_place_of_its_session(elastic):
    one = elastic()
    old = one.ready()[0]
    new = one.trainer(0, token=b"n" * 16).join()
    assert new.last.op == Op.HELLO and one.closed == [old.token + DATA, old.token + HEARTBEAT]
    assert list(one.service.sessions.trainers) == [0]
    answers = len(old.inbox)
    old.fetch()  # what its old connection still brings
    assert old.inbox[-1].op == Op.ERROR and len(old.inbox) == answers + 1
    assert new.fetch().values.tolist() == [0] * 7


@pytest.mark.parametrize("started", [2, 0], ids=["later", "by a clock that was set back"])
def test_a_restarted_trainer_takes_the_place_of_one_that_is_gone_and_no_other(elastic, started):
    """The later start decided: a living trainer lost its place, and one whose clock was set back never got it."""
    one = elastic()
    first = one.trainer(0, incarnation=1).join()
    late = one.trainer(0, token=b"o" * 16, incarnation=started).join()
    assert late.last.op == Op.ERROR and late.last.note["exit_code"] == ConfigError.exit_code
    assert f"incarnation {started} of 'pod-0', but incarnation 1 is connected" in late.last.note["message"]
    one.service.sessions.suspect(first.token + DATA, 1.0)
    assert one.trainer(0, token=b"n" * 16, incarnation=started).join().last.op == Op.HELLO
    other = one.trainer(0, token=b"p" * 16, uid="another").join()
    assert other.last.op == Op.ERROR and "belongs to 'pod-0'" in other.last.note["message"]
    assert one.closed[-1] == other.token + DATA
    # also when nobody has the number now
    one.check(100)
    assert one.trainer(0, token=b"q" * 16, uid="another").join().last.op == Op.ERROR


def test_the_same_hello_again_is_the_same_session(elastic):
    one = elastic()
    [trainer] = one.ready()
    session = one.service.sessions.trainers[0]
    trainer.ask(Op.HELLO, note=trainer.hello, sequence=1)
    assert one.service.sessions.trainers[0] is session and one.closed == []


@pytest.mark.parametrize(
    "hello, part",
    [
        ({"uid": None}, "its uid is None"),
        ({"uid": "x" * 300}, "0 to 256 characters"),
        ({"incarnation": -1}, "its incarnation is -1"),
        ({"incarnation": True}, "its incarnation is True"),
        ({"dtype": "float64"}, "stores float32"),
        ({"parameters": 3}, "its parameters is 3"),
        ({"parameters": "another"}, "another parameter digest than the first values"),
        ({"services": 2}, "another number of services"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused_by_name(elastic, hello, part):
    one = elastic()
    one.ready()
    trainer = one.trainer(5)
    trainer.hello |= hello
    trainer.join()
    assert trainer.last.op == Op.ERROR and part in trainer.last.note["message"]


def test_no_field_of_a_hello_ends_a_server_whatever_it_holds(elastic):
    one = elastic()
    one.ready()
    trainer = one.trainer(1)
    for text in (text for raw in frames.RAW_VALUES for text in frames.texts_with(trainer.hello, raw)):
        hello = Message(Op.HELLO, trainer.session, 1, 1)
        one.deliver(one.handle(trainer.token + DATA, frames.encode(hello, b"k", text), b"k"))
        assert one.service.sessions.complaints.failed == 0 and one.service.failure is None, text[:200]
        one.check(100)


def test_a_model_is_compared_before_there_are_values_too(elastic):
    one = elastic()
    one.trainer(0).join()
    other = one.trainer(1, parameters="another").join()
    assert "another parameter digest than trainer 0" in other.last.note["message"]


def test_a_number_that_is_none_is_refused(elastic):
    one = elastic()
    trainer = one.trainer(0)
    trainer.number = -1
    trainer.join()
    assert one.service.sessions.trainers == {} and one.trainers[0].last.op == Op.ERROR


def test_static_and_elastic_programs_refuse_each_other_by_name(elastic, wire):
    static = wire(2, attempt="ps0.7")
    caller = static.trainer(0, elastic=True, num_trainers=0, uid="u", incarnation=0).join()
    assert caller.last.note["exit_code"] == ConfigError.exit_code
    assert "start both with --store_dir or --etcd_endpoints" in caller.last.note["message"]
    one = elastic()
    caller = one.trainer(0, elastic=False, num_trainers=2).join()
    assert caller.last.note["exit_code"] == ConfigError.exit_code
    assert "was started with a store" in caller.last.note["message"]
    one.attempt = "ps0.8"
    caller = one.trainer(1, attempt="1", elastic=False).join()  # whatever its attempt is
    assert "or both without" in caller.last.note["message"]


def test_a_message_of_another_incarnation_of_the_server_is_refused(elastic):
    one = elastic()
    [trainer] = one.ready()
    trainer.session = protocol.session_of("job", "ps0.6")
    before = len(trainer.inbox)
    trainer.fetch()
    assert len(trainer.inbox) == before  # on a known connection without an answer
    stranger = one.trainer(1, attempt="ps0.6").join()
    assert stranger.last.note["exit_code"] == 69 and "'ps0.6'" in stranger.last.note["message"]


def test_the_end_of_a_server_is_to_its_trainers_that_of_a_peer(elastic):
    one = elastic()
    trainers = one.ready(2)
    one.deliver(one.service.sessions.fail(VolumeError("no space")))
    for trainer in trainers:
        assert trainer.last.op == Op.ERROR and trainer.last.flags & MessageFlag.FATAL
        assert trainer.last.note["exit_code"] == LostPeerError.exit_code and "no space" in trainer.last.note["message"]
    assert one.trainer(3).join().last.note["exit_code"] == LostPeerError.exit_code
    assert isinstance(one.service.failure, VolumeError)


def test_requests_that_a_service_never_heard_of_leave_no_gap(elastic):
    one = elastic()
    [trainer] = one.ready()
    trainer.sequence += 5  # requests that the trainer gave up, or that other services refused
    assert trainer.fetch().last.op == Op.FETCH
    trainer.ask(Op.FETCH, sequence=trainer.sequence - 1)  # a late one
    assert len(trainer.inbox) == 3


def test_requests_of_static_jobs_are_not_known(elastic):
    one = elastic()
    [trainer] = one.ready()
    for op in (Op.START_PASS, Op.FINISH_PASS, Op.RESTORE, Op.CHECKPOINT, Op.CHECKPOINT_BLOB, Op.SAVE, Op.LOAD):
        trainer.ask(op)
        assert trainer.last.op == Op.ERROR and f"does not support the request {op.name}" in trainer.last.note["message"]
    for op in (Op.ENTER, Op.COMMIT):
        trainer.ask(op)
        assert trainer.last.op == Op.ERROR
    assert trainer.fetch().last.op == Op.FETCH


def test_a_probe_finds_an_elastic_server(elastic):
    one = elastic()
    hello = Message(Op.HELLO, one.service.sessions.session, -1, 1, note={"job": "job", "attempt": "ps0.7"})
    [(_, answer)] = one.send(b"p" * 16 + b"p", hello)
    assert answer.op == Op.HELLO


# ----- The roster -----


def test_a_roster_is_bounded_and_keeps_those_that_are_there():
    roster = Roster()
    for number in range(MAX_KNOWN + 10):
        roster.note(number, f"u{number}", 0, present={0, 1, number})
    roster.count_push(0, 3)
    assert roster.last_push(0) == 3 and roster.last_push(2) == 0
    assert len(roster.write()) == MAX_KNOWN and all(
        bool(roster.refuse(number, "another", 0, is_connected=False)) is (number == 1) for number in (1, 2)
    )


def test_a_new_process_counts_its_pushes_anew():
    roster = Roster()
    roster.note(0, "u", 0)
    roster.count_push(0, 7)
    roster.note(0, "u", 0)
    assert roster.last_push(0) == 7
    roster.note(0, "u", 1)
    assert roster.last_push(0) == 0


def test_a_roster_comes_back_and_what_is_none_is_refused():
    roster = Roster()
    roster.note(3, "u", 1)
    roster.count_push(3, 9)
    assert Roster.read(roster.write()).write() == [[3, "u", 1, 9]]
    for bad in ([3], [[3]], [[-1, "u", 0, 0]], [[0, 1, 0, 0]], [[0, "u", None, 0]], [[0, "u", 0, 1 << 63]], [{}]):
        with pytest.raises(SchemaError, match="trainers"):
            ROSTER.check(bad, "trainers")
