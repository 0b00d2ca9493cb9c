"""The directories that a user gives to localcluster: every spelling of a directory is the same path in the pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddle_cluster.launcher.settings import VARIABLES
from paddle_cluster.localcluster.deployment import Deployment, PodTemplate
from paddle_cluster.localcluster.errors import MissingError, OptionError
from paddle_cluster.localcluster.host import (
    PROJECT,
    check_variables,
    find_entrypoint,
    load_job,
    make_directories,
    make_host,
    make_logs,
)
from paddle_cluster.localcluster.job.manifest import Container, EnvVar, JobSpec, VolumeMount
from paddle_cluster.localcluster.pods.plan import volumes_to_read
from paddle_cluster.prepare.settings import OPTIONS

ROOT = Path(__file__).parents[3]
SPELLINGS = ("volume", "./volume", "other/../volume", "link", "other/../link/../volume")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory that has a directory `volume`, a link to it, and a further directory."""
    place = tmp_path.resolve()
    (place / "volume").mkdir()
    (place / "other").mkdir()
    (place / "link").symlink_to("volume")
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_a_volume_is_one_directory(spelling: str, place: Path):
    """A link and `..` were kept, so the pods' paths differed from those that their programs saw in the directory."""
    assert make_directories({"mfs": spelling}) == {"mfs": str(place / "volume")}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_the_logs_is_one_directory(spelling: str, place: Path):
    assert make_logs(spelling) == place / "volume"


def test_a_link_to_a_missing_directory_makes_that_directory(place: Path):
    """The error was `File exists`."""
    Path("dangling").symlink_to("new")
    assert make_directories({"mfs": "dangling"}) == {"mfs": str(place / "new")}
    assert (place / "new").is_dir()


def test_a_loop_of_links_is_refused_with_the_volumes_name():
    Path("loop").symlink_to("loop")
    with pytest.raises(OptionError, match="--volume mfs=loop: "):
        make_directories({"mfs": "loop"})
    with pytest.raises(OptionError, match="--logs loop: "):
        make_logs("loop")


def test_too_long_a_name_is_refused_with_its_option():
    """It was a traceback."""
    name = "m" * 256
    with pytest.raises(MissingError, match=r"--entrypoint m+: File name too long"):
        make_host({}, name, {}, "127.0.0.1", 1)
    with pytest.raises(OptionError, match=r"--volume mfs=m+: File name too long"):
        make_directories({"mfs": name})
    assert find_entrypoint(f"{name}/k8s/job.yaml") == PROJECT / "start.sh"


def test_a_volume_whose_content_the_job_reads_is_not_made(place: Path):
    """A typing mistake became an empty directory, in which every pod failed."""
    with pytest.raises(OptionError, match=r"--volume mfs=volum: no such directory; did you mean .*/volume\?; the Job"):
        make_directories({"mfs": "volum"}, {"mfs"})
    assert not (place / "volum").exists()
    assert make_directories({"mfs": "volume", "scratch": "new"}, {"mfs"})["scratch"] == str(place / "new")


def test_a_job_reads_the_volume_that_holds_its_own_directory():
    mounts = (VolumeMount("jobpath", "/home/jobpath"), VolumeMount("other", "/other"))
    job, name = EnvVar("JOB_PATH", "/home/jobpath"), EnvVar("JOB_NAME", "j")
    out = EnvVar("OUT_DIR", "/home/jobpath/j")
    for env, expected in (((job, name), {"jobpath"}), ((job,), set()), ((out,), set())):
        assert volumes_to_read(JobSpec("j", Container("trainer", env=env, mounts=mounts))) == expected


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("NUM_PASES", "NUM_PASSES"),
        ("NUM_PASSSE", "NUM_PASSES"),
        ("SPLIT_CONUT", "SPLIT_COUNT"),
        ("SPLIT_CONT", "SPLIT_COUNT"),
        ("NUM_PASSES", ""),
        ("MY_OWN_VARIABLE", ""),
    ],
)
def test_a_given_variable_that_looks_misspelt_is_named(place: Path, name: str, close: str):
    """A flag was refused, and a variable had no effect."""
    (place / "start.sh").write_text("NUM_PASSES    10    --num_passes: passes over the data\n")
    job = JobSpec("j", Container("prepare", env=(EnvVar("SPLIT_COUNT", "3"), EnvVar("SHORT", ""))))
    if not close:
        return check_variables({name: "3"}, job, str(place / "start.sh"))
    with pytest.raises(OptionError, match=f"--env {name}: did you mean {close}\\?"):
        check_variables({name: "3"}, job, str(place / "start.sh"))
    return None


def test_more_trainers_than_the_job_has_pods_are_refused():
    """The pods waited for an hour, and the advice was a command of kubectl."""
    job = JobSpec("j", Container("train"), parallelism=3, completions=3)
    check_variables({"CONF_PADDLE_GRADIENT_NUM": "3"}, job, None)
    with pytest.raises(OptionError, match=r"CONF_PADDLE_GRADIENT_NUM=4: the Job has 3 pods, .*SPLIT_COUNT"):
        check_variables({"CONF_PADDLE_GRADIENT_NUM": "4"}, job, None)


def test_no_variable_of_the_launcher_or_of_the_data_job_looks_misspelt():
    """CONF_PADDLE_GRADIENT_MIN was taken for CONF_PADDLE_GRADIENT_NUM."""
    names = [one.name for one in VARIABLES] + [one.name.upper() for one in OPTIONS]
    for file in ("job", "data-job"):
        check_variables(dict.fromkeys(names, ""), load_job(ROOT / f"k8s/{file}.yaml"), str(ROOT / "start.sh"))


def test_a_deployment_keeps_its_directories_when_a_link_turns(place: Path):
    """A pod that started after the link had another target wrote into another directory than the earlier pods."""
    template = PodTemplate("worker", ("sh", "-c", "pwd"), directory=Path("link"))
    with Deployment(template, Path("link/logs")) as deployment:
        (place / "link").unlink()
        (place / "link").symlink_to("other")
        deployment.scale(1)
        assert deployment.wait(30.0)
        (pod,) = deployment.pods()
        assert pod.log.parent == place / "volume" / "logs"
        assert pod.log.read_text().split() == [str(place / "volume")]
