"""Read the inputs of a job: the config, the scripts to copy, the initial values, and the checkpoint."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError
from pserver.store.snapshot import VALUES, CheckpointState
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.config import parse_config
from trainer.config.scripts.python2 import use_python_path
from trainer.data.foreign_config import check_outputs
from trainer.flags import Values
from trainer.storage.checkpoint_reader import read_checkpoint
from trainer.storage.damaged_saves import judging
from trainer.storage.job_division import find_absent, redivide
from trainer.storage.model_sources import find_config, find_merged_config, load_model, naming_modules
from trainer.telemetry.legacy_words import AT


def read_config(flags: Values) -> tuple[TrainerConfig, str]:
    """Return the config message and the path of its script. The path is "" for a message from a merged model.

    Raises: MissingInputError: no config is found.  ConfigError, DataError: the config is invalid.
    """
    use_python_path(flags.python_path)
    merged = find_merged_config(flags.config, flags.init_model_path)
    if merged is not None:
        if flags.config_args:
            glog.warning(
                "--config_args has no effect, because the merged model contains the config; give --config, too"
            )
        check_outputs(merged, is_saving=saves_model(flags) and not flags.save_dir)
        return merged, ""
    first = flags.test_pass if flags.job == "test" else flags.start_pass - 1
    path = find_config(flags.config, flags.init_model_path, flags.save_dir, first)
    # the arguments that v0.10 gave to every config; those of the user come later, and the last one counts
    own = {
        "trainer_id": flags.trainer_id,
        "local": int(flags.local),
        "with_cost": int(flags.with_cost),
        "use_gpu": 0,
        "parallel_nn": 0,
        "cudnn_version": 0,
    }
    items = [f"{name}={value}" for name, value in own.items()]
    with naming_modules(flags.config, path):
        return parse_config(path, ",".join([*items, *filter(None, [flags.config_args])])), path


def saves_model(flags: Values) -> bool:
    """Return whether this trainer writes pass directories."""
    return bool(flags.job == "train" and flags.trainer_id == 0 and flags.num_passes > 0)


def read_copies(path: str, config: TrainerConfig, table: ParameterTable) -> dict[str, bytes]:
    """Return the content of the config script and of the scripts that it imports, for the copies in every save.

    A config from a merged model has no script.

    Raises: ConfigError: the file of a parameter would have the name of a script.
    """
    if not path:
        return {}
    copies = {Path(path).name: Path(path).read_bytes()}
    for other in map(Path, config.config_files):
        if other.is_file():
            copies.setdefault(other.name, other.read_bytes())
    taken = next((parameter.name for parameter in table if parameter.name in copies), None)
    if taken is not None:
        raise ConfigError(
            f"parameter {taken!r} cannot be saved: a script of the config has the same name and is in every save, too; "
            "rename the layer or the ParamAttr"
        )
    return copies


def read_resumed(flags: Values, table: ParameterTable) -> CheckpointState | None:
    """Return the content of the checkpoint, or None. Only trainer 0 reads it; the other trainers get their parts later.

    Raises: see `judging` and `read_checkpoint`.  ConfigError: another number of trainers made the checkpoint.
    """
    if not flags.resume_from or flags.trainer_id != 0:
        return None
    glog.info(f"Loading the checkpoint {flags.resume_from}")
    with judging(flags.resume_from, os.environ):
        restored = read_checkpoint(Path(flags.resume_from), table)
    is_of_servers = all(part.arrays.get(VALUES) is not table.values for part in restored.services)
    if is_of_servers and not (flags.local or flags.collective):
        return redivide(restored, flags.num_gradient_servers, find_absent(os.environ), flags.resume_from)
    made_by, number = len(restored.trainers), 1 if flags.local else flags.num_gradient_servers
    if made_by != number:
        raise ConfigError(
            f"the checkpoint {flags.resume_from} was made by {made_by} trainer{'s' * (made_by != 1)}, "
            f"but this job has {number}: resume with the same number of trainers, or load only the parameters of a "
            "pass with --init_model_path=<save_dir>/pass-*"
        )
    return restored


def fill_parameters(
    flags: Values,
    config: TrainerConfig,
    table: ParameterTable,
    stream: Stream,
    previous: str,
    elsewhere: Sequence[str] = (),
) -> str:
    """Load the initial model, or draw initial values. Return the path of the model, or "" without a model.

    Args: stream: the random stream for the initial values.  previous: the directory of the pass before --start_pass.
        elsewhere: the names of the parameters whose files the parameter servers load.
    Raises: MissingInputError: the model or one of its files is missing.  DataError: a file is damaged.
    """
    model = flags.init_model_path or config.init_model_path
    needs_done = not model and flags.start_pass > 0
    if needs_done:
        model = previous
    if model:
        with judging(model, os.environ):
            load_model(
                model,
                table,
                flags.load_missing_parameter_strategy,
                stream,
                needs_done=needs_done,
                elsewhere=elsewhere,
            )
        return str(Path(model).resolve())
    glog.info("Initing parameters..", at=AT["init"])
    table.randomize(stream)
    glog.info("Init parameters done.", at=AT["init done"])
    return ""
