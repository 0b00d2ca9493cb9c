"""The components of k8s/components: each is listed where it is chosen, and fits the plain manifests."""

import copy
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from each import each

K8S = Path(__file__).parents[3] / "k8s"
COMPONENTS = sorted(path.name for path in (K8S / "components").iterdir())
# kinds that Kubernetes itself does not have: tests/kubernetes checks them against their CustomResourceDefinitions
CUSTOM = {"PodGroup", "PodMonitor", "ResourceFlavor", "ClusterQueue", "LocalQueue"}


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def load(path: str) -> dict[str, Any]:
    (only,) = documents(K8S / path)
    return only


JOB, DATA, CLAIM = load("job.yaml"), load("data-job.yaml"), load("pvc.yaml")
OBJECTS = [
    (name, document)
    for name in COMPONENTS
    for path in sorted((K8S / "components" / name).glob("*.yaml"))
    if path.name != "kustomization.yaml"
    for document in documents(path)
]


def component(name: str) -> dict[str, Any]:
    return load(f"components/{name}/kustomization.yaml")


def added(name: str, kind: str) -> dict[str, Any]:
    """The one object of a kind that a component adds."""
    (only,) = [document for owner, document in OBJECTS if owner == name and document["kind"] == kind]
    return only


def environment(job: dict[str, Any]) -> dict[str, str]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {variable["name"]: variable.get("value", "") for variable in container["env"]}


def named_ports() -> dict[str, int]:
    (container,) = JOB["spec"]["template"]["spec"]["containers"]
    return {port["name"]: port["containerPort"] for port in container["ports"]}


def pod_labels(job: dict[str, Any]) -> dict[str, str]:
    """Labels of a pod of the Job: the template's, and those that the Job controller adds."""
    name = job["metadata"]["name"]
    return {**job["spec"]["template"]["metadata"]["labels"], "job-name": name, "batch.kubernetes.io/job-name": name}


def test_every_component_is_one_line_of_the_kustomization() -> None:
    text = (K8S / "kustomization.yaml").read_text()
    assert sorted(re.findall(r"^#  - components/(\S+) +# \S", text, re.MULTILINE)) == COMPONENTS
    # as it is shipped, none is chosen
    assert yaml.safe_load(text)["components"] is None


@each("name", COMPONENTS)
def test_a_component_says_what_it_is_for(name: str) -> None:
    assert (K8S / "components" / name / "kustomization.yaml").read_text().startswith("# ")
    assert component(name)["kind"] == "Component"
    for resource in component(name).get("resources", []):
        assert (K8S / "components" / name / resource).is_file()


@each(("name", "document"), OBJECTS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_object_is_valid_and_chosen_by_a_component_label(name: str, document: dict[str, Any]) -> None:
    if document["kind"] not in CUSTOM:
        kubernetes_validate.validate(document, "1.34", strict=True)
    assert document["metadata"]["labels"]["app.kubernetes.io/part-of"] == "paddle"
    expected = {"nfs": "volume", "single-node": "volume", "restricted": "volume", "kueue": "queue"}
    expected |= dict.fromkeys(("volcano", "disruption-budget"), "training")
    assert document["metadata"]["labels"]["app.kubernetes.io/component"] == expected.get(name, "access")


@pytest.mark.parametrize("name", ["nfs", "single-node"])
def test_a_volume_is_bound_by_the_claim_in_any_namespace(name: str) -> None:
    volume = added(name, "PersistentVolume")["spec"]
    assert volume["storageClassName"] == CLAIM["spec"]["storageClassName"]
    assert volume["accessModes"] == CLAIM["spec"]["accessModes"]
    patches = {patch["target"]["kind"]: yaml.safe_load(patch["patch"]) for patch in component(name)["patches"]}
    assert patches["PersistentVolumeClaim"] == [{"op": "add", "path": "/spec/volumeName", "value": "mfs"}]
    # the one that `kubectl create -f k8s/pv-nfs.yaml` makes is claimed by namespace and name
    assert ("claimRef" in volume) == ("PersistentVolume" in patches)


def test_the_nfs_example_is_one_file_under_two_names() -> None:
    assert (K8S / "pv-nfs.yaml").resolve() == (K8S / "components/nfs/pv-nfs.yaml").resolve()


def test_the_directory_of_a_node_is_big_enough_and_not_made_by_root() -> None:
    volume = added("single-node", "PersistentVolume")["spec"]
    assert volume["capacity"]["storage"] == CLAIM["spec"]["resources"]["requests"]["storage"]
    assert volume["hostPath"]["type"] == "Directory"
    text = (K8S / "components/single-node/kustomization.yaml").read_text()
    ((expression,),) = [term["matchExpressions"] for term in volume["nodeAffinity"]["required"]["nodeSelectorTerms"]]
    assert f"kubectl label node NODE {expression['key']}={expression['values'][0]}" in text
    user = JOB["spec"]["template"]["spec"]["securityContext"]
    assert f"chown {user['runAsUser']}:{user['runAsGroup']} {volume['hostPath']['path']}" in text


# ----- NetworkPolicy: what an enforcing network plugin would decide (no plugin of the test cluster enforces)


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}
    return selector.get("matchLabels", {}).items() <= labels.items()


def admits(
    policy: dict[str, Any], source: dict[str, str], source_namespace: dict[str, str], *, same_namespace: bool, port: int
) -> bool:
    """Tells whether the policy lets a pod (its labels, its namespace's labels) reach a TCP port of a selected pod."""
    for rule in policy["spec"].get("ingress", []):
        for peer in rule["from"]:
            if "namespaceSelector" in peer:
                known = matches(peer["namespaceSelector"], source_namespace)
            else:
                known = same_namespace
            known = known and matches(peer.get("podSelector", {}), source)
            open_ports = [range(one["port"], one.get("endPort", one["port"]) + 1) for one in rule["ports"]]
            if known and any(port in ports for ports in open_ports):
                return True
    return False


POLICY, DATA_POLICY = yaml.safe_load_all((K8S / "network-policy.yaml").read_text())
OWN = {"kubernetes.io/metadata.name": "default"}
MONITORING = {"kubernetes.io/metadata.name": "monitoring"}
FIRST = int(environment(JOB)["CONF_PADDLE_PORT"])
PSERVER_PORTS = range(
    FIRST,
    FIRST + int(environment(JOB)["CONF_PADDLE_PORTS_NUM"]) + int(environment(JOB)["CONF_PADDLE_PORTS_NUM_SPARSE"]),
)
JOB_PORTS = range(PSERVER_PORTS.start, PSERVER_PORTS.stop + 1)  # and the launchers'
METRICS = int(environment(JOB)["CONF_PADDLE_METRICS_PORT"])
METRICS_PORTS = range(METRICS, METRICS + 3)


def test_the_policy_selects_the_pods_of_the_training_job_only() -> None:
    assert matches(POLICY["spec"]["podSelector"], pod_labels(JOB))
    assert not matches(POLICY["spec"]["podSelector"], pod_labels(DATA))
    assert POLICY["spec"]["policyTypes"] == ["Ingress"]


def test_the_pods_of_the_data_job_accept_no_connection() -> None:
    assert matches(DATA_POLICY["spec"]["podSelector"], pod_labels(DATA))
    assert not matches(DATA_POLICY["spec"]["podSelector"], pod_labels(JOB))
    assert DATA_POLICY["spec"]["policyTypes"] == ["Ingress"] and "ingress" not in DATA_POLICY["spec"]


@each("port", [FIRST - 1, *JOB_PORTS, JOB_PORTS.stop, *METRICS_PORTS])
def test_a_pod_of_the_job_reaches_the_ports_of_pservers_and_launchers_and_no_other(port: int) -> None:
    assert admits(POLICY, pod_labels(JOB), OWN, same_namespace=True, port=port) == (port in JOB_PORTS)


@each("port", [*JOB_PORTS, *METRICS_PORTS])
@each("who", ["data job", "stranger", "other job", "same job name, other namespace"])
def test_nobody_else_reaches_any_port(who: str, port: int) -> None:
    other = {**JOB, "metadata": {**JOB["metadata"], "name": "other"}}
    labels = {"data job": pod_labels(DATA), "stranger": {"app": "x"}, "other job": pod_labels(other)}
    same = who != "same job name, other namespace"
    assert not admits(POLICY, labels.get(who, pod_labels(JOB)), OWN, same_namespace=same, port=port)


@each("port", [*JOB_PORTS, *METRICS_PORTS])
def test_prometheus_reaches_the_metrics_and_no_pserver(port: int) -> None:
    assert admits(POLICY, {}, MONITORING, same_namespace=False, port=port) == (port in METRICS_PORTS)


@each(("who", "port", "is_let_in"), [("same job", 29500, True), ("same job", 40123, True), ("stranger", 29500, False)])
def test_the_pods_of_any_program_reach_all_ports_of_each_other(who: str, port: int, is_let_in: bool) -> None:
    """gloo and NCCL choose ports at random."""
    policy = copy.deepcopy(added("any-program", "NetworkPolicy"))
    (rule,) = policy["spec"]["ingress"]
    assert policy["spec"]["podSelector"] == POLICY["spec"]["podSelector"] and "ports" not in rule
    rule["ports"] = [{"port": 1, "endPort": 65535}]  # what no list means
    labels = pod_labels(JOB) if who == "same job" else {"app": "x"}
    assert admits(policy, labels, OWN, same_namespace=True, port=port) == is_let_in


def test_any_program_runs_without_pservers_on_its_own_port() -> None:
    found = environment(patched_job("any-program"))
    assert (found["CONF_PADDLE_PSERVER_NUM"], found["ENTRY"]) == ("0", "python train.py")
    assert int(found["MASTER_PORT"]) not in (*JOB_PORTS, *METRICS_PORTS)


# ----- gang start, scraping, pod security


def test_kueue_gets_both_jobs_suspended_and_in_the_queue_that_is_offered() -> None:
    (patch,) = component("kueue")["patches"]
    key, value = patch["target"]["labelSelector"].split("=")
    assert [job["metadata"]["labels"][key] for job in (JOB, DATA)] == [value, value]
    changes = {change["path"]: change["value"] for change in yaml.safe_load(patch["patch"])}
    queue = added("kueue", "LocalQueue")
    assert changes == {
        "/metadata/labels/kueue.x-k8s.io~1queue-name": queue["metadata"]["name"],
        "/spec/suspend": True,
    }
    assert queue["spec"]["clusterQueue"] == added("kueue", "ClusterQueue")["metadata"]["name"]


def test_the_queue_covers_all_that_the_pods_request_and_has_room_for_them() -> None:
    (group,) = added("kueue", "ClusterQueue")["spec"]["resourceGroups"]
    for job in (JOB, DATA):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert set(group["coveredResources"]) == container["resources"]["requests"].keys()
    (flavor,) = group["flavors"]
    assert flavor["name"] == added("kueue", "ResourceFlavor")["metadata"]["name"]
    assert {resource["name"] for resource in flavor["resources"]} == set(group["coveredResources"])


def test_the_pod_group_is_the_one_that_the_pods_name() -> None:
    group = added("volcano", "PodGroup")
    (patch,) = component("volcano")["patches"]
    template = yaml.safe_load(patch["patch"])["spec"]["template"]
    assert template["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": group["metadata"]["name"]}
    assert template["spec"]["schedulerName"] == "volcano"


def test_the_number_of_nodes_reaches_the_pod_group_on_both_ways() -> None:
    """From k8s/kustomization.yaml where it is chosen there; from the Job for kustomizations built on it."""
    (own,) = component("volcano")["replacements"]
    assert own["source"] == {"kind": "Job", "name": JOB["metadata"]["name"], "fieldPath": "spec.parallelism"}
    (shared,) = load("kustomization.yaml")["replacements"]
    assert own["targets"][0] in shared["targets"]
    assert own["targets"][0]["select"]["name"] == added("volcano", "PodGroup")["metadata"]["name"]
    assert added("volcano", "PodGroup")["spec"]["minMember"] == JOB["spec"]["parallelism"]


def test_the_pod_monitor_selects_the_training_pods() -> None:
    monitor = added("prometheus-operator", "PodMonitor")["spec"]
    assert matches(monitor["selector"], pod_labels(JOB)) and not matches(monitor["selector"], pod_labels(DATA))
    assert {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} <= named_ports().keys()


def test_the_annotated_port_is_the_trainers() -> None:
    (patch,) = component("prometheus")["patches"]
    notes = yaml.safe_load(patch["patch"])["spec"]["template"]["metadata"]["annotations"]
    assert notes["prometheus.io/port"] == str(named_ports()["metrics-trainer"])


def test_the_namespace_enforces_restricted_and_everything_goes_there() -> None:
    namespace = added("restricted", "Namespace")["metadata"]
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert component("restricted")["namespace"] == namespace["name"]


# ----- names, fewer trainers, drains


def patched_job(name: str) -> dict[str, Any]:
    """What a component merges into the training Job."""
    (patch,) = component(name)["patches"]
    assert patch["target"] == {"kind": "Job", "name": JOB["metadata"]["name"]}
    return yaml.safe_load(patch["patch"])


def test_the_names_of_the_pods_are_of_one_service_that_selects_them_before_they_are_ready() -> None:
    service, job = added("pod-names", "Service"), patched_job("pod-names")
    name = service["metadata"]["name"]
    assert job["spec"]["template"]["spec"]["subdomain"] == environment(job)["CONF_PADDLE_POD_SERVICE"] == name
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= pod_labels(JOB).items()
    assert not service["spec"]["selector"].items() <= pod_labels(DATA).items()


def test_the_job_is_complete_with_as_many_pods_as_may_go_on() -> None:
    job = patched_job("fewer-trainers")
    (rule,) = job["spec"]["successPolicy"]["rules"]
    assert str(rule["succeededCount"]) == environment(job)["CONF_PADDLE_GRADIENT_MIN"] == "2"
    assert environment(job).keys() - environment(JOB).keys() == {"CONF_PADDLE_GRADIENT_MIN"}
    assert rule["succeededCount"] < JOB["spec"]["completions"]


def test_a_drain_takes_one_pod_of_the_training_job() -> None:
    budget = added("disruption-budget", "PodDisruptionBudget")["spec"]
    assert matches(budget["selector"], pod_labels(JOB)) and not matches(budget["selector"], pod_labels(DATA))
    assert budget["minAvailable"] == JOB["spec"]["parallelism"] - 1
    # a job that waits for a pod has no pod that is ready, and would keep every node from being drained
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


# ----- data in a bucket


def test_the_pods_of_a_job_with_a_bucket_reach_that_server_and_the_cluster_only() -> None:
    policies = {document["metadata"]["name"]: document["spec"] for name, document in OBJECTS if name == "s3"}
    for name, job in (("paddle-s3-data", DATA), ("paddle-s3-training", JOB)):
        policy = policies[name]
        assert matches(policy["podSelector"], pod_labels(job)) and policy["policyTypes"] == ["Egress"]
        blocks = [(peer["ipBlock"]["cidr"], rule["ports"]) for rule in policy["egress"]
                  for peer in rule["to"] if "ipBlock" in peer]  # fmt: skip
        assert blocks[0] == ("192.0.2.1/32", [{"protocol": "TCP", "port": 443}])
        # only the launcher has an API server to call
        assert [cidr for cidr, _ in blocks[1:]] == (["0.0.0.0/0"] if job is JOB else [])
    assert not matches(policies["paddle-s3-data"]["podSelector"], pod_labels(JOB))


def test_the_credentials_of_a_bucket_come_from_one_secret() -> None:
    text = (K8S / "components/s3/kustomization.yaml").read_text()
    for patch in component("s3")["patches"]:
        (container,) = yaml.safe_load(patch["patch"])["spec"]["template"]["spec"]["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "paddle-s3"}}]
    assert "create secret generic paddle-s3 --from-literal=AWS_ACCESS_KEY_ID=" in text


def test_a_pod_with_a_gpu_has_shared_memory_and_goes_to_a_node_that_has_one() -> None:
    merged, more = (yaml.safe_load(patch["patch"]) for patch in component("gpu")["patches"])
    spec = merged["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    (mount,), (volume,) = container["volumeMounts"], spec["volumes"]
    assert (mount["mountPath"], mount["name"]) == ("/dev/shm", volume["name"])
    assert volume["emptyDir"]["medium"] == "Memory" and volume["emptyDir"]["sizeLimit"]
    assert spec["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    (added_toleration,) = more  # a merge would replace the tolerations of lost nodes
    assert added_toleration["op"] == "add" and added_toleration["path"].endswith("/tolerations/-")
