"""`python -m paddle` is the `paddle` command."""

import sys

from paddle.command import main

sys.exit(main())
