"""A service that runs one command, and sends the output and the exit code of the command to clients.

    service = BasicTaskService("task", 0, key, nics=None)
    client = BasicTaskClient("task", service.addresses(), key, verbose=0)
    client.stream_command_output(sys.stdout, sys.stderr)
    client.run_command("python train.py", {}, capture_stdout=True, capture_stderr=True)
    code = client.wait_for_command_exit_code()

Names and signatures are those of `horovod.runner.common.service.task_service`. Results that a client registers are
plain data or arrays, as in every message of `paddle_cluster.elastic.runner.common.network`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from paddle_base.runtime import glog
from paddle_base.runtime.errors import PaddleError
from paddle_cluster.elastic.runner.common import network, safe_shell_exec
from paddle_cluster.elastic.runner.common.timeout import Timeout
from paddle_cluster.elastic.runner.util.streams import Pipe
from paddle_cluster.elastic.runner.util.threads import in_thread

WAIT_FOR_COMMAND_MIN_DELAY = 0.1  # minimum seconds between two checks of a command
MOST_WAIT_S = 60.0  # maximum seconds that a request waits; a longer wait takes several requests


class RunCommandRequest:
    """Asks to run a command; a service runs only its first command."""

    def __init__(
        self,
        command: str,
        env: Mapping[str, str | None],
        capture_stdout: bool = False,
        capture_stderr: bool = False,
        prefix_output_with_timestamp: bool = False,
    ) -> None:
        self.command, self.env = command, dict(env)
        self.capture_stdout, self.capture_stderr = capture_stdout, capture_stderr
        self.prefix_output_with_timestamp = prefix_output_with_timestamp


class StreamCommandOutputRequest:
    """Asks for an output of the command; a subclass names the output."""


class StreamCommandStdOutRequest(StreamCommandOutputRequest):
    """Asks for the standard output."""


class StreamCommandStdErrRequest(StreamCommandOutputRequest):
    """Asks for the standard error."""


class CommandOutputNotCaptured:
    """The answer if the command was started without a capture of the output."""


class AbortCommandRequest:
    """Asks to end the command."""


class CommandExitCodeRequest:
    """Asks for the exit code without a wait."""


class CommandExitCodeResponse:
    """Attributes: terminated: whether the command has ended.  exit_code: exit code; None before the end."""

    def __init__(self, terminated: bool, exit_code: int | None) -> None:
        self.terminated, self.exit_code = terminated, exit_code


class WaitForCommandExitCodeRequest:
    """Asks for the exit code after the end. Attributes: delay: seconds between two checks."""

    def __init__(self, delay: float) -> None:
        self.delay = delay


class WaitForCommandExitCodeResponse:
    """Attributes: exit_code: exit code; None if the command runs.  terminated: whether the command has ended."""

    def __init__(self, exit_code: int | None, terminated: bool = True) -> None:
        self.exit_code, self.terminated = exit_code, terminated


class NotifyInitialRegistrationCompleteRequest:
    """Reports that all tasks are registered."""


class RegisterCodeResultRequest:
    """Gives the service a result of plain data or arrays."""

    def __init__(self, result: Any) -> None:
        self.result = result


class _CapturedOutput(Pipe):
    """An output of the command; after `close`, the rest of the output is dropped."""

    def write(self, buf: str | bytes) -> None:
        with contextlib.suppress(RuntimeError):
            super().write(buf)


class _RunningCommand(NamedTuple):
    thread: threading.Thread
    abort: threading.Event
    stdout: Pipe | None
    stderr: Pipe | None

    def end(self) -> None:
        """End the command; a client of its output gets no more text."""
        self.abort.set()
        for pipe in (self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()


class BasicTaskService(network.BasicService):
    """Runs one command.

    Args: index: number that begins each line of the output.  command_env: variables of the command, which the variables
        of a request change; None in a request removes a variable.  verbose: from 2 on, commands are logged.

    Thread safety: every method may be called from any thread.
    """

    def __init__(
        self,
        name: str,
        index: int,
        key: bytes,
        nics: Collection[str] | None,
        command_env: Mapping[str, str] | None = None,
        verbose: int = 0,
    ) -> None:
        self._index, self._command_env, self._verbose = index, command_env, verbose
        self._wait_cond = threading.Condition()
        self._is_registered = False
        self._command: _RunningCommand | None = None
        self._command_exit_code: int | None = None
        self._fn_result: Any = None
        super().__init__(name, key, nics)

    def _run_command(
        self,
        command: str,
        env: Mapping[str, str],
        event: threading.Event,
        stdout: Pipe | None = None,
        stderr: Pipe | None = None,
        index: int | None = None,
        prefix_output_with_timestamp: bool = False,
    ) -> None:
        try:
            code = safe_shell_exec.execute(command, env, stdout, stderr, index, [event], prefix_output_with_timestamp)
        except (OSError, PaddleError) as exc:
            glog.error(f"{self._service_name} could not run its command: {exc}")
            code = 1
        with self._wait_cond:
            self._command_exit_code = code
        for pipe in (stdout, stderr):
            if pipe is not None:
                pipe.close()

    def _handle(self, req: Any, client_address: tuple[str, int]) -> Any:
        match req:
            case RunCommandRequest():
                self._start(req)
            case StreamCommandOutputRequest():
                self.wait_for_command_start()
                is_error = isinstance(req, StreamCommandStdErrRequest)
                command = self._command
                return self.stream_output(command and (command.stderr if is_error else command.stdout))
            case AbortCommandRequest():
                if self._command is not None:
                    self._command.end()
            case NotifyInitialRegistrationCompleteRequest():
                with self._wait_cond:
                    self._is_registered = True
                    self._wait_cond.notify_all()
            case CommandExitCodeRequest():
                has_ended = self._has_ended()
                return CommandExitCodeResponse(has_ended, self._command_exit_code if has_ended else None)
            case WaitForCommandExitCodeRequest():
                has_ended = self._wait_for_end(req.delay)
                return WaitForCommandExitCodeResponse(self._command_exit_code if has_ended else None, has_ended)
            case RegisterCodeResultRequest():
                self._fn_result = req.result
            case _:
                return super()._handle(req, client_address)
        return network.AckResponse()

    def _start(self, req: RunCommandRequest) -> None:
        with self._wait_cond:
            if self._command is not None:
                return  # a client repeats a request whose answer was lost
            if self._verbose >= 2:
                glog.info(f"{self._service_name} runs {glog.clean(req.command, 300)}")
            env = {name: value for name, value in {**(self._command_env or {}), **req.env}.items() if value is not None}
            stdout = _CapturedOutput() if req.capture_stdout else None
            stderr = _CapturedOutput() if req.capture_stderr else None
            abort = threading.Event()
            args = (req.command, env, abort, stdout, stderr, self._index, req.prefix_output_with_timestamp)
            self._command = _RunningCommand(in_thread(self._run_command, args), abort, stdout, stderr)
            self._wait_cond.notify_all()

    def _has_ended(self) -> bool:
        return self._command is not None and not self._command.thread.is_alive()

    def _wait_for_end(self, delay: float) -> bool:
        until = time.monotonic() + MOST_WAIT_S
        step = max(delay, WAIT_FOR_COMMAND_MIN_DELAY)
        while not self._has_ended() and (left := until - time.monotonic()) > 0:
            command = self._command
            if command is not None:
                command.thread.join(min(step, left))
                continue
            with self._wait_cond:
                self._wait_cond.wait_for(lambda: self._command is not None, min(step, left))
        return self._has_ended()

    def fn_result(self) -> Any:
        """Return the result that a client has registered, or None."""
        return self._fn_result

    def wait_for_initial_registration(self, timeout: Timeout) -> None:
        """Wait until a client reports that all tasks are registered. Raises: TimeoutException: no report has come."""
        with self._wait_cond:
            while not self._is_registered:
                self._wait_cond.wait(timeout.remaining())
                timeout.check_time_out_for("tasks to start")

    def wait_for_command_start(self, timeout: Timeout | None = None) -> None:
        """Wait for a command. Raises: TimeoutException: no command has come in time."""
        with self._wait_cond:
            while self._command is None:
                self._wait_cond.wait(None if timeout is None else timeout.remaining())
                if timeout is not None:
                    timeout.check_time_out_for("command to run")

    def check_for_command_start(self, seconds: float) -> bool:
        """Wait for a command for some seconds; return whether a command has come."""
        with self._wait_cond:
            return self._wait_cond.wait_for(lambda: self._command is not None, seconds)

    def wait_for_command_termination(self) -> None:
        """Wait for the end of the command; return at once if no command was started."""
        if self._command is not None:
            self._command.thread.join()

    def command_exit_code(self) -> int | None:
        """Return the exit code, or None before the end of the command."""
        return self._command_exit_code

    def stream_output(self, stream: Pipe | None) -> Any:
        """Return the answer to a request for an output; None: the output is not captured."""
        return CommandOutputNotCaptured() if stream is None else (network.AckStreamResponse(), stream)


class BasicTaskClient(network.BasicClient):
    """The client of a `BasicTaskService`; see `BasicClient`."""

    def __init__(
        self,
        service_name: str,
        task_addresses: Mapping[str, Sequence[tuple[str, int]]],
        key: bytes,
        verbose: int,
        match_intf: bool = False,
        attempts: int = 3,
    ) -> None:
        super().__init__(service_name, task_addresses, key, verbose, match_intf=match_intf, attempts=attempts)

    def run_command(
        self,
        command: str,
        env: Mapping[str, str | None],
        capture_stdout: bool = False,
        capture_stderr: bool = False,
        prefix_output_with_timestamp: bool = False,
    ) -> None:
        """Start a command with the variables of the service, changed by `env`; capture the given outputs."""
        self._send(RunCommandRequest(command, env, capture_stdout, capture_stderr, prefix_output_with_timestamp))

    def stream_command_output(
        self, stdout: Any = None, stderr: Any = None
    ) -> tuple[threading.Thread | None, threading.Thread | None]:
        """Copy the outputs of the command to two streams of text; return the threads that do so.

        If an output cannot be copied, the command is ended.
        """

        def send(req: StreamCommandOutputRequest, stream: Any) -> None:
            try:
                self._send(req, stream)
            except Exception:
                self.abort_command()
                raise

        return (
            in_thread(send, (StreamCommandStdOutRequest(), stdout)) if stdout else None,
            in_thread(send, (StreamCommandStdErrRequest(), stderr)) if stderr else None,
        )

    def abort_command(self) -> None:
        """End the command."""
        self._send(AbortCommandRequest())

    def notify_initial_registration_complete(self) -> None:
        """Report to the service that all tasks are registered."""
        self._send(NotifyInitialRegistrationCompleteRequest())

    def command_terminated(self) -> bool:
        """Return whether the command has ended."""
        return self.command_result()[0]

    def command_result(self) -> tuple[bool, int | None]:
        """Return whether the command has ended, and its exit code."""
        response = self._send(CommandExitCodeRequest())
        return response.terminated, response.exit_code

    def register_code_result(self, result: Any) -> None:
        """Give the service a result of plain data or arrays."""
        self._send(RegisterCodeResultRequest(result))

    def wait_for_command_termination(self, delay: float = 1.0) -> None:
        """Wait for the end of the command, or of the service."""
        self.wait_for_command_exit_code(delay)

    def wait_for_command_exit_code(self, delay: float = 1.0) -> int | None:
        """Wait for the end of the command; return its exit code, or None if the service has ended.

        Args: delay: seconds between two checks of the service.
        """
        with contextlib.suppress(OSError, EOFError, PaddleError):
            while True:
                response = self._send(WaitForCommandExitCodeRequest(delay))
                if response.terminated:
                    code: int | None = response.exit_code
                    return code
        return None
