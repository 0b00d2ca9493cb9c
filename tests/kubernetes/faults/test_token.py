"""A projected token that is no longer accepted: who waits says so, and goes on as soon as its file has a fresh one."""

import pytest
from infrastructure import SUSPENDED, control, limit_pods, start_two_of_three
from kubernetes_cluster import Cluster
from long_job import StartJob

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
POD = "/spec/template/spec"
PROJECTED = {
    "name": "token",
    "projected": {
        "sources": [
            # the shortest life that there is
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ]
    },
}
PATCH = [
    SUSPENDED,
    {"op": "add", "path": f"{POD}/automountServiceAccountToken", "value": False},
    {"op": "add", "path": f"{POD}/volumes/-", "value": PROJECTED},
    {
        "op": "add",
        "path": f"{POD}/containers/0/volumeMounts/-",
        "value": {"name": "token", "mountPath": TOKEN, "readOnly": True},
    },
]


@pytest.mark.alone
def test_a_token_that_is_revoked_and_renewed_during_the_wait(cluster: Cluster, long_job: StartJob) -> None:
    """A token is bound to its ServiceAccount, by UID: with a new one of the same name the old tokens are worth nothing.

    The kubelet renews a token when four fifths of its life are over; one that starts again does so at once.
    """
    job = long_job("token", *PATCH)
    waiting = start_two_of_three(job)
    before = [job.execute(index, "cat", f"{TOKEN}/token") for index in waiting]
    account = job.space.kubectl("get", "serviceaccount", "paddle", "-o", "yaml")
    job.space.kubectl("delete", "serviceaccount", "paddle")
    job.space.kubectl("create", "-f", "-", stdin="\n".join(line for line in account.splitlines() if "uid:" not in line))
    for index in waiting:
        refused = r"waiting: the API server answered 401: Unauthorized\. The token in \S+ is not accepted, even after"
        job.wait_for_log(index, refused)
    for node in ("1", "2", "3"):
        control(cluster, "restart-kubelet", node)
    for index in waiting:
        job.wait("return of the launchers", lambda index=index: is_accepted_again(job.log(index)))
    assert not set(before) & {job.execute(index, "cat", f"{TOKEN}/token") for index in waiting}
    limit_pods(job.space, 3)
    job.wait_for_success()
    job.check_pods()
    job.check_bits()


def is_accepted_again(log: str) -> bool:
    """Whether the launcher has seen the pods again, after it was refused."""
    return "2 of 3 pods exist" in log[log.rindex("answered 401") :]
