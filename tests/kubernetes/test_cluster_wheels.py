"""The image can be built from wheels alone, for both machine types; a package without a wheel would need a compiler."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes_cluster import REPOSITORY

# tags that the C library of the base image (glibc 2.36 of Debian 12) supports
TAGS = ("manylinux2014", "manylinux_2_17", "manylinux_2_24", "manylinux_2_27", "manylinux_2_28", "manylinux_2_34")


def required() -> list[str]:
    """Return the packages that the Dockerfile installs from the package index."""
    text = re.sub(r"\\\n\s*", " ", (REPOSITORY / "Dockerfile").read_text())
    (packages,) = re.findall(r"--constraint /src/constraints\.txt ([^&]+?) +&&", text)
    return packages.split()


@pytest.mark.nightly
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_package_of_the_image_has_a_wheel(machine: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    command += ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp", f"--dest={tmp_path}"]
    command += [f"--platform={tag}_{machine}" for tag in TAGS]
    command += [f"--constraint={REPOSITORY / 'constraints.txt'}", *required()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    wheels = {path.name.split("-")[0].lower().replace("_", "-") for path in tmp_path.glob("*.whl")}
    assert wheels >= set(required())
    assert list(tmp_path.glob(f"numpy-*_{machine}.whl"))
