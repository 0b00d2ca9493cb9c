"""What is held against a job at its end, and the table of many."""

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


def test_the_table_has_a_row_for_each_kind_and_the_sums():
    good = Report(KILLED, "", struck=True, complete=True, equal=True, attempts=2, recovered=4.0)
    bad = Report(KILLED, "", struck=True, complete=True, equal=False, attempts=3, recovered=8.0, faults=["it differs"])
    late = Report(KILLED, "", missed="it had ended")
    rows = [line.split() for line in format_table([good, bad, late]).splitlines()]
    assert rows[1] == ["trainer-1", "mid-pass", "kill", "3", "1", "2", "1/2", "1", "2-3", "6.0", "(8.0)"]
    assert [row[:3] for row in rows[2:]] == [["all", "all", "kill"], ["all", "all", "all"]]
