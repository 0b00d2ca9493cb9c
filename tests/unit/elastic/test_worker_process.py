"""A worker on this machine: its start, its output and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from io import FileIO
from pathlib import Path

import pytest
from waiting import until

from paddle_cluster.elastic.launching import guard
from paddle_cluster.elastic.launching.durable import DriverLock, run_durable
from paddle_cluster.elastic.launching.output import OutputWriter
from paddle_cluster.elastic.launching.processes import DRAIN_S, run_process, start_command
from paddle_cluster.elastic.membership.results import JobFailedError, Results, WorkerExit, describe_exit, judge


def run(script: str, ends: tuple[threading.Event, ...] = ()) -> tuple[WorkerExit, float]:
    """Run a shell script as a worker; return its end, and the seconds that it took."""
    began = time.monotonic()
    end = run_process(start_command(["sh", "-c", script]), dict(os.environ), 0, OutputWriter(None, 1, False), ends)
    return end, time.monotonic() - began


def test_a_child_with_its_own_session_delays_no_end_of_its_worker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver read the output of such a child for 10 s before it told anybody that the worker had ended."""
    pid = tmp_path / "pid"
    end, seconds = run(f"setsid sh -c 'echo $$ > {pid}; exec sleep 600' & seq 20000; while [ ! -s {pid} ]; do :; done")
    try:
        assert end.exit_code == 0
        assert seconds < DRAIN_S
        assert capsys.readouterr().out.splitlines() == [f"[0]<stdout>:{number}" for number in range(1, 20001)]
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_a_stopped_worker_ends_at_once(tmp_path: Path) -> None:
    """SIGTERM waited in it until SIGKILL came after 5 s."""
    pid, event = tmp_path / "pid", threading.Event()

    def end_it() -> None:
        until(lambda: pid.exists() and ") T " in Path(f"/proc/{pid.read_text().strip() or 1}/stat").read_text(), pid)
        event.set()

    threading.Thread(target=end_it, daemon=True).start()
    end, seconds = run(f"echo $$ > {pid}; kill -STOP $$; sleep 600", (event,))
    assert (end.exit_code, end.was_stopped) == (-signal.SIGTERM, True)
    assert seconds < guard.GRACE_S


def test_the_first_failure_is_the_first_also_when_the_clock_is_set_back_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker that failed as a consequence was named, and its exit code was that of the command."""
    first, _ = run("exit 3")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 600)
    second, _ = run("exit 5")
    with pytest.raises(JobFailedError, match=r"a\[0\] ended with status 3, as the first of 2") as caught:
        judge(Results(None, {"a[1]": second[:2], "a[0]": first[:2]}))
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("script", "code"), [("exit 137", 137), ("exit 255", 255), ("kill -9 $$", -9), ("sh -c 'kill -9 $$'", 137)]
)
@pytest.mark.parametrize("is_durable", [False, True])
def test_only_what_the_system_calls_a_signal_is_one(tmp_path: Path, script: str, code: int, is_durable: bool) -> None:
    """A worker that ended with 200 was said to be ended by signal 72."""
    if is_durable:
        (tmp_path / "driver").mkdir()
        lock = DriverLock(tmp_path)
        writer, command = OutputWriter(None, 1, False), ["sh", "-c", f"{script}; exit $?"]
        end = run_durable(command, dict(os.environ), tmp_path / "driver", 0, writer, (), 60.0)
        lock.close()
    else:
        end, _ = run(f"{script}; exit $?")
    assert end.exit_code == code
    wanted = f"ended by signal {-code}" if code < 0 else f"ended with status {code}"
    assert describe_exit(code) == wanted
    with pytest.raises(JobFailedError, match=f"a.0. {'was ' if code < 0 else ''}{wanted}, as the first") as caught:
        judge(Results(None, {"a[0]": end[:2]}))
    assert caught.value.exit_code == (75 if code < 0 else code)


@pytest.mark.parametrize("came", [[], [signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]])
def test_a_signal_from_before_the_worker_was_there_reaches_it(monkeypatch: pytest.MonkeyPatch, came: list[int]) -> None:
    """A worker that was to end as soon as it began lived on, and was killed 5 s later."""
    monkeypatch.setattr(guard, "CAME", came)
    child = guard.start(["sleep", "600" if came else "0"])
    guard.pass_on(child)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == (-came[0] if came else 0)


def test_two_writers_of_a_file_leave_no_gaps_in_it(tmp_path: Path) -> None:
    """Two drivers with the same --output-filename wrote NUL bytes, because the second had truncated the file."""
    files: list[FileIO | None] = []
    writers = [OutputWriter(tmp_path, 1, False) for _ in range(2)]
    with contextlib.ExitStack() as stack:
        for number, text in ((0, b"first\n"), (1, b"second\n")):
            found = writers[number].open(0)
            for file in found.values():
                assert file is not None
                stack.callback(file.close)
            files.append(found["stdout"])
            writers[number].show(0, "stdout", text, files[number])
        writers[0].show(0, "stdout", b"third\n", files[0])
    assert (tmp_path / "rank.0/stdout").read_bytes() == b"second\n"
    assert (tmp_path / "rank.0/stdout.1").read_bytes() == b"first\nthird\n"


def test_the_output_of_an_earlier_job_stays(tmp_path: Path) -> None:
    """The next job with the same --output-filename emptied it in silence."""
    for text in (b"first\n", b"second\n", b"third\n"):
        writer = OutputWriter(tmp_path, 1, False)
        for _ in range(2):  # the second worker of the rank appends
            files = writer.open(0)
            writer.show(0, "stdout", text, files["stdout"])
            for file in files.values():
                assert file is not None
                file.close()
    found = {path.name: path.read_bytes() for path in (tmp_path / "rank.0").iterdir() if path.stat().st_size}
    assert found == {"stdout.1": b"first\n" * 2, "stdout.2": b"second\n" * 2, "stdout": b"third\n" * 2}


def test_a_write_that_is_short_goes_on_with_the_rest(tmp_path: Path) -> None:
    """The rest of a short write was lost."""

    class ShortFile(FileIO):
        def write(self, data: memoryview) -> int:  # type: ignore[override]
            return super().write(data[:3])

    source, sink = os.pipe()
    os.write(sink, b"one two three\n")
    os.close(sink)
    path = tmp_path / "stdout"
    OutputWriter(None, 1, False).copy(FileIO(source, "rb"), 0, "stdout", ShortFile(path, "ab"))
    assert path.read_bytes() == b"one two three\n"


def test_a_file_that_lacks_output_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Output was lost without a word when the volume was full."""
    writer = OutputWriter(None, 1, False)
    with FileIO("/dev/full", "ab") as file:
        for text in (b"one\n", b"two\n"):
            writer.show(0, "stdout", text, file)
    found = capsys.readouterr()
    assert found.out == "[0]<stdout>:one\n[0]<stdout>:two\n"
    assert found.err.count("/dev/full lacks output of its worker, because it cannot be written: No space left") == 1


def test_a_script_that_imports_horovod_is_told_which_line_to_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    writer = OutputWriter(None, 1, False)
    for rank in range(3):
        writer.show(
            rank, "stderr", b"  import horovod.torch as hvd\nModuleNotFoundError: No module named 'horovod'\n", None
        )
    writer.show(0, "stdout", b"ModuleNotFoundError: No module named 'horovod'\n", None)
    told = [line for line in capsys.readouterr().err.splitlines() if "import paddle.elastic.torch as hvd" in line]
    assert len(told) == 1 and "change its line `import horovod.torch as hvd` into" in told[0]
    assert "TensorFlow and Keras, which have to call paddle.elastic with numpy arrays" in told[0]
