"""Set the number of pods of a StatefulSet or Deployment to 0; a role's service account has only this right."""

from __future__ import annotations

from collections.abc import Mapping

from paddle_base.runtime.errors import ApiForbiddenError, ConfigError
from paddle_base.runtime.kubernetes.client import ApiClient, ApiProblem, find_place
from paddle_base.runtime.network.redaction import Secrets
from paddle_cluster.launcher.errors import ApiError


class Scaler:
    """A client of the API server that sets the number of pods of StatefulSets and Deployments in one namespace.

    Args: environ: names the API server and the directory of the service account.  secrets: collects the tokens.
    Raises: ApiError: this process does not run in a pod of a cluster.
    """

    def __init__(self, environ: Mapping[str, str], secrets: Secrets) -> None:
        try:
            place = find_place(environ)
            self._namespace = environ.get("JOB_NAMESPACE") or environ.get("NAMESPACE") or place.namespace
            if not self._namespace:
                raise ConfigError(f"{place.account} has no file namespace; the pod needs a service account")
        except ConfigError as problem:
            raise ApiError(f"SCALE_TO_ZERO is set, but {problem}", final=ApiForbiddenError) from problem
        self._client = ApiClient(place, secrets)

    def scale_to_zero(self, target: str) -> bool:
        """Scale a StatefulSet or Deployment ("statefulsets/NAME") to 0 pods; return whether it exists.

        Raises: ApiError: the API server does not answer, or refuses the request.
        """
        path = f"/apis/apps/v1/namespaces/{self._namespace}/{target}/scale"
        try:
            self._client.ask("PATCH", path, {"spec": {"replicas": 0}}, kind="merge-patch+json")
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
