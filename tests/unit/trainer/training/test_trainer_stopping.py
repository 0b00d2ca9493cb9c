"""Signals: at once, or behind work that is not to be cut in two."""

import os
import signal
import subprocess
import sys

import pytest

from paddle_base.runtime.errors import LostPeerError, StoppedError
from trainer.training.stopping import Stopper


@pytest.fixture
def stopper():
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    stopper = Stopper()
    stopper.install()
    yield stopper
    signal.alarm(0)
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_at_once_and_only_once(stopper, number):
    with pytest.raises(StoppedError, match=f"stopped by {number.name}"):
        send(number)
    send(number)
    send(signal.SIGTERM)
    assert stopper.is_clean


def test_a_signal_inside_a_block_waits_for_its_end(stopper):
    done = []
    with pytest.raises(StoppedError, match="stopped by SIGTERM"), stopper:
        with stopper:
            send(signal.SIGTERM)
            send(signal.SIGTERM)
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]
    assert stopper.is_clean


def test_a_second_interrupt_does_not_wait(stopper):
    done = []
    with pytest.raises(StoppedError, match="stopped by SIGTERM"), stopper:
        send(signal.SIGTERM)
        done.append("after the first")
        send(signal.SIGINT)
        done.append("after the second")
    assert done == ["after the first"]
    assert not stopper.is_clean


def test_a_block_that_takes_too_long_is_cut(stopper):
    stopper.limit(1)
    with pytest.raises(StoppedError, match="stopped by SIGTERM"), stopper:
        send(signal.SIGTERM)
        signal.pause()  # ends when a handler has run
        raise AssertionError("the block went on")
    assert not stopper.is_clean


def test_a_block_that_is_worth_waiting_for_is_not_cut(stopper):
    stopper.limit(1)
    with pytest.raises(StoppedError), stopper:
        signal.raise_signal(signal.SIGTERM)
        assert stopper.is_waiting
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        stopper.ignore_limit()
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert stopper.is_clean


def test_inside_a_block_a_signal_can_be_asked_for(stopper):
    with pytest.raises(StoppedError, match="SIGTERM"), stopper:
        stopper.leave()
        signal.raise_signal(signal.SIGTERM)
        stopper.leave()
        pytest.fail("it has not left")


def test_an_error_of_the_block_does_not_hide_the_signal(stopper):
    with pytest.raises(StoppedError) as caught, stopper:
        send(signal.SIGTERM)
        raise LostPeerError("the others got the signal too")
    assert isinstance(caught.value.__context__, LostPeerError)


def test_signals_that_arrive_together_count_once(stopper, capfd):
    numbers = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for number in numbers:
        signal.raise_signal(number)  # to this thread, which does not take it yet
    with pytest.raises(StoppedError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    assert stopper.is_clean
    assert capfd.readouterr().err == ""


SIGNALLED_IMPORT = """
import signal
import sys

from trainer.__main__ import main


class Swallowing:
    def find_spec(self, name, path=None, target=None):
        if name == "paddle_base.kernels":
            try:
                signal.raise_signal(signal.SIGTERM)
            except Exception:
                pass


sys.meta_path.insert(0, Swallowing())
sys.exit(main(["--config=none.py"]))
"""


def test_an_import_that_swallows_errors_does_not_swallow_a_signal():
    done = subprocess.run([sys.executable, "-c", SIGNALLED_IMPORT], capture_output=True, text=True, check=False)
    assert done.returncode == 143, done.stderr


def test_a_config_that_swallows_errors_does_not_swallow_a_signal(tmp_path):
    (tmp_path / "config.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGTERM)\nexcept Exception:\n    pass\n"
    )
    command = [sys.executable, "-m", "trainer", f"--config={tmp_path / 'config.py'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 143, done.stderr
