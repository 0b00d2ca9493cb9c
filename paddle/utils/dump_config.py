"""`paddle dump_config CONFIG [CONFIG_ARGS] [--whole] [--binary]` prints the protobuf message of a config script."""

import contextlib
import sys
from collections.abc import Sequence

from paddle_base.runtime.errors import UsageError
from trainer.command_line import command
from trainer.config import as_v0_10, run_config, to_text

USAGE = "usage: paddle dump_config CONFIG [CONFIG_ARGS] [--whole] [--binary]"
HELP = f"""{USAGE}
    CONFIG        the config script
    CONFIG_ARGS   values that get_config_arg of the script returns: a=1,b=x
    --whole       the whole TrainerConfig (data sources and settings too), not only the network
    --binary      the serialised message, from which the trainer builds the network, instead of text
"""


@command("paddle dump_config", HELP)
def main(argv: Sequence[str]) -> None:
    """Print the message of the config to stdout.

    Raises: UsageError: the arguments do not fit USAGE.  ConfigError, DataError, MissingInputError: see
    run_config.
    """
    flags = {argument for argument in argv if argument.startswith("--")}
    positional = [argument for argument in argv if not argument.startswith("--")]
    unknown = sorted(flags - {"--whole", "--binary"})
    if unknown:
        raise UsageError(f"unknown flag {unknown[0]}; {USAGE}")
    if not 1 <= len(positional) <= 2:
        raise UsageError(f"{len(positional)} arguments instead of one or two; {USAGE}")
    with contextlib.redirect_stdout(sys.stderr):  # the config script's own output must not mix with the message
        parse = run_config(*positional)
    config = parse.config
    # A config with data sources or arguments is a job, and is printed in the form of v0.10. A network alone is printed
    # in the form of the last version of the original program.
    is_job = parse.has_data or len(positional) > 1
    if is_job and "--binary" not in flags:
        config = as_v0_10(config, parse.marks)
    message = config if "--whole" in flags else config.model_config
    if "--binary" in flags:
        sys.stdout.buffer.write(message.SerializeToString(deterministic=True))
    else:
        sys.stdout.write(to_text(message) + "\n")


if __name__ == "__main__":
    sys.exit(main())
