"""The command of ENTRY, which a pod runs in place of `paddle train`, and the variables that it gets.

A program of paddle.v2 finds its pservers in PADDLE_INIT_X, as in the images of 2017: X is a flag of `paddle train`. A
program of another library finds the other processes in the variables of torch, TensorFlow and JAX.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from paddle_cluster.launcher.cluster.pods import in_id_order
from paddle_cluster.launcher.command_lines import ProgramCommand
from paddle_cluster.launcher.settings import LauncherConfig

INIT = "PADDLE_INIT_"
# The shell of the command ends after SIGTERM, but not before the program that it waits for: that one may still save.
TRAP = "trap 'exit 143' TERM\n"
# flags that say what `paddle train` runs; the command of ENTRY says it itself
_NOT_OF_PROGRAMS = ("config", "local")
# maximum bytes of NAME=value and its final zero byte (Linux, MAX_ARG_STRLEN), see execve(2)
MOST_BYTES = 128 * 1024


@dataclasses.dataclass(frozen=True)
class EntryCommand(ProgramCommand):
    """The command of a shell, with the flags that `paddle train` would get."""

    entry: str = ""
    given: Mapping[str, str] = dataclasses.field(default_factory=dict)  # variables beside those of the flags
    follower: tuple[str, ...] = ()  # the command that reports the lines of progress

    @property
    def argv(self) -> list[str]:
        """The command line as a list of words."""
        return [*shell_words(self.entry)]

    @property
    def variables(self) -> Mapping[str, str]:
        """See `ProgramCommand`. A variable that is too long for the kernel is left out."""
        found = {**flags_as_variables(self.flags), **self.given}
        return {name: text for name, text in found.items() if len(name) + len(text.encode()) + 2 <= MOST_BYTES}

    def __str__(self) -> str:
        return f"sh -c {self.entry!r}"


def shell_words(entry: str) -> tuple[str, ...]:
    """Return the command line of the shell that runs a command of ENTRY."""
    return "sh", "-c", f"{TRAP}{entry}"


def flags_as_variables(flags: Mapping[str, str]) -> dict[str, str]:
    """Return flags as variables that `paddle.init` reads. A flag without a value has no variable."""
    return {f"{INIT}{name.upper()}": text for name, text in flags.items() if text and name not in _NOT_OF_PROGRAMS}


def build_entry_command(
    config: LauncherConfig, ids: Mapping[str, int], trainer_id: int, train: ProgramCommand, environ: Mapping[str, str]
) -> EntryCommand:
    """Return the command of ENTRY in place of the command of `paddle train`.

    Args: ids: {ip: id} of all pods of the attempt. train: what the pod would run without ENTRY. environ: that of the
        pod's programs.
    """
    given = rank_variables(config, ids, trainer_id)
    if config.trainer_package:
        given["PYTHONPATH"] = first_in_path(config.trainer_package, environ.get("PYTHONPATH", ""))
    follower = (
        *("paddle", "follow", str(config.output), f"--trainer_id={trainer_id}"),
        *(f"--trainers={config.gradient_num}", f"--program={config.entry}"),
    )
    return EntryCommand("train", train.flags, entry=config.entry, given=given, follower=follower)


def first_in_path(directory: str, path: str) -> str:
    """Return a path of directories that begins with `directory`."""
    return f"{directory}:{path}" if path else directory


def rank_variables(config: LauncherConfig, ids: Mapping[str, int], trainer_id: int) -> dict[str, str]:
    """Return the variables by which processes of torch, TensorFlow and JAX find each other. A pod has one process."""
    workers = [f"{ip}:{config.master_port}" for ip in in_id_order(ids) if config.layout.runs_trainer(ids[ip])]
    task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": trainer_id}}
    rank, size = str(trainer_id), str(config.gradient_num)
    return {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": workers[0].rpartition(":")[0],
        "MASTER_PORT": str(config.master_port),
        "TF_CONFIG": json.dumps(task),
        "JAX_COORDINATOR_ADDRESS": workers[0],
        "JAX_PROCESS_ID": rank,
        "JAX_NUM_PROCESSES": size,
    }
