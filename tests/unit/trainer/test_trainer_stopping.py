"""Signals: at once, or behind work that is not to be cut in two."""

import os
import signal

import pytest

from pserver.errors import LostPeerError, StoppedError
from trainer.stopping import Stopper


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


def test_an_error_of_the_block_does_not_hide_the_signal(stopper):
    with pytest.raises(StoppedError) as caught, stopper:
        send(signal.SIGTERM)
        raise LostPeerError("the others got the signal too")
    assert isinstance(caught.value.__context__, LostPeerError)
