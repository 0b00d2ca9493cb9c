"""`python -m paddle` is the `paddle` command."""

import gc
import sys

from paddle import interrupts

if __name__ == "__main__":
    interrupts.accept()
    from paddle.command import main

    status = main()
    # Nobody needs what the interpreter would collect at its end: 70 ms of processor time of a trainer, which the next
    # attempt of a job waits for (bench/recovery.py).
    gc.freeze()
    sys.exit(status)
