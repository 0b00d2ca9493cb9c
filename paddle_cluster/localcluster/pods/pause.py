"""A pod's first process, which runs one program, and ends all processes that the program has started.

`node.py` starts this script as `python -I -S pause.py PROGRAM ARG...` with a pipe as standard input. The script imports
no module of this project. No process of the pod survives, as at the end of a container. To find all processes, the
script is a child subreaper: the kernel makes it the parent of all orphaned processes of the program, in every session
and process group.

Standard input: after `T` the script sends SIGTERM to the program, and after `K` it kills all processes. At the end of
file, which means that localcluster has died, the script kills all processes, too.
Exit status: the status of the program, or 128 + the signal if a signal killed the program, or 128 if the program cannot
be started.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
START_ERROR = 128


def main() -> None:
    """Start the program on the command line and wait until all its processes have ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    program = start(libc, sys.argv[1:])
    os._exit(supervise(program, wake_read))


def start(libc: ctypes.CDLL, argv: list[str]) -> int:
    """Start the program in its own process group, and return its process id.

    The kernel kills the program if this process dies.
    """
    program = os.fork()
    if program:
        return program
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for each in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(each, signal.SIG_DFL)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"localcluster: cannot start {argv[0]!r}: {error.strerror}\n".encode())
    finally:
        os._exit(START_ERROR)  # only reached if exec failed


def supervise(program: int, wake: int) -> int:
    """Obey the commands on stdin until the program has ended. Then kill its other processes, and return its status."""
    status: int | None = None
    listening = [0, wake]
    while status is None:
        ready, _, _ = select.select(listening, [], [])
        if wake in ready:
            os.read(wake, 4096)
        if 0 in ready:
            command = os.read(0, 1)
            if command == b"T":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(program, signal.SIGTERM)
            else:  # the command K, or the end of file
                kill_descendants()
                listening = [wake] if not command else listening  # the end of file is always ready
        status = reap(program)
    # again, because a process may have forked after it was listed
    while kill_descendants():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
    return status


def reap(program: int) -> int | None:
    """Collect the statuses of all ended processes; return the program's status if the program has ended."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while True:
            process, raw = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                break
            if process == program:
                code = os.waitstatus_to_exitcode(raw)
                status = code if code >= 0 else 128 - code
    return status


def kill_descendants() -> bool:
    """Send SIGKILL to all descendants of this process; return whether this process had descendants."""
    found = False
    for process in descendants(os.getpid()):
        found = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
    return found


def descendants(root: int) -> list[int]:
    """Return the ids of all descendants of a process, including zombies, nearest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = list(children.get(root, []))
    for process in found:  # the loop appends to `found`
        found += children.get(process, [])
    return found


if __name__ == "__main__":
    main()
