"""Gives a forked process the command line and the environment that /proc, and with it `ps`, shows of it."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_MM, PR_SET_MM_MAP = 35, 14
# struct prctl_mm_map: start_code, end_code, start_data, end_data, start_brk, brk, start_stack, arg_start, arg_end,
# env_start, env_end, auxv; auxv_size, exe_fd. 0 bytes of auxv and the descriptor -1 leave both as they are.
_MAP = struct.Struct("=12QII")
_NO_FILE = 0xFFFFFFFF
# the numbers of fields in /proc/self/stat, from 1 (proc(5))
_START_CODE, _END_CODE, _START_STACK, _START_DATA, _END_DATA, _START_BRK = 26, 27, 28, 45, 46, 47
_kept: list[ctypes.Array[ctypes.c_char]] = []  # the memory that the kernel reads


def show(argv: Sequence[str], environ: Mapping[str, str]) -> None:
    """Let /proc/PID/cmdline and /proc/PID/environ show these of this process.

    Raises: OSError: the system permits no such change, as without CONFIG_CHECKPOINT_RESTORE.
    """
    words = b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in argv)
    variables = b"".join(f"{name}={value}\0".encode("utf-8", "surrogateescape") for name, value in environ.items())
    memory = ctypes.create_string_buffer(words + variables)  # private memory, from which alone the kernel shows words
    start = ctypes.addressof(memory)
    between, end = start + len(words), start + len(words) + len(variables)
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    code, end_code, stack, data, end_data, heap = (
        int(fields[number - 3]) for number in (_START_CODE, _END_CODE, _START_STACK, _START_DATA, _END_DATA, _START_BRK)
    )
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
    layout, size = ctypes.create_string_buffer(_MAP.size), ctypes.c_ulong(_MAP.size)
    while True:
        top = libc.sbrk(0)
        _MAP.pack_into(
            layout, 0, code, end_code, data, end_data, heap, top, stack, start, between, between, end, 0, 0, _NO_FILE
        )
        if libc.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(layout), size, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_MM_MAP) failed")
        if libc.sbrk(0) == top:  # otherwise the heap has grown meanwhile
            break
    _kept[:] = [memory]
