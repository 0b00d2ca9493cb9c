"""What wakes the thread that waits for sockets."""

import os
import select

from paddle_base.runtime.wakeup import WakeUp


def is_awake(wakeup: WakeUp) -> bool:
    return bool(select.select([wakeup], [], [], 0)[0])


def test_several_calls_wake_once() -> None:
    wakeup = WakeUp()
    assert not is_awake(wakeup) and not wakeup.clear()
    for _ in range(100_000):  # a pipe or a pair of sockets would be full
        wakeup.call()
    assert is_awake(wakeup) and wakeup.clear()
    assert not is_awake(wakeup) and not wakeup.clear()
    wakeup.close()


def test_a_late_call_writes_to_no_other_file() -> None:
    """The number of a closed descriptor is given to the next file that the process opens."""
    wakeup = WakeUp()
    before = wakeup.fileno()
    wakeup.close()
    reader, writer = os.pipe()
    try:
        assert before in (reader, writer)
        os.set_blocking(reader, False)
        wakeup.call()
        wakeup.close()
        assert wakeup.fileno() == -1 and not select.select([reader], [], [], 0)[0]
    finally:
        os.close(reader)
        os.close(writer)
