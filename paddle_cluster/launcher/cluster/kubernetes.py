"""A client of the Kubernetes API that lists the pods of one job and reads the Job's number of pods."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from typing import Any

from paddle_base.runtime.errors import ApiForbiddenError, ConfigError
from paddle_base.runtime.kubernetes.answers import ANSWER_LIMIT, REQUEST_TIMEOUT_S, ApiAnswer, parse_retry_after
from paddle_base.runtime.network.redaction import Secrets
from paddle_cluster.launcher.cluster.call_slots import ALONE, SLOTS_PER_SECOND, Pacer, make_slots
from paddle_cluster.launcher.cluster.pods import ANSWERED, check_pods, find_own, parse_pods
from paddle_cluster.launcher.errors import ApiError, NotReadyError
from paddle_cluster.launcher.settings import TUTORIALS_PODS, LauncherConfig
from paddle_cluster.launcher.text import JsonObject, parse_json, part, say

# maximum number of pods that all launchers together receive in one second; a pod takes 12 kB of an answer, and 0.1 to
# 0.4 ms of the API server's time
PODS_PER_SECOND = 500
# maximum number of pods of a job in which each launcher lists all pods; in a larger job only trainer 0's launcher does
FEW = 16
CALM_S = 60.0  # seconds without a change, after which a wait calls the API server less often
LONGEST_INTERVAL_S = 60.0  # maximum seconds between two lists of the pods by one launcher
POD_LIMIT = 64 << 10  # bytes that each pod of the job adds to the size limit of a list with all its pages
PAGES_LIMIT = 1000  # maximum number of pages of a list
MOST_LISTED = 2000  # maximum number of pods in a page; at 12 kB a pod, a page is smaller than ANSWER_LIMIT


class PodApi:
    """A client of the Kubernetes API for the pods of one job, which uses the pod's service account."""

    def __init__(
        self,
        config: LauncherConfig,
        *,
        indexes: Sequence[int] = (),
        askers: int | None = None,
        secrets: Secrets | None = None,
        is_number_known: bool = True,
    ) -> None:
        """Args: indexes: completion indexes of the pods to list; empty: all pods.

        askers: number of launchers that list pods. secrets: collects the tokens, which the client removes from answers.
        is_number_known: whether `config` contains the real number of pods.
        """
        # this import is that of requests; the launcher starts its fork server before it
        from paddle_base.runtime.kubernetes import client

        self.config, self.secrets = config, secrets or Secrets()
        port = str(config.kubernetes_service_port_https)
        self.place = client.ApiPlace(config.kubernetes_service_host, port, config.service_account_dir)
        self.client = client.ApiClient(self.place, self.secrets)
        self.path = f"/api/v1/namespaces/{config.job_namespace}/pods"
        self.indexes = sorted({*indexes})
        self.askers = askers or config.layout.pods
        self._role = self.indexes, self.askers
        # number of pods in the last answer, and its time by the API server's clock (epoch seconds; nan: unknown)
        self.listed, self.answered = len(self.indexes) or config.layout.pods, math.nan
        self.asking_since = math.inf  # start of the request in progress (time.monotonic), or infinity
        index = int(config.job_completion_index) if config.job_completion_index else None
        slots = make_slots(index, config.layout.pods if is_number_known else None, random.Random())
        self.pacer = Pacer(ALONE if self.askers < config.layout.pods else slots)

    @property
    def url(self) -> str:
        """The URL of the pods of the namespace."""
        return self.place.url + self.path

    @property
    def selector(self) -> str:
        """The label selector of the Job's pods. Pods of earlier Jobs with the same name match too."""
        return f"job-name={self.config.job_name}"

    @property
    def page(self) -> int:
        """Maximum number of pods in a page: twice the job's number of pods, because then one page usually suffices."""
        return min(max(500, 2 * self.config.layout.pods), MOST_LISTED)

    @property
    def list_limit(self) -> int:
        """Maximum bytes of all pages of a list."""
        return ANSWER_LIMIT + POD_LIMIT * self.config.layout.pods

    @classmethod
    def for_role(cls, config: LauncherConfig, secrets: Secrets | None = None) -> PodApi:
        """Return a client that lists the pods which this launcher needs.

        In a job of up to FEW pods, or in a job without completion indexes, each launcher lists all pods. In other jobs
        only trainer 0's launcher lists all pods, because 1000 lists of 1000 pods would be 12 GB. Each other launcher
        lists trainer 0's pod and its own pod, and receives the full set from trainer 0's launcher.
        """
        if config.layout.pods <= FEW or not config.job_completion_index:
            return cls(config, secrets=secrets)
        own = int(config.job_completion_index)
        return cls(config, indexes=(0, own), secrets=secrets) if own else cls(config, askers=1, secrets=secrets)

    def widen(self) -> None:
        """List all pods from now on, because the leader is no longer the pod with index 0."""
        self.indexes, self.askers = [], self.config.layout.pods

    def narrow(self) -> None:
        """From now on, list only the pods that were selected at construction; this undoes `widen`."""
        self.indexes, self.askers = self._role

    def list_pods(self, limit_s: float = REQUEST_TIMEOUT_S) -> JsonObject:
        """Return a PodList: the pods with the client's indexes, or all pods of the job if the client has no indexes.

        If the answer lacks this pod, the client lists all pods, because before Kubernetes 1.28 no label has the index.
        Args: limit_s: seconds after which no further page is requested. Raises: ApiError.
        """
        deadline = time.monotonic() + limit_s
        found = self._list_indexes(deadline) if self.indexes else []
        if not find_own(parse_pods({"items": found}), self.config.pod_ip, self.config.pod_name):
            found = self._list_all(deadline)
        try:
            check_pods(found)
        except ValueError as problem:
            raise ApiError(
                f"{self.url} answered something that is no pod list ({problem}); check which server answers there"
            ) from None
        self.listed = len(found)
        return {"kind": "PodList", "items": found, ANSWERED: self.answered}

    def _list_indexes(self, deadline: float) -> list[JsonObject]:
        """Return the pods with the client's indexes from the API server's cache, which costs 1/100 of a read from etcd.

        An outdated cache does no harm: a pod's UID and controller never change, and the phase is only displayed.
        """
        numbers = ",".join(map(str, self.indexes))
        selector = f"{self.selector},batch.kubernetes.io/job-completion-index in ({numbers})"
        return list(self._get({"labelSelector": selector, "resourceVersion": "0"}, deadline)[0]["items"] or [])

    def _list_all(self, deadline: float) -> list[JsonObject]:
        """Return all pods of the job as they are now."""
        items: list[JsonObject] = []
        token, size = "", 0
        for _ in range(PAGES_LIMIT):
            query = {"labelSelector": self.selector, "limit": str(self.page)}
            page, length = self._get({**query, "continue": token} if token else query, deadline)
            items += page["items"] or []
            size += length
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return items
            if size > self.list_limit:
                text = f"{self.url} returned a list of pods with more than {size >> 20} MiB and no end"
                raise ApiError(f"{text}; check which server answers at KUBERNETES_SERVICE_HOST")
        raise ApiError(
            f"{self.url} returned a list of pods with more than {PAGES_LIMIT} pages and no end; "
            "check which server answers at KUBERNETES_SERVICE_HOST"
        )

    def read_parallelism(self) -> int:
        """Return the parallelism in the Job's spec.

        The result is TUTORIALS_PODS if this pod may not read its Job; a pod needs only the right to list pods.
        Raises: NotReadyError: the parallelism is 0. ApiError: the API server does not answer, or its answer is not a
            Job.
        """
        path = f"/apis/batch/v1/namespaces/{self.config.job_namespace}/jobs/{self.config.job_name}"
        response = self._send({}, time.monotonic() + REQUEST_TIMEOUT_S, path)
        if response.status_code in (403, 404):
            answer = f"this pod may not read the parallelism of its Job: the API server answered {response.status_code}"
            say(
                f"CONF_PADDLE_GRADIENT_NUM is not set, and {answer}; the launcher assumes {TUTORIALS_PODS} pods; "
                "set the variable if the Job has another number of pods"
            )
            return int(TUTORIALS_PODS)
        if response.status_code != 200:
            raise self._refusal(response)
        try:
            spec = self._parse(response.body)["spec"]
            numbers = [spec.get(name) for name in ("parallelism", "completions")]
            known = [number for number in numbers if number is not None]
            if not all(type(number) is int and 0 <= number < 1 << 31 for number in known):
                raise ValueError("parallelism and completions are not numbers")
        except (ValueError, AttributeError, TypeError, KeyError) as problem:
            raise ApiError(
                f"{self.place.url}{path} answered something that is no Job ({problem!r}); set CONF_PADDLE_GRADIENT_NUM"
            ) from None
        found = min(known, default=1)  # a Job never has more pods than completions
        if not found:
            raise NotReadyError("the Job's parallelism is 0, and CONF_PADDLE_GRADIENT_NUM is not set")
        return found

    def interval(self, unchanged_s: float) -> float:
        """Return the seconds between two lists of pods by a launcher. Args: unchanged_s: seconds without a change."""
        return poll_interval(self.askers, self.listed, unchanged_s)

    def _get(self, query: dict[str, str], deadline: float) -> tuple[JsonObject, int]:
        """Return a page of pods, and its size in bytes."""
        answer = self._send(query, deadline)
        if answer.status_code == 401:  # the token may have been rotated after this client read it
            answer = self._send(query, deadline)
        if answer.status_code != 200:
            raise self._refusal(answer)
        try:
            page = self._parse(answer.body)
            if not isinstance(page, dict) or "items" not in page:
                raise ValueError("the object has no items")
            parse_pods(page)
            part(part(page, "metadata", dict), "continue", str)
            self.answered = answer.moment or math.nan
            return page, len(answer.body)
        except ValueError as problem:
            raise ApiError(
                f"{self.url} answered something that is no pod list ({problem}): {answer.beginning!r}; "
                "check which server answers there"
            ) from None

    def _send(self, query: dict[str, str], deadline: float, path: str = "") -> ApiAnswer:
        from paddle_base.runtime.kubernetes.client import ApiProblem

        limit_s = min(REQUEST_TIMEOUT_S, self.config.start_timeout, deadline - time.monotonic())
        if limit_s <= 0:
            raise ApiError(
                f"the API server did not list all pods in time at {self.url}; check which server answers there"
            )
        self.pacer.wait()
        self.asking_since = time.monotonic()
        try:
            return self.client.get(path or self.path, query, limit_s)
        except ApiProblem as problem:
            if isinstance(problem.__cause__, ConfigError):  # a file of the service account is unusable
                raise ApiError(str(problem), final=ConfigError, fatal=True) from problem
            advice = "; check which server answers at KUBERNETES_SERVICE_HOST" if problem.status else ""
            raise ApiError(f"{problem}{advice}") from problem
        finally:
            self.asking_since = math.inf

    def _parse(self, body: bytes) -> Any:
        """Return the JSON value of an answer, without tokens. Raises: ValueError."""
        return self.client.redact_parsed(parse_json(body), body)

    def _refusal(self, answer: ApiAnswer) -> ApiError:
        namespace, account = self.config.job_namespace, self.config.service_account_dir
        said = self.client.explain(answer)
        if answer.status_code == 403:
            advice = (
                f"This pod's service account lacks the verb `list` on pods in namespace {namespace}: "
                "run kubectl create -f k8s/rbac.yaml, and name its ServiceAccount in the Job"
            )
            return ApiError(f"{said}. {advice}", final=ApiForbiddenError)
        if answer.status_code == 401:
            advice = f"The token in {account} is not accepted, even after it was read again"
            return ApiError(f"{said}. {advice}", final=ApiForbiddenError)
        if answer.status_code == 410:
            return ApiError(f"{said}. The list changed while it was read")
        if answer.status_code == 429 or answer.status_code >= 500:
            return ApiError(said, retry_after_s=parse_retry_after(answer.headers.get("Retry-After")))
        return ApiError(
            f"{said}. Check JOB_NAMESPACE={namespace} and the address {self.url}", final=ConfigError, fatal=True
        )


def poll_interval(askers: int, listed: int, unchanged_s: float) -> float:
    """Return the seconds between two lists of pods by one launcher, if `askers` launchers list `listed` pods each.

    All launchers together make at most SLOTS_PER_SECOND calls a second. They also receive at most PODS_PER_SECOND pods
    a second, except when this limit requires an interval above LONGEST_INTERVAL_S. After CALM_S without a change the
    launchers call one fifth as often. Args: unchanged_s: seconds without a change.
    """
    least = askers / SLOTS_PER_SECOND
    wanted = max(0.2, least, askers * listed / PODS_PER_SECOND) * (1.0 if unchanged_s < CALM_S else 5.0)
    return max(least, min(LONGEST_INTERVAL_S, wanted))
