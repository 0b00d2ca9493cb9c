"""What a killed run of these tests leaves behind is killed by reaper.py."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from reaper import MARK

REAPER = Path(__file__).with_name("reaper.py")


def test_marked_processes_of_every_session_are_killed_and_no_others():
    environ = {name: text for name, text in os.environ.items() if name != MARK}
    command = [sys.executable, "-I", "-S", REAPER, "of a test"]
    say = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"
    started = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", say],
            env={**environ, MARK: mark},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for mark in ("of a test", "of another")
    ]
    try:
        for process in started:
            process.stdout.readline()  # its environment is that of the program, no longer that of its parent
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=environ) as reaper:
            reaper.stdin.close()
            assert reaper.wait(60) == 0
        assert started[0].wait(60) == -signal.SIGKILL
        assert started[1].poll() is None
    finally:
        for process in started:
            process.kill()
            process.communicate()
