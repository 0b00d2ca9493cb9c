"""Memory that two processes share: what one writes the other reads, and what is no such memory is declined."""

import fcntl
import json
import mmap
import os
import socket
import subprocess
import sys

import pytest
from each import each

from pserver.wire.shared_memory import SharedMemory


@pytest.mark.parametrize("length", [0, 1, 4096, 1_000_003])
def test_what_one_side_writes_the_other_reads(length):
    ours = SharedMemory.make(length)
    theirs = SharedMemory.open(ours.offer)
    data = bytes(range(256)) * (length // 256) + b"x" * (length % 256)
    ours.outbox[:] = data
    theirs.inbox[:] = data[::-1]
    assert bytes(theirs.outbox) == data and bytes(ours.inbox) == data[::-1]
    ours.close()


def test_another_process_opens_it_and_neither_end_is_lost_with_the_other():
    ours = SharedMemory.make(5)
    ours.outbox[:] = b"hello"
    code = (
        "import json, sys; from pserver.wire.shared_memory import SharedMemory;"
        "memory = SharedMemory.open(json.loads(sys.argv[1]));"
        "memory.inbox[:] = bytes(memory.outbox).upper()"
    )
    subprocess.run([sys.executable, "-c", code, json.dumps(ours.offer)], check=True, timeout=60)
    assert bytes(ours.inbox) == b"HELLO"
    ours.close()


def test_the_memory_cannot_be_shortened_under_the_reader():
    ours = SharedMemory.make(5)
    for size in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(ours.offer["file"], size)
    ours.close()


@pytest.fixture
def offer():
    memory = SharedMemory.make(5)
    yield memory.offer
    memory.close()


@pytest.mark.parametrize(
    "key, value",
    [
        ("pid", -1),
        ("pid", "1"),
        ("pid", 1 << 50),
        ("file", 10**6),
        ("file", None),
        ("length", 6000),
        ("length", -1),
        ("length", 1 << 41),
        ("token", "0" * 32),
        ("token", None),
    ],
)
def test_an_offer_with_a_wrong_field_is_declined(offer, key, value):
    assert SharedMemory.open({**offer, key: value}) is None


@pytest.mark.parametrize("nonsense", [None, "memory", 7, [1, 2], {}])
def test_what_is_no_offer_is_declined(nonsense):
    assert SharedMemory.open(nonsense) is None


def test_other_files_of_a_process_are_declined(offer, tmp_path):
    size = 2 * mmap.PAGESIZE + 5
    unsealed = os.memfd_create("paddle", os.MFD_ALLOW_SEALING)
    reader, writer = os.pipe()
    with (tmp_path / "plain").open("wb") as plain, socket.socket() as listener:
        for file in (unsealed, plain.fileno()):
            os.ftruncate(file, size)
        for file in (unsealed, reader, writer, plain.fileno(), listener.fileno()):
            assert SharedMemory.open({**offer, "file": file}) is None
    for file in (unsealed, reader, writer):
        os.close(file)


@each(
    ("name", "seals", "is_taken"),
    [
        ("paddle", fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL, True),
        ("paddle", fcntl.F_SEAL_GROW, False),
        ("paddle-secret", fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL, False),
    ],
)
def test_a_copy_of_the_memory_is_declined_by_its_name_or_seals(offer, name, seals, is_taken):
    """The secret of a job may be in memory of another name, and what can be shortened kills its reader."""
    file = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    os.write(file, os.pread(offer["file"], 1 << 20, 0))
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    assert (SharedMemory.open({**offer, "file": file}) is not None) is is_taken
    os.close(file)
