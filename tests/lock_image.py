"""Write requirements/image.txt: packages of the image, at their versions in constraints.txt, with digests of wheels.

Usage: .venv/bin/python tests/lock_image.py    after a change of constraints.txt or of a dependency in setup.py
"""

from __future__ import annotations

import itertools
import json
import runpy
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements/image.txt"
CONSTRAINTS = ROOT / "requirements/constraints.txt"
EXTRAS = ("etcd", "metrics", "python2", "recordio")  # what the programs of the image also use
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
# no newer C library than that of Debian 12, so that the same wheels also run on an older base
TAGS = [*(f"manylinux_2_{minor}" for minor in range(36, 16, -1)), "manylinux2014"]
HEADER = f"""\
# The packages of the image, without the tools of constraints.txt. pip installs only files with these digests: wheels
# for {" and ".join(MACHINES)}, for Python {PYTHONS[0]} to {PYTHONS[-1]} and the C library of Debian 12 or a later one.
# tests/lock_image.py writes this file.
"""


def read_required() -> list[str]:
    """Return the requirements of setup.py that the image fulfils."""
    with mock.patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    settings = setup.call_args.kwargs
    lists = [settings["install_requires"], *(settings["extras_require"][extra] for extra in EXTRAS)]
    return sorted(requirement for each in lists for requirement in each)


def pip_options(python: str, machine: str) -> list[str]:
    """Return the options by which pip takes only wheels for a Python and a machine type."""
    options = ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    return [*options, *(f"--platform={tag}_{machine}" for tag in TAGS)]


def resolve(python: str, machine: str) -> dict[str, str]:
    """Return `NAME==VERSION` -> digest, of all packages that pip would install from the index."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--report=-"]
    command += ["--dry-run", "--ignore-installed", "--target=-"]  # for another Python pip demands a target
    command += [*pip_options(python, machine), f"--constraint={CONSTRAINTS}", *read_required()]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    found = {}
    for one in report["install"]:
        name, version = one["metadata"]["name"].lower().replace("_", "-"), one["metadata"]["version"]
        found[f"{name}=={version}"] = one["download_info"]["archive_info"]["hashes"]["sha256"]
    return found


def main() -> None:
    """Write the file. It has no markers; tests/unit/manifests finds a package that only some Pythons need."""
    digests = defaultdict(set)
    for python, machine in itertools.product(PYTHONS, MACHINES):
        for package, digest in resolve(python, machine).items():
            digests[package].add(digest)
    entries = (
        " \\\n".join([package, *(f"    --hash=sha256:{digest}" for digest in sorted(digests[package]))])
        for package in sorted(digests)
    )
    LOCK.write_text(HEADER + "\n".join(entries) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
