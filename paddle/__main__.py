"""`python -m paddle` is the `paddle` command."""

import gc
import sys

from paddle import interrupts

if __name__ == "__main__":
    interrupts.accept()
    from paddle.command import main

    status = main()
    # The interpreter's cleanup at the end is skipped: it takes a trainer 70 ms of processor time, and the next attempt
    # of a job would have to wait for it (bench/recovery.py).
    gc.freeze()
    sys.exit(status)
