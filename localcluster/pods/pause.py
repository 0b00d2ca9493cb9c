"""A pod's first process: runs one program and takes everything it ever started away with it.

Started by `node.py` as `python -I -S pause.py PROGRAM ARG...` with a pipe as standard input; imports nothing
of ours. It stands for the container's boundary, which processes alone do not have: what the program leaves behind is
re-parented to here (child subreaper), so that nothing outlives the pod, whatever sessions or groups it made.

Standard input: `T` sends SIGTERM to the program, `K` kills everything; end of file (localcluster has died) too.
Exit status: the program's, or 128 + the signal that killed it; 128 if it could not be started.
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
    """Start the program of the command line and stay until all of it is gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    program = start(libc, sys.argv[1:])
    os._exit(supervise(program, wake_read))


def start(libc: ctypes.CDLL, argv: list[str]) -> int:
    """Return the id of a new process that runs the program in its own process group; it dies with this one."""
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
        os._exit(START_ERROR)  # reached only where exec failed


def supervise(program: int, wake: int) -> int:
    """Obey standard input until the program has ended, then end what it left; return the program's status."""
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
            else:  # K, or end of file
                kill_descendants()
                listening = [wake] if not command else listening
        status = reap(program)
    while kill_descendants():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
    return status


def reap(program: int) -> int | None:
    """Collect every process that has ended; return the program's status if it is among them."""
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
    """Send SIGKILL to every process below this one; return whether there was any."""
    found = False
    for process in descendants(os.getpid()):
        found = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
    return found


def descendants(root: int) -> list[int]:
    """Return the ids of all processes below one, zombies too, nearest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = list(children.get(root, []))
    for process in found:  # grows while it is read
        found += children.get(process, [])
    return found


if __name__ == "__main__":
    main()
