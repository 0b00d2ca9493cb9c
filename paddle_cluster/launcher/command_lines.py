"""The command lines of pserver, trainer and probe, and the checks of the flags that the launcher passes on."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from paddle_base.runtime.errors import ConfigError, MissingInputError, UsageError
from paddle_base.runtime.saves import FOLDER, JOB
from paddle_cluster.launcher.attempts import JobRecord
from paddle_cluster.launcher.cluster.pods import IdMap, hosts_of, in_id_order, own_trainer_id
from paddle_cluster.launcher.settings import LauncherConfig

PORT_FLAGS = ("port", "ports_num", "ports_num_for_sparse")  # flags from which the probe computes the ports of a pserver


@dataclasses.dataclass(frozen=True)
class ProgramCommand:
    """A program and its flags. The flags are a dictionary, so no code needs to parse a command line."""

    program: str  # the argument of `paddle`: pserver or train
    flags: Mapping[str, str]
    switches: tuple[str, ...] = ()  # flags without a value, which precede all other flags

    @property
    def argv(self) -> list[str]:
        """The command line as a list of words."""
        switches = [f"--{name}" for name in self.switches]
        return ["paddle", self.program, *switches, *(f"--{name}={value}" for name, value in self.flags.items())]

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables that only this program gets."""
        return {}

    @property
    def metrics_port(self) -> int:
        """The port of the program's /healthz, or 0 if the program has no such port."""
        text = self.flags.get("metrics_port", "0")
        return int(text) if re.fullmatch("[0-9]{1,18}", text) else 0

    def having(self, **flags: object) -> ProgramCommand:
        """Return a copy with additional flags."""
        return dataclasses.replace(self, flags={**self.flags, **{name: str(value) for name, value in flags.items()}})

    def __str__(self) -> str:
        return shlex.join(self.argv)


def whole_number(arguments: Mapping[str, str], name: str, default: int, low: int) -> int:
    """Return a flag's value as int; raise UsageError if it is not a number or is below `low`."""
    text = arguments.get(name, str(default))
    if not re.fullmatch(r"-?[0-9]{1,18}", text) or int(text) < low:
        raise UsageError(f"--{name}={text}: expected a whole number of at least {low}")
    return int(text)


def list_preloaded(config: LauncherConfig) -> list[str]:
    """Return what the fork server of this pod imports: the programs that the pod runs, and their pages of metrics."""
    index, layout = config.job_completion_index, config.layout
    runs_trainer = not config.entry and (not index or layout.runs_trainer(int(index)))
    # the probe belongs to the pserver
    programs = (["pserver"] if config.pserver_num else []) + (["train"] if runs_trainer else [])
    return [*programs, "metrics"] if programs and config.metrics_port else programs


def merge_flags(ours: Mapping[str, str], passed: Mapping[str, str], last: Mapping[str, str]) -> dict[str, str]:
    """Return the flags `ours`, `passed` and `last` in this order, without duplicates; `passed` has precedence."""
    return {**ours, **passed, **{name: value for name, value in last.items() if name not in passed}}


def watching_flags(config: LauncherConfig, trainer_id: int, place: int, log: str) -> dict[str, str]:
    """Return the flags of a program that set its metrics port (CONF_PADDLE_METRICS_PORT + `place`) and its JSON log."""
    flags = {"metrics_port": str(config.metrics_port + place)} if config.metrics_port else {}
    return flags | ({"log_json": str(config.output / f"node_{trainer_id}" / log)} if config.log_json else {})


def build_pserver_command(config: LauncherConfig, trainer_id: int, passed: Mapping[str, str]) -> ProgramCommand:
    """Return the pserver's command line: the command line of the tutorial, as a list that no shell parses."""
    flags = {
        "port": str(config.port),
        "ports_num": str(config.ports_num),
        "ports_num_for_sparse": str(config.ports_num_sparse),
        "nics": config.nic,
        "comment": "paddle_process_by_paddle",
        "num_gradient_servers": str(config.gradient_num),
    }
    # if a user passes --metrics_port or --log_json, the value applies to the trainer only
    watching = watching_flags(config, trainer_id, 1, "server.jsonl")
    named = {name: passed[name] for name in flags if name in passed}
    return ProgramCommand("pserver", {**flags, **named, **watching})


def build_trainer_command(
    config: LauncherConfig, ids: Mapping[str, int], trainer_id: int, passed: Mapping[str, str]
) -> ProgramCommand:
    """Return the trainer's command line: the command line of the tutorial with three corrections.

    The pservers are in the order of trainer ids, a flag contains the number of trainers (docs/faults.md S7, S25), and
    the number of sparse ports is the pserver's, even if the launcher's arguments do not repeat it.
    """
    flags = {
        "nics": config.nic,
        "port": str(config.port),
        "ports_num": str(config.ports_num),
        "ports_num_for_sparse": str(config.ports_num_sparse),
        "comment": "paddle_process_by_paddle",
        "pservers": ",".join(host for ip, host in hosts_of(config, ids).items() if config.layout.runs_pserver(ids[ip])),
    }
    last = {
        "num_gradient_servers": str(config.gradient_num),
        "trainer_id": str(trainer_id),
        "save_dir": str(config.output),
        **watching_flags(config, trainer_id, 2, "train.jsonl"),
    }
    return ProgramCommand("train", merge_flags(flags, passed, last))


def is_local(passed: Mapping[str, str]) -> bool:
    """Return whether --local is set, with which each trainer trains alone and needs no other pod."""
    return passed.get("local", "0").lower() in ("1", "t", "true", "y", "yes")


def build_probe_command(pserver: ProgramCommand, trainer: ProgramCommand) -> ProgramCommand:
    """Return the command that waits for every pserver of the job."""
    flags = {"pservers": trainer.flags["pservers"]}
    flags |= {name: value for name, value in pserver.flags.items() if name in PORT_FLAGS}
    return ProgramCommand("pserver", flags, switches=("probe",))


def print_plan(config: LauncherConfig, ids: IdMap, passed: Mapping[str, str]) -> None:
    """For --dry_run, print the job's pods with their ids, and the command lines of this pod's programs."""
    trainer_id, layout = own_trainer_id(config, ids), config.layout
    hosts = hosts_of(config, ids)
    for ip in in_id_order(ids):
        notes = [f" = {hosts[ip]}"] if hosts[ip] != ip else []
        notes += [" (this pod)"] if ip == config.pod_ip else []
        notes += [] if layout.runs_pserver(ids[ip]) else [", without a pserver"]
        print(f"{layout.name_pod(ids[ip])}: {ip}{''.join(notes)}")
    if layout.runs_pserver(trainer_id):
        print(build_pserver_command(config, trainer_id, passed))
    if layout.runs_trainer(trainer_id):
        print(f"sh -c {config.entry!r}" if config.entry else build_trainer_command(config, ids, trainer_id, passed))


def save_dir_of(config: LauncherConfig, passed: Mapping[str, str]) -> Path:
    """Return the directory where trainer 0 saves: --save_dir, by default output/."""
    return Path(passed.get("save_dir") or config.output)


def check_flags(config: LauncherConfig, passed: Mapping[str, str]) -> None:
    """Check the trainer's flags that the launcher reads.

    Raises: UsageError. MissingInputError: the config does not exist. ConfigError: --local is combined with variables
        that it excludes.
    """
    wanted_passes(passed)
    if not (config.pserver_num or config.entry or is_local(passed)):
        raise ConfigError(
            "CONF_PADDLE_PSERVER_NUM is 0, but `paddle train` needs a pserver; set ENTRY to the command of a program, "
            "or set CONF_PADDLE_PSERVER_NUM to at least 1"
        )
    if is_local(passed) and config.layout.pods > config.gradient_num:
        raise ConfigError(f"--local trains without pservers, but {config.layout}; set CONF_PADDLE_GRADIENT_NUM alone")
    if is_local(passed) and config.may_shrink:
        raise ConfigError("with --local each trainer trains alone; remove the variable CONF_PADDLE_GRADIENT_MIN")
    if passed.get("config") and not config.entry and not Path(passed["config"]).is_file():
        raise MissingInputError(f"--config={passed['config']}: there is no such file in {Path.cwd()}")


def wanted_passes(passed: Mapping[str, str]) -> int:
    """Return the number of the pass at which training ends: --start_pass plus --num_passes, or the defaults."""
    return whole_number(passed, "start_pass", 0, 0) + whole_number(passed, "num_passes", 100, 1)


def resumed_flags(config: LauncherConfig, record: JobRecord, passed: Mapping[str, str]) -> dict[str, str]:
    """Return the trainer's flags and the flags that resume from the save in the record.

    A program of ENTRY learns of the save from PADDLE_CHECKPOINT. If the save is one of ours, paddle.v2 has written it,
    and resumes by the flag, too.
    """
    if config.entry:
        state = save_dir_of(config, passed) / FOLDER / record.checkpoint
        is_ours = bool(record.checkpoint) and (state / JOB).is_file()
        return {**passed, "resume_from": str(state)} if is_ours else dict(passed)
    if record.checkpoint:
        state = save_dir_of(config, passed) / "state" / record.checkpoint
        return {**passed, "resume_from": str(state)}
    if record.start_pass:
        # --init_model_path is removed, because with this flag each attempt would start from the same initial parameters
        kept = {name: value for name, value in passed.items() if name not in ("init_model_path", "resume_from")}
        remaining = {"start_pass": str(record.start_pass), "num_passes": str(record.passes - record.start_pass)}
        return {**kept, **remaining}
    return dict(passed)
