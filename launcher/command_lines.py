"""The command lines of pserver, trainer and probe, and what the launcher reads of the flags that it passes on."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from launcher.attempts import JobRecord
from launcher.cluster.pods import IdMap, in_id_order, own_trainer_id
from launcher.settings import LauncherConfig
from runtime.errors import ConfigError, MissingInputError, UsageError

PORT_FLAGS = ("port", "ports_num", "ports_num_for_sparse")  # by which the probe finds the ports of a pserver


@dataclasses.dataclass(frozen=True)
class ProgramCommand:
    """A program of ours and its flags. It is made once; what needs a flag asks for it, and nothing parses the words."""

    program: str  # the argument of `paddle`: pserver or train
    flags: Mapping[str, str]
    switches: tuple[str, ...] = ()  # flags without a value; they come first

    @property
    def argv(self) -> list[str]:
        """The words that the program is started with."""
        switches = [f"--{name}" for name in self.switches]
        return ["paddle", self.program, *switches, *(f"--{name}={value}" for name, value in self.flags.items())]

    @property
    def metrics_port(self) -> int:
        """The port of its /healthz, 0 without one."""
        text = self.flags.get("metrics_port", "0")
        return int(text) if re.fullmatch("[0-9]+", text) else 0

    def having(self, **flags: object) -> ProgramCommand:
        """Returns one with further flags."""
        return dataclasses.replace(self, flags={**self.flags, **{name: str(value) for name, value in flags.items()}})

    def __str__(self) -> str:
        return shlex.join(self.argv)


def whole_number(arguments: Mapping[str, str], name: str, default: int, low: int) -> int:
    """Returns a flag's value as int; raises UsageError when it is none or below `low`."""
    text = arguments.get(name, str(default))
    if not re.fullmatch(r"-?[0-9]+", text) or int(text) < low:
        raise UsageError(f"--{name}={text}: expected a whole number of at least {low}")
    return int(text)


def merge_flags(ours: Mapping[str, str], passed: Mapping[str, str], last: Mapping[str, str]) -> dict[str, str]:
    """Returns our flags, the passed ones, the last; every name once, and the passed value wins."""
    return {**ours, **passed, **{name: value for name, value in last.items() if name not in passed}}


def watching_flags(config: LauncherConfig, trainer_id: int, place: int, log: str) -> dict[str, str]:
    """Returns the flags by which a program is watched: the port after the pod's own of this place, its JSON log."""
    flags = {"metrics_port": str(config.metrics_port + place)} if config.metrics_port else {}
    return flags | ({"log_json": str(config.output / f"node_{trainer_id}" / log)} if config.log_json else {})


def build_pserver_command(config: LauncherConfig, trainer_id: int, passed: Mapping[str, str]) -> ProgramCommand:
    """Returns the pserver's command line (the tutorial's, but as a list, so that no shell reads it)."""
    flags = {
        "port": str(config.port),
        "ports_num": str(config.ports_num),
        "ports_num_for_sparse": str(config.ports_num_sparse),
        "nics": config.nic,
        "comment": "paddle_process_by_paddle",
        "num_gradient_servers": str(config.gradient_num),
    }
    watching = watching_flags(config, trainer_id, 1, "server.jsonl")  # passed ones of these are the trainer's
    named = {name: passed[name] for name in flags if name in passed}
    return ProgramCommand("pserver", {**flags, **named, **watching})


def build_trainer_command(
    config: LauncherConfig, ids: Mapping[str, int], trainer_id: int, passed: Mapping[str, str]
) -> ProgramCommand:
    """Returns the trainer's command line: the tutorial's, with the pservers in id order (S7) and N (S25)."""
    flags = {
        "nics": config.nic,
        "port": str(config.port),
        "ports_num": str(config.ports_num),
        "comment": "paddle_process_by_paddle",
        "pservers": ",".join(ip for ip in in_id_order(ids) if config.layout.runs_pserver(ids[ip])),
    }
    last = {
        "num_gradient_servers": str(config.gradient_num),
        "trainer_id": str(trainer_id),
        "save_dir": str(config.output),
        **watching_flags(config, trainer_id, 2, "train.jsonl"),
    }
    return ProgramCommand("train", merge_flags(flags, passed, last))


def is_local(passed: Mapping[str, str]) -> bool:
    """Tells whether --local is on: each trainer trains by itself and needs no other pod."""
    return passed.get("local", "0").lower() in ("1", "t", "true", "y", "yes")


def build_probe_command(pserver: ProgramCommand, trainer: ProgramCommand) -> ProgramCommand:
    """Returns the command that waits for every pserver: ports as the pserver has them, hosts as the trainer does."""
    flags = {"pservers": trainer.flags["pservers"]}
    flags |= {name: value for name, value in pserver.flags.items() if name in PORT_FLAGS}
    return ProgramCommand("pserver", flags, switches=("probe",))


def print_plan(config: LauncherConfig, ids: IdMap, passed: Mapping[str, str]) -> None:
    """Prints pods, ids and both command lines (--dry_run)."""
    trainer_id, layout = own_trainer_id(config, ids), config.layout
    for ip in in_id_order(ids):
        notes = [" (this pod)"] if ip == config.pod_ip else []
        notes += [] if layout.runs_pserver(ids[ip]) else [", without a pserver"]
        print(f"{layout.name_pod(ids[ip])}: {ip}{''.join(notes)}")
    if layout.runs_pserver(trainer_id):
        print(build_pserver_command(config, trainer_id, passed))
    if layout.runs_trainer(trainer_id):
        print(build_trainer_command(config, ids, trainer_id, passed))


def save_dir_of(config: LauncherConfig, passed: Mapping[str, str]) -> Path:
    """Returns where trainer 0 saves: --save_dir, by default output/."""
    return Path(passed.get("save_dir") or config.output)


def check_flags(config: LauncherConfig, passed: Mapping[str, str]) -> None:
    """Checks the trainer's flags that the launcher reads.

    Raises: UsageError. MissingInputError: no config is there. ConfigError: a pod would have nothing to run.
    """
    wanted_passes(passed)
    if is_local(passed) and config.layout.pods > config.gradient_num:
        raise ConfigError(f"--local trains without pservers, but {config.layout}: set CONF_PADDLE_GRADIENT_NUM alone")
    if is_local(passed) and config.may_shrink:
        raise ConfigError("--local trains each trainer by itself; leave CONF_PADDLE_GRADIENT_MIN out")
    if passed.get("config") and not Path(passed["config"]).is_file():
        raise MissingInputError(f"--config={passed['config']}: there is no such file in {Path.cwd()}")


def wanted_passes(passed: Mapping[str, str]) -> int:
    """Returns the pass before which training ends: --start_pass and --num_passes, by default as the trainer's."""
    return whole_number(passed, "start_pass", 0, 0) + whole_number(passed, "num_passes", 100, 1)


def resumed_flags(config: LauncherConfig, record: JobRecord, passed: Mapping[str, str]) -> dict[str, str]:
    """Returns the trainer's flags with those that let it go on from where the record says."""
    if record.checkpoint:
        state = save_dir_of(config, passed) / "state" / record.checkpoint
        return {**passed, "resume_from": str(state)}
    if record.start_pass:
        # --init_model_path wins over --start_pass: training would begin anew with every attempt
        kept = {name: value for name, value in passed.items() if name not in ("init_model_path", "resume_from")}
        remaining = {"start_pass": str(record.start_pass), "num_passes": str(record.passes - record.start_pass)}
        return {**kept, **remaining}
    return dict(passed)
