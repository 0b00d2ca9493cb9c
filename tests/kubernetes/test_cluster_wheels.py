"""pip accepts the list of the image's packages: each has a wheel with a listed digest, for both machine types."""

import subprocess
import sys
from pathlib import Path

import pytest
from lock_image import LOCK, MACHINES, PYTHONS, pip_options


@pytest.mark.nightly
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", [PYTHONS[0], "3.13", PYTHONS[-1]])
def test_every_package_of_the_image_has_a_wheel_with_a_listed_digest(python: str, machine: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    command += [*pip_options(python, machine), f"--dest={tmp_path}", "--require-hashes", f"--requirement={LOCK}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("*.whl"))) == LOCK.read_text().count("==")
    assert list(tmp_path.glob(f"numpy-*_{machine}.whl"))
