"""The files that a user names: whole or not at all, and the old file stays until the new one is complete."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from each import each

from paddle_base.runtime.durable_files import OutputFile, write_whole_file
from paddle_base.runtime.errors import VolumeError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield b"new"
        raise ValueError("the second part has a fault")

    write_whole_file(tmp_path / "model", [b"ab", b"c"])
    (tmp_path / "model").chmod(0o600)
    with pytest.raises(ValueError, match="second part"):
        write_whole_file(tmp_path / "model", parts())
    assert (tmp_path / "model").read_bytes() == b"abc" and names(tmp_path) == ["model"]
    write_whole_file(tmp_path / "model", [b"d"])
    assert (tmp_path / "model").read_bytes() == b"d" and stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o600


def test_a_full_volume_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "plot.png").write_bytes(b"old")
    with pytest.raises(VolumeError, match=r"^the picture: cannot write /dev/full: No space .*; make room$"):
        write_whole_file(Path("/dev/full"), [b"new"], "the picture")
    file = OutputFile(tmp_path / "plot.png")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file._file.fileno())
    os.close(full)
    with pytest.raises(VolumeError, match="make room"), file:
        file.write(b"new")
    assert (tmp_path / "plot.png").read_bytes() == b"old" and names(tmp_path) == ["plot.png"]


@each(
    "name, said",
    [
        (".", "Is a directory; name a file in this directory"),
        ("nowhere/file", "No such file or directory; make its directory first"),
        ("file/below", "Not a directory; name a file that this user may write"),
        ("pipe", "No such device or address; name a file that this user may write"),  # nobody reads it
        ("loop", "Too many levels of symbolic links; name a file that this user may write"),
    ],
)
def test_a_target_that_is_no_file_is_named_with_what_to_do(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").write_text("kept")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(VolumeError) as told:
        write_whole_file(tmp_path / name, [b"c"])
    assert str(told.value) == f"cannot write {tmp_path / name}: {said}"
    assert names(tmp_path) == ["file", "loop", "pipe"] and (tmp_path / "file").read_text() == "kept"


def test_a_link_stays_and_a_pipe_gets_the_content(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("model")
    write_whole_file(tmp_path / "link", [b"ab"])
    assert (tmp_path / "link").is_symlink() and (tmp_path / "model").read_bytes() == b"ab"
    os.mkfifo(tmp_path / "pipe")
    handle = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole_file(tmp_path / "pipe", [b"dot"])
    assert os.read(handle, 100) == b"dot" and (tmp_path / "pipe").is_fifo()
    os.close(handle)
