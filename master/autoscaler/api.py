"""The Kubernetes API as the autoscaler uses it: lists, watches, one field of a Job, one Lease."""

from __future__ import annotations

from runtime.errors import PaddleError
from runtime.kubernetes.client import OPENED, ApiClient, ApiPlace, ApiProblem, find_place

__all__ = ["OPENED", "ApiClient", "ApiPlace", "ApiProblem", "AutoscalerClient", "explain", "find_place"]

NEEDED = "kubectl apply -k k8s/elastic/autoscaler gives them to its ServiceAccount"


class AutoscalerClient(ApiClient):
    """The client with what the autoscaler changes."""

    def set_parallelism(self, namespace: str, name: str, uid: str, numbers: tuple[int, int]) -> None:
        """Change a Job's parallelism from one number to another, if it is still that Job and that number."""
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/spec/parallelism", "value": numbers[0]},
            {"op": "replace", "path": "/spec/parallelism", "value": numbers[1]},
        ]
        self.ask("PATCH", f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}", patch, kind="json-patch+json")


def explain(problem: ApiProblem) -> PaddleError:
    """Return with what the autoscaler ends if a problem does not pass."""
    return problem.to_error(f"The autoscaler's account lacks rights: {NEEDED}")
