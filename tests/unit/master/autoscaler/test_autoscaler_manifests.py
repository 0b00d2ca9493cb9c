"""The files of k8s/tasks/autoscaler are valid, give rights in the listed namespaces only, and agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from each import each

from paddle_cluster.master.autoscaler.facts import LEAST, MOST
from paddle_cluster.master.autoscaler.flags import FLAGS, parse

HOME = Path(__file__).parents[4] / "k8s/tasks/autoscaler"
KUSTOMIZATION = yaml.safe_load((HOME / "kustomization.yaml").read_text())
OBJECTS = [
    (path.relative_to(HOME).as_posix(), document)
    for path in sorted(HOME.rglob("*.yaml"))
    if path.name != "kustomization.yaml"
    for document in yaml.safe_load_all(path.read_text())
]
SETTINGS = dict(one.split("=", 1) for one in KUSTOMIZATION["configMapGenerator"][0]["literals"])


def rights(*files: str) -> dict[str, set[str]]:
    """The verbs for each resource in the rules of these files, by "kind resource"."""
    found: dict[str, set[str]] = {}
    for file, item in OBJECTS:
        for rule in item.get("rules", []) if file in files else []:
            for resource in rule["resources"]:
                found.setdefault(f"{item['kind']} {resource}", set()).update(rule["verbs"])
    return found


@each(("file", "document"), OBJECTS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_object_is_valid(file: str, document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, "1.34", strict=True)
    assert document["metadata"]["labels"]["app.kubernetes.io/component"] == "autoscaler"


def test_only_nodes_are_read_of_the_whole_cluster() -> None:
    leases = {"Role leases": {"create", "get", "update"}}
    assert rights("access.yaml") == {"ClusterRole nodes": {"list", "watch"}, **leases}
    of_jobs = {"pods": {"list", "watch"}, "jobs": {"list", "watch", "patch"}}
    for file, kind in (("namespaced", "Role"), ("components/cluster-wide", "ClusterRole")):
        assert rights(f"{file}/access.yaml") == {f"{kind} {name}": verbs for name, verbs in of_jobs.items()}


def test_every_listed_namespace_has_its_directory_and_rights() -> None:
    listed = [one for one in KUSTOMIZATION["resources"] if one.startswith("namespaces/")]
    assert [one.removeprefix("namespaces/") for one in listed] == SETTINGS["NAMESPACES"].split(",")
    for one in listed:
        overlay = yaml.safe_load((HOME / one / "kustomization.yaml").read_text())
        assert overlay["namespace"] == one.removeprefix("namespaces/")
        assert overlay["resources"] == ["../../namespaced"]
    assert {path.name for path in HOME.glob("*.yaml")} - {"kustomization.yaml"} <= set(KUSTOMIZATION["resources"])
    assert KUSTOMIZATION["components"] is None  # as it is shipped, the cluster-wide form is not chosen
    offered = re.findall(r"^#  - (\S+)", (HOME / "kustomization.yaml").read_text(), re.MULTILINE)
    assert offered == [f"components/{path.name}" for path in (HOME / "components").iterdir()]


def test_the_settings_are_the_flags_of_the_program() -> None:
    (deployment,) = (item for _, item in OBJECTS if item["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    given = [re.sub(r"\$\((\w+)\)", lambda match: SETTINGS[match[1]], one) for one in container["args"]]
    assert parse(given).items("namespaces") == ["default"]
    (generator,) = KUSTOMIZATION["configMapGenerator"]
    assert container["envFrom"] == [{"configMapRef": {"name": generator["name"]}}]
    # Kustomize adds the hash of the ConfigMap to its name, also in the `resourceNames` of a Role
    assert generator["name"] != FLAGS["lease"].default
    component = yaml.safe_load((HOME / "components/cluster-wide/kustomization.yaml").read_text())
    (operation,) = yaml.safe_load(component["patches"][0]["patch"])
    assert operation["path"].endswith("/args/0") and given[0].startswith("--namespaces=")
    assert parse([operation["value"], *given[1:]]).values["all_namespaces"] is True


def test_the_policy_is_about_the_account_and_the_annotations_of_the_program() -> None:
    policy, binding = (item for file, item in OBJECTS if file == "policy.yaml")
    (account,) = (item["metadata"] for _, item in OBJECTS if item["kind"] == "ServiceAccount")
    (condition,) = policy["spec"]["matchConditions"]
    assert f"'system:serviceaccount:{account['namespace']}:{account['name']}'" in condition["expression"]
    variables = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}
    assert f"'{LEAST}'" in variables["least"] and f"'{MOST}'" in variables["most"]
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
