"""`python -m paddle.utils.show_pb FILE` prints the messages of a file of ProtoData as text.

Source: python/paddle/utils/show_pb.py of v0.10.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from paddle_base.runtime.errors import MissingInputError, UsageError
from trainer.command_line import command
from trainer.data.older.messages import read_header, read_samples

HELP = """usage: python -m paddle.utils.show_pb FILE
Prints the header and the samples of a file of ProtoData; a file *.gz is compressed.
"""


@command("show_pb", HELP)
def main(argv: Sequence[str]) -> None:
    """Print the messages of the file that the arguments name."""
    if len(argv) != 1:
        raise UsageError(HELP.splitlines()[0])
    try:
        sys.stdout.write(f"{read_header(argv[0])}\n")
        for sample in read_samples(argv[0]):
            sys.stdout.write(f"{sample}\n")
    except OSError as error:
        raise MissingInputError(f"{argv[0]} cannot be read: {error.strerror}; correct its name") from error


if __name__ == "__main__":
    sys.exit(main())
