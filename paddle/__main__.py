"""`python -m paddle` is the `paddle` command."""

import gc
import sys

from paddle import interrupts

if __name__ == "__main__":
    interrupts.accept()
    from paddle.command import main

    status = main()
    # The interpreter's cleanup at the end is skipped: it takes 70 ms of processor time of a trainer, during which the
    # next
    # attempt of a job waits for (bench/recovery.py).
    gc.freeze()
    sys.exit(status)
