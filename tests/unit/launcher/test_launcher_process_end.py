"""The end of a launcher's process."""

import signal
import subprocess
import sys

import pytest

# the interpreter has begun to end when a function of atexit runs
ENDING = """
import atexit, sys
from paddle_cluster.launcher.programs.process import Stop, end_process

atexit.register(lambda: (print("ending", flush=True), sys.stdin.read()))
Stop.of_process()
end_process(75)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_interpreter_ends_changes_nothing(number: signal.Signals) -> None:
    """A pod that is deleted as its program ends gets SIGTERM then; the handler raised, and a traceback was logged."""
    with subprocess.Popen(
        [sys.executable, "-c", ENDING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stdout.readline() == "ending\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (75, "")
