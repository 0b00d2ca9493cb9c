"""`python -m paddle` is the `paddle` command."""

import gc
import sys

from paddle import interrupts

if __name__ == "__main__":
    interrupts.accept()
    from paddle.command import main

    status = main()
    # Without this call, the interpreter collects garbage at its end. In a trainer, the collection takes 70 ms of
    # processor time, and delays the next attempt of the job (bench/recovery.py).
    gc.freeze()
    sys.exit(status)
