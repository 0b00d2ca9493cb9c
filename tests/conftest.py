"""What all tests share: a clean environment."""

import os
import signal
import sys
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("any machine", deadline=None)  # a busy machine may stop a test for a second
hypothesis.settings.load_profile("any machine")

sys.path.insert(0, str(Path(__file__).parent))  # for `from builders import pod`

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell starts its background jobs so; the programs that tests start would inherit it, and no Ctrl-C end them
    signal.signal(signal.SIGINT, signal.default_int_handler)

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


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of ours leaks in from the machine that runs the tests."""
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
    """An empty working directory; the module path is as before afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    return tmp_path
