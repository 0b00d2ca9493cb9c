"""A program of ENTRY: its command and variables, the save it resumes from, and how its end is judged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import responses
from builders import pod, pod_environment, podlist
from each import each
from launching import FakeControl, agree, make_launcher
from test_launcher_api import URL, Clock

import start_paddle
from paddle_base.messages.envelope import MemberId
from paddle_base.runtime.errors import ConfigError
from paddle_cluster.launcher.attempts import AttemptState, JobRecord, Meeting, state_of
from paddle_cluster.launcher.checkpoints import find_saved
from paddle_cluster.launcher.cluster.pods import IdMap
from paddle_cluster.launcher.command_lines import build_trainer_command, check_flags, print_plan, resumed_flags
from paddle_cluster.launcher.control.informer import AttemptInformer
from paddle_cluster.launcher.control.job_record import wanted_record
from paddle_cluster.launcher.control.sides import RendezvousHost
from paddle_cluster.launcher.control.watch import LOOK_PERIOD_S, SILENCE_S, AttemptWatch
from paddle_cluster.launcher.entry import MOST_BYTES, EntryCommand, build_entry_command
from paddle_cluster.launcher.failures import LOST_POD, describe_attempts
from paddle_cluster.launcher.layout import PodLayout
from paddle_cluster.launcher.programs.shell import judge_end
from paddle_cluster.launcher.resume import Decision, Saved, decide_start, is_finished
from paddle_cluster.launcher.settings import LauncherConfig, read_layout
from paddle_cluster.launcher.staging import stage_shard
from paddle_cluster.launcher.status import describe_job
from paddle_cluster.launcher.supervisor import attempt_environ
from trainer.flags import FLAGS

Files = dict[str, str]


def make_config(**changed: str | None) -> LauncherConfig:
    return LauncherConfig.from_env(pod_environment(**{"ENTRY": "python train.py", "POD_IP": "10.0.0.2", **changed}))


def make_ids(pods: int = 3) -> IdMap:
    return start_paddle.getIdMap(podlist(*(pod(f"10.0.0.{number + 1}").indexed(number) for number in range(pods))))


def make_command(config: LauncherConfig, ids: IdMap, number: int, **passed: str) -> EntryCommand:
    train = build_trainer_command(config, ids, number, passed)
    return build_entry_command(config, ids, number, train, {"PYTHONPATH": "/lib"})


# ----- The command and its variables


def test_the_program_gets_what_the_images_of_2017_gave_it() -> None:
    passed = {"num_passes": "7", "trainer_count": "2", "use_gpu": "0", "local": "0", "seed": "5"}
    config = make_config(CONF_PADDLE_METRICS_PORT="9164")
    found = make_command(config, make_ids(), 1, **passed).variables
    assert {name: text for name, text in found.items() if name.startswith("PADDLE_INIT_")} == {
        "PADDLE_INIT_PSERVERS": "10.0.0.1,10.0.0.2,10.0.0.3",
        "PADDLE_INIT_TRAINER_ID": "1",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "3",
        "PADDLE_INIT_PORT": "7164",
        "PADDLE_INIT_PORTS_NUM": "2",
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "2",
        "PADDLE_INIT_NICS": "eth0",
        "PADDLE_INIT_NUM_PASSES": "7",
        "PADDLE_INIT_TRAINER_COUNT": "2",
        "PADDLE_INIT_USE_GPU": "0",
        "PADDLE_INIT_SEED": "5",
        "PADDLE_INIT_COMMENT": "paddle_process_by_paddle",
        "PADDLE_INIT_SAVE_DIR": str(config.output),
        "PADDLE_INIT_METRICS_PORT": "9166",
    }
    assert {name.removeprefix("PADDLE_INIT_").lower() for name in found if name.startswith("PADDLE_INIT_")} <= set(
        FLAGS
    )


def test_the_program_gets_what_torch_tensorflow_and_jax_read() -> None:
    found = dict(make_command(make_config(MASTER_PORT="2222"), make_ids(), 2).variables)
    cluster = {"worker": ["10.0.0.1:2222", "10.0.0.2:2222", "10.0.0.3:2222"]}
    assert json.loads(found.pop("TF_CONFIG")) == {"cluster": cluster, "task": {"type": "worker", "index": 2}}
    assert {name: text for name, text in found.items() if not name.startswith("PADDLE_INIT_")} == {
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "2222",
        "JAX_COORDINATOR_ADDRESS": "10.0.0.1:2222",
        "JAX_PROCESS_ID": "2",
        "JAX_NUM_PROCESSES": "3",
    }


def test_pods_without_a_trainer_are_no_workers() -> None:
    config = make_config(CONF_PADDLE_GRADIENT_NUM="2", CONF_PADDLE_PSERVER_NUM="3")
    found = make_command(config, make_ids(), 0).variables
    assert json.loads(found["TF_CONFIG"])["cluster"]["worker"] == ["10.0.0.1:29500", "10.0.0.2:29500"]
    assert (found["WORLD_SIZE"], found["PADDLE_INIT_PSERVERS"]) == ("2", "10.0.0.1,10.0.0.2,10.0.0.3")


def test_a_variable_that_the_kernel_would_refuse_is_left_out() -> None:
    """The program could not be started at all: "Argument list too long"."""
    addresses = [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(9000)]
    ids = IdMap((ip, number) for number, ip in enumerate(addresses))
    config = make_config(CONF_PADDLE_GRADIENT_NUM="9000", CONF_PADDLE_PSERVER_NUM="1")
    found = make_command(config, ids, 0).variables
    assert "TF_CONFIG" not in found and found["WORLD_SIZE"] == "9000"
    assert max(len(f"{name}={text}") for name, text in found.items()) < MOST_BYTES


def test_the_directory_of_the_program_comes_first_in_the_path_of_modules() -> None:
    found = make_command(make_config(TRAINER_PACKAGE="/mnt/job"), make_ids(), 0).variables
    assert found["PYTHONPATH"] == "/mnt/job:/lib"
    assert "PYTHONPATH" not in make_command(make_config(), make_ids(), 0).variables


def test_the_newest_save_is_in_the_environment_and_one_of_paddle_v2_in_a_flag(tmp_path: Path) -> None:
    config = make_config(JOB_PATH=str(tmp_path))
    record = JobRecord("job", 0, False, 2, ["a"], 0, checkpoint="pass-00001-002")
    assert attempt_environ(config, record, {})["PADDLE_CHECKPOINT"] == f"{config.output}/state/pass-00001-002"
    after_a_pass = JobRecord("job", 0, False, 2, ["a"], 3)
    assert attempt_environ(config, after_a_pass, {})["PADDLE_CHECKPOINT"] == f"{config.output}/pass-00002"
    assert attempt_environ(config, JobRecord("job", 0, False, 1, ["a"], 0), {})["PADDLE_CHECKPOINT"] == ""
    assert resumed_flags(config, record, {"seed": "1"}) == {"seed": "1"}
    state = save(config, "pass-00001-002", {"job.json": "{}"})
    assert resumed_flags(config, record, {"seed": "1"}) == {"seed": "1", "resume_from": str(state)}


def test_the_plan_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(make_config(CONF_PADDLE_PSERVER_NUM="0"), make_ids(), {})
    assert capsys.readouterr().out.splitlines()[-1] == "sh -c 'python train.py'"


# ----- Without pservers


@each("name", ["CONF_PADDLE_PSERVER_NUM", "NUM_PSERVERS"])
def test_a_program_may_need_no_pserver(name: str) -> None:
    config = make_config(**{name: "0"}, CONF_PADDLE_PSERVER_APART="1")
    assert config.layout == PodLayout(3, 0) == wanted_record(config, make_ids(), {}).roles
    assert read_layout({"CONF_PADDLE_GRADIENT_NUM": "3", name: "0", "CONF_PADDLE_PSERVER_APART": "1"}).pods == 3
    assert not [number for number in range(3) if config.layout.runs_pserver(number)]
    assert "PADDLE_INIT_PSERVERS" not in make_command(config, make_ids(), 0).variables
    assert config.layout.shrunk(2, 2) == PodLayout(2, 0)
    check_flags(config, {"config": "absent.py"})


def test_paddle_train_needs_one() -> None:
    with pytest.raises(
        ConfigError, match="CONF_PADDLE_PSERVER_NUM is 0, but `paddle train` needs a pserver; set ENTRY"
    ):
        check_flags(make_config(ENTRY="", CONF_PADDLE_PSERVER_NUM="0"), {})
    check_flags(make_config(ENTRY="", CONF_PADDLE_PSERVER_NUM="0"), {"local": "1"})


@each("port", ["7164", "7167", "7168", "9165"])
def test_the_port_of_the_program_is_no_other_programs(port: str) -> None:
    settings = {"CONF_PADDLE_METRICS_PORT": "9164", "MASTER_PORT": port}
    with pytest.raises(ConfigError, match=f"MASTER_PORT is {port}, which"):
        make_config(**settings)
    make_config(ENTRY="", **settings)


def test_a_job_without_any_shard_runs_without_data(tmp_path: Path) -> None:
    config = make_config(JOB_PATH=str(tmp_path))
    launcher = make_launcher(config, Clock().waiting())
    assert "there are no shards in " in stage_shard(config, 1, tmp_path / "data", launcher.history)
    for number in range(2):
        (config.job_dir / str(number) / "data").mkdir(parents=True)
    (config.job_dir / "1" / "data" / "a.txt").write_text("1")
    assert "copied 1 files of shard 1" in stage_shard(config, 1, tmp_path / "data", launcher.history)


# ----- Where it resumes


def record_of(job: str = "this", *, finished: bool = False, passes: int = 0) -> JobRecord:
    return JobRecord(job, passes, finished, attempt=1, pod_uids=["a", "b", "c"], start_pass=0, gradient_num=3)


def decide(found: JobRecord | None, passes: tuple[int, ...] = (), states: tuple[str, ...] = ()) -> Decision:
    wanted = JobRecord("this", 0, False, 1, ["a"], 0, gradient_num=2)  # other numbers than those of the save
    return decide_start(found, Saved(passes, states), True, wanted, resume=True)


@each(
    "decision, origin, is_archived",
    [
        (decide(record_of(), (), ("pass-00001", "pass-00002")), "pass-00002", False),
        (decide(record_of(), (0, 1, 2), ("pass-00001",)), "pass-00002", False),
        (decide(record_of()), "", False),
        (decide(record_of("old"), (), ("pass-00002",)), "pass-00002", False),
        (decide(record_of("old", finished=True), (), ("pass-00002",)), "", True),
        (decide(record_of("old", passes=10), (), ("pass-00002",)), "", True),
        (decide(None, (), ("pass-00002",)), "", True),
    ],
)
def test_a_program_resumes_from_its_newest_save(decision: Decision, origin: str, is_archived: bool) -> None:
    """However many passes are saved, only the program knows whether they are all."""
    assert (decision.origin, decision.archive, decision.done) == (origin, is_archived, False)


def test_only_the_end_of_the_program_ends_the_job() -> None:
    assert not is_finished(record_of(), Saved((0, 1, 2)), "this", 0)
    assert is_finished(record_of(finished=True), Saved(), "this", 0)


def save(config: LauncherConfig, name: str, files: Files) -> Path:
    folder = config.output / "state" / name
    folder.mkdir(parents=True)
    for file, text in files.items():
        (folder / file).write_text(text)
    return folder


def test_a_programs_own_save_is_complete_with_its_mark_and_one_of_ours_is_checked(tmp_path: Path) -> None:
    """A folder with a model and a mark was renamed as damaged, because it had no job.json."""
    config = make_config(JOB_PATH=str(tmp_path), POD_IP="10.0.0.1")
    assert agree(config, make_ids()).origin == ""
    save(config, "pass-00000", {"model.pt": "1", "done": ""})
    save(config, "pass-00001", {"model.pt": "1"})
    assert agree(config, make_ids()).checkpoint == "pass-00000"
    save(config, "pass-00002", {"job.json": "{}", "done": "0" * 64})
    save(config, "pass-00003", {"done": "0" * 64})
    assert agree(config, make_ids()).checkpoint == "pass-00000"
    assert find_saved(config.output).states == ("pass-00000",)


def test_the_output_of_another_program_moves_at_once(tmp_path: Path) -> None:
    """Of `paddle train`, trainer 0 moves it after its first batch; a program would leave the mark for ever."""
    config = make_config(JOB_PATH=str(tmp_path), POD_IP="10.0.0.1")
    save(config, "pass-00002", {"done": ""})
    (config.output / ".set-aside").write_text("run-7\nall\n")
    assert agree(config, make_ids()).origin == ""
    assert (config.output / "run-1" / "state" / "pass-00002" / "done").exists()
    assert not (config.output / ".set-aside").exists() and not (config.output / "state").exists()


# ----- The end


NAME_ERROR = "Traceback (most recent call last):\n  File \"train.py\", line 3\nNameError: name 'x' is not defined"
LOST = "paddle_base.runtime.errors.LostPeerError: pserver 10.0.0.2:7164 is lost: no answer"
GLOO = "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.3]:4711"
NO_PROGRAM = "python: can't open file '/mnt/job/tran.py': [Errno 2] No such file or directory"
PRINT = '  File "train.py", line 3\n    print "x"\nSyntaxError: Missing parentheses in call to \'print\'.'


@each(
    "status, text, code, advice",
    [
        (1, NAME_ERROR, 1, ""),
        (1, LOST, 75, ""),
        (1, GLOO, 75, ""),
        (1, f"{GLOO}\n{NAME_ERROR}", 1, ""),
        (1, f"{NAME_ERROR}\n{GLOO}", 75, ""),
        (1, "[W socket.cpp] Connection reset by peer", 75, ""),
        (1, "no error at all", 1, ""),
        (1, PRINT, 65, "paddle run"),
        (2, NO_PROGRAM, 66, "correct the name in ENTRY"),
        (127, "sh: 1: nonesuch: not found", 78, "the shell cannot run"),
        (65, PRINT, 65, ""),
        (77, "", 77, ""),
    ],
)
def test_the_last_error_of_a_program_decides(status: int, text: str, code: int, advice: str) -> None:
    found, said = judge_end(status, text)
    assert found == code
    assert advice in said if advice else not said


def make_record(config: LauncherConfig, ids: IdMap) -> JobRecord:
    return wanted_record(config, ids, {})


def test_the_job_is_done_when_all_programs_have_finished() -> None:
    """Pservers do not tell: a program may leave them early, or never meet them."""
    config, informer = make_config(), AttemptInformer()
    host, record = RendezvousHost(config, "realm", MemberId("a", 1), informer), make_record(config, make_ids())
    informer.begin(record)
    host.send("left", {"attempt": record.name})
    for number in (0, 2, 2):
        host.send("finished", {"attempt": record.name, "trainer_id": number})
    host.send("finished", {"attempt": "another", "trainer_id": 1})
    assert informer.view.done == ""
    host.send("finished", {"attempt": record.name, "trainer_id": 1})
    assert informer.view.done == record.name


Watched = Callable[..., tuple[Clock, FakeControl, AttemptWatch]]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    def make(ip: str, **passed: str) -> tuple[Clock, FakeControl, AttemptWatch]:
        config = make_config(POD_IP=ip, JOB_PATH="/nonexistent", CONF_PADDLE_PSERVER_NUM="0")
        clock, control = Clock(), FakeControl(config.output)
        monkeypatch.setattr("paddle_cluster.launcher.control.watch.time.monotonic", lambda: clock.now)
        launcher = make_launcher(config, clock.waiting(60.0), control=control, **passed)
        control.has_peers = True
        return clock, control, AttemptWatch(launcher, Meeting(make_ids(), make_record(config, make_ids())))

    return make


@responses.activate
def test_trainer_0_tells_of_a_lost_pod_that_no_program_notices(watched: Watched) -> None:
    """Without pservers, nothing of ours has a connection to the lost program."""
    clock, control, watch = watched("10.0.0.1")
    pods = [pod(f"10.0.0.{number}").indexed(number - 1) for number in (1, 2, 3)]
    responses.get(URL, json=podlist(*pods))
    control.silent = {"10.0.0.3"}
    clock.now += LOOK_PERIOD_S
    assert watch.find_end() is None and control.sent == []  # only its launcher's connection is gone
    responses.upsert(responses.GET, URL, json=podlist(*pods[:2]))
    clock.now += LOOK_PERIOD_S
    assert watch.find_end() is None
    ((kind, body),) = control.sent
    assert (kind, body["error"]["trainer_id"], body["error"]["program"]) == ("report", 2, LOST_POD)


@responses.activate
def test_a_pod_that_trains_alone_may_end_before_the_others(watched: Watched) -> None:
    """With LOCAL=1, the first program that finished counted as a lost pod."""
    clock, control, watch = watched("10.0.0.1", local="1")
    responses.get(URL, json=podlist(pod("10.0.0.1").indexed(0), pod("10.0.0.3").indexed(2).phase("Succeeded")))
    control.silent = {"10.0.0.2", "10.0.0.3"}
    clock.now += SILENCE_S + 1
    assert watch.find_end() is None and control.sent == []


@responses.activate
def test_the_others_notice_the_loss_of_trainer_0s_pod(watched: Watched) -> None:
    clock, control, watch = watched("10.0.0.2")
    responses.get(URL, json=podlist(pod("10.0.0.2").indexed(1)))
    control.missing = "refused"
    clock.now += SILENCE_S + 1
    lost = watch.find_end()
    assert lost and (lost.status, lost.message) == (75, "trainer 0's pod is lost: refused")


def test_a_program_that_has_finished_is_told_of_again_because_the_message_may_be_lost(watched: Watched) -> None:
    clock, control, watch = watched("10.0.0.2")
    for _ in range(3):
        watch.tell_finished()
    clock.now += 60.0
    watch.tell_finished()
    assert control.sent == [("finished", {"attempt": watch.record.name, "trainer_id": 1})] * 2


def test_the_status_of_a_program_that_reports_nothing_names_its_log(tmp_path: Path) -> None:
    """All trainers counted as stalled, and no trainer as begun."""
    config = make_config(JOB_PATH=str(tmp_path), POD_IP="10.0.0.1")
    record = agree(config, make_ids())
    long_ago = (config.output / "job.json").stat().st_mtime - 600
    os.utime(config.output / "job.json", (long_ago, long_ago))
    assert describe_job(config.output) == [
        f"attempt {record.name}",
        "the program of ENTRY has reported no progress, for example by a line Pass=0 Batch=10 "
        f"(docs/any-program.md); {config.output}/node_0/train.log shows what it does",
    ]
    assert state_of(record, None, {}) is AttemptState.RUNNING
    assert describe_attempts(config.output, record, is_over=False)[-1].endswith("from the beginning: the program runs")
