"""A service that runs a command for its clients, as Horovod's test/single/test_task_service.py uses it.

The names of modules are Horovod's (see conftest.py).
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from horovod.runner.common.service import task_service
from horovod.runner.common.service.task_service import BasicTaskClient, BasicTaskService
from horovod.runner.common.util import secret
from horovod.runner.common.util.timeout import Timeout, TimeoutException
from horovod.runner.task.task_service import HorovodRunTaskClient, HorovodRunTaskService

LIMIT_S = 60.0
NAME = "a task of tests"
Connect = Callable[..., BasicTaskClient]


@pytest.fixture
def key() -> bytes:
    return secret.make_secret_key()


@pytest.fixture
def service(key: bytes) -> Iterator[BasicTaskService]:
    one = BasicTaskService(NAME, 3, key, None, {"A": "a", "B": "b", "PATH": "/usr/bin:/bin"}, 2)
    yield one
    one.shutdown()


@pytest.fixture
def connect(service: BasicTaskService, key: bytes) -> Connect:
    addresses = {"lo": [("127.0.0.1", service.get_port())]}
    return lambda **options: BasicTaskClient(NAME, addresses, key, 2, **options)


def join(thread: threading.Thread | None) -> None:
    assert thread is not None
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_a_command_has_its_exit_code_and_is_the_only_one(service: BasicTaskService, connect: Connect) -> None:
    client = connect()
    assert not service.check_for_command_start(0.01)
    with pytest.raises(TimeoutException, match="command to run"):
        service.wait_for_command_start(Timeout(0.01, "no {activity}"))
    assert (client.command_terminated(), client.command_result()) == (False, (False, None))
    client.run_command("exit 12", {})
    client.run_command("exit 13", {})
    service.wait_for_command_start()
    assert service.check_for_command_start(LIMIT_S)
    assert client.wait_for_command_exit_code(0.01) == 12
    assert (client.command_terminated(), client.command_result()) == (True, (True, 12))
    service.wait_for_command_termination()
    assert service.command_exit_code() == 12


def test_outputs_are_copied_with_the_index_and_the_changed_variables(connect: Connect) -> None:
    client, out, err = connect(), io.StringIO(), io.StringIO()
    threads = client.stream_command_output(out, err)  # waits for the command
    client.run_command("echo $A-$B-$C; echo e >&2", {"B": None, "C": "c"}, capture_stdout=True, capture_stderr=True)
    client.wait_for_command_termination(0.01)
    for thread in threads:
        join(thread)
    assert (out.getvalue(), err.getvalue()) == ("[3]<stdout>:a--c\n", "[3]<stderr>:e\n")


def test_an_output_that_is_not_captured_is_empty_and_another_has_the_time(connect: Connect) -> None:
    client, out, err = connect(), io.StringIO(), io.StringIO()
    client.run_command("echo o; echo e >&2", {}, capture_stdout=True, prefix_output_with_timestamp=True)
    for thread in client.stream_command_output(out, err):
        join(thread)
    assert re.fullmatch(r"\w{3} \w{3} .\d [\d:]{8} \d{4}\[3\]<stdout>:o\n", out.getvalue())
    assert err.getvalue() == ""
    assert client.stream_command_output() == (None, None)


def test_an_aborted_command_ends_although_nobody_reads_its_output(connect: Connect) -> None:
    client = connect()
    client.run_command("while :; do echo more; done", {}, capture_stdout=True)
    client.abort_command()
    assert client.wait_for_command_exit_code() == 143


class FaultyStream(io.StringIO):
    """Cannot write the second text."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def write(self, text: str, /) -> int:
        self.count += 1
        if self.count == 2:
            raise RuntimeError("the stream is faulty")
        return super().write(text)


@pytest.mark.parametrize(("attempts", "code"), [(1, 143), (3, 0)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_output_that_cannot_be_written_is_asked_for_again_or_ends_the_command(
    connect: Connect, attempts: int, code: int, tmp_path: Any
) -> None:
    """A client gave up an output at the first failure of its stream, whatever number of attempts it had."""
    client, out, gate = connect(attempts=attempts), FaultyStream(), tmp_path / "gate"
    thread, _ = client.stream_command_output(out)
    # the service notices a lost connection at one of the next lines, which are lost, too
    command = f"echo 1; while [ ! -e {gate} ]; do echo more; sleep 0.01; done; seq -f 'last %g' 20"
    client.run_command(command, {}, capture_stdout=True)
    waited = threading.Event()
    while attempts > 1 and out.count < 4 and not waited.wait(0.01):
        pass
    if attempts > 1:
        gate.touch()
    assert client.wait_for_command_exit_code(0.01) == code
    join(thread)
    assert ("last" in out.getvalue()) == (attempts > 1)


def test_a_long_wait_takes_several_requests(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_service, "MOST_WAIT_S", 0.01)
    client, codes = connect(), []
    waiting = threading.Thread(target=lambda: codes.append(client.wait_for_command_exit_code(0.01)))
    waiting.start()
    connect().run_command("sleep 0.2; exit 5", {})
    join(waiting)
    assert codes == [5]


def test_a_shutdown_answers_a_wait_for_the_command_and_later_waits_have_no_code(key: bytes) -> None:
    service = BasicTaskService(NAME, 0, key, nics=None)
    client, begun = BasicTaskClient(NAME, {"lo": [("127.0.0.1", service.get_port())]}, key, 0), threading.Event()
    inner, codes = service._wait_for_end, []

    def wait(delay: float) -> bool:
        begun.set()
        return inner(delay)

    service._wait_for_end = wait
    waiting = threading.Thread(target=lambda: codes.append(client.wait_for_command_exit_code(0.01)))
    waiting.start()
    assert begun.wait(LIMIT_S)
    client.run_command("sleep 0.2; exit 7", {})
    service.shutdown()
    join(waiting)
    assert (codes, client.wait_for_command_exit_code()) == ([7], None)


def test_a_command_that_cannot_be_started_has_failed(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(task_service.safe_shell_exec, "execute", lambda *_: (_ for _ in ()).throw(OSError("no memory")))
    client, out = connect(), io.StringIO()
    client.run_command("true", {}, capture_stdout=True)
    assert client.wait_for_command_exit_code(0.01) == 1
    join(client.stream_command_output(out)[0])
    assert "could not run its command: no memory" in capsys.readouterr().err


def test_a_task_keeps_a_result_and_knows_when_all_are_registered(service: BasicTaskService, connect: Connect) -> None:
    client = connect()
    assert service.fn_result() is None
    client.register_code_result({"a": [1, 2.5]})
    assert service.fn_result() == {"a": [1, 2.5]}
    with pytest.raises(TimeoutException, match="tasks to start"):
        service.wait_for_initial_registration(Timeout(0.01, "no {activity}"))
    client.notify_initial_registration_complete()
    service.wait_for_initial_registration(Timeout(LIMIT_S, "no {activity}"))


def test_a_task_knows_when_the_addresses_of_another_are_checked(key: bytes) -> None:
    service = HorovodRunTaskService(4, key, None)
    client = HorovodRunTaskClient(4, {"lo": [("127.0.0.1", service.get_port())]}, key, 0)
    with pytest.raises(TimeoutException):
        service.wait_for_task_to_task_address_check_finish_signal(Timeout(0.01, "no {activity}"))
    assert (client.task_to_task_address_check_completed(), service.index, client.index) == (4, 4, 4)
    service.wait_for_task_to_task_address_check_finish_signal(Timeout(LIMIT_S, "no {activity}"))
    service.shutdown()
