"""k8s/tasks: every object is valid, its pods are `restricted`, and what is said in several places agrees."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from paddle_cluster.launcher.errors import NEVER_RETRY
from paddle_cluster.launcher.roles.plan import plan_role
from paddle_cluster.master.flags import FLAGS as MASTER_FLAGS

K8S = Path(__file__).parents[3] / "k8s"
ELASTIC = K8S / "tasks"
KUSTOMIZATION = yaml.safe_load((ELASTIC / "kustomization.yaml").read_text())
DOCUMENTS = [
    (file, document)
    for file in KUSTOMIZATION["resources"]
    for document in yaml.safe_load_all((ELASTIC / file).read_text())
]
OBJECTS = {(document["kind"], document["metadata"]["name"]): document for _, document in DOCUMENTS}
WORKLOADS = {
    name: OBJECTS[kind, f"paddle-{name}"]
    for kind, name in [
        ("StatefulSet", "etcd"),
        ("Deployment", "master"),
        ("StatefulSet", "pserver"),
        ("Job", "trainer"),
    ]
}
WORKLOADS["data"] = OBJECTS["Job", "paddle-elastic-data"]
ROLES = ("master", "pserver", "trainer")
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


def ports(name: str) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(name)["ports"]}


@pytest.mark.parametrize(("file", "document"), DOCUMENTS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_object_is_valid(file: str, document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, "1.34", strict=True)


def test_every_file_is_in_the_list() -> None:
    assert {path.name for path in ELASTIC.glob("*.yaml")} == {*KUSTOMIZATION["resources"], "kustomization.yaml"}


def test_every_component_is_offered_and_there() -> None:
    offered = re.findall(r"^#  - (\S+)", (ELASTIC / "kustomization.yaml").read_text(), re.MULTILINE)
    assert {f"components/{path.name}" for path in (ELASTIC / "components").iterdir()} <= set(offered)
    assert all((ELASTIC / each / "kustomization.yaml").is_file() for each in offered)


def test_the_component_program_starts_the_command_of_entry_in_trainers_alone() -> None:
    component = yaml.safe_load((ELASTIC / "components/program/kustomization.yaml").read_text())
    settings = dict(literal.split("=", 1) for literal in component["configMapGenerator"][0]["literals"])
    (patch,) = [yaml.safe_load(one["patch"]) for one in component["patches"]]
    assert (patch["$patch"], patch["metadata"]) == ("delete", {"name": WORKLOADS["data"]["metadata"]["name"]})
    programs = {role: plan_role(role, [], {**environment(role), **settings}).program for role in ROLES}
    assert programs == {"master": "", "pserver": "", "trainer": "python train.py"}


@EACH
def test_a_pod_is_restricted(name: str) -> None:
    """By the pod security standards of Kubernetes; the API server of the e2e tests judges, too."""
    context, own = pod(name)["securityContext"], container(name)["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"]) == (True, 1000)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod(name).keys()
    assert not any("hostPort" in port for port in container(name).get("ports", []))


@EACH
def test_only_the_master_has_a_token(name: str) -> None:
    assert pod(name)["automountServiceAccountToken"] is (name == "master")
    assert ("serviceAccountName" in pod(name)) is (name == "master")


def test_the_master_may_do_what_it_does_and_nothing_else() -> None:
    targets = environment("master")["SCALE_TO_ZERO"].split()
    rules = OBJECTS["Role", "paddle-master"]["rules"]
    allowed = [(rule["resources"][0].partition("/")[0], rule["resourceNames"][0]) for rule in rules]
    assert [f"{kind}/{name}" for kind, name in allowed] == targets
    assert all(rule["verbs"] == ["patch"] and rule["apiGroups"] == ["apps"] for rule in rules)
    assert all(len(rule["resources"]) == len(rule["resourceNames"]) == 1 for rule in rules)
    assert all(rule["resources"][0].endswith("/scale") for rule in rules)
    kinds = {"statefulsets": "StatefulSet", "deployments": "Deployment"}
    assert all((kinds[kind], name) in OBJECTS for kind, name in allowed)
    (subject,) = OBJECTS["RoleBinding", "paddle-master"]["subjects"]
    assert subject["name"] == pod("master")["serviceAccountName"]


@pytest.mark.parametrize("name", ROLES)
def test_a_role_understands_its_environment(name: str) -> None:
    plan = plan_role(container(name)["args"][0], [], environment(name))
    (endpoint,) = plan.etcd
    service = OBJECTS["Service", "paddle-etcd"]
    assert endpoint == (service["metadata"]["name"], service["spec"]["ports"][0]["port"])
    assert plan.waits is (name != "trainer")
    assert any(f"=/home/jobpath/{SETTINGS['JOB_NAME']}/" in word for word in plan.command)
    assert f"--metrics_port={ports(name)['metrics']}" in plan.command


def test_the_ports_are_those_that_are_bound() -> None:
    env = environment("pserver")
    first, count = (
        int(env["CONF_PADDLE_PORT"]),
        int(env["CONF_PADDLE_PORTS_NUM"]) + int(env["CONF_PADDLE_PORTS_NUM_SPARSE"]),
    )
    assert [port for name, port in ports("pserver").items() if name != "metrics"] == list(range(first, first + count))
    assert ports("master")["tasks"] == MASTER_FLAGS["port"].default


def test_the_settings_agree_with_the_manifests() -> None:
    assert int(SETTINGS["PSERVERS"]) == WORKLOADS["pserver"]["spec"]["replicas"]
    data = environment("data")
    assert data["OUT_DIR"] == f"/home/jobpath/{SETTINGS['JOB_NAME']}"
    assert data["DATA_SOURCE"] == SETTINGS["TRAIN_CONFIG_DIR"]
    assert data["SPLIT_COUNT"] == "1" and int(data["SHARD_FILES"]) > 10
    replaced = [
        (one["source"]["fieldPath"], one["targets"][0]["select"]["name"]) for one in KUSTOMIZATION["replacements"]
    ]
    assert replaced == [("data.PSERVERS", "paddle-pserver"), ("data.JOB_NAME", "paddle-elastic-data")]


def test_the_images_are_those_that_kustomize_replaces() -> None:
    images = {f"{image['name']}:{image['newTag']}" for image in KUSTOMIZATION["images"]}
    assert {container(name)["image"] for name in WORKLOADS} == images


def test_the_claim_is_that_of_the_static_job() -> None:
    assert OBJECTS["PersistentVolumeClaim", "mfs"] == yaml.safe_load((K8S / "pvc.yaml").read_text())


def test_the_data_job_is_that_of_the_static_job_but_for_its_data() -> None:
    other, ours = yaml.safe_load((K8S / "data-job.yaml").read_text()), WORKLOADS["data"]
    assert {**ours["spec"], "template": None} == {**other["spec"], "template": None}
    (theirs,) = other["spec"]["template"]["spec"]["containers"]
    # the name of the job is in two mounts
    text = yaml.safe_dump({**container("data"), "env": None})
    assert text.replace("paddle-elastic", "paddle-cluster-job") == yaml.safe_dump({**theirs, "env": None})


def test_trainers_work_on_a_queue_and_give_way() -> None:
    spec = WORKLOADS["trainer"]["spec"]
    assert "completions" not in spec and "completionMode" not in spec
    ignore, fail = spec["podFailurePolicy"]["rules"]
    assert ignore == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert fail["onExitCodes"] == {"operator": "In", "values": list(NEVER_RETRY)}
    assert (spec["podReplacementPolicy"], pod("trainer")["restartPolicy"]) == ("Failed", "Never")
    priority = OBJECTS["PriorityClass", pod("trainer")["priorityClassName"]]
    assert -10 <= priority["value"] < 0 and priority["preemptionPolicy"] == "Never"
    assert not any("priorityClassName" in pod(name) for name in WORKLOADS if name != "trainer")
    notes = WORKLOADS["trainer"]["metadata"]["annotations"]
    assert 1 <= int(notes["paddle/trainers-min"]) <= spec["parallelism"] <= int(notes["paddle/trainers-max"])


@pytest.mark.parametrize("name", ["etcd", "master", "pserver"])
def test_a_drain_takes_one_after_the_other_and_is_never_blocked(name: str) -> None:
    budget = OBJECTS["PodDisruptionBudget", f"paddle-{name}"]["spec"]
    assert budget["maxUnavailable"] == 1 and budget["selector"]["matchLabels"] == labels(name)


def test_a_master_that_stands_by_is_ready() -> None:
    """A budget counts ready pods: with /readyz the leader could never be evicted."""
    assert container("master")["readinessProbe"]["httpGet"]["path"] == "/healthz"


@pytest.mark.parametrize("name", ["etcd", *ROLES])
def test_every_program_is_probed_and_bounded(name: str) -> None:
    assert {"readinessProbe", "livenessProbe"} <= container(name).keys()
    assert {"cpu", "memory"} <= container(name)["resources"]["requests"].keys()
    assert "memory" in container(name)["resources"]["limits"]
    assert all(
        container(name)[probe]["httpGet"]["port"] in ports(name) for probe in ("readinessProbe", "livenessProbe")
    )


# ----- NetworkPolicies: what an enforcing network plugin would decide (no plugin of the test cluster enforces)


def is_chosen(selector: dict[str, Any], name: str) -> bool:
    fits = selector.get("matchLabels", {}).items() <= labels(name).items()
    return fits and all(labels(name)[one["key"]] in one["values"] for one in selector.get("matchExpressions", []))


def reach(source: str, target: str) -> set[int]:
    """The ports of a pod that a policy opens to another pod of the namespace."""
    (policy,) = [
        each
        for (kind, _), each in OBJECTS.items()
        if kind == "NetworkPolicy" and is_chosen(each["spec"]["podSelector"], target)
    ]
    found: set[int] = set()
    for rule in policy["spec"].get("ingress", []):
        if any("podSelector" in peer and is_chosen(peer["podSelector"], source) for peer in rule["from"]):
            for one in rule["ports"]:
                found |= set(range(one["port"], one.get("endPort", one["port"]) + 1))
    return found


def test_each_program_reaches_what_it_needs_and_nothing_else() -> None:
    client = ports("etcd")["client"]
    services = {port for name, port in ports("pserver").items() if name != "metrics"}
    expected = {(source, "etcd"): {client} for source in ROLES} | {
        ("etcd", "etcd"): {client, ports("etcd")["peer"]},
        ("trainer", "master"): {ports("master")["tasks"]},
        ("trainer", "pserver"): services,
    }
    found = {(source, target): reach(source, target) for source in WORKLOADS for target in WORKLOADS}
    assert {pair: opened for pair, opened in found.items() if opened} == expected
