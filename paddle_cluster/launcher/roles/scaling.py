"""Set the number of pods of a StatefulSet or Deployment to 0; a role's service account has only this right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import requests

from paddle_base.runtime.durable_files import read_text_file
from paddle_base.runtime.errors import ApiForbiddenError
from paddle_base.runtime.kubernetes.answers import REQUEST_TIMEOUT_S, describe_failure
from paddle_base.runtime.kubernetes.text import one_line
from paddle_base.runtime.network.answers import UNTRANSLATED, TimedSession, read_answer
from paddle_base.runtime.network.redaction import Secrets
from paddle_cluster.launcher.errors import ApiError

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# maximum bytes of a file of the service account, and of an answer of the API server
MOST_TOKEN, MOST_ANSWER = 64 << 10, 1 << 20


class Scaler:
    """A client of the API server that sets the number of pods of StatefulSets and Deployments in one namespace.

    Args: environ: names the API server and the directory of the service account.  secrets: collects the tokens.
    Raises: ApiError: this process does not run in a pod of a cluster.
    """

    def __init__(self, environ: Mapping[str, str], secrets: Secrets) -> None:
        self._account = Path(environ.get("SERVICE_ACCOUNT_DIR") or ACCOUNT)
        self._secrets, self._session = secrets, TimedSession()
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT_HTTPS", "443")
        if not host:
            raise ApiError(
                "SCALE_TO_ZERO is set, but KUBERNETES_SERVICE_HOST is not set: this process does not run in a pod of a "
                "cluster; unset SCALE_TO_ZERO",
                final=ApiForbiddenError,
            )
        self._server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._namespace = environ.get("JOB_NAMESPACE") or environ.get("NAMESPACE") or self._read("namespace")

    def scale_to_zero(self, target: str) -> bool:
        """Scale a StatefulSet or Deployment ("statefulsets/NAME") to 0 pods; return whether it exists.

        Raises: ApiError: the API server does not answer, or refuses the request.
        """
        url = f"{self._server}/apis/apps/v1/namespaces/{self._namespace}/{target}/scale"
        status, text = self._patch(url, {"spec": {"replicas": 0}})
        if status in (200, 404):
            return status == 200
        said = f"the API server answered {status} for {target}: {text}"
        if status in (401, 403):
            raise ApiError(
                f"{said}; the pod's service account needs the verb patch on {target.partition('/')[0]}/scale "
                f"(access.yaml of k8s/elastic and k8s/allreduce), or run kubectl scale {target} --replicas=0",
                final=ApiForbiddenError,
            )
        raise ApiError(f"{said}; the request is repeated; check the API server")

    def _patch(self, url: str, change: object) -> tuple[int, str]:
        token = self._read("token")
        self._secrets.keep(token)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
        authority = self._account / "ca.crt"
        try:
            with self._session.patch(
                url,
                data=json.dumps(change),
                headers=headers,
                timeout=REQUEST_TIMEOUT_S,
                verify=str(authority) if authority.exists() else True,
                allow_redirects=False,
                stream=True,
            ) as response:
                packing = self._secrets.redact(response.headers.get("Content-Encoding", ""))
                body = read_answer(response.raw, packing, MOST_ANSWER)
                return response.status_code, one_line(self._secrets.redact(body.decode("utf-8", "replace")), 200)
        except (requests.RequestException, UNTRANSLATED, OSError, ValueError) as problem:
            raise ApiError(
                f"the API server does not answer at {url}: {describe_failure(problem, self._secrets.redact)}"
            ) from problem

    def _read(self, name: str) -> str:
        try:
            return read_text_file(self._account / name, MOST_TOKEN).decode().strip()
        except (OSError, ValueError) as problem:
            raise ApiError(
                f"{self._account / name} cannot be read: {problem}; the pod needs a service account",
                final=ApiForbiddenError,
            ) from problem
