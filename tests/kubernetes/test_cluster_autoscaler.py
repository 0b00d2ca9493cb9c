"""The rights of k8s/tasks/autoscaler on a real API server, for listed namespaces and cluster-wide.

They suffice, each missing right is named, and the API server refuses every other change of a Job.
"""

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

from paddle_base.runtime.kubernetes.client import ApiClient, ApiProblem, find_place

NAMESPACE, OTHER = "autoscaled", "autoscaled-not"
RIGHTS = [f"{verb} {kind}" for verb in ("list", "watch") for kind in ("nodes", "pods", "jobs.batch")]
RIGHTS += ["patch jobs.batch", "create leases.coordination.k8s.io", "get leases.coordination.k8s.io"]
COMMAND = [sys.executable, "-m", "paddle", "autoscaler", "--start_timeout=2s", "--namespace_caps=*:cpu=1"]
FORMS = {"listed": ([NAMESPACE], f"--namespaces={NAMESPACE}"), "cluster-wide": ([], "--all_namespaces")}
ACCOUNT = f"--as=system:serviceaccount:{NAME}:{NAME}"
POLICY = "ValidatingAdmissionPolicy 'paddle-autoscaler' with binding 'paddle-autoscaler' denied request"


def make_job(name: str, **annotations: str) -> Item:
    """A Job of one pod that fits on no node."""
    spec: dict[str, Any] = {"restartPolicy": "Never", "nodeSelector": {"no": "node"}}
    spec["containers"] = [{"name": "trainer", "image": "none", "resources": {"requests": {"cpu": "1m"}}}]
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": annotations}}
    return {**made, "spec": {"parallelism": 1, "template": {"spec": spec}}}


def delete_all(cluster: Cluster) -> None:
    cluster.kubectl("delete", "namespace", NAMESPACE, OTHER, NAME, "--ignore-not-found")
    kinds = "clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding"
    cluster.kubectl("delete", kinds, "-l", "app.kubernetes.io/component=autoscaler")


@pytest.fixture(scope="module", params=FORMS)
def form(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A form of the rights; in two namespaces an task Job `digits` below its minimum, and a Job `other`."""
    notes = {"paddle/trainers-min": "2", "paddle/trainers-max": "3"}
    delete_all(cluster)
    for namespace in (NAMESPACE, OTHER):
        cluster.kubectl("create", "namespace", namespace)
        for job in (make_job("digits", **notes), make_job("other", note="1")):
            cluster.kubectl("-n", namespace, "create", "-f", "-", stdin=json.dumps(job))
    yield request.param
    delete_all(cluster)


@pytest.fixture
def account(cluster: Cluster, form: str, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Create the account with its rights, and return the environment of the program."""

    def create(change: Callable[[Item], None] | None = None) -> dict[str, str]:
        return create_account(tmp_path / "account", cluster.env, change, namespaces=FORMS[form][0])

    return create


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
    verb, resource = right.split()
    where = NAME if "leases" in resource else NAMESPACE
    end = time.monotonic() + 60
    while True:
        name = [f"{resource}/{NAME}"] if verb == "get" else [resource]
        said = cluster.kubectl("auth", "can-i", verb, *name, ACCOUNT, "-n", where, check=False).strip()
        if said == expected:
            return
        assert time.monotonic() < end, f"can-i {right}: {said}"
        time.sleep(0.2)


def set_parallelism(cluster: Cluster, number: int) -> None:
    cluster.kubectl("-n", NAMESPACE, "patch", "job", "digits", "-p", json.dumps({"spec": {"parallelism": number}}))


def attempt(environ: dict[str, str], namespace: str, job: str, *operations: Item) -> str:
    """Return "" if the API server lets the autoscaler's account change a Job, or else what it says.

    `kubectl patch` reads the Job first, which the account may not do.
    """
    change = [{"op": "add", **one} for one in operations]
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{job}"
    try:
        ApiClient(find_place(environ)).ask("PATCH", path, change, kind="json-patch+json")
    except ApiProblem as problem:
        assert problem.status == 403, problem
        return str(problem)
    return ""


def await_policy(environ: dict[str, str]) -> None:
    """Wait until the API server uses the policy."""
    end = time.monotonic() + 60
    while POLICY not in attempt(environ, NAMESPACE, "other", {"path": "/spec/parallelism", "value": 1}):
        assert time.monotonic() < end, "the API server uses no policy"
        time.sleep(0.5)


def scale(environ: dict[str, str], namespaces: str) -> str:
    """Run the autoscaler until it has raised the Job to its minimum, and return what it has said."""
    with subprocess.Popen([*COMMAND, namespaces], env=environ, stderr=subprocess.PIPE, text=True) as process:
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
    return said + rest


def test_its_rights_suffice(cluster: Cluster, form: str, account: Callable[..., dict[str, str]]) -> None:
    environ = account()
    for right in RIGHTS:
        await_right(cluster, right, "yes")
    await_policy(environ)
    set_parallelism(cluster, 1)
    said = scale(environ, FORMS[form][1])
    assert not re.search("^[WE]", said, re.MULTILINE), said
    lease = cluster.kubectl("-n", NAME, "get", "lease", NAME, "-o", "jsonpath={.spec.holderIdentity}")
    assert lease == ""  # the lease was released


def test_a_namespace_without_rights_is_left_alone(
    cluster: Cluster, form: str, account: Callable[..., dict[str, str]]
) -> None:
    environ = account()
    await_right(cluster, "patch jobs.batch", "yes")
    set_parallelism(cluster, 1)
    said = scale(environ, f"--namespaces={NAMESPACE},{OTHER}")
    left = re.search(
        f"the Jobs of namespace {OTHER} are left alone: .* is forbidden: .*{OTHER}.* list the namespace", said
    )
    assert bool(left) == (form == "listed"), said


@pytest.mark.parametrize("right", RIGHTS)
def test_a_missing_right_ends_it_with_77_and_is_named(
    cluster: Cluster, form: str, account: Callable[..., dict[str, str]], right: str
) -> None:
    environ = account(without(right))
    try:
        await_right(cluster, right, "no")
        cluster.kubectl("-n", NAME, "delete", "lease", NAME, "--ignore-not-found")
        set_parallelism(cluster, 1)
        command = [*COMMAND, FORMS[form][1]]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
        print(done.stderr)
        assert done.returncode == 77, done.stderr
        verb, _, resource = right.partition(" ")
        assert f'cannot {verb} resource "{resource.partition(".")[0]}"' in done.stderr
        assert "kubectl apply -k k8s/tasks/autoscaler gives the autoscaler's account its rights" in done.stderr
    finally:
        account()
        await_right(cluster, right, "yes")


def test_only_the_parallelism_of_an_elastic_job_may_change(
    cluster: Cluster, form: str, account: Callable[..., dict[str, str]]
) -> None:
    environ = account()
    await_right(cluster, "patch jobs.batch", "yes")
    await_policy(environ)
    set_parallelism(cluster, 1)
    three, four = ({"path": "/spec/parallelism", "value": number} for number in (3, 4))
    most = {"path": "/metadata/annotations/paddle~1trainers-max", "value": "9"}
    label = {"path": "/metadata/labels", "value": {"new": "1"}}
    refused = {
        "another Job": ("other", [three]),
        "another Job that becomes elastic": (
            "other",
            [
                {"path": "/metadata/annotations", "value": {"paddle/trainers-min": "1", "paddle/trainers-max": "9"}},
                three,
            ],
        ),
        "a limit": ("digits", [most]),
        "more than the limit": ("digits", [four]),
        "more than the limit, and the limit": ("digits", [most, four]),
        "less than the limit": ("digits", [{"path": "/spec/parallelism", "value": 0}]),
        "a label": ("digits", [label]),
        "a finalizer": ("digits", [{"path": "/metadata/finalizers", "value": ["a.b/c"]}]),
        "an owner": (
            "digits",
            [
                {
                    "path": "/metadata/ownerReferences",
                    "value": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}],
                }
            ],
        ),
        "suspension": ("digits", [three, {"path": "/spec/suspend", "value": True}]),
        "a new field": ("digits", [{"path": "/spec/activeDeadlineSeconds", "value": 1}]),
        "a changed field": ("digits", [{"path": "/spec/backoffLimit", "value": 1}]),
        "a removed field": ("digits", [{"op": "remove", "path": "/metadata/annotations"}]),
    }
    said = {name: attempt(environ, NAMESPACE, job, *operations) for name, (job, operations) in refused.items()}
    print(json.dumps(said, indent=1))
    assert not {name: text for name, text in said.items() if POLICY not in text}
    assert "may only change Jobs" in said["another Job"] and "may only change spec.parallelism" in said["a label"]
    assert "spec.parallelism must be from 2 to 3, as the annotations say" in said["more than the limit"]
    for number in (2, 3):
        change = {"path": "/spec/parallelism", "value": number}
        assert not attempt(environ, NAMESPACE, "digits", change)
    elsewhere = attempt(environ, OTHER, "digits", three)
    assert elsewhere == "" if form == "cluster-wide" else 'cannot patch resource "jobs"' in elsewhere
    # the policy binds no other account
    cluster.kubectl("-n", NAMESPACE, "label", "job", "digits", "other", "new=1", "--overwrite")
    warnings = cluster.kubectl("get", "validatingadmissionpolicy", NAME, "-o", "jsonpath={.status.typeChecking}")
    assert warnings in ("", "{}"), warnings
