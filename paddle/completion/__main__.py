"""`paddle completion bash | zsh` prints the script that completes commands and flags in a shell."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from paddle.completion.scripts import make_script
from paddle.completion.tables import collect_words
from trainer.command_line import CommandParser, command


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="paddle completion",
        description="Print a script that lets a shell complete the commands and flags of paddle and start_paddle.py: "
        'eval "$(paddle completion bash)"',
    )
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell")
    return parser


@command("paddle completion")
def main(argv: Sequence[str]) -> None:
    """Print the script of a shell."""
    shell: str = build_parser().parse_args(argv).shell
    sys.stdout.write(make_script(shell, collect_words()))


if __name__ == "__main__":
    sys.exit(main())
