"""The service: rounds, passes, repeated and late requests, and every way in which a job ends."""

import itertools
import sys

import numpy as np
import pytest

from paddle_base.runtime.errors import ConfigError, LostPeerError, PeerUnreachableError
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.wire import protocol
from pserver.wire.authentication import DATA, HEARTBEAT, PROBE
from pserver.wire.protocol import Fetch, Message, MessageFlag, Op


def values(wire):
    return wire.service.state.shard.values.tobytes()


# ----- Rounds -----


def test_a_round_answers_everyone_when_the_last_gradient_is_in(wire):
    wire = wire(2)
    one, two = wire.ready(values=[1] * 7)
    one.push(0.5)
    assert one.last.op == Op.START_PASS
    two.push(0.3, samples=6)
    assert one.last.op == two.last.op == Op.PUSH
    np.testing.assert_allclose(one.values, 0.92, rtol=1e-6)
    assert wire.service.state.shard.samples == 10


def test_the_bits_do_not_depend_on_the_order_of_arrival(wire):
    random = np.random.default_rng(1)
    gradients = (random.standard_normal((3, 7)) * [[1e6], [1], [1e-6]]).astype(np.float32)
    results = set()
    for order in itertools.permutations(range(3)):
        made = wire(3)
        trainers = made.ready()
        for number in order:
            trainers[number].push(gradients[number])
        results.add(values(made))
    expected = np.float32(0) - np.float32(0.1) * np.clip(
        (gradients[0] + gradients[1]) + gradients[2], [-np.inf] * 5 + [-3] * 2, [np.inf] * 5 + [3] * 2
    )
    assert results == {expected.astype(np.float32).tobytes()}


def count_instructions(action):
    """Return the number of Python's instructions that an action executes."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("op, is_late", [(Op.PUSH, False), (Op.PING, False), (Op.PING, True)])
def test_a_push_and_a_ping_cost_the_same_among_many_trainers(wire, op, is_late):
    """Every push made a list of all trainers, and every ping looked at all of them, at least if only the last trainer
    was missing (`is_late`).
    """

    def cost(trainers):
        made = wire(trainers)
        _, one, two, *others = made.ready()
        for pushing in (one, two, *others) if is_late else (one,):
            pushing.push(1)
        payload = [np.ones(7, np.float32).tobytes()] if op == Op.PUSH else []
        message = Message(op, two.session, two.number, two.sequence + 1, payload=payload)
        return count_instructions(lambda: made.handle(two.token + DATA, protocol.encode(message)))

    few, many = cost(8), cost(80)
    assert many < 1.1 * few, f"{few} instructions with 8 trainers, {many} with 80"


def test_a_trainer_that_finished_its_pass_drops_out_of_the_remaining_steps(wire):
    """Check value of distributed.md 3.15: 1.0 - 0.1*0.5, samples += 4."""
    wire = wire(2)
    one, two = wire.ready(values=[1] * 7)
    two.ask(Op.FINISH_PASS)
    one.push(0.5)
    np.testing.assert_allclose(one.values, 0.95, rtol=1e-6)
    assert wire.service.state.shard.samples == 4


def test_a_finishing_trainer_completes_the_round_of_those_that_wait(wire):
    wire = wire(3)
    one, two, three = wire.ready()
    one.push(1)
    three.push(1)
    two.ask(Op.FINISH_PASS)
    assert one.last.op == three.last.op == Op.PUSH and two.last.op == Op.START_PASS
    np.testing.assert_allclose(one.values, -0.2, rtol=1e-6)


def test_a_pass_ends_for_all_at_once_even_for_one_without_a_batch(wire, capsys):
    wire = wire(2)
    one, two = wire.ready()
    two.ask(Op.FINISH_PASS)
    one.push(1)
    assert two.last.op == Op.START_PASS
    one.ask(Op.FINISH_PASS)
    assert one.last.op == two.last.op == Op.FINISH_PASS
    assert one.values.tobytes() == two.values.tobytes() == values(wire)
    log = capsys.readouterr().err
    for line in (
        "ParameterServer2.cpp:1588] ======== Batch=1 pass END=======",
        "BarrierStat.cpp:65]  create barrierEndStat: SLOW_NODES_denseUpdater endBarrier warning rate: 0.583333",
        "Stat.cpp:144] ======= BarrierStatSet status ======",
    ):
        assert line in log
    assert wire.service.state.shard.passes == 1


def test_a_pass_in_which_nobody_has_a_batch_ends(wire):
    wire = wire(2)
    one, two = wire.ready()
    one.ask(Op.FINISH_PASS)
    two.ask(Op.FINISH_PASS)
    assert one.last.op == two.last.op == Op.FINISH_PASS and wire.service.state.batch == 0


def test_the_start_of_a_pass_is_a_barrier(wire):
    wire = wire(2)
    one, two = wire.ready()
    for trainer in (one, two):
        trainer.ask(Op.FINISH_PASS)
    two.ask(Op.START_PASS)
    assert two.last.op == Op.FINISH_PASS
    one.ask(Op.START_PASS)
    assert one.last.op == two.last.op == Op.START_PASS


def test_others_wait_for_trainer_zeros_values_and_get_them(wire):
    wire = wire(3)
    one, two, three = (wire.trainer(number).join() for number in range(3))
    two.ask(Op.FETCH)
    assert two.last.op == Op.HELLO
    one.initialise(values=range(7))
    three.ask(Op.FETCH)
    assert two.values.tolist() == three.values.tolist() == list(range(7))


def test_averages_are_asked_for_between_two_steps_and_change_no_value(wire):
    wire = wire(2)
    one, two = wire.ready(optimization=Optimization("momentum", 0.5, average_window=1.0))
    for _ in range(3):
        one.push(-1)
        two.push(-1)
    two.push(-1)
    one.ask(Op.FETCH, argument=Fetch.AVERAGES)
    assert one.last.op == Op.FETCH and one.values.tolist() == [2] * 7
    one.push(-1)
    assert one.last.op == Op.PUSH and one.values.tolist() == two.values.tolist() == [4] * 7


def test_without_averaging_the_averages_are_the_values(wire):
    (one,) = wire(1).ready(values=range(7))
    one.ask(Op.FETCH, argument=Fetch.AVERAGES)
    assert one.values.tolist() == list(range(7))


def test_averages_before_the_first_values_are_refused(wire):
    one = wire(1).trainer(0).join()
    one.ask(Op.FETCH, argument=Fetch.AVERAGES)
    assert one.last.op == Op.ERROR and "has no values yet" in one.last.note["message"]


# ----- Repeated, late and misplaced requests -----


def test_a_repeated_push_counts_once_and_is_answered_again(wire):
    wire = wire(2)
    one, two = wire.ready()
    one.push(1)
    one.push(50, repeat=True)
    two.push(1)
    np.testing.assert_allclose(one.values, -0.2, rtol=1e-6)
    before, answers = values(wire), len(one.inbox)
    one.push(50, repeat=True)
    assert values(wire) == before and len(one.inbox) == answers + 1 and one.last.op == Op.PUSH


@pytest.mark.parametrize("offset", [-1, 1, 7])
def test_a_late_or_early_request_is_dropped_and_counted(wire, offset):
    wire = wire(1)
    [one] = wire.ready()
    before, answers = values(wire), len(one.inbox)
    one.push(1, sequence=one.sequence + offset + (1 if offset > 0 else 0))
    assert len(one.inbox) == answers and values(wire) == before and wire.service.sessions.complaints.malformed == 1
    one.push(1)
    assert one.last.op == Op.PUSH


def test_a_request_of_another_attempt_is_not_counted(wire):
    wire = wire(1)
    [one] = wire.ready()
    before, right, answers = values(wire), one.session, len(one.inbox)
    one.session = protocol.session_of("job", "0")
    one.push(1)
    assert len(one.inbox) == answers and wire.service.sessions.complaints.malformed == 1 and values(wire) == before
    old = wire.trainer(0, token=b"o" * 16)
    old.session = one.session
    old.push(1)
    assert old.last.op == Op.ERROR and "has no joined trainer 0" in old.last.note["message"] and values(wire) == before
    one.session, one.sequence = right, one.sequence - 1
    one.push(1)
    assert one.last.op == Op.PUSH


@pytest.mark.parametrize(
    "misuse, part",
    [
        (lambda t: t.ask(Op.PUSH, samples=1, payload=[b"123"]), "has 3 bytes"),
        (lambda t: t.ask(Op.PUSH, samples=1), "has 0 bytes"),
        (lambda t: t.push(1, piece=1), "piece 1 of 1"),
        (lambda t: t.initialise(), "and only once"),
        (lambda t: t.ask(Op.START_PASS), "inside a pass"),
    ],
    ids=["size", "nothing", "piece", "values", "start"],
)
def test_a_misplaced_request_is_refused_and_can_be_corrected(wire, misuse, part):
    wire = wire(1)
    [one] = wire.ready()
    before = values(wire)
    misuse(one)
    assert one.last.op == Op.ERROR and part in one.last.note["message"] and values(wire) == before
    assert wire.service.failure is None
    one.sequence -= 1
    one.push(1)
    assert one.last.op == Op.PUSH


@pytest.mark.parametrize(
    "request_, part",
    [
        (lambda t: t.push(1), "outside of a pass"),
        (lambda t: t.ask(Op.FINISH_PASS), "takes no part"),
        (lambda t: t.ask(Op.START_PASS), "without initial values"),
    ],
    ids=["push", "finish", "start"],
)
def test_a_request_before_there_are_values_is_refused(wire, request_, part):
    one = wire(1).trainer(0).join()
    request_(one)
    assert part in one.last.note["message"]


@pytest.mark.parametrize(
    "setup", [{"parameters": [ParameterSpec("w", 5)]}, {"values": [1, 2]}, {"optimization": Optimization("owlqn")}]
)
def test_a_setup_that_does_not_fit_leaves_no_values(wire, setup):
    wire = wire(1)
    one = wire.trainer(0).join()
    one.initialise(**setup)
    assert one.last.op == Op.ERROR and wire.service.state.shard is None


@pytest.mark.parametrize(
    "note",
    [
        {},
        {"fields": 3},
        {"fields": ["name"], "parameters": [[1, 2]], "optimization": {}},
        {"fields": ["size", "name"], "parameters": [[4, 5]], "optimization": {"x": 1}},
    ],
)
def test_a_setup_that_does_not_parse_is_refused(wire, note):
    one = wire(1).trainer(0).join()
    one.ask(Op.INITIALISE, note=note, payload=[b""])
    assert "cannot be parsed" in one.last.note["message"]


# ----- Who may join -----


@pytest.mark.parametrize(
    "hello, kind, parts",
    [
        ({"job": "other"}, PeerUnreachableError, ["job 'job'", "'other'"]),
        ({"attempt": "0"}, PeerUnreachableError, ["attempt '1'", "'0'"]),
        (
            {"num_trainers": 3},
            ConfigError,
            ["num_gradient_servers = 2", "num_gradient_servers = 3", "the same --num_gradient_servers, or leave the"],
        ),
        ({"dtype": "float64"}, ConfigError, ["float32", "float64"]),
        ({"parameters": "another"}, ConfigError, ["trainer 1 at 10.0.0.9", "trainer 0 at 10.0.0.9", "'another'"]),
        ({"shape": [1, 5]}, ConfigError, ["[1, 5]", "[2, 7]"]),
        ({"services": 4}, ConfigError, ["of 4", "of 1"]),
        ({"service": 1}, ConfigError, ["service 1 of 1", "service 0 of 1"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_trainer_that_does_not_fit_is_refused_by_naming_both_sides(wire, hello, kind, parts):
    wire = wire(2)
    wire.trainer(0).join()
    two = wire.trainer(1, **hello).join()
    assert two.last.op == Op.ERROR and two.last.note["exit_code"] == kind.exit_code
    assert all(part in two.last.note["message"] for part in [*parts, "10.0.0.1:7164"])
    assert list(wire.service.sessions.trainers) == [0] and wire.service.failure is None
    wire.trainers.remove(two)
    assert wire.trainer(1).join().last.op == Op.HELLO


def test_a_second_trainer_with_the_same_id_is_refused(wire):
    wire = wire(2)
    wire.trainer(0).join()
    double = wire.trainer(0, token=b"z" * 16).join()
    assert "two trainers with one id: trainer 0" in double.last.note["message"]


@pytest.mark.parametrize("number", [-1, 2])
def test_an_id_out_of_range_is_refused(wire, number):
    made = wire(2).trainer(number, token=b"t" * 16).join()
    assert "serves trainers 0 to 1" in made.last.note["message"]


def test_other_settings_than_those_of_trainer_zero_are_warned_of(wire, capsys):
    wire = wire(2)
    wire.trainer(0).join()
    assert wire.trainer(1, settings="other").join().last.op == Op.HELLO
    assert "other optimization settings" in capsys.readouterr().err


def test_a_probe_does_not_join(wire):
    wire = wire(1)
    probe = wire.trainer(-1, token=b"p" * 16)
    probe.kind = PROBE
    probe.join()
    assert probe.last.op == Op.HELLO and not protocol.find_fault(probe.last, "job", "1")
    assert not wire.service.sessions.is_used


def test_the_same_hello_again_changes_nothing(wire):
    wire = wire(2)
    one = wire.trainer(0).join()
    one.sequence -= 1
    assert one.join().last.op == Op.HELLO and len(wire.service.sessions.trainers) == 1


def test_an_unauthenticated_peer_cannot_speak_for_a_trainer(wire):
    wire = wire(1)
    [one] = wire.ready()
    before = values(wire)
    forged = Message(Op.PUSH, one.session, 0, one.sequence + 1, 1, payload=[b"\0\0\0\x41" * 7])
    wire.send(b"?" * 16 + DATA, forged)
    assert wire.unauthenticated[-1].op == Op.ERROR and values(wire) == before


# ----- The end -----


def test_who_said_goodbye_need_not_be_heard_of_any_more(wire):
    wire = wire(2)
    one, two = wire.ready()
    for trainer in (one, two):
        trainer.ask(Op.FINISH_PASS)
    one.ask(Op.GOODBYE)
    assert one.last.op == Op.GOODBYE and not wire.service.sessions.is_done
    wire.check(later=100)
    assert "trainer 1 at 10.0.0.9 is lost" in str(wire.service.failure)


def test_goodbye_of_all_is_the_end_and_before_the_first_hello_there_is_none(wire):
    made = wire(1)
    assert not made.service.sessions.is_used and not made.service.sessions.is_done
    made.check(later=1e6)
    assert made.service.failure is None
    [one] = made.ready()
    one.ask(Op.FINISH_PASS)
    one.ask(Op.GOODBYE)
    assert made.service.sessions.is_done


def test_a_silent_trainer_is_lost_and_everyone_hears_who_it_was_and_what_it_last_did(wire):
    wire = wire(2)
    one, two = wire.ready()
    two.push(1)
    wire.now += 14
    one.ping()
    wire.check()
    assert wire.service.failure is None
    wire.check(later=1.5)
    assert isinstance(wire.service.failure, LostPeerError)
    text = one.last.note["message"]
    assert one.last.flags & MessageFlag.FATAL and one.last.note["exit_code"] == 75
    assert "trainer 1 at 10.0.0.9 is lost" in text and "15.5 s" in text and "pushed batch 1 of pass 0" in text


def test_a_closed_connection_is_a_lost_trainer_unless_it_comes_back(wire):
    wire = wire(1)
    [one] = wire.ready()
    wire.service.sessions.suspect(one.token + HEARTBEAT, wire.now)
    one.ping()
    wire.check(later=3)
    assert wire.service.failure is None
    wire.service.sessions.suspect(one.token + HEARTBEAT, wire.now)
    wire.check(later=3)
    assert "closed its connection" in str(wire.service.failure)


def test_a_trainer_that_gives_up_says_why_to_the_others(wire):
    wire = wire(2)
    one, two = wire.ready()
    two.ask(Op.ABORT, sequence=99, note={"reason": "provider raised ValueError"})
    assert "trainer 1" in one.last.note["message"] and "provider raised ValueError" in one.last.note["message"]
    one.push(1)
    assert one.last.op == Op.ERROR and one.last.flags & MessageFlag.FATAL, "later requests hear it too"


def test_trainers_that_never_join_are_named(wire):
    wire = wire(4)
    wire.trainer(2).join()
    for _ in range(61):
        wire.trainers[0].ping()
        wire.check(later=10)
    assert isinstance(wire.service.failure, PeerUnreachableError)
    assert "trainers 0, 1, 3 of 4 did not join" in str(wire.service.failure)


def test_another_number_of_passes_is_an_error_for_who_goes_on(wire):
    for goes_first in (True, False):
        made = wire(2)
        one, two = made.ready()
        for trainer in (one, two):
            trainer.ask(Op.FINISH_PASS)
        for trainer, op in [(one, Op.GOODBYE), (two, Op.START_PASS)][:: 1 if goes_first else -1]:
            trainer.ask(op)
        assert isinstance(made.service.failure, ConfigError) and "num_passes" in two.last.note["message"]


def test_a_goodbye_in_the_middle_of_a_pass_is_a_loss(wire):
    wire = wire(2)
    one, two = wire.ready()
    one.push(1)
    two.ask(Op.GOODBYE)
    assert "in the middle of pass 0" in one.last.note["message"]


@pytest.mark.parametrize(
    "state, part",
    [
        (lambda w: w.trainer(0).join(), "trainer 1 of 2 to join"),
        (lambda w: max((w.trainer(n).join() for n in (0, 1)), key=lambda t: t.number), "initial values"),
        (lambda w: w.ready()[0].push(1), "trainer 1 at 10.0.0.9, which last asked for the start of a pass"),
    ],
    ids=["join", "values", "push"],
)
def test_a_ping_tells_what_the_service_waits_for(wire, state, part):
    trainer = state(wire(2))
    trainer.ping()
    assert part in trainer.last.note["waits_for"]


# ----- Fuzz -----


def test_who_could_not_join_and_why_is_told_to_those_who_wait_for_it(wire):
    wire = wire(2)
    one, wrong = wire.trainer(0).join(), wire.trainer(1, num_trainers=3)
    wrong.join()
    assert wrong.last.op == Op.ERROR
    one.ping()
    waits = one.last.note["waits_for"]
    assert waits.startswith("trainer 1 of 2 to join; the last refusal: ") and "trainer 1 at 10.0.0.9 has" in waits
    wire.now += 601
    one.ping()
    wire.check()
    assert "did not join" in str(wire.service.failure) and "num_gradient_servers = 3" in str(wire.service.failure)
