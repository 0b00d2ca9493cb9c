"""k8s/allreduce: every object is valid, its pods are `restricted`, and what is said in several places agrees."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from paddle_cluster.elastic.agent.service import parse_agent_options
from paddle_cluster.elastic.constants import AGENT_PORT, POD_SELECTOR
from paddle_cluster.elastic.launch import parse_args
from paddle_cluster.elastic.membership.kubernetes import SLOTS
from paddle_cluster.launcher.roles.plan import DRIVER_GOES_ON, plan_role

K8S = Path(__file__).parents[3] / "k8s"
ALLREDUCE = K8S / "allreduce"
KUSTOMIZATION = yaml.safe_load((ALLREDUCE / "kustomization.yaml").read_text())
DOCUMENTS = [
    (file, document)
    for file in KUSTOMIZATION["resources"]
    for document in yaml.safe_load_all((ALLREDUCE / file).read_text())
]
OBJECTS = {(document["kind"], document["metadata"]["name"]): document for _, document in DOCUMENTS}
WORKLOADS = {"driver": OBJECTS["Job", "paddle-driver"], "worker": OBJECTS["StatefulSet", "paddle-worker"]}
SETTINGS = dict(literal.split("=", 1) for literal in KUSTOMIZATION["configMapGenerator"][0]["literals"])
EACH = pytest.mark.parametrize("name", WORKLOADS)


def pod(name: str) -> dict[str, Any]:
    return WORKLOADS[name]["spec"]["template"]["spec"]


def container(name: str) -> dict[str, Any]:
    (only,) = pod(name)["containers"]
    return only


def labels(name: str) -> dict[str, str]:
    return WORKLOADS[name]["spec"]["template"]["metadata"]["labels"]


def environment(name: str) -> dict[str, str]:
    own = {variable["name"]: variable.get("value", "") for variable in container(name)["env"]}
    return {**SETTINGS, **own} if "envFrom" in container(name) else own


def port(name: str) -> int:
    (only,) = container(name)["ports"]
    return only["containerPort"]


@pytest.mark.parametrize(("file", "document"), DOCUMENTS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_allreduce_object_is_valid(file: str, document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, "1.34", strict=True)


def test_every_allreduce_file_is_in_the_list() -> None:
    assert {path.name for path in ALLREDUCE.glob("*.yaml")} == {*KUSTOMIZATION["resources"], "kustomization.yaml"}
    offered = re.findall(r"^#  - (\S+)", (ALLREDUCE / "kustomization.yaml").read_text(), re.MULTILINE)
    assert offered and all((ALLREDUCE / each / "kustomization.yaml").is_file() for each in offered)


@EACH
def test_a_pod_of_driver_or_worker_is_restricted(name: str) -> None:
    context, own = pod(name)["securityContext"], container(name)["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"]) == (True, 1000)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod(name).keys()


@EACH
def test_driver_and_workers_are_bounded_and_probed(name: str) -> None:
    assert {"cpu", "memory"} <= container(name)["resources"]["requests"].keys()
    assert "memory" in container(name)["resources"]["limits"]
    (only,) = container(name)["ports"]
    assert all(
        container(name)[probe]["tcpSocket"]["port"] == only["name"] for probe in ("readinessProbe", "livenessProbe")
    )
    assert container(name)["image"] == "REPO/paddle:mypaddle"
    (image,) = KUSTOMIZATION["images"]
    assert f"{image['name']}:{image['newTag']}" == container(name)["image"]


@EACH
def test_the_secret_is_a_file_without_which_the_program_ends(name: str) -> None:
    (volume,) = [volume for volume in pod(name)["volumes"] if "secret" in volume]
    assert volume["secret"]["optional"] is True and volume["secret"]["defaultMode"] == 0o440
    (mount,) = [mount for mount in container(name)["volumeMounts"] if mount["name"] == volume["name"]]
    text = (ALLREDUCE / "kustomization.yaml").read_text()
    command = re.search(r"kubectl create secret generic (\S+) --from-literal=(\w+)=", text)
    assert command and command[1] == volume["secret"]["secretName"]
    assert environment(name)["PADDLE_SECRET_FILE"] == f"{mount['mountPath']}/{command[2]}"


def test_only_the_driver_has_a_token_and_it_may_do_what_it_does() -> None:
    assert pod("worker")["automountServiceAccountToken"] is False and "serviceAccountName" not in pod("worker")
    assert pod("driver")["automountServiceAccountToken"] is True
    pods, scale = OBJECTS["Role", "paddle-driver"]["rules"]
    assert pods == {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    assert (scale["apiGroups"], scale["resources"], scale["verbs"]) == (["apps"], ["statefulsets/scale"], ["patch"])
    target = f"statefulsets/{scale['resourceNames'][0]}"
    assert environment("driver")["SCALE_TO_ZERO"] == target == f"statefulsets/{WORKLOADS['worker']['metadata']['name']}"
    (subject,) = OBJECTS["RoleBinding", "paddle-driver"]["subjects"]
    assert (
        subject["name"]
        == pod("driver")["serviceAccountName"]
        == OBJECTS["ServiceAccount", "paddle-driver"]["metadata"]["name"]
    )


def test_the_drivers_command_is_understood() -> None:
    role, *arguments = container("driver")["args"]
    plan = plan_role(role, arguments, environment("driver"))
    assert plan.command[:3] == ("paddle", "elastic", "run") and not plan.waits
    args = parse_args(plan.command[3:])
    assert (args.num_proc, args.min_num_proc, args.max_num_proc) == (3, 2, 8)
    assert (args.discovery, args.hand_over, args.port) == ("kubernetes", True, port("driver"))
    assert args.store_dir == f"/home/jobpath/{SETTINGS['JOB_NAME']}/driver"
    assert args.command[0] == "python" and (K8S.parent / args.command[1].removeprefix("/opt/paddle/")).is_file()
    assert args.agent_port == port("worker") == AGENT_PORT
    service = OBJECTS["Service", args.address]
    assert service["spec"]["selector"] == labels("driver") and service["spec"]["ports"][0]["port"] == args.port
    assert service["spec"]["publishNotReadyAddresses"] is True


def test_the_agents_command_is_understood_and_fits_the_grace_period() -> None:
    paddle, elastic, agent, *flags = container("worker")["args"]
    assert (paddle, elastic, agent) == ("paddle", "elastic", "agent")
    options = parse_agent_options(flags)
    assert options.port == port("worker")
    assert options.leave_timeout + 15 < pod("worker")["terminationGracePeriodSeconds"]


def test_workers_are_what_the_driver_looks_for() -> None:
    assert dict(pair.split("=") for pair in POD_SELECTOR.split(",")).items() <= labels("worker").items()
    assert int(WORKLOADS["worker"]["spec"]["template"]["metadata"]["annotations"][SLOTS]) == 1
    assert int(SETTINGS["NUM_PROC"]) == WORKLOADS["worker"]["spec"]["replicas"]
    replacement, _ = KUSTOMIZATION["replacements"]
    assert replacement["source"]["fieldPath"] == "data.NUM_PROC"
    assert replacement["targets"][0]["select"]["name"] == WORKLOADS["worker"]["metadata"]["name"]
    budget = OBJECTS["PodDisruptionBudget", "paddle-worker"]["spec"]
    assert budget["maxUnavailable"] == 1 and budget["selector"]["matchLabels"] == labels("worker")
    priority = OBJECTS["PriorityClass", pod("worker")["priorityClassName"]]
    assert -10 <= priority["value"] < 0 and priority["preemptionPolicy"] == "Never"
    assert "priorityClassName" not in pod("driver")


def test_a_driver_that_was_lost_has_a_successor_and_a_job_that_has_failed_has_none() -> None:
    spec = WORKLOADS["driver"]["spec"]
    ignore, fail = spec["podFailurePolicy"]["rules"]
    assert ignore == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    codes = fail["onExitCodes"]
    assert codes == {"containerName": "driver", "operator": "NotIn", "values": list(DRIVER_GOES_ON)}
    assert (spec["podReplacementPolicy"], pod("driver")["restartPolicy"]) == ("Failed", "Never")


def test_the_claim_of_an_allreduce_job_is_that_of_the_static_job() -> None:
    assert OBJECTS["PersistentVolumeClaim", "mfs"] == yaml.safe_load((K8S / "pvc.yaml").read_text())


def test_driver_and_workers_reach_each_other_and_nobody_else_reaches_them() -> None:
    (driver,) = OBJECTS["NetworkPolicy", "paddle-driver"]["spec"]["ingress"]
    assert driver["from"] == [{"podSelector": {"matchLabels": labels("worker")}}]
    assert [one["port"] for one in driver["ports"]] == [port("driver")]
    (worker,) = OBJECTS["NetworkPolicy", "paddle-worker"]["spec"]["ingress"]
    (peer,) = worker["from"]
    assert peer["podSelector"]["matchExpressions"][0]["values"] == ["driver", "worker"] and "ports" not in worker
    for name in WORKLOADS:
        policy = OBJECTS["NetworkPolicy", f"paddle-{name}"]["spec"]
        assert policy["podSelector"]["matchLabels"] == labels(name) and policy["policyTypes"] == ["Ingress"]
