"""`start.sh directories`, by which an init container makes what the other containers mount."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

START_SH = Path(__file__).parents[3] / "start.sh"


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """make(argument..., job="job"): run the command with the volume tmp_path."""

    def run(*arguments: str, job: str = "job") -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "JOB_PATH": str(tmp_path), "JOB_NAME": job}
        command = [START_SH, "directories", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)

    return run


def test_the_directories_of_a_job_are_made_once_and_kept(
    make: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert make("--new", "servers", "output").returncode == 0
    (tmp_path / "job/output/pass").touch()
    assert make("output").returncode == 0
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "job",
        "job/output",
        "job/output/pass",
        "job/servers",
    ]


def test_a_job_without_data_is_told_the_name_that_it_may_mean(
    make: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "paddle-job").mkdir()
    done = make("output", job="padle-job")
    assert done.returncode == 66 and "did you mean JOB_NAME=paddle-job?" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["paddle-job"]


@pytest.mark.parametrize("link", ["job", "job/output"])
def test_a_link_is_refused(make: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, link: str) -> None:
    """The pod would have mounted the output of another job."""
    (tmp_path / "other/output").mkdir(parents=True)
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / "other" / Path(link).name.replace("job", ""))
    done = make("output")
    assert done.returncode == 65 and f"{tmp_path / link} is a link" in done.stderr
    assert list((tmp_path / "other/output").iterdir()) == []


def test_what_cannot_be_made_names_the_owner_and_the_remedy(
    make: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "job").write_text("")
    done = make("--new", "output")
    assert done.returncode == 74 and "cannot make or write" in done.stderr and "chown" in done.stderr


@pytest.mark.parametrize("job", ["..", "a/b", ""])
def test_a_name_that_leads_elsewhere_is_refused(
    make: Callable[..., subprocess.CompletedProcess[str]], job: str
) -> None:
    assert make("--new", job=job).returncode == 78
