"""A projected token is no longer accepted: a waiting launcher says so, and continues when its file has a new token."""

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
            # seconds; the shortest lifetime that Kubernetes allows
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
    """A token is bound to the UID of its ServiceAccount, so old tokens are invalid after the account was created again.

    A kubelet renews a token after four fifths of its lifetime; a restarted kubelet renews it at once.
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
    job.check_end()


def is_accepted_again(log: str) -> bool:
    """Whether the launcher has listed the pods again after a refusal."""
    return "2 of 3 pods exist" in log[log.rindex("answered 401") :]
