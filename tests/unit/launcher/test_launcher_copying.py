"""The thread that copies the output of a job to a bucket."""

import threading
from pathlib import Path

import pytest

from paddle_base.remote.addresses import parse_address
from paddle_cluster.launcher import copying
from paddle_cluster.launcher.programs.process import Stop


def test_an_error_of_any_kind_ends_only_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The thread ended by an error that no one had expected, and nothing was copied any more."""
    looks: list[int] = []
    is_second = threading.Event()

    def look(_: copying.OutputCopy) -> int:
        looks.append(1)
        if len(looks) == 1:
            raise TypeError("a library has a fault")
        is_second.set()
        return 0

    monkeypatch.setattr(copying, "PERIOD_S", 0.01)
    monkeypatch.setattr(copying.OutputCopy, "look", look)
    with copying.CopyingThread(tmp_path, parse_address("s3://bucket/key", "OUTPUT_COPY"), 1.0, Stop()):
        assert is_second.wait(60)
    said = capsys.readouterr()
    assert "the output is not copied: TypeError('a library has a fault')" in said.out + said.err
