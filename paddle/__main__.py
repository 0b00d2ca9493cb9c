"""`python -m paddle` is the `paddle` command."""

import gc
import sys

from paddle import interrupts

if __name__ == "__main__":
    interrupts.accept()
    from paddle.command import main

    status = main()
    # Without this call the interpreter would collect garbage at its end. In a trainer this takes 70 ms of processor
    # time, and the next attempt of a job would wait for it (bench/recovery.py).
    gc.freeze()
    sys.exit(status)
