"""Print a software bill of materials (CycloneDX 1.5, JSON) of the image that runs this script.

Usage: docker run --rm -i --network none --entrypoint python3 REPO/paddle:mypaddle - <k8s/sbom.py >paddle.cdx.json

The bill lists the Debian packages of the base image, the Python packages of the image and of its base, and Python and
tini if no Debian package has their files. It does not list the libraries inside Python packages, such as OpenBLAS in
numpy. Two runs on the same image print the same bytes.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import urllib.parse
from importlib import metadata
from pathlib import Path
from typing import Any

FORMAT = "${Package}\t${Version}\t${Architecture}\n"


def list_debian_packages() -> list[dict[str, Any]]:
    """Return a component for each installed Debian package, or an empty list if the base image is not Debian."""
    try:
        lines = subprocess.run(["dpkg-query", "-W", "-f", FORMAT], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        return []
    found = [line.split("\t") for line in lines.splitlines()]
    return [make_component("deb/debian", name, version, f"?arch={machine}") for name, version, machine in found]


def list_python_packages() -> list[dict[str, Any]]:
    """Return a component for each installed Python package, with its licence as the package states it.

    The environment of the image does not see the packages of the Python that it was made with, such as pip.
    """
    base = {"base": sys.base_prefix, "platbase": sys.base_prefix}
    inner = sysconfig.get_path("purelib", vars=base)
    bundled = Path(sysconfig.get_path("stdlib"), "ensurepip", "_bundled").glob("*-*.whl")  # pip, with which venv begins
    pairs = [path.name.split("-")[:2] for path in bundled]
    found = [make_component("pypi", name.lower().replace("_", "-"), version) for name, version in pairs]
    for one in (*metadata.distributions(path=[inner]), *metadata.distributions()):
        name = one.metadata["Name"].lower().replace("_", "-")
        component = make_component("pypi", name, one.version)
        licence = one.metadata.get("License-Expression") or one.metadata.get("License") or ""
        if licence and "\n" not in licence:  # this field of older packages may have the whole text of the licence
            component["licenses"] = [{"license": {"name": licence}}]
        found.append(component)
    return found


def list_programs() -> list[dict[str, Any]]:
    """Return a component for Python and for tini, unless they come from Debian packages, which are listed anyway."""
    found = []
    if not has_package(os.path.realpath(sys.executable)):
        found.append(make_component("generic", "python", platform.python_version()))
    tini = shutil.which("tini")
    if tini and not has_package(tini):
        said = subprocess.run([tini, "--version"], capture_output=True, text=True, check=True).stdout
        found.append(make_component("generic", "tini", said.split()[2]))  # tini version 0.19.0 - git.de40ad0
    return found


def has_package(path: str) -> bool:
    """Return whether a file belongs to a Debian package."""
    try:
        return subprocess.run(["dpkg-query", "-S", path], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def make_component(kind: str, name: str, version: str, rest: str = "") -> dict[str, Any]:
    """Return a component with its package URL (https://github.com/package-url/purl-spec)."""
    url = f"pkg:{kind}/{urllib.parse.quote(name)}@{urllib.parse.quote(version)}{rest}"
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


def main() -> None:
    """Print the bill of materials."""
    listed = list_debian_packages() + list_python_packages() + list_programs()
    components = sorted({one["purl"]: one for one in listed}.values(), key=lambda one: str(one["purl"]))
    version = metadata.version("paddle-on-kubernetes")
    image = {"type": "container", "name": "paddle-on-kubernetes", "version": version}
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": image}}
    print(json.dumps({**document, "components": components}, indent=1))


if __name__ == "__main__":
    main()
