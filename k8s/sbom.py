"""Print a software bill of materials (CycloneDX 1.5, JSON) of the image that runs this script.

Usage: docker run --rm -i --network none --entrypoint python3 REPO/paddle:mypaddle - <k8s/sbom.py >paddle.cdx.json

The bill lists the Debian packages of the base image and the Python packages. Two runs on the same image print the
same bytes.
"""

from __future__ import annotations

import json
import subprocess
import urllib.parse
from importlib import metadata
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
    """Return a component for each installed Python package, with its licence as the package states it."""
    found = []
    for one in metadata.distributions():
        name = one.metadata["Name"].lower().replace("_", "-")
        component = make_component("pypi", name, one.version)
        licence = one.metadata.get("License-Expression") or one.metadata.get("License") or ""
        if licence and "\n" not in licence:  # this field of older packages may have the whole text of the licence
            component["licenses"] = [{"license": {"name": licence}}]
        found.append(component)
    return found


def make_component(kind: str, name: str, version: str, rest: str = "") -> dict[str, Any]:
    """Return a component with its package URL (https://github.com/package-url/purl-spec)."""
    url = f"pkg:{kind}/{urllib.parse.quote(name)}@{urllib.parse.quote(version)}{rest}"
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


def main() -> None:
    """Print the bill of materials."""
    components = sorted(list_debian_packages() + list_python_packages(), key=lambda one: str(one["purl"]))
    version = metadata.version("paddle-on-kubernetes")
    image = {"type": "container", "name": "paddle-on-kubernetes", "version": version}
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": image}}
    print(json.dumps({**document, "components": components}, indent=1))


if __name__ == "__main__":
    main()
