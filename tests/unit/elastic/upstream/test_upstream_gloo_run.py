"""`horovod.runner.gloo_run`: the command line of each slot, and jobs whose commands a test runs itself.

The names of modules are Horovod's (see conftest.py).
"""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from horovod.runner import gloo_run
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.common.util.settings import Settings
from horovod.runner.elastic.discovery import FixedHosts
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.http.http_server import RendezvousServer

from paddle_base.runtime.environment import read_environment
from paddle_base.runtime.errors import UsageError
from paddle_cluster.elastic.launching.judging import JobFailedError

LIMIT_S = 60.0
SLOT = SlotInfo("localhost", 1, 0, 1, 2, 1, 2)
SLOT_ENV = {
    "HOROVOD_HOSTNAME": "localhost",
    "HOROVOD_RANK": "1",
    "HOROVOD_SIZE": "2",
    "HOROVOD_LOCAL_RANK": "0",
    "HOROVOD_LOCAL_SIZE": "1",
    "HOROVOD_CROSS_RANK": "1",
    "HOROVOD_CROSS_SIZE": "2",
}


@pytest.fixture(autouse=True)
def no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDLE_SECRET", raising=False)


def test_a_slot_and_a_run_have_horovods_variables() -> None:
    assert gloo_run.create_slot_env_vars(SLOT) == SLOT_ENV
    found = gloo_run.create_run_env_vars("10.0.0.1", ["eth0", "eth1"], 1234, elastic=True)
    assert found == {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": 1234,
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": "eth0",
        "NCCL_SOCKET_IFNAME": "eth0,eth1",
        "HOROVOD_ELASTIC": "1",
    }
    assert "HOROVOD_ELASTIC" not in gloo_run.create_run_env_vars("10.0.0.1", ["eth0"], 1234)


def test_a_command_line_is_quoted_and_has_neither_secrets_nor_what_workers_do_not_inherit() -> None:
    run_command = gloo_run.get_run_command(["python", "a b.py", "$X"], "10.0.0.1", ["lo"], 1234)
    assert run_command == (
        "HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.1 HOROVOD_GLOO_RENDEZVOUS_PORT=1234 HOROVOD_CONTROLLER=gloo "
        "HOROVOD_CPU_OPERATIONS=gloo HOROVOD_GLOO_IFACE=lo NCCL_SOCKET_IFNAME=lo python 'a b.py' '$X'"
    )
    env = {"ONE": "a b", "OLDPWD": "/", "PADDLE_SECRET": "hidden"}
    command = gloo_run._slot_info_to_command_fn("true", env)(SLOT)
    slot = " ".join(f"{name}={value}" for name, value in SLOT_ENV.items())
    assert command == f"env {slot} ONE='a b' PYTHONUNBUFFERED=1 true"
    assert env == {"ONE": "a b", "OLDPWD": "/", "PADDLE_SECRET": "hidden"}


def test_ranks_are_padded_to_the_width_of_the_last() -> None:
    assert [gloo_run._pad_rank(rank, size) for rank, size in ((0, 1), (0, 10), (9, 11), (1, 101))] == [
        "0",
        "0",
        "09",
        "001",
    ]


def test_a_job_runs_the_command_of_each_slot() -> None:
    settings, commands = Settings(num_proc=3, hosts="a:2,b:1"), {}

    def exec_command(command: str, slot: SlotInfo, events: Any) -> tuple[int, float]:
        commands[slot.rank] = (slot.hostname, command)
        assert [event.is_set() for event in events] == [False]
        return 0, time.time()

    gloo_run.launch_gloo(["true"], exec_command, settings, ["lo"], {"A": "1"}, "127.0.0.1")
    assert [commands[rank][0] for rank in range(3)] == ["a", "a", "b"]
    assert "HOROVOD_RANK=2 HOROVOD_SIZE=3" in commands[2][1]
    assert settings.key is not None
    assert settings.key.hex() not in commands[0][1]


def test_the_first_failure_is_the_error_of_the_job() -> None:
    def exec_command(command: str, slot: SlotInfo, events: Any) -> tuple[int, float]:
        return slot.rank, 100.0 - slot.rank

    words = r"b\[0\] ended with status 2, as the first of 2 .*: Horovod detected that one or more processes exited with"
    with pytest.raises(RuntimeError, match=words):
        gloo_run.launch_gloo(["x"], exec_command, Settings(num_proc=3, hosts="a:2,b:1"), ["lo"], {}, "127.0.0.1")
    with pytest.raises(ValueError, match="than there are available slots"):
        gloo_run.launch_gloo(["x"], exec_command, Settings(num_proc=4, hosts="a:2,b:1"), ["lo"], {}, "127.0.0.1")


def test_a_command_is_run_with_its_index_files_and_secret(tmp_path: Path) -> None:
    settings = Settings(num_proc=2, hosts="localhost:2", output_filename=str(tmp_path / "out"), key=b"\x01" * 32)
    secrets = []

    def run(*_: Any, env: Any, **__: Any) -> int:
        secrets.append((env["PADDLE_SECRET"], read_environment(env).secret))
        return 0

    with mock.patch("horovod.runner.gloo_run.safe_shell_exec.execute", side_effect=run) as execute:
        gloo_run.gloo_run(settings, ["lo"], {}, "127.0.0.1", ["cmd"])
    assert execute.call_count == 2
    assert sorted(call.kwargs["index"] for call in execute.call_args_list) == [0, 1]
    assert secrets == [("", "01" * 32)] * 2
    assert all(call.args[0].endswith(" cmd") for call in execute.call_args_list)
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("std*")) == [
        f"out/rank.{rank}/{kind}" for rank in (0, 1) for kind in ("stderr", "stdout")
    ]


def test_output_goes_to_the_stream_and_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(num_proc=1, hosts="localhost:1", output_filename=str(tmp_path))
    gloo_run.gloo_run(settings, ["lo"], {"TEXT": "räks"}, "127.0.0.1", ["sh", "-c", "echo $TEXT; echo b >&2"])
    assert (tmp_path / "rank.0" / "stdout").read_text() == "[0]<stdout>:räks\n"
    found = capsys.readouterr()
    assert (found.out, found.err) == ("[0]<stdout>:räks\n", "[0]<stderr>:b\n")


def test_a_failure_ends_the_other_commands(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sh", "-c", "test $HOROVOD_RANK = 1 && exit 5; exec sleep 100"]
    began = time.monotonic()
    with pytest.raises(JobFailedError, match=r"localhost\[1\] ended with status 5"):
        gloo_run.gloo_run(Settings(num_proc=2, hosts="localhost:2"), ["lo"], {}, "127.0.0.1", command)
    assert time.monotonic() - began < LIMIT_S
    assert "Process 1 ended with status 5; all other workers are ended" in capsys.readouterr().out


def test_another_machine_is_refused_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(JobFailedError):
        gloo_run.gloo_run(Settings(num_proc=1, hosts="192.0.2.1:1"), ["lo"], {}, "127.0.0.1", ["true"])
    assert "is another machine" in capsys.readouterr().out


def test_an_elastic_job_runs_until_a_worker_succeeds() -> None:
    settings = ElasticSettings(FixedHosts({"a": 1, "b": 1}), 2, 2, LIMIT_S, None, num_proc=2, key=b"k" * 32)
    commands, nics = [], mock.Mock(return_value=["lo"])

    def exec_command(command: str, slot: SlotInfo, events: list[threading.Event]) -> tuple[int, float]:
        commands.append(command)
        return 0, time.time()

    rendezvous = RendezvousServer(0, settings.key.hex() if settings.key else "")
    gloo_run.launch_gloo_elastic(["true"], exec_command, settings, {"A": "1"}, nics, rendezvous, "python")
    assert len(commands) == 2
    for command in commands:
        assert "HOROVOD_ELASTIC=1" in command
        assert "PADDLE_ELASTIC_GENERATION=1" in command
        assert "HOROVOD_GLOO_RENDEZVOUS_ADDR=127.0.0.1" in command
    nics.assert_called_once()


def test_an_elastic_job_fails_with_its_workers_and_has_no_pickled_functions() -> None:
    settings = ElasticSettings(FixedHosts({"a": 1, "b": 1}), 2, 2, LIMIT_S, None, num_proc=2)
    run = mock.Mock(side_effect=lambda *_: (3, time.time()))
    with pytest.raises(JobFailedError, match="ended with status 3"):
        gloo_run.launch_gloo_elastic(["x"], run, settings, {}, lambda _: ["lo"], RendezvousServer())
    for function, mode in ((print, None), (["x"], True)):
        settings.run_func_mode = mode
        with pytest.raises(UsageError, match=r"elastic\.launch\.run\(\) runs a function"):
            gloo_run.gloo_run_elastic(settings, {}, function)


def test_signals_set_the_event_and_have_their_former_effect_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with gloo_run._shutdown_event() as event:
        signal.raise_signal(signal.SIGTERM)
        assert event.wait(LIMIT_S)
    assert signal.getsignal(signal.SIGTERM) is before


def test_several_streams_get_the_same_text() -> None:
    files = [mock.Mock(), mock.Mock()]
    both = gloo_run.MultiFile(files)
    both.write("a")
    both.flush()
    assert [one.mock_calls for one in files] == [[mock.call.write("a"), mock.call.flush()]] * 2
