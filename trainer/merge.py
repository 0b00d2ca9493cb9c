"""`paddle merge_model`: a config and its parameters in one file.

The file: int64 length, that many bytes of a serialised TrainerConfig, then the parameter files back to back in the
order of the message.

Source: spec/trainer.md 3.8; trainer/MergeModel.cpp of v0.10.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from proto.TrainerConfig_pb2 import TrainerConfig
from pserver.errors import UsageError
from trainer.__main__ import report
from trainer.flags import Flag, Status, read_arguments

FLAGS: Mapping[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag("model_dir", str, "", Status.SUPPORTED, "directory of the parameters, for example output/pass-00000"),
        Flag("model_file", str, "", Status.SUPPORTED, "file to write"),
        Flag("config", str, "", Status.SUPPORTED, "the config script; empty: the one that model_dir/path.txt names"),
        Flag("config_file", str, "", Status.SUPPORTED, "the same under the legacy's name"),
        Flag("config_args", str, "", Status.SUPPORTED, "k1=v1,k2=v2 for the config script"),
        Flag("python_path", str, "", Status.SUPPORTED, "further directories of modules, separated by colons"),
    )
}
USAGE = (
    "usage: paddle merge_model --model_dir=pass-00000 --model_file=out.paddle "
    "[--config=config.py] [--config_args=k1=v1,k2=v2] [--python_path=a:b]"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `paddle merge_model` with these arguments and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help", "-help"} & set(arguments):
        sys.stdout.write(USAGE + "\n")
        return 0
    return report("paddle merge_model", arguments, merge)


def merge(arguments: Sequence[str]) -> None:
    """Write the merged model that the arguments ask for.

    Raises: UsageError: if a directory or file is not named.  MissingInputError: if config or parameters are missing.
    """
    # imported here, so that wrong arguments are answered at once
    from trainer.compat import use_python_path
    from trainer.config import parse_config
    from trainer.model_files import encode_parameter, write_whole_file
    from trainer.models import find_config, load_model, naming_modules
    from trainer.parameters import ParameterTable
    from trainer.rng import Stream

    given = read_arguments(arguments, FLAGS)
    if not given.get("model_dir") or not given.get("model_file"):
        raise UsageError(USAGE)
    use_python_path(given.get("python_path", ""))
    script = given.get("config") or given.get("config_file", "")
    path = find_config(script, given["model_dir"])
    with naming_modules(script, path):
        config = parse_config(path, given.get("config_args", ""))
    table = ParameterTable(config.model_config.parameters)
    load_model(given["model_dir"], table, "fail", Stream(0))
    parameters = (part for parameter in table for part in encode_parameter(parameter))
    write_whole_file(Path(given["model_file"]), [frame_config(config), *parameters])


def frame_config(config: TrainerConfig) -> bytes:
    """Return the message behind its length."""
    data = config.SerializeToString()
    return struct.pack("<q", len(data)) + data


if __name__ == "__main__":
    sys.exit(main())
