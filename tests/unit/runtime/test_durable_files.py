"""Where a file that a user named may be written, and how files and directories are replaced."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_base.runtime.durable_files import STALE_ATTEMPTS, find_output, retry_stale, write_directory, write_mark


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


def test_estale_is_retried_and_other_errors_are_not() -> None:
    """An NFS client answers ESTALE after a rename on another node."""
    calls: list[int] = []

    def step(code: int, fails: int) -> str:
        calls.append(code)
        if len(calls) <= fails:
            raise OSError(code, os.strerror(code))
        return "text"

    assert retry_stale(lambda: step(errno.ESTALE, STALE_ATTEMPTS - 1)) == "text"
    for code, attempts in ((errno.ESTALE, STALE_ATTEMPTS), (errno.EACCES, 1)):
        calls.clear()
        with pytest.raises(OSError, match=os.strerror(code)):
            retry_stale(lambda code=code: step(code, 99))  # type: ignore[misc]
        assert calls == [code] * attempts


def test_two_programs_that_write_a_file_at_the_same_time_never_mix_their_texts(tmp_path: Path) -> None:
    """The launchers of an old and a new pod may both write job.json."""
    target = tmp_path / "job.json"

    def slow() -> Iterator[bytes]:
        yield b"first, "
        write_mark(target, [b"the other"], tmp_path / ".job.json.other")
        assert target.read_bytes() == b"the other"
        yield b"last"

    write_mark(target, slow(), tmp_path / ".job.json.one")
    assert target.read_bytes() == b"first, last"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("fails_at", ["fill", "complete", ""])
def test_a_directory_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, fails_at: str) -> None:
    place = tmp_path / "pass-00000"
    place.mkdir()
    (place / "old").touch()

    def fail_at(step: str) -> None:
        if step == fails_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fill(staging: Path) -> None:
        (staging / "new").touch()
        fail_at("fill")

    def complete() -> None:
        assert (tmp_path / ".pass-00000.old" / "old").exists(), "it stays until the new one is complete"
        fail_at("complete")

    if fails_at:
        with pytest.raises(OSError, match="No space"):
            write_directory(place, fill, complete)
    else:
        write_directory(place, fill, complete)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert (
        found
        == {
            "fill": {"pass-00000/old"},
            "complete": {"pass-00000/new", ".pass-00000.old/old"},
            "": {"pass-00000/new"},
        }[fails_at]
    )
