"""A copy of the project, in which a page's commands may change anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from docpages.blocks import ROOT, blocks, script

LEFT_OUT = (
    ".git*",
    ".venv",
    ".*_cache",
    ".hypothesis",
    "*.egg-info",
    "build",
    "demo",
    "demo-tasks",
    "jobpath",
    "tests",
)
STATE = "<!-- commands after: "
# the part of this page that makes data, config and provider
CONFIG_PAGE, CONFIG_END = "docs/your-own-job.md", "## Alone"
DIGITS = ("data-job.yaml", "job.yaml")


def copy_project(target: Path) -> Path:
    """Copies the files that a user checks out, without tests, and links the virtual environment; returns the target.

    Compiled modules are copied too, because otherwise each pod of each page would compile the launcher again.
    """
    shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
    (target / ".venv").mkdir()
    for entry in Path(sys.executable).parent.parent.iterdir():
        (target / ".venv" / entry.name).symlink_to(entry)
    # with a new time, `make setup` leaves the environment of the tests unchanged
    (target / ".venv/.setup").unlink(missing_ok=True)
    (target / ".venv/.setup").touch()
    return target


def programs_in(place: Path) -> list[str]:
    """The command lines of the processes that run in a directory or below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(place):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def state_of(text: str) -> str:
    """The state that a page's comment requires: `digits`, `config`, or ""."""
    return text.partition(STATE)[2].partition(" -->")[0] if text.startswith(STATE) else ""


def preparation(state: str) -> str:
    """The bash lines that bring a project into a state. Raises: KeyError: the state is unknown."""
    config, _, _ = (ROOT / CONFIG_PAGE).read_text(encoding="utf-8").partition(CONFIG_END)
    jobs = "".join(f"paddle localcluster run k8s/{name} --volume mfs=./jobpath\n" for name in DIGITS)
    return {"": "", "digits": jobs, "config": script(blocks(CONFIG_PAGE, config), "machine")}[state]


def run_script(text: str, project: Path, environ: Mapping[str, str]) -> str:
    """Runs a page's script in the project's directory and returns its output; if it fails, the error has all output."""
    home = project.with_name(f"{project.name}-home")
    home.mkdir(exist_ok=True)
    env = {**os.environ, "HOME": str(home), **environ}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    done = subprocess.run(
        ["bash", "-c", text], cwd=project, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout[-6000:]}"
    return done.stdout
