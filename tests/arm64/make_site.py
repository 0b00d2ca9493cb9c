"""Make a folder of packages for arm64: wheels of what the project needs, the project, and its kernels cross-compiled.

usage: make_site.py ROOT SITE     ROOT: a Debian of arm64 with Python 3.11 and its headers; SITE: the folder, made anew
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path
from unittest import mock

COMPILER = "aarch64-linux-gnu-gcc"
SUFFIX = ".cpython-311-aarch64-linux-gnu.so"


def install(site: Path) -> None:
    """Install the wheels for arm64, and the project as on a machine without a compiler."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"--target={site}"]
    wheels = ["--only-binary=:all:", "--implementation=cp", "--python-version=3.11"]
    wheels += [
        "--constraint=requirements/constraints.txt",
        *(f"--platform={name}" for name in ("manylinux_2_28_aarch64", "manylinux2014_aarch64")),
    ]
    needs = [one for one in requires("paddle-on-kubernetes") or () if "extra ==" not in one]
    subprocess.run([*pip, *wheels, *needs], check=True)
    subprocess.run([*pip, "--no-deps", "--upgrade", "."], check=True, env={**os.environ, "CC": "/bin/false"})


def compile_kernels(root: Path, target: Path) -> None:
    """Compile the extension of setup.py, with its flags, for arm64."""
    with mock.patch("setuptools.setup"):
        extension = runpy.run_path("setup.py")["KERNELS"]
    headers = [f"-isystem{root}/usr/include/{name}" for name in ("python3.11", "aarch64-linux-gnu", "")]
    command = [COMPILER, "-shared", "-fPIC", "-DNDEBUG", *extension.extra_compile_args, *headers, *extension.sources]
    subprocess.run([*command, "-o", str(target / f"_compiled{SUFFIX}")], check=True)


def main() -> None:
    """Make the folder; a failed program's status is this one's."""
    root, site = map(Path, sys.argv[1:])
    shutil.rmtree(site, ignore_errors=True)
    try:
        install(site)
        compile_kernels(root, site / "paddle_base/kernels")
    except subprocess.CalledProcessError as exc:
        raise SystemExit(f"golden-arm64: {exc.cmd[0]} ended with {exc.returncode}") from exc


if __name__ == "__main__":
    main()
