"""What is held against a job at its end, and the table of many."""

import pytest
from chaos import verdict
from chaos.plan import Trial
from chaos.table import format_table
from chaos.trial import Report

KILLED = Trial("one", role="trainer-1", moment="mid-pass", harm="kill", pod=1)
ADDRESSES = {0: "10.77.0.2", 1: "10.77.0.3"}


def passes(value=b"1"):
    return {f"pass-{number:05d}": {"done": b"", "w0": value} for number in range(3)}


def test_one_other_bit_in_one_pass_is_named():
    assert verdict.compare_passes(passes(), passes()) == []
    other = passes()
    other["pass-00001"]["w0"] = b"2"
    assert verdict.compare_passes(other, passes()) == ["pass-00001 differs from the undisturbed run's: w0"]


def test_missing_and_surplus_passes_are_named():
    fewer = passes()
    del fewer["pass-00002"]
    assert verdict.compare_passes(fewer, passes()) == ["pass-00002 is only in the undisturbed run"]
    assert verdict.compare_passes(passes(), fewer) == ["pass-00002 is only in the disturbed run"]
    assert verdict.check_whole(fewer, passes()) == ["pass-00002 lacks done, w0"]


def test_the_state_after_the_last_pass_is_compared_when_it_is_complete(tmp_path):
    state = tmp_path / "state" / "pass-00002"
    (state / "services").mkdir(parents=True)
    (state / "services" / "velocity.bin").write_bytes(b"1")
    assert verdict.last_state(tmp_path) == {}
    (state / "done").touch()
    assert verdict.last_state(tmp_path) == {"state/pass-00002": {"services/velocity.bin": b"1"}}


def test_a_cost_may_be_a_tenth_away():
    assert verdict.compare_costs(0.109, 0.1) == []
    assert verdict.compare_costs(0.092, 0.1) == []
    assert verdict.compare_costs(0.111, 0.1)
    assert verdict.compare_costs(None, 0.1)


def test_a_program_costs_no_pod_and_a_launcher_exactly_one():
    assert verdict.check_pods(KILLED, ["a", "b", "c"], [], 3) == []
    assert verdict.check_pods(KILLED, ["a", "b", "c", "d"], ["b"], 3)
    launcher = Trial("one", role="launcher", moment="start", harm="kill")
    assert verdict.check_pods(launcher, ["a", "b", "c", "d"], ["b"], 3) == []
    assert verdict.check_pods(launcher, ["a", "b", "c"], [], 3)
    assert verdict.check_pods(launcher, ["a", "b", "c", "d", "e"], ["a", "b"], 3)


def test_the_lost_one_must_be_named_by_somebody_else(tmp_path):
    log = tmp_path / "other.log"
    server = Trial("one", role="pserver-1", moment="mid-pass", harm="stop", pod=1)
    log.write_text("pserver 10.77.0.2:7164 is lost: it does not answer\n")
    assert verdict.check_named(KILLED, ADDRESSES, [log])
    log.write_text("trainer 1 at 10.77.0.3:4711 is lost: its connection closed; it last pushed batch 3\n")
    assert verdict.check_named(KILLED, ADDRESSES, [log]) == []
    assert verdict.check_named(server, ADDRESSES, [log])
    log.write_text("pserver 10.77.0.3:7164, 10.77.0.3:7165 is leaving: stopped by SIGTERM\n")
    assert verdict.check_named(KILLED, ADDRESSES, [log]) == []
    assert verdict.check_named(server, ADDRESSES, [log]) == []


def test_a_job_is_finished_when_its_record_says_that_and_nothing_else():
    assert verdict.is_finished({"finished": True})
    assert not verdict.is_finished({"finished": False})
    assert not verdict.is_finished({"finished": "yes"})
    assert not verdict.is_finished({})


def test_a_checkpoint_without_its_marker_is_no_start(tmp_path):
    state = tmp_path / "state" / "pass-00000-001"
    state.mkdir(parents=True)
    record = {"attempt": 2, "checkpoint": "pass-00000-001"}
    assert verdict.check_named_state(tmp_path, record)
    (state / "done").touch()
    assert verdict.check_named_state(tmp_path, record) == []
    assert verdict.check_named_state(tmp_path, {"attempt": 1, "checkpoint": ""}) == []


# ----- what the launchers record and say -----


def record(**changed):
    """The job.json of a job whose trainer 1 was killed in its first attempt."""
    failure = {"trainer_id": 1, "program": "trainer", "signal": "SIGKILL"}
    attempts = [{"name": "1.aa", "origin": "", "failure": failure}, {"name": "2.bb", "origin": "pass-00001-004"}]
    return {"finished": True, "given_up": False, "absent": [], "attempt": 2, "attempts": attempts} | changed


def with_failure(**changed):
    first, *others = record()["attempts"]
    return record(attempts=[first | {"failure": first["failure"] | changed}, *others])


def test_the_record_of_a_job_that_has_finished_without_a_fault_is_right():
    assert verdict.check_record(KILLED, record()) == []
    undisturbed = record(attempt=1, attempts=[{"name": "1.aa", "origin": ""}])
    assert verdict.check_record(KILLED, undisturbed) == [], "nobody had to notice the end of a trainer that was done"


@pytest.mark.parametrize(
    "wrong",
    [
        record(finished=False),
        record(given_up=True),
        record(absent=[{"index": 1}]),
        record(attempt=3),
        record(attempts=record()["attempts"][::-1]),
        {},
        with_failure(trainer_id=2),
        with_failure(program="pserver"),
        with_failure(signal=""),
        record(attempts=[{"name": "1.aa", "origin": ""}, {"name": "2.bb", "origin": ""}]),
    ],
    ids=["unfinished", "given up", "absent", "number", "order", "none", "trainer", "program", "signal", "no failure"],
)
def test_a_wrong_record_is_named(wrong):
    assert verdict.check_record(KILLED, wrong)


def test_a_launcher_that_was_killed_is_recorded_as_a_lost_pod():
    launcher = Trial("one", role="launcher", moment="mid-pass", harm="kill", pod=1)
    assert verdict.check_record(launcher, with_failure(program="pod", signal="")) == []
    assert verdict.check_record(launcher, with_failure(program="pod"))
    assert verdict.check_record(launcher, with_failure(program="trainer", signal=""))
    stopped = Trial("one", role="trainer-1", moment="mid-pass", harm="stop", pod=1)
    for unseen in (stopped, Trial("one", role="pod", moment="mid-pass", harm="power", pod=1)):
        assert verdict.check_record(unseen, with_failure(trainer_id=2)) == [], "who gives up first is not known"


def test_what_was_saved_before_the_harm_is_not_trained_again():
    ended = Trial("one", role="trainer-1", moment="pass-end", harm="kill", pod=1, number=1)
    assert verdict.check_origin(ended, record()) == []
    early = record()["attempts"][0]
    for origin in ("", "pass-00000", "pass-00000-004"):
        again = record(attempts=[early, {"name": "2.bb", "origin": origin}])
        assert verdict.check_origin(ended, again), origin
        assert verdict.check_origin(KILLED, again) == [], "the first pass had not ended"
    last = Trial("one", role="trainer-1", moment="last-batch", harm="kill", pod=1)
    assert verdict.check_origin(last, record())
    assert verdict.check_origin(last, record(attempts=[early])) == []


def test_an_exit_status_that_the_harm_does_not_explain_is_named():
    launcher = Trial("one", role="launcher", moment="mid-pass", harm="kill", pod=1)
    deleted = Trial("one", role="pod", moment="mid-pass", harm="term", pod=1)
    assert verdict.check_codes(KILLED, [(0, 0), (1, 0), (2, 0)]) == []
    assert verdict.check_codes(launcher, [(0, 0), (1, 137), (2, 0), (1, 0)]) == []
    assert verdict.check_codes(deleted, [(0, 0), (1, 143), (2, 0), (1, 0)]) == []
    assert verdict.check_codes(KILLED, [(0, 0), (1, 75), (2, 0)]) == ["the pods of index 1 ended with [75]"]
    assert verdict.check_codes(KILLED, [(0, 0), (1, 0), (2, 69)]) == ["a pod of index 2 ended with 69"]
    assert verdict.check_codes(launcher, [(0, 0), (1, 75), (2, 0), (1, 0)])
    assert verdict.check_codes(launcher, [(0, 0), (1, 137), (2, 0)])


def output(index, *attempts, shard=None, first="copied 4 files of shard {} to", then="shard {} is still in"):
    """The output of a pod that took part in these attempts."""
    own = index if shard is None else shard
    lines = []
    for number in attempts:
        lines.append(f"start_paddle: trainer {index} of 3, attempt {number}.2e32b37e; logs in node_{index}")
        lines.append(f"start_paddle: {(then if number > attempts[0] else first).format(own)} ./data; waiting")
    return "".join(f"2026-11-29 00:39:07 {line}\n" for line in lines)


def test_another_id_or_another_shard_of_a_replaced_pod_is_named():
    assert verdict.check_identities({0: [output(0, 1)], 1: [output(1, 1), output(1, 2)]}) == []
    assert verdict.check_identities({1: [output(1, 1), output(2, 2)]})
    assert verdict.check_identities({1: [output(1, 1), output(1, 2, shard=0)]})
    assert verdict.check_identities({1: [""]}), "a pod that says nothing shows nothing"


def test_a_bystander_that_is_blamed_is_named():
    said = "2026-11-29 00:39:46 start_paddle: first failure reported: trainer {} on a-pod: the pod was lost\n"
    right = {0: [said.format(1)], 1: [""], 2: [said.format(1) + said.format(0)]}
    assert verdict.check_told(KILLED, record(), right) == []
    assert verdict.check_told(KILLED, record(), right | {2: [said.format(0)]})
    assert verdict.check_told(KILLED, record(), right | {2: [""]}) == [
        "pod 2 names nobody, not trainer 1, as the first failure"
    ]
    assert verdict.check_told(KILLED, record(attempt=1), right | {2: [""]}) == [], "it was no longer needed"


def test_a_shard_that_is_copied_again_is_named():
    assert verdict.check_staged(KILLED, {0: [output(0, 1, 2)], 1: [output(1, 1), output(1, 2)]}) == []
    again = {0: [output(0, 1, 2, then="copied 4 files of shard {} to")]}
    assert verdict.check_staged(KILLED, again)
    early = Trial("one", role="trainer-1", moment="start", harm="kill", pod=1)
    assert verdict.check_staged(early, again) == [], "the shard may not have been there yet"


def test_a_log_of_the_first_attempt_that_is_lost_is_named(tmp_path):
    for node in range(3):
        (tmp_path / f"node_{node}").mkdir()
        (tmp_path / f"node_{node}" / "train.log.1").touch()
    assert verdict.check_old_logs(KILLED, record(), tmp_path) == []
    (tmp_path / "node_2" / "train.log.1").unlink()
    assert verdict.check_old_logs(KILLED, record(), tmp_path) == ["node_2 has no train.log.1"]
    assert verdict.check_old_logs(KILLED, record(attempt=1), tmp_path) == []


def test_the_table_has_a_row_for_each_kind_and_the_sums():
    good = Report(KILLED, "", struck=True, complete=True, equal=True, attempts=2, recovered=4.0)
    bad = Report(KILLED, "", struck=True, complete=True, equal=False, attempts=3, recovered=8.0, faults=["it differs"])
    late = Report(KILLED, "", missed="it had ended")
    rows = [line.split() for line in format_table([good, bad, late]).splitlines()]
    assert rows[1] == ["trainer-1", "mid-pass", "kill", "3", "1", "2", "1/2", "1", "2-3", "6.0", "(8.0)"]
    assert [row[:3] for row in rows[2:]] == [["all", "all", "kill"], ["all", "all", "all"]]
