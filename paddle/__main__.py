"""`python -m paddle` is the `paddle` command."""

import sys

from paddle import interrupts

if __name__ == "__main__":
    interrupts.accept()
    from paddle.command import main

    sys.exit(main())
