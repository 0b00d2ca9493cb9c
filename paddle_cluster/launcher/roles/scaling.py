"""Set the number of pods of a StatefulSet or Deployment to 0; a role's service account has only this right."""

from __future__ import annotations

from collections.abc import Mapping

from paddle_base.runtime.errors import ApiForbiddenError, ConfigError
from paddle_base.runtime.kubernetes.client import ApiClient, ApiProblem, find_place
from paddle_base.runtime.network.redaction import Secrets
from paddle_cluster.launcher.errors import ApiError


def scale_to_zero(target: str, environ: Mapping[str, str], secrets: Secrets) -> bool:
    """Scale a StatefulSet or Deployment ("statefulsets/NAME") to 0 pods; return whether it exists.

    Args: environ: names the API server and the directory of the service account.  secrets: collects the tokens.
    Raises: ApiError: this process does not run in a pod of a cluster, or the API server does not answer or refuses.
    """
    try:
        place = find_place(environ)
        namespace = environ.get("JOB_NAMESPACE") or environ.get("NAMESPACE") or place.namespace
        if not namespace:
            raise ConfigError(f"{place.account} has no file namespace; the pod needs a service account")
    except ConfigError as problem:
        raise ApiError(f"SCALE_TO_ZERO is set, but {problem}", final=ApiForbiddenError) from problem
    path = f"/apis/apps/v1/namespaces/{namespace}/{target}/scale"
    try:
        ApiClient(place, secrets).ask("PATCH", path, {"spec": {"replicas": 0}}, kind="merge-patch+json")
    except ApiProblem as problem:
        if problem.status == 404:
            return False
        if problem.is_refusal:
            raise ApiError(
                f"{problem}; the pod's service account needs the verb patch on {target.partition('/')[0]}/scale "
                f"(access.yaml of k8s/tasks and k8s/allreduce), or run kubectl scale {target} --replicas=0",
                final=ApiForbiddenError,
            ) from problem
        raise ApiError(f"{problem}; the request is repeated; check the API server") from problem
    return True
