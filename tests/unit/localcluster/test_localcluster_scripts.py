"""The image's scripts: every form of a command that names one starts the project's, or is refused before a pod."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from each import each

from paddle_cluster.localcluster.errors import OptionError
from paddle_cluster.localcluster.host import PROJECT, check_scripts, find_entrypoint
from paddle_cluster.localcluster.job.manifest import Container, EnvVar, JobSpec, Volume, VolumeMount
from paddle_cluster.localcluster.pods.plan import Host, PodIdentity, plan_pod

JOB = JobSpec(
    "j",
    Container("trainer", mounts=(VolumeMount("jobpath", "/home/jobpath"),)),
    volumes=(Volume("jobpath", "persistentVolumeClaim", "mfs"),),
)
HOST = Host({"jobpath": "/data/vol"}, "/repo/start.sh", "/repo/start_paddle.py", {"PATH": "/bin"}, "127.9.0.1", 40123)
IDENTITY = PodIdentity("j-1-abcde", "u-1", "127.9.0.3", 1, "/pods/j-1-abcde", "/tokens")

FORMS = {
    "the tutorial's": (("bin/bash", "-c", "/root/start.sh"), "", "/repo/start.sh"),
    "its arguments": (("bash", "/root/start.sh", "--x=1"), "", "/repo/start.sh"),
    "in a text of a shell": (("sh", "-c", "exec bash '/root/start.sh' --x=1"), "", "exec bash '/repo/start.sh' --x=1"),
    "from the image's directory": (("bash", "root/start.sh"), "", "/repo/start.sh"),
    "with more slashes": (("bash", "-c", "//root/./start.sh"), "", "/repo/start.sh"),
    "after a change of directory": (("bash", "-c", "cd /root && ./start.sh"), "", "cd . && /repo/start.sh"),
    "after a change to the home": (("bash", "-c", "cd; bash start.sh"), "", "cd .; bash /repo/start.sh"),
    "in the home": (("bash", "-c", "~/start.sh || ${HOME}/start.sh"), "", "/repo/start.sh || /repo/start.sh"),
    "in the working directory": (("./start.sh",), "/root", "/repo/start.sh"),
    "the launcher": (("python3", "start_paddle.py"), "/root/", "/repo/start_paddle.py"),
    "a script of the volume": (("bash", "-c", "/home/jobpath/start.sh"), "", "/data/vol/start.sh"),
    "another name": (("bash", "/root/my-start.sh"), "", "/root/my-start.sh"),
}


@each(("command", "directory", "word"), FORMS.values(), ids=FORMS)
def test_every_form_that_names_the_images_script_means_the_projects(
    command: tuple[str, ...], directory: str, word: str
):
    planned = plan_pod(
        replace(JOB, container=replace(JOB.container, command=command, working_dir=directory)), HOST, IDENTITY
    )
    assert word in planned.argv
    assert planned.working_directory == "/pods/j-1-abcde/cwd"


ABSENT = {
    "the tutorial's": (("bin/bash", "-c", "/root/start.sh"), None, "/root/start.sh, and no start.sh was found"),
    "its launcher": (("python3", "/root/start_paddle.py"), None, "/root/start_paddle.py, and no start.sh was found"),
    "of a variable": (("bash", "-c", "$SCRIPT"), None, "/root/start.sh, and no start.sh was found"),
    "not the image's": (("/opt/start.sh",), "/repo/start.sh", "/opt/start.sh, which is not here"),
    "not in the image's directory": (("./start.sh",), "/repo/start.sh", "./start.sh, which is not here"),
}


@each(("command", "entrypoint", "message"), ABSENT.values(), ids=ABSENT)
def test_a_script_that_is_nowhere_is_told_before_a_pod_starts(
    command: tuple[str, ...], entrypoint: str | None, message: str
):
    container = replace(JOB.container, command=command, env=(EnvVar("SCRIPT", "/root/start.sh"),))
    host = replace(HOST, entrypoint=entrypoint, launcher=None)
    planned = plan_pod(replace(JOB, container=container), host, IDENTITY)
    with pytest.raises(OptionError, match=re.escape(message)):
        check_scripts(planned, container)


def test_a_script_on_a_volume_may_come_from_an_earlier_command():
    container = replace(JOB.container, command=("bash", "-c", "cp x /home/jobpath/start.sh; /home/jobpath/start.sh"))
    check_scripts(plan_pod(replace(JOB, container=container), HOST, IDENTITY), container)


def test_outside_the_project_the_entrypoint_is_the_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert find_entrypoint(tmp_path / "job.yaml") == PROJECT / "start.sh"
    monkeypatch.setattr("paddle_cluster.localcluster.host.PROJECT", tmp_path)  # an installed package
    assert find_entrypoint(tmp_path / "job.yaml") is None
