from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from each import each

from paddle_cluster.localcluster.errors import ManifestError, OptionError
from paddle_cluster.localcluster.job.manifest import Container, EnvVar, JobSpec, Volume, VolumeMount
from paddle_cluster.localcluster.pods.paths import PathMap
from paddle_cluster.localcluster.pods.plan import Host, PodIdentity, PodPlan, expand, match_volumes, plan_pod

VOLUMES = (Volume("jobpath", "persistentVolumeClaim", "mfs"), Volume("work", "emptyDir"))
MOUNTS = (VolumeMount("jobpath", "/home/jobpath"), VolumeMount("work", "/work"))
JOB = JobSpec("j", Container("trainer", mounts=MOUNTS), volumes=VOLUMES)
HOST = Host({"jobpath": "/data/vol"}, "/repo/start.sh", "/repo/start_paddle.py", {"PATH": "/bin"}, "127.9.0.1", 40123)
IDENTITY = PodIdentity(
    "j-1-abcde", "u-1", "127.9.0.3", 1, "/pods/j-1-abcde", "/tokens", {"app": "paddle"}, {"note": "x"}
)


def plan(host: Host = HOST, identity: PodIdentity = IDENTITY, **container: Any) -> PodPlan:
    return plan_pod(replace(JOB, container=replace(JOB.container, **container)), host, identity)


def env_of(*variables: EnvVar, **extra: str) -> dict[str, str]:
    return dict(plan(replace(HOST, extra_env=extra), env=variables).env)


# ----- paths -----

PATHS = {
    "whole": ("/home/jobpath", "/data/vol"),
    "below": ("/home/jobpath/job/output", "/data/vol/job/output"),
    "after a flag": ("--save_dir=/home/jobpath/x", "--save_dir=/data/vol/x"),
    "in a list": ("/home/jobpath:/work", "/data/vol:/w"),
    "a longer name": ("/home/jobpath2", "/home/jobpath2"),
    "inside another path": ("/mnt/home/jobpath", "/mnt/home/jobpath"),
    "after a variable": ("$(BASE)/work", "$(BASE)/work"),
    "the longer mount first": ("/work/deep/x", "/d/x"),
    "the root is no mount to replace": ("/", "/"),
}


@each(("text", "expected"), PATHS.values(), ids=PATHS)
def test_mount_paths_are_replaced_by_whole_components(text: str, expected: str):
    paths = PathMap({"/home/jobpath": "/data/vol", "/work": "/w", "/work/deep": "/d", "/": "/never"})
    assert paths.replace(text) == expected


def test_a_directory_below_its_own_mount_path_is_replaced_once():
    """The repository may lie in a directory that is called like a mount path."""
    host = replace(HOST, directories={"jobpath": "/home/jobpath/there"})
    variables = (EnvVar("JOB_PATH", "/home/jobpath"), EnvVar("OUT", "$(JOB_PATH)/out"))
    container = replace(JOB.container, env=variables, command=("prog",), args=("$(OUT)",))
    planned = plan_pod(replace(JOB, container=container), host, IDENTITY)
    assert planned.env["OUT"] == "/home/jobpath/there/out"
    assert planned.argv == ("prog", "/home/jobpath/there/out")


def test_a_job_that_is_mounted_under_its_own_name_lies_where_it_would_lie_in_the_whole_volume():
    mounts = (
        VolumeMount("jobpath", "/home/jobpath/j", "j"),
        VolumeMount("jobpath", "/home/jobpath/j/output", "j/output"),
        VolumeMount("jobpath", "/data", "j/0"),
    )
    planned = plan(mounts=mounts, command=("prog",), args=("/home/jobpath", "/home/jobpath/j/output/x", "/data"))
    assert planned.argv == ("prog", "/data/vol", "/data/vol/j/output/x", "/data/vol/j/0")
    assert "/data/vol/j/0" in planned.directories


# ----- command lines -----

COMMANDS = {
    "the image's entrypoint": ((), ("--x=1",), ("/repo/start.sh", "--x=1")),
    "a command": (("tini", "--", "prepare"), (), ("prepare",)),
    "the tutorial's": (("bin/bash", "-c", "/root/start.sh"), (), ("/bin/bash", "-c", "/repo/start.sh")),
    "a script in a shell's text": (
        ("bash", "-ec", "cd /home/jobpath && exec /root/start.sh"),
        (),
        ("bash", "-ec", "cd /data/vol && exec /repo/start.sh"),
    ),
    "the launcher": (
        ("python3", "/root/start_paddle.py"),
        ("--dry_run",),
        ("python3", "/repo/start_paddle.py", "--dry_run"),
    ),
    "references": (("echo",), ("$(HOSTNAME)", "$$(HOSTNAME)", "$(NONE)"), ("echo", "j-1", "$(HOSTNAME)", "$(NONE)")),
}


@pytest.mark.parametrize(("command", "args", "argv"), COMMANDS.values(), ids=COMMANDS)
def test_the_command_line_is_the_containers(command: tuple[str, ...], args: tuple[str, ...], argv: tuple[str, ...]):
    assert plan(command=command, args=args).argv == argv


def test_tini_stays_where_it_is_installed():
    assert plan(replace(HOST, has_tini=True)).argv == ("tini", "--", "/repo/start.sh")


def test_a_path_with_blanks_is_quoted_in_a_shells_text_only():
    host = replace(HOST, entrypoint="/my repo/start.sh")
    assert plan(host, command=("bash", "-c", "/root/start.sh")).argv[2] == "'/my repo/start.sh'"
    assert plan(host).argv == ("/my repo/start.sh",)


def test_an_image_without_its_entrypoint_is_a_usage_error():
    with pytest.raises(OptionError, match="--entrypoint FILE"):
        plan(replace(HOST, entrypoint=None))


# ----- environment -----


def test_a_container_sees_its_own_variables_and_those_of_a_cluster():
    env = env_of(EnvVar("JOB_PATH", "/home/jobpath"), EnvVar("CONF_PADDLE_NIC", "eth0"))
    assert env == {
        "PATH": "/bin",
        "HOSTNAME": "j-1",
        "JOB_COMPLETION_INDEX": "1",
        "KUBERNETES_SERVICE_HOST": "127.9.0.1",
        "KUBERNETES_SERVICE_PORT": "40123",
        "KUBERNETES_SERVICE_PORT_HTTPS": "40123",
        "JOB_PATH": "/data/vol",
        "CONF_PADDLE_NIC": "127.9.0.3",
        "POD_IP": "127.9.0.3",
        "WORK_DIR": "/pods/j-1-abcde/work",
        "SERVICE_ACCOUNT_DIR": "/tokens",
    }


def test_a_variable_that_the_manifest_forgot_stays_unset():
    """Else a Job would run here that fails on a cluster."""
    assert not {"JOB_PATH", "CONF_PADDLE_NIC"} & set(env_of())


def test_the_tutorials_job_works_in_a_fresh_directory_for_root():
    planned = plan_pod(replace(JOB, container=Container("trainer", mounts=MOUNTS[:1])), HOST, IDENTITY)
    assert planned.env["WORK_DIR"] == "/pods/j-1-abcde/work"
    assert "/pods/j-1-abcde/work" in planned.directories


def test_variables_of_the_user_win_also_in_references():
    env = env_of(EnvVar("A", "1"), EnvVar("B", "$(A)$(A)"), A="2", SERVICE_ACCOUNT_DIR="/none")
    assert (env["A"], env["B"], env["SERVICE_ACCOUNT_DIR"]) == ("2", "22", "/none")


FIELDS = {
    "metadata.name": "j-1-abcde",
    "metadata.namespace": "default",
    "metadata.uid": "u-1",
    "status.podIP": "127.9.0.3",
    "metadata.labels['app']": "paddle",
    "metadata.annotations['note']": "x",
    "spec.serviceAccountName": "default",
}


@each(("path", "value"), FIELDS.items())
def test_the_downward_api_gives_fields(path: str, value: str):
    assert env_of(EnvVar("X", source={"fieldRef": {"fieldPath": path}}))["X"] == value


def test_the_downward_api_gives_resources_rounded_up():
    variable = EnvVar("CPUS", source={"resourceFieldRef": {"resource": "limits.cpu"}})
    assert plan(env=(variable,), resources={"limits": {"cpu": "1500m"}}).env["CPUS"] == "2"


def test_an_optional_secret_is_absent():
    source = {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}
    assert "PADDLE_SECRET" not in env_of(EnvVar("PADDLE_SECRET", source=source))


def test_a_required_secret_is_asked_for_and_can_be_given():
    variable = EnvVar("PADDLE_SECRET", source={"secretKeyRef": {"name": "s", "key": "k"}})
    with pytest.raises(
        OptionError, match="from a secret, which this machine lacks: give it by --env PADDLE_SECRET=VALUE"
    ):
        env_of(variable)
    assert env_of(variable, PADDLE_SECRET="x")["PADDLE_SECRET"] == "x"


@pytest.mark.parametrize("source", [{"fieldRef": {"fieldPath": "status.nonsense"}}, {"nonsense": {}}])
def test_an_unknown_source_is_a_manifest_error(source: dict[str, Any]):
    with pytest.raises(ManifestError, match="is unknown"):
        env_of(EnvVar("X", source=source))


def test_references_are_expanded_as_kubernetes_does():
    assert expand("$(A) $(B) $$(A) $A", {"A": "1"}) == "1 $(B) $(A) $A"


# ----- what is told -----


def test_every_replacement_is_told_and_no_secret():
    host = replace(HOST, extra_env={"NUM_PASSES": "2", "PADDLE_SECRET": "xyzzy"})
    variables = (EnvVar("JOB_PATH", "/home/jobpath"), EnvVar("CONF_PADDLE_NIC", "eth0"), EnvVar("NUM_PASSES", "10"))
    assert [str(each) for each in plan(host, env=variables).replacements] == [
        "mount: /home/jobpath -> /data/vol",
        "mount: /work -> <the pod's own directory>",
        "env: JOB_PATH=/home/jobpath -> /data/vol",
        "script: /root/start.sh -> /repo/start.sh",
        "env: WORK_DIR -> <the pod's own directory>",
        "env: SERVICE_ACCOUNT_DIR -> <token, CA and namespace>",
        "env: POD_IP -> <the pod's address>",
        "env: CONF_PADDLE_NIC=eth0 -> <the pod's address>",
        "env: NUM_PASSES=10 -> 2",
        "env: PADDLE_SECRET -> (given, not shown)",
    ]


def test_no_secret_is_told_that_the_job_states_or_another_variable_contains():
    """Only the value of --env was hidden."""
    variables = (
        EnvVar("API_TOKEN", "/home/jobpath/xyzzy-plugh"),
        EnvVar("db_password", "xyzzy-plugh"),
        EnvVar("URL", "/home/jobpath/$(db_password)"),
        EnvVar("COPY", "/home/jobpath/b"),
    )
    host = replace(HOST, extra_env={"COPY": "xyzzy-plugh", "MORE": "a xyzzy-plugh"})
    planned = plan(host, env=variables)
    assert planned.env["URL"] == "/data/vol/xyzzy-plugh"
    told = [str(each) for each in planned.replacements]
    assert "xyzzy" not in " ".join(told)
    assert [line for line in told if "API_TOKEN" in line or "URL" in line] == [
        "env: API_TOKEN -> (replaced, not shown)",
        "env: URL=/home/jobpath/$(db_password) -> /data/vol/(not shown)",
    ]


def test_a_mount_path_in_a_variable_of_the_user_is_replaced_and_told():
    planned = plan(
        replace(HOST, extra_env={"DATA_PATH": "/home/jobpath/texts", "JOB_PATH": "/home/jobpath/b"}),
        env=(EnvVar("JOB_PATH", "/home/jobpath"), EnvVar("OUT", "$(JOB_PATH)/out")),
    )
    names = ("DATA_PATH", "JOB_PATH", "OUT")
    assert [planned.env[name] for name in names] == ["/data/vol/texts", "/data/vol/b", "/data/vol/b/out"]
    told = [str(each) for each in planned.replacements]
    assert [line for line in told if "DATA_PATH" in line or "JOB_PATH" in line] == [
        "env: DATA_PATH=(unset) -> /home/jobpath/texts",
        "env: DATA_PATH=/home/jobpath/texts -> /data/vol/texts",
        "env: JOB_PATH=/home/jobpath -> /home/jobpath/b",
        "env: JOB_PATH=/home/jobpath/b -> /data/vol/b",
    ]


def test_it_is_told_alike_for_all_pods():
    other = replace(IDENTITY, name="j-2-fghij", ip="127.9.0.4", index=2, root="/pods/j-2-fghij")
    assert plan().replacements == plan(identity=other).replacements


# ----- volumes -----


@pytest.mark.parametrize("name", ["jobpath", "mfs"])
def test_a_volume_is_given_by_its_name_or_its_claim(name: str):
    assert match_volumes(JOB, {name: "d"}) == {"jobpath": "d"}


def test_a_volume_that_is_not_given_is_asked_for():
    with pytest.raises(OptionError, match=r"volume jobpath \(claim mfs\) needs a directory: --volume jobpath=DIR"):
        match_volumes(JOB, {})


def test_an_optional_secret_is_absent_unless_it_is_given():
    job = replace(JOB, volumes=(*VOLUMES, Volume("key", "secret", is_optional=True)))
    job = replace(job, container=replace(job.container, mounts=(*MOUNTS, VolumeMount("key", "/etc/key"))))
    assert match_volumes(job, {"mfs": "d"}) == {"jobpath": "d"}
    assert match_volumes(job, {"mfs": "d", "key": "k"})["key"] == "k"


def test_a_volume_that_the_pods_do_not_have_is_refused_with_those_they_have():
    with pytest.raises(OptionError, match=r"--volume efs: .* \(they have: jobpath, mfs, work\)"):
        match_volumes(JOB, {"jobpath": "d", "efs": "d"})


def test_an_empty_directory_may_be_given_too():
    assert match_volumes(JOB, {"mfs": "d", "work": "w"})["work"] == "w"


def test_a_resource_that_is_no_quantity_is_refused_by_its_variable():
    variable = EnvVar("CPUS", source={"resourceFieldRef": {"resource": "limits.cpu"}})
    with pytest.raises(ManifestError, match="env CPUS: '1 GB' is not a Kubernetes quantity"):
        plan(env=(variable,), resources={"limits": {"cpu": "1 GB"}})
