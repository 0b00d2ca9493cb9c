"""The rights of k8s/elastic/autoscaler on a real API server: they suffice, and each missing right is named."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from autoscale.account import NAME, Item, create_account
from kubernetes_cluster import Cluster

NAMESPACE = "autoscaled"
RIGHTS = [f"{verb} {kind}" for verb in ("list", "watch") for kind in ("nodes", "pods", "jobs.batch")]
RIGHTS += ["patch jobs.batch", "create leases.coordination.k8s.io", "get leases.coordination.k8s.io"]
COMMAND = [sys.executable, "-m", "paddle", "autoscaler", "--all_namespaces", "--start_timeout=2s"]


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> Iterator[None]:
    """An elastic Job with fewer trainers than its minimum; its pods fit on no node."""
    spec: dict[str, Any] = {"restartPolicy": "Never", "nodeSelector": {"no": "node"}}
    spec["containers"] = [{"name": "trainer", "image": "none", "resources": {"requests": {"cpu": "1m"}}}]
    notes = {"paddle/trainers-min": "2", "paddle/trainers-max": "3"}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "digits", "annotations": notes}}
    made["spec"] = {"parallelism": 1, "template": {"spec": spec}}
    cluster.kubectl("delete", "namespace", NAMESPACE, NAME, "--ignore-not-found")
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("-n", NAMESPACE, "create", "-f", "-", stdin=json.dumps(made))
    yield
    cluster.kubectl("delete", "namespace", NAMESPACE, NAME, "--ignore-not-found")
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", NAME)


def without(right: str) -> Callable[[Item], None]:
    """Return a function that removes a right from an object of the manifest."""
    verb, _, resource = right.partition(" ")

    def change(item: Item) -> None:
        for rule in item.get("rules", []):
            if resource.partition(".")[0] in rule["resources"] and verb in rule["verbs"]:
                rule["resources"] = [name for name in rule["resources"] if name != resource.partition(".")[0]]
                kept = [one for one in rule["verbs"] if one != verb]
                rest = {**rule, "resources": [resource.partition(".")[0]], "verbs": kept}
                if kept:
                    item["rules"].append(rest)
                if not rule["resources"]:
                    item["rules"].remove(rule)
                return

    return change


def await_right(cluster: Cluster, right: str, expected: str) -> None:
    """Wait until the API server's authorizer uses the applied rights."""
    account = f"--as=system:serviceaccount:{NAME}:{NAME}"
    verb, resource = right.split()
    end = time.monotonic() + 60
    while True:
        name = [f"{resource}/{NAME}"] if verb == "get" else [resource]
        said = cluster.kubectl("auth", "can-i", verb, *name, account, "-n", NAME, check=False).strip()
        if said == expected:
            return
        assert time.monotonic() < end, f"can-i {right}: {said}"
        time.sleep(0.2)


def test_its_rights_suffice(cluster: Cluster, job: None, tmp_path: Path) -> None:
    environ = create_account(tmp_path / "account", cluster.env)
    for right in RIGHTS:
        await_right(cluster, right, "yes")
    cluster.kubectl("-n", NAMESPACE, "patch", "job", "digits", "-p", '{"spec": {"parallelism": 1}}')
    with subprocess.Popen(COMMAND, env=environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            said = ""
            while "autoscaled/digits: 1 -> 2 trainers: it has fewer than its minimum, 2" not in said:
                line = process.stderr.readline()
                assert line, f"it has ended:\n{said}"
                said += line
        finally:
            process.terminate()
            rest = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    assert not re.search("^[WE]", said + rest, re.MULTILINE), said + rest
    lease = cluster.kubectl("-n", NAME, "get", "lease", NAME, "-o", "jsonpath={.spec.holderIdentity}")
    assert lease == ""  # the lease was released


@pytest.mark.parametrize("right", RIGHTS)
def test_a_missing_right_ends_it_with_77_and_is_named(cluster: Cluster, job: None, tmp_path: Path, right: str) -> None:
    environ = create_account(tmp_path / "account", cluster.env, without(right))
    try:
        await_right(cluster, right, "no")
        cluster.kubectl("-n", NAME, "delete", "lease", NAME, "--ignore-not-found")
        cluster.kubectl("-n", NAMESPACE, "patch", "job", "digits", "-p", '{"spec": {"parallelism": 1}}')
        done = subprocess.run(COMMAND, env=environ, capture_output=True, text=True, timeout=120)
        print(done.stderr)
        assert done.returncode == 77, done.stderr
        verb, _, resource = right.partition(" ")
        assert f'cannot {verb} resource "{resource.partition(".")[0]}"' in done.stderr
        assert "kubectl apply -k k8s/elastic/autoscaler gives the autoscaler's account its rights" in done.stderr
    finally:
        create_account(tmp_path / "account", cluster.env)
        await_right(cluster, right, "yes")
