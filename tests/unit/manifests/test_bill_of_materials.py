"""The bill of materials of the image (k8s/sbom.py)."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

SCRIPT = Path(__file__).parents[3] / "k8s" / "sbom.py"
BASE_OF_CI = """#!/bin/sh
# a base whose Python and tini come from no Debian package
case $1 in -W) printf 'libc6\t2.41-12\tamd64\n' ;; *) exit 1 ;; esac
"""


def make_bill(directory: Path, dpkg: str = BASE_OF_CI) -> dict[str, Any]:
    for name, text in (("dpkg-query", dpkg), ("tini", "#!/bin/sh\necho tini version 0.19.0 - git.de40ad0\n")):
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}
    run = subprocess.run([sys.executable, SCRIPT], env=environ, capture_output=True, text=True, check=True, timeout=60)
    found = yaml.safe_load(run.stdout)
    assert isinstance(found, dict)
    return found


def list_urls(bill: dict[str, Any]) -> list[str]:
    urls = [one["purl"] for one in bill["components"]]
    assert len(set(urls)) == len(urls) and urls == sorted(urls)
    return urls


def test_the_bill_has_python_and_what_no_package_manager_knows(tmp_path: Path) -> None:
    """It had neither Python itself nor tini."""
    urls = list_urls(make_bill(tmp_path))
    assert "pkg:deb/debian/libc6@2.41-12?arch=amd64" in urls
    assert f"pkg:generic/python@{platform.python_version()}" in urls and "pkg:generic/tini@0.19.0" in urls
    assert any(url.startswith("pkg:pypi/numpy@") for url in urls)


def test_what_debian_packages_have_is_listed_once(tmp_path: Path) -> None:
    assert not [url for url in list_urls(make_bill(tmp_path, "#!/bin/sh\n")) if url.startswith("pkg:generic/")]


def test_the_bill_has_the_packages_of_the_python_from_which_the_environment_was_made(tmp_path: Path) -> None:
    """The environment of the image does not see them."""
    shown = subprocess.run(
        [f"{sys.base_prefix}/bin/python3", "-I", "-c", "import pip; print(pip.__version__)"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    for version in shown.stdout.split():  # a base without pip has none to list
        assert f"pkg:pypi/pip@{version}" in list_urls(make_bill(tmp_path))
