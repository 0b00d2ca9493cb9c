"""All variables and flags of the programs, from the tables and parsers of the programs and from start.sh --help."""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from docpages.blocks import ROOT
from docpages.items import escape, item
from paddle_base.registry.etcd_flags import ETCD_FLAGS
from paddle_base.runtime.environment import JobEnvironment
from paddle_base.runtime.gflags import Flag
from paddle_cluster.launcher.settings import VARIABLES
from paddle_cluster.localcluster.flags import build_parser
from paddle_cluster.master.autoscaler.flags import FLAGS as AUTOSCALER_FLAGS
from paddle_cluster.master.flags import FLAGS as MASTER_FLAGS
from paddle_cluster.prepare.settings import OPTIONS
from pserver.flags import FLAGS as PSERVER_FLAGS
from trainer.flags import TABLE as TRAINER_FLAGS

SUPPORTED = "supported"
VARIABLE = "variable"

# variables of programs that have no table of variables (pserver and trainer)
PROGRAMS = {
    "PADDLE_JOB_NAME": ("empty: stand-alone", "the job's name; the launcher sets it for pserver, probe and trainer"),
    "PADDLE_ATTEMPT": ("empty: stand-alone", "name of the attempt and of its set of pods; set by the launcher"),
    "PADDLE_OUTPUT": ("--save_dir", "directory of records, progress and report; the launcher sets it to output/"),
    "PADDLE_ETCD_CA": ("none", "file with the certificate of the authority that has signed etcd's certificate"),
    "PADDLE_ETCD_CERT": ("none", "file with the certificate that the programs show to etcd"),
    "PADDLE_ETCD_KEY": ("none", "file with the key of PADDLE_ETCD_CERT"),
    "PADDLE_ETCD_USER": ("none", "name of a user of etcd, if it asks for one"),
    "PADDLE_ETCD_PASSWORD_FILE": ("none", "file with the password of PADDLE_ETCD_USER"),
    "PADDLE_CHOSEN_SAVE": ("none", "the checkpoint or pass that the launcher has chosen for an attempt"),
    "PADDLE_ABSENT": ("empty", "indexes of the pods that are absent from an attempt; set by the launcher"),
    "POD_UID": ("empty", "UID of the trainer's pod, by which the master recognises the trainer; see --trainer_uid"),
    "PADDLE_LAUNCHER_HOLDER": ("empty", "process that is the pod's launcher; set by the launcher for its programs"),
    "PADDLE_PLACE_HOLDER": ("empty", "process that has the trainer's place; set by the trainer for its children"),
    "PADDLE_SECRET": ("empty", "as in the launcher"),
    "PADDLE_SECRET_FILE": ("empty", "as in the launcher"),
    "PADDLE_WITHOUT_SECRET": ("0", "as in the launcher"),
    "NAMESPACES": ("empty", "autoscaler: the namespaces whose rights `paddle doctor` checks; empty: all namespaces"),
    "KUBERNETES_SERVICE_PORT": (
        "443",
        "autoscaler and driver: port of the API server if the variable with _HTTPS is not set",
    ),
    "PADDLE_PEER_TIMEOUT": (
        f"{JobEnvironment.peer_timeout:g}",
        "seconds without a sign of life after which a peer is lost (0.1 to 86400)",
    ),
    "PADDLE_STUCK_TIMEOUT": (
        f"{JobEnvironment.stuck_timeout:g}",
        "maximum seconds of one step of a program (a batch, a piece of data) before /healthz reports it as stuck",
    ),
    "OPENBLAS_NUM_THREADS": (
        "1",
        "threads of a matrix product in numpy; in the trainer at most processors / trainer_count",
    ),
    "OMP_NUM_THREADS": ("1", "the same as OPENBLAS_NUM_THREADS, for other builds of numpy"),
    "MKL_NUM_THREADS": ("1", "the same as OPENBLAS_NUM_THREADS, for other builds of numpy"),
    "PADDLE_BLAS_THREADS": (
        "empty",
        "threads of a matrix product in the trainer; overrides the three variables above, without a limit",
    ),
    "GLOG_minloglevel": ("0", "as --minloglevel, which overrides it; those of the other flags of glog have no effect"),
    "TERM": ("dumb", "kind of the terminal; dumb = neither colours nor a progress bar"),
    "NO_COLOR": ("empty", "if set to any text, the programs use no colours on a terminal"),
    "PADDLE_DATASET_HOME": ("~/.cache/paddle/dataset", "folder of the data sets of paddle.v2"),
    "PADDLE_DATASET_MIRROR": ("empty", "address of a copy of that folder, from which missing data sets are fetched"),
    "DISABLE_PLOT": ("empty", "True: paddle.plot.Ploter draws nothing"),
    "PADDLE_KERNELS": ("empty", "if set to plain, numpy replaces the compiled loops, with the same results but slower"),
}
LAUNCHER_FLAGS = {
    "dry_run": ("false", "print the plan (pods, ids, command lines of pserver and trainer) and exit"),
    "help": ("false", "print the variables and exit"),
}


class Row(NamedTuple):
    """A flag or a variable."""

    name: str
    program: str
    default: str
    meaning: str
    status: str

    def __str__(self) -> str:
        """An item of a list: `name` (default): meaning."""
        readers = f"; {self.program}" if self.status == VARIABLE else ""
        default = f" ({escape(self.default)}{readers})" if self.default or readers else ""
        return item(f"`{self.name}`{default}: {escape(self.meaning)}")


def make_variables() -> str:
    """The lists of docs/variables.md."""
    return "\n".join(map(str, variables()))


def make_flags() -> str:
    """The lists of docs/flags.md, by program and status; the flags of etcd's certificates have a list of their own."""
    rows = [*trainer_flags(), *pserver_flags(), *master_flags(), *autoscaler_flags(), *launcher_flags()]
    shared = {f"--{flag.name}" for flag in ETCD_FLAGS}
    rows = [row for row in rows if row.name not in shared] + [
        row._replace(program="paddle train, paddle pserver and paddle master: a secured etcd")
        for row in master_flags()
        if row.name in shared
    ]
    lines = []
    for program in dict.fromkeys(row.program for row in rows):
        lines += [f"## {program}", ""]
        for status in dict.fromkeys(row.status for row in rows if row.program == program):
            lines += [] if status == SUPPORTED else [f"{status[0].upper()}{status[1:]}:", ""]
            lines += [str(row) for row in rows if (row.program, row.status) == (program, status)] + [""]
    return "\n".join(lines).rstrip() + "\n"


def make_localcluster() -> str:
    """The list of docs/localcluster.md."""
    return "\n".join(map(str, localcluster_flags()))


def start_sh_rows() -> dict[str, tuple[str, str]]:
    """Return name -> (default, meaning), from start.sh --help."""
    text = subprocess.run([ROOT / "start.sh", "--help"], capture_output=True, text=True, timeout=30, check=True).stdout
    rows = re.findall(r"^([A-Z_]{5,})\s+(\S.*?)\s{2,}(.*)$", text, re.MULTILINE)
    return {name: (default, meaning) for name, default, meaning in rows if name != "VARIABLE"}


def launcher_rows() -> dict[str, tuple[str, str]]:
    return {one.name: ("required" if one.default is None else one.default or "empty", one.meaning) for one in VARIABLES}


def data_job_rows() -> dict[str, tuple[str, str]]:
    return {one.name.upper(): (one.default or "none", one.help) for one in OPTIONS}


def variables() -> Iterator[Row]:
    """One row for each variable: its meaning in the first program that reads it, and the data job's own default."""
    sources = {
        "start.sh": start_sh_rows(),
        "launcher": launcher_rows(),
        "programs": PROGRAMS,
        "data job": data_job_rows(),
    }
    rows: dict[str, Row] = {}
    for reader, table in sources.items():
        for name, (default, meaning) in table.items():
            if name not in rows:
                rows[name] = Row(name, reader, default, meaning, VARIABLE)
                continue
            row = rows[name]
            other = f"; data job: {default}" if reader == "data job" and default != row.default else ""
            rows[name] = row._replace(program=f"{row.program}, {reader}", default=row.default + other)
    return iter(rows.values())


def launcher_flags() -> Iterator[Row]:
    for name, (default, meaning) in LAUNCHER_FLAGS.items():
        yield Row(f"--{name}", "start_paddle.py", default, meaning, SUPPORTED)


def trainer_flags() -> Iterator[Row]:
    for flag in TRAINER_FLAGS:
        meaning = flag.meaning + (f" ({', '.join(flag.choices)})" if flag.choices and not named(flag) else "")
        yield Row(f"--{flag.name}", "paddle train", show(flag.default), meaning, flag.status.value)


def named(flag: Flag) -> bool:
    """Whether the meaning of a flag names all its choices already."""
    return all(choice in flag.meaning for choice in flag.choices)


def pserver_flags() -> Iterator[Row]:
    for flag in PSERVER_FLAGS.values():
        yield Row(f"--{flag.name}", "paddle pserver", show(flag.default), flag.meaning, flag.status.value)


def master_flags() -> Iterator[Row]:
    for flag in MASTER_FLAGS.values():
        yield Row(f"--{flag.name}", "paddle master", show(flag.default), flag.meaning, flag.status.value)


def autoscaler_flags() -> Iterator[Row]:
    for flag in AUTOSCALER_FLAGS.values():
        yield Row(f"--{flag.name}", "paddle autoscaler", show(flag.default), flag.meaning, flag.status.value)


def localcluster_flags() -> Iterator[Row]:
    (commands,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    for action in commands.choices["run"]._actions:
        names = ", ".join(action.option_strings) or action.dest.upper()
        default = action.default if action.default not in (None, [], False, argparse.SUPPRESS) else ""
        yield Row(names, "localcluster run", str(default), action.help or "", SUPPORTED)


def show(default: object) -> str:
    """A default as it is written on a command line."""
    return str(default).lower() if isinstance(default, bool) else str(default) if default != "" else "empty"
