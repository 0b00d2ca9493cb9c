"""`python3 -P -m paddle_base.remote NAME ADDRESS DIRECTORY SECONDS` copies the files of an address, for start.sh."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from paddle_base.remote.addresses import parse_address
from paddle_base.remote.patience import Patience
from paddle_base.remote.tree import download_all
from paddle_base.runtime.errors import ConfigError, PaddleError


def main(arguments: Sequence[str]) -> int:
    """Copy the files, print the error as start.sh does, and return the exit status.

    Args: arguments: what the address is, for messages; the address; the directory; the seconds of the deadline.
    """
    name, text, directory, seconds = arguments
    try:
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", seconds):
            raise ConfigError(f"INPUT_TIMEOUT is {seconds!r}; set it to a number of seconds")
        patience = Patience(name, float(seconds), "raise INPUT_TIMEOUT, or check the server", _say)
        download_all(parse_address(text, name), Path(directory), patience)
    except PaddleError as error:
        _say(str(error))
        return error.exit_code
    return 0


def _say(message: str) -> None:
    print(f"start.sh: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
