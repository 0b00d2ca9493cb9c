"""Values that must agree between manifests, programs and docs (S24: the original stated one number in four places)."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import pod_environment

from paddle_cluster.launcher.errors import NEVER_RETRY
from paddle_cluster.launcher.programs.probes import ASK_TIMEOUT_S
from paddle_cluster.launcher.settings import VARIABLES, LauncherConfig
from paddle_cluster.launcher.supervisor import FAILED_STOP_S

ROOT = Path(__file__).parents[3]
K8S = ROOT / "k8s"
NO_RETRY = [64, 65, 66, 77, 78]
RETRY = {69, 70, 74, 75, 143}


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((K8S / name).read_text())


JOB, DATA, CLAIM, KUSTOMIZATION = load("job.yaml"), load("data-job.yaml"), load("pvc.yaml"), load("kustomization.yaml")
POD_GROUP = load("components/volcano/pod-group.yaml")
ACCOUNT, ROLE, BINDING = yaml.safe_load_all((K8S / "rbac.yaml").read_text())
BOTH = pytest.mark.parametrize("job", [JOB, DATA], ids=["training", "data"])


def load_pods(name: str) -> dict[str, Any]:
    """The only object with pods in a file of several objects."""
    (found,) = [one for one in yaml.safe_load_all((K8S / name).read_text()) if "template" in one.get("spec", {})]
    return found


def pod(job: dict[str, Any]) -> dict[str, Any]:
    return job["spec"]["template"]["spec"]


def container(job: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod(job)["containers"]
    return only


def env(job: dict[str, Any]) -> dict[str, str]:
    """Name -> value, or field path, of the container's variables."""
    return {
        variable["name"]: variable.get("value") or variable["valueFrom"].get("fieldRef", {}).get("fieldPath", "")
        for variable in container(job)["env"]
    }


def test_the_number_of_nodes_is_the_same_in_all_its_places() -> None:
    """S24, D5: any mismatch made the original hang."""
    (generator,) = KUSTOMIZATION["configMapGenerator"]
    places = [
        str(JOB["spec"]["parallelism"]),
        str(JOB["spec"]["completions"]),
        env(JOB)["CONF_PADDLE_GRADIENT_NUM"],
        env(DATA)["SPLIT_COUNT"],
        generator["literals"][0].removeprefix("count="),
    ]
    assert places == ["3"] * 5


def find(node: Any, path: str) -> Any:
    """The value at a kustomize field path."""
    for step in re.findall(r"\[[^]]*\]|[^.\[\]]+", path):
        if step.startswith("["):
            key, value = step[1:-1].split("=")
            (node,) = [entry for entry in node if entry[key] == value]
        else:
            node = node[step]
    return node


def test_the_one_edit_reaches_every_place() -> None:
    (replacement,) = KUSTOMIZATION["replacements"]
    (generator,) = KUSTOMIZATION["configMapGenerator"]
    assert replacement["source"] == {"kind": "ConfigMap", "name": generator["name"], "fieldPath": "data.count"}
    objects = {(one["kind"], one["metadata"]["name"]): one for one in (JOB, DATA, POD_GROUP)}
    values = [
        find(objects[target["select"]["kind"], target["select"]["name"]], path)
        for target in replacement["targets"]
        for path in target["fieldPaths"]
    ]
    assert values == [3, 3, "3", 3, "3"]
    assert generator["options"]["annotations"]["config.kubernetes.io/local-config"] == "true"


def test_the_jobs_name_is_its_label_its_variable_and_its_directory() -> None:
    name = JOB["metadata"]["name"]
    assert name == env(JOB)["JOB_NAME"] == "paddle-cluster-job"
    assert env(DATA)["OUT_DIR"] == f"{env(JOB)['JOB_PATH']}/{name}"


def test_the_config_directory_is_the_one_that_the_data_job_makes() -> None:
    assert env(JOB)["TRAIN_CONFIG_DIR"] == env(DATA)["DATA_SOURCE"] == "digits"
    assert (ROOT / "examples" / env(JOB)["TRAIN_CONFIG_DIR"]).is_dir()


def test_the_ports_are_those_that_a_pserver_binds() -> None:
    """First = PORT, last = PORT + PORTS_NUM + PORTS_NUM_SPARSE - 1."""
    first = int(env(JOB)["CONF_PADDLE_PORT"])
    count = int(env(JOB)["CONF_PADDLE_PORTS_NUM"]) + int(env(JOB)["CONF_PADDLE_PORTS_NUM_SPARSE"])
    ports = container(JOB)["ports"]
    assert [port["containerPort"] for port in ports[:count]] == list(range(first, first + count))
    assert [port["name"] for port in ports[:count]] == [f"jobport{k}" for k in range(count)]


def test_the_ports_behind_those_are_what_the_launcher_and_its_programs_are_watched_by() -> None:
    health = int(env(JOB)["CONF_PADDLE_METRICS_PORT"])
    ports = {name: value for name, value in env(JOB).items() if "PORT" in name and "CONTROL" not in name}
    assert ports["CONF_PADDLE_PORT"] and env(JOB)["CONF_PADDLE_CONTROL_PORT"] == "7168"
    assert [(port["name"], port["containerPort"]) for port in container(JOB)["ports"][4:]] == [
        ("control", LauncherConfig.from_env(pod_environment(**ports)).control_port),
        ("health", health),
        ("metrics-pserver", health + 1),
        ("metrics-trainer", health + 2),
    ]
    LauncherConfig.from_env(pod_environment(CONF_PADDLE_METRICS_PORT=str(health)))


@pytest.mark.parametrize(
    ("probe", "path"), [("startupProbe", "/healthz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")]
)
def test_the_probes_ask_the_launcher(probe: str, path: str) -> None:
    """A program is judged by the launcher, which knows whether it should run: between attempts a pod lives."""
    assert container(JOB)[probe]["httpGet"] == {"path": path, "port": "health"}


def test_a_probe_waits_longer_than_the_launcher_needs_to_ask_both_programs() -> None:
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container(JOB)[probe]["timeoutSeconds"] > 4 * ASK_TIMEOUT_S
    liveness = container(JOB)["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 300


def test_pods_share_a_node_if_they_must() -> None:
    """S26: the original's host ports forced one pod per node."""
    assert not any("hostPort" in port for port in container(JOB)["ports"])
    assert "hostNetwork" not in pod(JOB)
    (spread,) = pod(JOB)["topologySpreadConstraints"]
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    labels = JOB["spec"]["template"]["metadata"]["labels"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()


def test_every_variable_of_the_tutorial_is_set() -> None:
    """Some have defaults for its shorter manifests; ours shows all of them."""
    required = set(re.findall(r"^([A-Z_]+) +required", (ROOT / "start.sh").read_text(), re.MULTILINE))
    tutorial = yaml.safe_load((ROOT / "tests/kubernetes/tutorial/training-job.yaml").read_text())
    assert len(env(tutorial)) == 9
    assert required < env(tutorial).keys() <= env(JOB).keys()


def test_address_name_and_namespace_come_from_the_downward_api() -> None:
    """S8: the original asked the name server for its own address."""
    expected = {"POD_IP": "status.podIP", "POD_NAME": "metadata.name", "JOB_NAMESPACE": "metadata.namespace"}
    assert expected.items() <= env(JOB).items()


def test_the_secret_is_a_file_and_no_variable() -> None:
    """A variable of a process is shown to whoever may look at it, and goes to every program that it starts."""
    assert "PADDLE_SECRET" not in env(JOB)
    (volume,) = [volume for volume in pod(JOB)["volumes"] if "secret" in volume]
    assert volume["secret"]["optional"] is True and volume["secret"]["defaultMode"] == 0o440
    (mount,) = [mount for mount in container(JOB)["volumeMounts"] if mount["name"] == volume["name"]]
    assert mount["readOnly"] is True
    command = re.search(
        r"kubectl create secret generic (\S+) --from-literal=(\w+)=", (ROOT / "k8s/job.yaml").read_text()
    )
    assert command and command[1] == volume["secret"]["secretName"]
    assert env(JOB)["PADDLE_SECRET_FILE"] == f"{mount['mountPath']}/{command[2]}"


@BOTH
def test_both_jobs_mount_the_claim_where_the_tutorial_says(job: dict[str, Any]) -> None:
    """The tutorial's OUT_DIR lay outside its mount."""
    (volume,) = [volume for volume in pod(job)["volumes"] if "persistentVolumeClaim" in volume]
    assert volume["persistentVolumeClaim"]["claimName"] == CLAIM["metadata"]["name"] == "mfs"
    (whole,) = [mount for mount in pod(job)["initContainers"][0]["volumeMounts"] if mount["name"] == volume["name"]]
    assert whole["mountPath"] == env(JOB)["JOB_PATH"] == "/home/jobpath"
    for mount in container(job)["volumeMounts"]:
        if mount["name"] == volume["name"]:
            assert mount["mountPath"] == "/".join(filter(None, [env(JOB)["JOB_PATH"], mount.get("subPath")]))
    assert CLAIM["spec"]["accessModes"] == ["ReadWriteMany"]


def test_the_nfs_example_is_bound_by_the_claim() -> None:
    volume = load("pv-nfs.yaml")
    assert volume["spec"]["claimRef"]["name"] == CLAIM["metadata"]["name"]
    assert volume["spec"]["storageClassName"] == CLAIM["spec"]["storageClassName"]
    assert volume["spec"]["accessModes"] == CLAIM["spec"]["accessModes"]


@BOTH
def test_what_is_written_beside_the_volume_is_an_emptydir(job: dict[str, Any]) -> None:
    assert container(job)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {volume["name"] for volume in pod(job)["volumes"] if "emptyDir" in volume}
    mounts = {mount["name"]: mount["mountPath"] for mount in container(job)["volumeMounts"]}
    paths = {mounts[name] for name in writable}
    assert paths == ({"/tmp", env(JOB)["WORK_DIR"]} if job is JOB else {"/tmp"})


@BOTH
def test_pods_run_as_the_images_user(job: dict[str, Any]) -> None:
    context = pod(job)["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"], context["runAsGroup"]) == (True, 1000, 1000)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert re.search(r"^USER 1000$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


@BOTH
def test_the_failure_policy_follows_our_exit_codes(job: dict[str, Any]) -> None:
    ignore, fail = job["spec"]["podFailurePolicy"]["rules"]
    assert ignore == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    codes = fail["onExitCodes"]
    assert fail["action"] == "FailJob" and "containerName" not in codes  # also those of the init container
    # the API server refuses values that do not ascend
    assert codes["values"] == sorted(set(codes["values"]))
    assert set(codes["values"]) <= set(NO_RETRY) and not RETRY & set(codes["values"])
    if job is JOB:
        assert codes["values"] == NO_RETRY == list(NEVER_RETRY)
    assert pod(job)["restartPolicy"] == "Never"
    assert job["spec"]["podReplacementPolicy"] == "Failed"


@BOTH
def test_every_end_of_a_job_is_bounded(job: dict[str, Any]) -> None:
    bounds = ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
    assert all(job["spec"][name] > 0 for name in bounds)
    assert pod(job)["terminationGracePeriodSeconds"] >= 30
    assert {"cpu", "memory"} <= container(job)["resources"]["requests"].keys()
    assert "memory" in container(job)["resources"]["limits"]


def test_the_grace_period_covers_saving_and_the_end_of_the_pserver() -> None:
    needed = float(env(JOB)["STOP_TIMEOUT"]) + FAILED_STOP_S
    assert pod(JOB)["terminationGracePeriodSeconds"] > needed


def test_a_default_that_a_manifest_shows_is_the_launchers() -> None:
    """A reader learns a default from the manifest; what differs from it is listed here with its reason."""
    defaults = {one.name: one.default for one in VARIABLES if one.default and not one.find}
    others = {
        "CONF_PADDLE_CONTROL_PORT",  # the port that the default 0 stands for
        "CONF_PADDLE_METRICS_PORT",  # the probes of the manifests need the ports
        "STOP_TIMEOUT",  # a pod of a cluster has more time than a process of a shell
    }
    jobs = [JOB, *(load_pods(f"tasks/{name}.yaml") for name in ("master", "pserver", "trainer"))]
    shown = {(name, value) for job in jobs for name, value in env(job).items()}
    wrong = {(name, value) for name, value in shown if name in defaults.keys() - others and value != defaults[name]}
    assert wrong == set()
    assert {"CONF_PADDLE_NIC", "CONF_PADDLE_PORT", "JOB_PATH", "RESTARTS", "REJOIN_TIMEOUT"} <= {
        name for name, _ in shown
    }


def test_a_dead_nodes_pod_is_given_up_soon() -> None:
    seconds = {t["key"]: t["tolerationSeconds"] for t in pod(JOB)["tolerations"] if t["effect"] == "NoExecute"}
    assert seconds == {"node.kubernetes.io/not-ready": 30, "node.kubernetes.io/unreachable": 30}


def test_ids_stay_put_because_the_job_is_indexed() -> None:
    """S6, S9: by sorted addresses a replaced pod shifted the ids of all others."""
    assert JOB["spec"]["completionMode"] == "Indexed"


def test_the_launcher_may_look_at_pods_and_nothing_else() -> None:
    assert ROLE["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    assert BINDING["roleRef"]["name"] == ROLE["metadata"]["name"] and BINDING["roleRef"]["kind"] == "Role"
    (subject,) = BINDING["subjects"]
    assert subject["name"] == ACCOUNT["metadata"]["name"] == pod(JOB)["serviceAccountName"]
    assert pod(DATA)["automountServiceAccountToken"] is False


@BOTH
def test_the_image_is_the_one_that_kustomize_replaces(job: dict[str, Any]) -> None:
    (image,) = KUSTOMIZATION["images"]
    assert container(job)["image"] == f"{image['name']}:{image['newTag']}" == "REPO/paddle:mypaddle"


def test_the_training_pod_starts_with_the_images_own_entrypoint() -> None:
    assert "command" not in container(JOB)
    assert container(DATA)["command"] == ["tini", "--", "paddle", "prepare"]


@pytest.mark.parametrize("file", ["rbac.yaml", "pvc.yaml", "pv-nfs.yaml", "data-job.yaml", "job.yaml"])
def test_every_object_is_chosen_by_a_component_label(file: str) -> None:
    """docs/number-of-nodes.md creates them step by step with kubectl create -k and -l."""
    expected = {"rbac.yaml": "access", "pvc.yaml": "volume", "pv-nfs.yaml": "volume"}
    component = expected.get(file, "data" if file == "data-job.yaml" else "training")
    for document in yaml.safe_load_all((K8S / file).read_text()):
        assert document["metadata"]["labels"]["app.kubernetes.io/component"] == component


COMMENTED = re.compile(r"^\s*(- )?#")


@pytest.mark.parametrize("file", ["job.yaml", "data-job.yaml"])
def test_every_value_of_the_spec_has_its_why(file: str) -> None:
    lines = (K8S / file).read_text().splitlines()
    keys = ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished", "parallelism", "podReplacementPolicy")
    keys += ("restartPolicy", "terminationGracePeriodSeconds", "imagePullPolicy", "runAsUser", "readOnlyRootFilesystem")
    for key in keys:
        number = [n for n, line in enumerate(lines) if line.strip().startswith(f"{key}:")][-1]  # of the pod's container
        assert COMMENTED.match(lines[number - 1]), key


def test_the_quick_start_component_patches_variables_that_are_read() -> None:
    component = yaml.safe_load((K8S / "components/quick_start/kustomization.yaml").read_text())
    names = {}
    for patch in component["patches"]:
        (patched,) = yaml.safe_load(patch["patch"])["spec"]["template"]["spec"]["containers"]
        names[patch["target"]["name"]] = {variable["name"] for variable in patched["env"]}
        assert patched["name"] in {container(JOB)["name"], container(DATA)["name"]}
    assert names == {
        "paddle-data": {"DATA_SOURCE", "DATA_URL", "DATA_SHA256"},
        "paddle-cluster-job": {"TRAIN_CONFIG_DIR"},
    }
