"""A service thread that ends by an error ends its program."""

import subprocess
import sys
import threading

import pytest

from paddle_base.runtime.health.service_threads import ServiceThread

PROGRAM = """
import threading
from paddle_base.runtime.health.service_threads import ServiceThread
def serve():
    raise KeyError("one that nobody expected")
ServiceThread(serve, "the service").start()
threading.Event().wait(60)
"""


def test_an_error_ends_the_program_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 70
    assert "KeyError: 'one that nobody expected'" in ended.stderr
    assert "the thread the service has ended by an error, so this program ends" in ended.stderr


def test_an_error_ends_the_program_although_its_report_is_stuck() -> None:
    """A pipe that nobody reads, or another thread that holds the lock of the log, kept half of the program alive."""
    stuck = PROGRAM.replace(
        "import threading\n", "import threading\nfrom paddle_base.runtime import glog\nglog._lock.acquire()\n", 1
    )
    ended = subprocess.run([sys.executable, "-c", stuck], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 70


def test_a_thread_that_returns_ends_nothing() -> None:
    ran = threading.Event()
    thread = ServiceThread(ran.set, "short")
    thread.start()
    thread.join(30)
    assert ran.is_set() and thread.daemon and not thread.is_alive()


def test_nothing_is_ended_when_python_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)

    def serve() -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    thread = ServiceThread(serve, "late")
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
