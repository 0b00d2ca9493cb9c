"""Fixtures of all tests: a clean environment."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# no deadline: a busy machine may pause a test for a second
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

sys.path.insert(0, str(Path(__file__).parent))  # for `from builders import pod`

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell ignores SIGINT in background jobs; programs that tests start would inherit this, and Ctrl-C would not end
    # them
    signal.signal(signal.SIGINT, signal.default_int_handler)

CAUSE_LINES = 5  # of an error that is printed when a test fails; the whole report comes at the end

FOREIGN = (
    "JOB_",
    "CONF_PADDLE_",
    "PADDLE_",
    "POD_",
    "KUBERNETES_",
    "TRAIN",
    "WORK_DIR",
    "SERVICE_ACCOUNT_DIR",
    "DATA_",
)


class FailuresAtOnce:
    """Prints the name and the cause of a failed test when it fails: a run may go on for minutes after that."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            lines = (crash.message if crash else report.longreprtext).splitlines()
            cause = [line for line in lines if line.strip()][:CAUSE_LINES]
            self._terminal.write_line(f"\nFAILED NOW {report.nodeid} ({report.when}) - " + "\n    ".join(cause))


@pytest.hookimpl(trylast=True)  # the reporter is registered by another plugin's hook
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # fixtures end what they have started
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(terminal), "failures-at-once")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of this project from the environment of the tests."""
    for name in list(os.environ):
        if name.startswith(FOREIGN) or name in (
            "START_TIMEOUT",
            "STOP_TIMEOUT",
            "GOODBYE_TIMEOUT",
            "RESUME",
            "OUT_DIR",
        ):
            monkeypatch.delenv(name)


@pytest.fixture
def config_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory; the module path is restored after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    return tmp_path


@pytest.fixture
def default_interrupts() -> Iterator[None]:
    """Python's own handler of Ctrl-C, whatever a job in this process has left."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
