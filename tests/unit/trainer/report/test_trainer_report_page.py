"""The report as a whole: what it says of jobs in every state, of files that are missing or odd, and its command."""

import errno
import html.parser
import itertools
import json
import os
import re
from pathlib import Path

import pytest
from each import each
from report_jobs import BEGIN, EVALUATOR, LAYERS, Job, failed_job, finished_job, local_run, unborn_job

from paddle.command import main
from trainer.report import write_report
from trainer.report.facts import Reader, first_failure
from trainer.report.sections.trainers import add_times, name_slowest
from trainer.report.state import describe_state, share_done, time_taken
from trainer.report.writing import Report

VOID = {"meta", "link", "br", "wbr"}
HOSTILE = "<script>alert(1)</script>\"'><b>&\ud800\x00\u202e</title>"


class Page(html.parser.HTMLParser):
    """A page that was checked to be well-formed: its text by element id or heading, its links, its tables."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.tags, self.ids, self.words, self.rows = [], [], [], [], [], []
        self.feed(text)
        assert self.open == []
        assert len(set(self.ids)) == len(self.ids)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        facts = dict(attrs)
        self.ids += [facts["id"]] if "id" in facts else []
        self.links += [facts["href"]] if tag == "a" else []
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.words.append(data)
            if {"td", "th"} & set(self.open):
                self.rows[-1][-1] += data

    @property
    def text(self):
        return "\n".join(self.words)


def page_of(output):
    return Page(write_report(output).read_text(encoding="utf-8"))


def facts_of(output):
    return Reader(output).read()


# ----- What it says


def test_a_finished_job_shows_its_passes_with_the_numbers_of_the_records(tmp_path):
    finished_job(tmp_path / "digits" / "output")
    page = page_of(tmp_path / "digits" / "output")
    assert "digits " in page.words
    assert "finished" in page.words
    rows = [row for row in page.rows if row[0].isdigit()][:10]
    assert [row[0] for row in rows] == [str(number) for number in range(10)]
    numbers = [2.41234567 / 4.5, 0.3123456 / 4, 2.6 / 4.5, 0.33 / 4, 2.4]
    assert rows[3] == ["3", "15", "1437", *(f"{one:g}" for one in numbers), "599", "pass-00003"]


def test_links_are_relative_wherever_the_report_is_written(tmp_path):
    output = tmp_path / "job 1" / "output"
    finished_job(output)
    beside = page_of(output).links
    assert {"node_0/train.log", "node_2/server.log", "pass-00009/", "records.jsonl"} <= set(beside)
    elsewhere = Page(write_report(output, tmp_path / "page.html").read_text()).links
    assert elsewhere == [f"job%201/output/{link}" for link in beside]
    assert all((tmp_path / link.replace("%20", " ")).exists() for link in elsewhere)


def test_a_failed_job_says_who_failed_first_in_every_attempt(tmp_path):
    failed_job(tmp_path)
    facts = facts_of(tmp_path)
    attempts = facts.attempts()
    assert [one.failure["trainer_id"] for one in attempts] == [2, 1, 1]
    assert [one.origin for one in attempts] == ["", "pass-00001", "pass-00004"]
    assert [round(one.started - BEGIN) for one in attempts] == [0, 20, 45]
    assert all(one.ended > one.started for one in attempts)
    text = page_of(tmp_path).text
    assert re.findall(r"First to \w+: \n(trainer \d)", text) == ["trainer 2", "trainer 1", "trainer 1"]
    assert re.findall(r"First to (\w+)", text) == ["fail", "notice", "fail"]
    assert "over its memory limit of 512 MiB" in text
    assert "ValueError: could not convert '?' to float" in text
    assert "trainer 1 on paddle-1: trainer, exit status 65" in text


def test_who_left_because_a_peer_was_gone_was_not_first():
    gone = {"attempt": "1", "time": 1.0, "exit_code": 75, "signal": ""}
    cause = {"attempt": "1", "time": 2.0, "exit_code": 65, "signal": ""}
    killed = {"attempt": "1", "time": 1.5, "exit_code": 75, "signal": "SIGKILL"}
    other = {"attempt": "2", "time": 0.0, "exit_code": 65, "signal": ""}
    assert first_failure([gone, cause, other], "1") is cause
    assert first_failure([gone, killed, cause], "1") is killed
    port = {**gone, "time": 3.0, "message": "cannot listen on 10.0.0.1:7164: another process holds this port"}
    assert first_failure([gone, port], "1") is port
    assert first_failure([gone], "1") is gone
    assert first_failure([], "1") is None
    stopped = {"attempt": "1", "time": 0.5, "exit_code": 143, "signal": ""}
    assert first_failure([gone, stopped], "1") is stopped
    assert first_failure([stopped, cause], "1") is cause  # its Job stops the others


def test_where_every_pod_followed_another_no_cause_is_named(tmp_path):
    Job(tmp_path).launch((0.0, "")).fail(0, "the parameter server of trainer 2 is gone", 75)
    state = describe_state(facts_of(tmp_path))
    assert state.name == "restarting"
    assert state.message.startswith("What failed first is not known. First to notice: trainer 0 on paddle-0: ")


def test_what_trainer_0s_launcher_has_written_down_failed_first(tmp_path):
    job = Job(tmp_path).launch((0.0, "")).fail(0, "trainer 1 is lost", 75)
    record = json.loads((tmp_path / "job.json").read_text())
    lost = {"time": job.now, "trainer_id": 1, "host": "pod-1", "program": "pod", "exit_code": 75, "message": "gone"}
    record["attempts"][0]["failure"] = lost
    job.write("job.json", record)
    state = describe_state(facts_of(tmp_path))
    assert state.name == "restarting"
    assert state.message == "trainer 1 on pod-1: the pod was lost\ngone"
    for odd in (HOSTILE, {"time": HOSTILE}):
        record["attempts"][0]["failure"] = odd
        job.write("job.json", record)
        assert describe_state(facts_of(tmp_path)).name == "restarting"


@each(
    ("make", "state"),
    [
        (lambda output: finished_job(output), "finished"),
        (lambda output: failed_job(output), "failed"),
        (lambda output: local_run(output), "training"),
        (lambda output: unborn_job(output), "failed"),
        (lambda output: Job(output), "waiting"),
        (lambda output: Job(output).launch((0.0, "")), "waiting"),
        (lambda output: Job(output).start(), "training"),
        (lambda output: Job(output).start().record("end", status=0, message=""), "finished"),
        (lambda output: Job(output).start().record("end", status=65, message="bad data"), "failed"),
        (lambda output: Job(output).start().record("end", status=143, message="SIGTERM"), "stopped"),
        (lambda output: failed_job(output).launch((0.0, ""), (90.0, ""), (95.0, ""), (99.0, "")), "waiting"),
        (lambda output: Job(output).start().run_pass(0).record("end", status=65, message="").start(), "training"),
    ],
    ids=[
        *("finished", "failed", "local", "before its first batch", "nothing", "launched", "started", "ended well"),
        *("ended badly", "stopped", "a new attempt after a failure", "started again after a failure"),
    ],
)
def test_the_state_is_that_of_the_newest_attempt(tmp_path, make, state):
    job = make(tmp_path)
    job.now += 1
    assert describe_state(facts_of(tmp_path)).name == state
    assert state in page_of(tmp_path).words


def test_the_share_done_comes_from_progress_or_from_the_passes(tmp_path):
    assert share_done(facts_of(tmp_path)) is None
    job = Job(tmp_path).start().run_pass(0).run_pass(1)
    assert share_done(facts_of(tmp_path)) == 0.2
    job.progress("training", 2)
    assert share_done(facts_of(tmp_path)) == 0.25
    assert time_taken(facts_of(tmp_path)) == pytest.approx(4.8)


def test_the_start_of_an_attempt_is_the_pods_clock_in_whatever_zone_it_is_read(tmp_path, monkeypatch):
    job = finished_job(tmp_path)
    content = json.loads((tmp_path / "job.json").read_text())
    content["attempts"][0]["started"] = "2026-09-21 22:13:20"  # BEGIN, as a pod in UTC+8 writes it
    job.write("job.json", content)
    monkeypatch.setenv("TZ", "UTC")
    [attempt] = facts_of(tmp_path).attempts()
    assert attempt.started == BEGIN


def shown(output):
    """What the head says, by name."""
    words = [word.strip() for word in page_of(output).words]
    return dict(itertools.pairwise(words))


def with_passes(job, passes):
    """Let every trainer have told its newest pass: {trainer: (pass, samples, cost)}."""
    progress = json.loads((job.output / "progress.json").read_text())
    for trainer, told in passes.items():
        progress["trainers"][trainer]["last_pass"] = dict(zip(("pass", "samples", "cost"), told, strict=True))
    job.write("progress.json", progress)


def test_the_cost_of_the_last_pass_is_of_all_trainers_or_says_whose_it_is(tmp_path):
    """It was trainer 0's alone, and did not say so."""
    job = finished_job(tmp_path)
    own = 2.41234567 / 10.5
    assert shown(tmp_path)["cost, last pass, of trainer 0's 1437 samples"] == f"{own:g}"
    with_passes(job, {"1": (9, 1000, 0.5), "2": (9, 563, 1.0)})
    cost = (1437 * own + 1000 * 0.5 + 563 * 1.0) / 3000
    assert shown(tmp_path)["cost, last pass, of all 3000 samples"] == f"{cost:g}"
    with_passes(job, {"1": (8, 1000, 0.5)})
    assert "cost, last pass, of trainer 0's 1437 samples" in shown(tmp_path)


def test_of_a_single_trainer_the_cost_is_that_of_the_last_pass(tmp_path):
    Job(tmp_path, trainers=1).start().run_pass(0)
    assert shown(tmp_path)["cost, last pass"] == f"{2.41234567 / 1.5:g}"


def test_the_speed_of_a_finished_run_is_called_its_mean(tmp_path):
    finished_job(tmp_path / "finished")
    local_run(tmp_path / "training")
    assert shown(tmp_path / "finished")["samples/s, all trainers, mean"] == "15,321"
    assert shown(tmp_path / "training")["samples/s, all trainers"] == "15,321"


def test_a_run_that_has_been_silent_does_not_just_say_that_it_trains(tmp_path):
    """After a SIGKILL nobody says how it ended."""
    job = local_run(tmp_path)
    fresh, late = (Reader(tmp_path, lambda after=after: job.now + after).read() for after in (30, 300))
    assert describe_state(fresh).message == ""
    assert describe_state(late).name == "training"
    assert re.match("The run has written nothing since .*, 5 min 00 s before", describe_state(late).message)


# ----- The time of the trainers


def test_time_is_added_over_the_attempts(tmp_path):
    failed_job(tmp_path)  # 2 + 3 passes count, 0 of the last attempt
    times = {one.trainer: one for one in add_times(facts_of(tmp_path))}
    assert times.keys() == {"0", "1", "2"}
    assert times["0"].samples == 5 * 1437
    assert times["1"].phases == pytest.approx((5.0, 3.0, 3.0, 0.5, 0.25, 0.25))


def test_what_a_trainer_says_itself_is_newer_than_what_trainer_0_heard(tmp_path):
    job = finished_job(tmp_path)
    usage = {**job.usage()["2"], "samples": 99999}
    job.write("node_2/progress.json", {"attempt": job.attempt, "time": job.now + 1, "host": "late", "usage": usage})
    [late] = [one for one in add_times(facts_of(tmp_path)) if one.trainer == "2"]
    assert (late.samples, late.host) == (99999, "late")


def test_the_slowest_is_named_with_what_makes_it_slow(tmp_path):
    finished_job(tmp_path)
    times = add_times(facts_of(tmp_path))
    said = "Trainer 1 on paddle-1 is the slowest: it has spent 16.0 s in compute and data"
    assert name_slowest(times).startswith(said)
    assert name_slowest(times).endswith("Most of the difference is in the phase data.")
    assert name_slowest(times[1:]).startswith("No trainer is much slower")
    assert name_slowest(times[:1]) == ""


def test_of_a_thousand_trainers_the_slowest_are_shown(tmp_path):
    job = Job(tmp_path, trainers=1000).start().run_pass(0)
    text = page_of(tmp_path).text
    assert "the 40 slowest of 1000 trainers" in text
    assert "1 (slowest)" in text
    assert job.output.joinpath("report.html").stat().st_size < 200_000


# ----- Hostile names


def test_hostile_names_stay_text(tmp_path):
    job = Job(tmp_path)
    layers = [{**one, "name": f"{one['name']}{HOSTILE}", "type": HOSTILE} for one in LAYERS]
    job.start(layers=[*layers, HOSTILE], flags={HOSTILE: HOSTILE}, method={HOSTILE: [HOSTILE]}, config=HOSTILE)
    numbers = {"cost": 1.0, "evaluators": {HOSTILE: 0.5}, "samples": 3}
    job.record("batch", **{"pass": 0, "batch": 1}, window_evaluators={HOSTILE: 1.0}, window_cost=1)
    job.record("pass", **{"pass": 0, "batch": 3}, **numbers, seconds=1.0, usage={HOSTILE: {"data_seconds": 1}})
    job.record("pass", **{"pass": 1, "batch": 3}, cost=HOSTILE, evaluators=HOSTILE, samples=HOSTILE, seconds=HOSTILE)
    job.record("save", **{"pass": 0, "batch": 3}, path=HOSTILE)
    job.record(HOSTILE, **{"pass": 0, "batch": 3})
    (tmp_path / "pass-00011").mkdir()  # not done
    job.launch((0.0, HOSTILE)).fail(0, f"{HOSTILE}\n{HOSTILE}", host=HOSTILE, program=HOSTILE, exit_code=HOSTILE)
    page = page_of(tmp_path)
    assert page.tags.count("script") == 1 + sum(one.startswith("chart-") for one in page.ids)
    assert "img" not in page.tags
    assert "alert(1)" in page.text and "1 more passes are in pass-*/." in page.text
    assert all(not re.match(r"[a-z]+:", link) for link in page.links)


@pytest.mark.parametrize("path", ["x" * 300, "a\0b", "", "/", ".."], ids=["too long", "NUL", "none", "root", "up"])
def test_a_save_may_have_any_path(tmp_path, path):
    """A name of 300 letters ended the making of every report."""
    job = Job(tmp_path).start().run_pass(0)
    job.record("save", **{"pass": 0, "batch": 15}, path=path)
    page_of(tmp_path)


# ----- Writing


def test_many_batch_records_make_no_big_page(tmp_path):
    job = Job(tmp_path, passes=1, batches=30000).start()
    with (tmp_path / "records.jsonl").open("a") as file:
        for batch in range(30000):
            place = {"pass": 0, "batch": batch + 1, "time": job.now + batch, "samples": 32 * batch}
            values = {f"evaluator_{number}": batch % 17 + number for number in range(20)}
            record = {"kind": "batch", "attempt": "", **place, "window_cost": batch % 13, "window_evaluators": values}
            file.write(f"{json.dumps(record)}\n")
    page = write_report(tmp_path)
    assert page.stat().st_size < 1_000_000
    assert "9 more evaluators are in the table of the passes." in page.read_text()


def test_many_passes_make_no_big_page(tmp_path):
    job = Job(tmp_path, passes=3000).start()
    for number in range(3000):
        place = {"pass": number, "batch": 9, "samples": 99, "cost": 1.0 / (number + 1), "evaluators": {EVALUATOR: 0.1}}
        job.record("pass", **place, seconds=1.0, usage={})
    assert write_report(tmp_path).stat().st_size < 300_000
    assert "The table has the last 200 of 3000 passes; the logs have all passes." in page_of(tmp_path).text


def test_a_second_report_of_the_same_process_shows_what_has_come(tmp_path):
    job = Job(tmp_path).start().run_pass(0)
    assert "1 of 10" in page_of(tmp_path).words
    job.run_pass(1)
    assert "2 of 10" in page_of(tmp_path).words
    job.start(1)
    assert "1 of 10" in page_of(tmp_path).words


def test_the_layers_are_laid_out_once(tmp_path, monkeypatch):
    job = Job(tmp_path).start()
    calls = []
    monkeypatch.setattr("trainer.report.writing.show_configuration", lambda start: calls.append(start))
    report = Report(tmp_path)
    links = type("NoLinks", (), {"to": lambda self, name, text="": name, "to_pass": lambda self, path: path})()
    for number in range(3):
        job.run_pass(number)
        report.make(links)
    assert len(calls) == 1
    job.start(2)
    report.make(links)
    assert len(calls) == 2


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    finished_job(tmp_path)
    before = write_report(tmp_path).read_bytes()
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_report(tmp_path)
    assert (tmp_path / "report.html").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if "report" in path.name] == ["report.html"]


# ----- The command


def test_the_command_writes_the_report_and_says_where(tmp_path, capsys):
    finished_job(tmp_path / "output")
    assert main(["report", str(tmp_path / "output")]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/output/report.html\n"
    assert main(["report", str(tmp_path / "output"), "-o", str(tmp_path / "mine.html")]) == 0
    assert (tmp_path / "mine.html").stat().st_size > 10_000


def test_a_directory_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nowhere")]) == os.EX_NOINPUT
    assert capsys.readouterr().err.startswith(
        f"paddle report: there is no directory {tmp_path}/nowhere: give the output/"
    )


@pytest.mark.parametrize("name", ["", "pass-00000"], ids=["an empty directory", "a run without --report"])
def test_a_directory_without_records_is_no_report(tmp_path, capsys, name):
    output = tmp_path / "output"
    (output / name).mkdir(parents=True)
    assert main(["report", str(output)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"paddle report: there are no records in {output}, so there is nothing to report")
    assert "--report" in said.err
    assert not (output / "report.html").exists()


@pytest.mark.parametrize("name", ["records.jsonl", "progress.json"])
def test_a_page_is_not_replaced_if_a_file_may_not_be_read(tmp_path, capsys, monkeypatch, name):
    """`paddle report` by another user replaced a good page by an empty one."""
    Job(tmp_path).start().run_pass(0).progress("training", 0)
    page = write_report(tmp_path)
    before, open_file = page.read_bytes(), os.open

    def refuse(path, *args, **kwargs):
        if str(path) == str(tmp_path / name):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_file(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    assert main(["report", str(tmp_path)]) == os.EX_NOINPUT
    assert capsys.readouterr().err == f"paddle report: {tmp_path / name} cannot be read: Permission denied\n"
    with pytest.raises(PermissionError):  # as in a trainer
        write_report(tmp_path)
    assert page.read_bytes() == before


@pytest.mark.parametrize(
    ("code", "job", "name"),
    [
        (75, {"given_up": False}, "restarting"),
        (65, {"given_up": False}, "failed"),
        (75, {"given_up": True}, "failed"),
        (75, {}, "failed"),
    ],
)
def test_after_an_error_that_a_retry_may_repair_a_job_restarts(tmp_path, code, job, name):
    """Until the pods had reported, the page of a job that restarts said that the job failed."""
    output = Job(tmp_path)
    output.start().record("end", status=code, message="pserver 10.0.0.2:7164 is lost")
    if job:
        attempts = [{"name": output.attempt, "started": "2026-01-01 00:00:00", "origin": ""}]
        output.write("job.json", {"attempts": attempts, **job})
    state = describe_state(facts_of(tmp_path))
    assert (state.name, state.message) == (name, "pserver 10.0.0.2:7164 is lost")


def test_a_job_that_failed_before_its_first_record_has_a_report(tmp_path):
    unborn_job(tmp_path)
    assert main(["report", str(tmp_path)]) == 0


def test_a_place_that_cannot_be_written_is_named(tmp_path, capsys):
    Job(tmp_path).start()
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "no" / "page.html")]) == os.EX_IOERR
    assert re.search(
        r"cannot be written to .*no/page\.html: No such file or directory; name another file with -o",
        capsys.readouterr().err,
    )


def test_a_page_replaces_what_a_link_leads_to_and_no_pipe(tmp_path, capsys):
    Job(tmp_path / "output").start()
    (tmp_path / "link").symlink_to("page.html")
    os.mkfifo(tmp_path / "pipe")
    for outputs in (["output"], ["output", "output"]):
        command = ["report", *(str(tmp_path / one) for one in outputs), "-o"]
        assert main([*command, str(tmp_path / "link")]) == 0
        assert (tmp_path / "link").is_symlink() and (tmp_path / "page.html").stat().st_size > 10_000
        (tmp_path / "page.html").unlink()
        for name, reason in {"pipe": "Is no regular file", "output": "Is a directory"}.items():
            assert main([*command, str(tmp_path / name)]) == os.EX_IOERR
            assert (
                f"the report cannot be written to {tmp_path / name}: {reason}; name another file with -o"
                in capsys.readouterr().err
            )
    assert (tmp_path / "pipe").is_fifo()


def test_a_wrong_command_line_is_refused(capsys):
    assert main(["report"]) == os.EX_USAGE
    assert "paddle report: the following arguments are required: output" in capsys.readouterr().err
