"""Where a file that a user named may be written."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from paddle_base.runtime.durable_files import find_output


def test_a_file_or_a_new_name_is_its_own_place(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    assert [find_output(tmp_path / name) for name in ("old", "new")] == [tmp_path / "old", tmp_path / "new"]


def test_a_link_stays_and_what_it_leads_to_is_the_place(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("far/file")
    assert find_output(tmp_path / "one") == (tmp_path / "far/file").resolve()
    (tmp_path / "far/file").touch()
    assert find_output(tmp_path / "one") == (tmp_path / "far/file").resolve()


def test_what_is_no_regular_file_is_refused_by_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    Path("circle").symlink_to("circle")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    said = {"pipe": "no regular", "link": "no regular", "socket": "no regular", "circle": "symbolic links"}
    for name, reason in {**said, ".": "directory", "..": "directory", "/": "directory"}.items():
        with pytest.raises(OSError, match=reason) as caught:
            find_output(Path(name))
        assert caught.value.filename == name
