"""The command line of `paddle elastic run`: C1 of ../shared/spec/elastic.md, section 2, and what is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path
from unittest import mock

import pytest
from each import each

from paddle_base.runtime.errors import ConfigError, UsageError
from paddle_cluster.elastic import job as job_workers
from paddle_cluster.elastic.discovery import FixedHosts, HostDiscoveryScript
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.launch import main, make_settings, parse_args
from paddle_cluster.elastic.launching.processes import WorkerProgram, check_local, make_environment, start_command
from paddle_cluster.elastic.membership.results import JobFailedError, Results, WorkerExit, judge

COMMAND = ["python", "train.py", "-np", "9", "--lr=1"]
LONG = (
    "--num-proc 3 --min-num-proc 2 --max-num-proc 4 --host-discovery-script d.sh --slots-per-host 2 "
    "--elastic-timeout 60 --reset-limit 10 --blacklist-cooldown-range 120 600 --network-interfaces lo"
)
SHORT = LONG.replace("num-proc", "np").replace("--np", "-np").replace("interfaces", "interface")


@pytest.mark.parametrize("flags", [LONG, SHORT], ids=["long", "short"])
def test_c1_elastic_args(flags: str) -> None:
    args = parse_args([*flags.split(), *COMMAND])
    assert (args.num_proc, args.min_num_proc, args.max_num_proc) == (3, 2, 4)
    assert (args.host_discovery_script, args.slots, args.nics) == ("d.sh", 2, {"lo"})
    assert (args.elastic_timeout, args.reset_limit, args.cooldown_range) == (60, 10, [120, 600])
    assert args.command == COMMAND
    settings = make_settings(args)
    assert settings.elastic
    assert isinstance(settings.discovery, HostDiscoveryScript)


def test_what_is_not_given_has_horovods_defaults(tmp_path: Path) -> None:
    settings = make_settings(parse_args(["-np", "2", "python"]))
    assert (settings.min_num_proc, settings.max_num_proc, settings.reset_limit) == (2, None, None)
    assert not settings.elastic
    assert settings.discovery.find_available_hosts_and_slots() == {"localhost": 2}
    (tmp_path / "hosts").write_text("a slots=2\n")
    settings = make_settings(parse_args(["-np", "2", "--min-np", "1", "--hostfile", str(tmp_path / "hosts"), "python"]))
    assert isinstance(settings.discovery, FixedHosts)
    assert settings.discovery.find_available_hosts_and_slots() == {"a": 2}
    assert settings.elastic


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("python", "-np is missing"),
        ("-np 0 python", "-np is 0; it has to be at least 1"),
        ("-np 1 --min-np 0 python", "--min-np is 0; it has to be at least 1"),
        ("-np 2 --min-np 3 python", "--min-np is 3, which is more than -np, 2"),
        ("-np 2 --max-np 1 python", "--max-np is 1, which is less than -np, 2"),
        ("-np 4 -H localhost:2 python", "-np is 4, which is more than the slots of -H, 2"),
        ("-np 1000000 python", "-np is 1000000; it has to be at most 999999"),
        ("-np 1 --max-np 1000000 python", "--max-np is 1000000; it has to be at most 999999"),
        ("-np 1 --slots-per-host 1000000 python", "--slots-per-host is 1000000; it has to be at most 999999"),
        ("-np x python", "invalid int value"),
        ("-np 1 --slot-per-host 1 python", "unrecognized arguments: --slot-per-host; did you mean --slots-per-host"),
        ("-np 1 --slots-per-host 0 python", "--slots-per-host is 0"),
        ("-np 1 --reset-limit -1 python", "--reset-limit is -1"),
        ("-np 1 --elastic-timeout nan python", "--elastic-timeout is nan"),
        ("-np 1 --elastic-timeout 1e12 python", "--elastic-timeout is 1e[+]12; it has to be at most 1000000"),
        ("-np 1 --start-timeout -1 python", "--start-timeout is -1; it has to be at least 0"),
        ("-np 1 --blacklist-cooldown-range 9 1 python", "--blacklist-cooldown-range"),
        ("-np 1 -H a:1 --host-discovery-script x python", "exclude each other"),
        ("-np 1 -H a python", "is no host with its slots"),
        ("-np 1 -H a:1 --discovery kubernetes python", "exclude each other"),
        ("-np 1 --discovery etcd python", "invalid choice"),
        ("-np 1 --port 65536 python", "--port is 65536"),
        ("-np 1 --agent-port 0 python", "--agent-port is 0"),
        ("-np 1 --agent-timeout 0 python", "--agent-timeout is 0"),
        ("-np 1 --hand-over python", "--hand-over needs --store-dir"),
    ],
)
def test_flags_that_are_wrong_are_named(flags: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=why):
        make_settings(parse_args(flags.split()))
    assert main(["run", *flags.split()]) == 64


@each(
    ("content", "why", "status"),
    [
        (b"", "hosts names no host", 64),
        ("a\u00e4 slots=1\n".encode("latin-1"), "hosts is no UTF-8 text .*; save it as UTF-8", 64),
        ("a slots=1\n".encode("utf-16"), "hosts is no UTF-8 text .*; save it as UTF-8", 64),
        ("a slots=1\u2028b slots=1\n".encode(), r"hosts:1: 'a slots=1\\u2028b slots=1' is no host", 64),
        (b"a slots=1\n" * 200_000, "hosts has more than 1048576 bytes", 64),
        (None, "--hostfile: .*hosts cannot be read: No such file", 66),
    ],
)
def test_a_hostfile_that_is_wrong_is_named_with_its_remedy(
    tmp_path: Path, content: bytes | None, why: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file in latin-1 was 'invalid continuation byte' without its name, and a missing file ended with 64."""
    path = tmp_path / "hosts"
    if content is not None:
        path.write_bytes(content)
    assert main(["run", "-np", "1", "--hostfile", str(path), "python"]) == status
    assert re.search(why, capsys.readouterr().err.splitlines()[-1])


def test_a_hostfile_that_is_a_pipe_is_refused_without_waiting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver waited forever for a writer of the pipe."""
    os.mkfifo(tmp_path / "hosts")
    assert main(["run", "-np", "1", "--hostfile", str(tmp_path / "hosts"), "python"]) == 66
    assert "hosts cannot be read: Is no regular file" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["abc", "1e999", "-5", "nan"])
def test_an_elastic_timeout_of_the_environment_that_is_no_number_of_seconds_is_named(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver ended with a ValueError or an OverflowError and its traceback."""
    monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", text)
    assert main(["run", "-np", "1", "true"]) == ConfigError.exit_code
    assert f"HOROVOD_ELASTIC_TIMEOUT is '{text}'; set it to a number of seconds" in capsys.readouterr().err


def test_the_help_names_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "--host-discovery-script" in capsys.readouterr().out


def test_a_worker_has_the_variables_of_its_slot_and_not_all_of_the_driver() -> None:
    base = {"PATH": "/bin", "OLDPWD": "/", "BASH_FUNC_x%%": "", "CUDA_VISIBLE_DEVICES": "0", "HOROVOD_RANK": "9"}
    environ = make_environment(base, SlotInfo("h", 1, 2, 3, 4, 5, 6), "i", 7, {"PADDLE_SECRET": "s"})
    assert environ == {
        "PATH": "/bin",
        "PYTHONUNBUFFERED": "1",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_HOSTNAME": "h",
        "HOROVOD_RANK": "1",
        "HOROVOD_SIZE": "4",
        "HOROVOD_LOCAL_RANK": "2",
        "HOROVOD_LOCAL_SIZE": "5",
        "HOROVOD_CROSS_RANK": "3",
        "HOROVOD_CROSS_SIZE": "6",
        "PADDLE_ELASTIC_INCARNATION": "i",
        "PADDLE_ELASTIC_GENERATION": "7",
        "PADDLE_SECRET": "s",
    }


def test_hosts_are_this_machine_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("localhost", "127.0.0.1", "127.0.0.9"):
        check_local(host)
    with pytest.raises(ConfigError, match="is another machine"):
        check_local("192.0.2.1")
    monkeypatch.setattr("socket.getaddrinfo", mock.Mock(side_effect=OSError("no such name")))
    with pytest.raises(ConfigError, match="has no address: no such name"):
        check_local("absent")


def test_a_job_is_judged_by_its_error_then_by_the_first_failure() -> None:
    judge(Results(None, {"a[0]": (0, 1.0)}))
    with pytest.raises(JobFailedError, match="the limit"):
        judge(Results("the limit", {"a[0]": (0, 1.0)}))
    with pytest.raises(JobFailedError, match=r"a\[1\] ended with status 3, as the first of 2") as caught:
        judge(Results(None, {"a[0]": (0, 1.0), "a[2]": (5, 3.0), "a[1]": (3, 2.0)}))
    assert caught.value.exit_code == 3
    with pytest.raises(JobFailedError, match="ended by signal 9") as caught:
        judge(Results(None, {"a[0]": (-9, 1.0)}))
    assert caught.value.exit_code == 75
    with pytest.raises(JobFailedError, match="no worker has finished its work"):
        judge(Results(None, {}))


@each(
    ("flags", "wanted"),
    [
        ("--min-np 1 -H a:1,b:1", 1),
        ("--host-discovery-script ./discover.sh", 1),
        ("--hostfile HOSTS", 1),
        ("--min-np 1", 2),
        ("--min-np 1 --agents", 2),
        ("--min-np 1 --failures-per-host 3 -H a:1", 3),
    ],
)
def test_a_job_with_horovods_flags_has_its_number_of_failures(tmp_path: Path, flags: str, wanted: int) -> None:
    """Four of Horovod's own tests failed, because a host was blacklisted at its second failure."""
    (tmp_path / "hosts").write_text("a slots=1\n")
    words = flags.replace("HOSTS", str(tmp_path / "hosts")).split()
    assert make_settings(parse_args(["-np", "1", *words, "python"])).failures_per_host == wanted


@each(
    ("environ", "flags", "wanted"),
    [
        ({}, "", {}),
        ({"GLOO": "70", "ELASTIC": "80"}, "", {"GLOO": "70", "ELASTIC": "80"}),
        ({"GLOO": "70"}, "--gloo-timeout-seconds 50 --elastic-timeout 60", {"GLOO": "50", "ELASTIC": "60"}),
    ],
)
@pytest.mark.parametrize("is_remote", [False, True])
def test_the_environment_overrides_a_default_and_a_flag_both(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], flags: str, wanted: dict[str, str], is_remote: bool
) -> None:
    """HOROVOD_GLOO_TIMEOUT_SECONDS was overridden by the default of --gloo-timeout-seconds, without a word."""
    names = {"GLOO": "HOROVOD_GLOO_TIMEOUT_SECONDS", "ELASTIC": "HOROVOD_ELASTIC_TIMEOUT"}
    found: dict[str, str] = {}

    def take(base: dict[str, str], *_: object) -> WorkerExit:
        found.update(base)
        return WorkerExit(0, 1.0, needs_done=False)

    monkeypatch.setattr(job_workers, "run_process", lambda _, environ, *more: take(environ))
    monkeypatch.setattr(job_workers, "describe_launch", lambda command, slot, events, variables: take(variables))
    monkeypatch.setattr(job_workers, "RemoteWorker", lambda *_: mock.Mock(run=lambda *_: take({})))
    agent = mock.Mock(address="127.0.0.1") if is_remote else None
    monkeypatch.setattr(job_workers.AgentHosts, "find", lambda *_: agent)
    given = {names[one]: value for one, value in environ.items()}
    settings = make_settings(parse_args(["-np", "1", *flags.split(), "true"]))
    job_workers.run_job(settings, WorkerProgram(["true"], given, start_command(["true"])))
    assert {one: found[name] for one, name in names.items() if name in found} == wanted
