"""`paddle completion bash | zsh`: print the script that completes commands and flags in a shell."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from paddle.completion.scripts import make_script
from paddle.completion.tables import collect_words
from runtime.errors import PaddleError
from trainer.command_line import CommandParser


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="paddle completion",
        description="Print a script that lets a shell complete the commands and flags of paddle and start_paddle.py: "
        'eval "$(paddle completion bash)"',
    )
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the script of a shell, and return the exit status."""
    try:
        shell: str = build_parser().parse_args(argv).shell
    except PaddleError as error:
        sys.stderr.write(f"paddle completion: {error}\n")
        return error.exit_code
    sys.stdout.write(make_script(shell, collect_words()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
