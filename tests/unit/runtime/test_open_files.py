"""The budget of file descriptors."""

import errno
import os
import resource
from pathlib import Path

import pytest

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.network import open_files
from paddle_base.runtime.network.open_files import FREE_FILES, SPARE_FILES, FreeFiles, make_room


@pytest.mark.parametrize(("limit", "wanted", "left"), [(4096, 300, 300), (256, 300, 192), (1024, 3000, 768)])
def test_a_part_of_the_limit_is_for_the_program_itself(
    monkeypatch: pytest.MonkeyPatch, limit: int, wanted: int, left: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    assert make_room(wanted) == left


def test_a_limit_without_room_for_connections_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (63, 63))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    with pytest.raises(ConfigError, match="may have 63 open files, and needs 64: raise the limit"):
        make_room(3)


def test_descriptors_above_a_hole_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lowest free number said that nearly all were free."""
    own = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(open_files, "limit_of_files", lambda: own + SPARE_FILES + 8)
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(40)]
    try:
        assert not FreeFiles().take(1, lambda: 0)
    finally:
        for one in held:
            os.close(one)
    files = FreeFiles()
    assert files.take(4) and not files.take(4, lambda: 5)


def test_a_count_that_needs_the_last_descriptor_itself_finds_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """With exactly one free descriptor, strangers ended the gate of a master and the front of a driver."""

    def refuse(_: str) -> list[str]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "listdir", refuse)
    assert not FreeFiles().take(1)


def test_a_forked_process_does_not_wait_for_a_thread_of_its_parent() -> None:
    with FREE_FILES._lock:
        child = os.fork()
        if not child:
            os._exit(0 if FREE_FILES.take(0) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_count_serves_for_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that others open meanwhile are seen; an old count gave away the descriptors that have to stay free."""
    clock, own = [100.0], len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(open_files, "limit_of_files", lambda: own + SPARE_FILES + 40)
    monkeypatch.setattr(open_files.time, "monotonic", lambda: clock[0])
    files = FreeFiles()
    assert files.take(1)
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(60)]
    try:
        assert files.take(1)
        clock[0] += 2 * open_files.COUNT_S
        assert not files.take(1)
    finally:
        for one in held:
            os.close(one)
