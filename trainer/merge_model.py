"""`paddle merge_model` writes a config and its parameters into one file.

The file begins with an int64, the number of bytes of the serialised TrainerConfig that follows. After this message, the
contents of the parameter files follow without gaps, in the message's order of parameters.

Source: spec/trainer.md 3.8; trainer/MergeModel.cpp of v0.10.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import write_whole_file
from paddle_base.runtime.errors import UsageError
from paddle_base.runtime.gflags import Flag, Status, index_flags, read_arguments
from trainer.__main__ import report

FLAGS = index_flags(
    Flag("model_dir", "", Status.SUPPORTED, "directory of the parameters, for example output/pass-00000"),
    Flag("model_file", "", Status.SUPPORTED, "file to write"),
    Flag("config", "", Status.SUPPORTED, "the config script; if empty, the script that model_dir/path.txt names"),
    Flag("config_file", "", Status.SUPPORTED, "the value of --config, under the flag's name in v0.10"),
    Flag("config_args", "", Status.SUPPORTED, "arguments of the config script, as k1=v1,k2=v2"),
    Flag("python_path", "", Status.SUPPORTED, "further directories of modules, separated by colons"),
)
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
    """Write the merged model that the arguments describe.

    Raises: UsageError: --model_dir or --model_file is not given.  MissingInputError: the config or a parameter file is
        missing.
    """
    # These imports, here and in `_warn_of_objects`, take 0.19 s of CPU time (median of nine). The imports are not at
    # the top of the module, because --help and wrong arguments can then be answered in 0.07 s.
    from trainer.arrays.parameters import ParameterTable
    from trainer.arrays.rng import Stream
    from trainer.config import parse_config
    from trainer.config.scripts.python2 import use_python_path
    from trainer.storage.model_files import encode_parameter
    from trainer.storage.model_sources import find_config, load_model, naming_modules

    given = read_arguments(arguments, FLAGS)
    if not given.get("model_dir") or not given.get("model_file"):
        raise UsageError(USAGE)
    use_python_path(given.get("python_path", ""))
    script = given.get("config") or given.get("config_file", "")
    path = find_config(script, given["model_dir"], flag="model_dir")
    with naming_modules(script, path):
        config = parse_config(path, given.get("config_args", ""))
    _warn_of_objects(config)
    table = ParameterTable(config.model_config.parameters)
    load_model(given["model_dir"], table, "never", Stream(0))
    parameters = (part for parameter in table for part in encode_parameter(parameter))
    write_whole_file(Path(given["model_file"]), [frame_config(config), *parameters], "--model_file")


def _warn_of_objects(config: TrainerConfig) -> None:
    """Log a warning for each data provider whose args cannot be read from the merged model."""
    from trainer.data.provider2 import deserialize_args

    for data in (config.data_config, config.test_data_config):
        if data.load_data_args:
            try:
                deserialize_args(data.load_data_args)
            except ValueError as error:
                glog.warning(
                    f"args of the data provider {data.load_data_module}::{data.load_data_object} cannot be read from "
                    f"the merged model: {error}; --job=test with this model needs --config, too"
                )


def frame_config(config: TrainerConfig) -> bytes:
    """Return the encoded message, preceded by its length."""
    data = config.SerializeToString()
    return struct.pack("<q", len(data)) + data


if __name__ == "__main__":
    sys.exit(main())
