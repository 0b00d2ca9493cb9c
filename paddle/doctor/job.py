"""Checks a pod's secret, its API server, the rights of its service account, and its clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from paddle.doctor.findings import Diagnosis
from paddle.doctor.probing import DoctorCase
from paddle.doctor.volume import MOST_SKEW_S, judge_skew
from paddle_base.runtime.environment import MAKE_SECRET, read_environment
from paddle_base.runtime.errors import ApiForbiddenError, ConfigError
from paddle_base.runtime.kubernetes.account import read_text
from paddle_base.runtime.kubernetes.answers import parse_date
from paddle_base.runtime.kubernetes.client import ApiClient, ApiPlace, ApiProblem, find_place

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
LEASE = "paddle-autoscaler"
_LAUNCHERS = ("CONF_PADDLE_NIC", "CONF_PADDLE_GRADIENT_NUM", "JOB_COMPLETION_INDEX", "JOB_NAMESPACE")


class Right(NamedTuple):
    """A right at the API server, in `namespace` (empty: the pod's), or, if not `namespaced`, in the whole cluster."""

    verb: str
    group: str
    resource: str
    name: str = ""
    namespaced: bool = True
    namespace: str = ""

    def __str__(self) -> str:
        """Return the right as `kubectl auth can-i` names it."""
        named = f" {self.name}" if self.name else ""
        where = f" of namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{named}{where if self.namespaced else ' of all namespaces'}"

    def review(self, namespace: str) -> dict[str, Any]:
        """Return the SelfSubjectAccessReview that asks for the right."""
        resource, _, part = self.resource.partition("/")
        asked = {"verb": self.verb, "group": self.group, "resource": resource, "subresource": part, "name": self.name}
        asked |= {"namespace": self.namespace or namespace} if self.namespaced else {}
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        return {**kind, "spec": {"resourceAttributes": {key: text for key, text in asked.items() if text}}}


_PODS = Right("list", "", "pods")
RIGHTS: Mapping[str, tuple[Right, ...]] = {
    "launcher": (_PODS,),
    "master": (),
    "driver": (_PODS,),
    "autoscaler": (
        *(Right(verb, "", kind, namespaced=False) for kind in ("nodes", "pods") for verb in ("list", "watch")),
        *(Right(verb, "batch", "jobs", namespaced=False) for verb in ("list", "watch", "patch")),
        Right("create", "coordination.k8s.io", "leases"),
        *(Right(verb, "coordination.k8s.io", "leases", LEASE) for verb in ("get", "update")),
    ),
}
# role -> (consequence of a missing right, the command that creates the right)
LACKS = {
    "launcher": (
        "the launcher waits for its pods until START_TIMEOUT, and the Job fails with 77",
        "kubectl create -f k8s/rbac.yaml, and name its ServiceAccount in the Job",
    ),
    "master": (
        "pods of servers and of the master stay when the job is done",
        "kubectl apply -f k8s/tasks/access.yaml, and name its ServiceAccount in the master's pods",
    ),
    "driver": (
        "the driver finds no workers, or their pods stay when the job is done",
        "kubectl apply -f k8s/allreduce/access.yaml, and name its ServiceAccount in the driver's pod",
    ),
    "autoscaler": ("the autoscaler ends with 77", "kubectl apply -k k8s/tasks/autoscaler"),
}


def check_secret(case: DoctorCase) -> list[Diagnosis]:
    """Check that the programs of this pod have a secret; the secret is never printed."""
    try:
        secret = read_environment(case.environ).secret
    except ConfigError as error:
        cost = "pserver, trainer, master and agents end with 78"
        return [Diagnosis("secret", str(error), cost, "correct the variable in the pod's env", error.exit_code)]
    case.secrets.keep(secret)
    if secret:
        source = "PADDLE_SECRET" if case.environ.get("PADDLE_SECRET") else case.environ["PADDLE_SECRET_FILE"]
        return [Diagnosis("secret", f"present, from {source}")]
    if not case.environ.get("KUBERNETES_SERVICE_HOST"):
        return [Diagnosis("secret", "none; outside a cluster, programs need none", applies=False)]
    name = case.environ.get("PADDLE_SECRET_FILE", "")
    return [
        Diagnosis(
            "secret",
            f"none: there is no file {name}" if name else "none: neither PADDLE_SECRET nor PADDLE_SECRET_FILE is set",
            "any program that can connect to the ports of the job can take part in the training",
            f"{MAKE_SECRET} (docs/security.md)",
        )
    ]


def check_api(case: DoctorCase) -> list[Diagnosis]:
    """Ask the API server whether it grants the rights of the roles, and compare its clock with this machine's."""
    if not case.environ.get("KUBERNETES_SERVICE_HOST"):
        return [Diagnosis("API server", "not in a pod: KUBERNETES_SERVICE_HOST is not set", applies=False)]
    try:
        place = find_place(case.environ)
        token = _read_token(place, case)
        namespace = case.environ.get("JOB_NAMESPACE") or place.namespace
    except ConfigError as fault:
        cost = "programs that ask the API server end with 78"
        return [Diagnosis("API server", str(fault), cost, "correct what the line names", fault.exit_code)]
    roles = case.roles or find_roles(case.environ)
    needed = {role: needed_rights(role, case.environ) for role in roles}
    if not any(needed.values()):
        text = f"not asked, because this pod needs no rights; --role can name a program: {', '.join(RIGHTS)}"
        return [Diagnosis("API server", text, applies=False)]
    cost, _ = LACKS[roles[0]]
    if not token:
        return [
            Diagnosis(
                "API server",
                f"the service account has no token in {place.account}",
                cost,
                "set automountServiceAccountToken: true, and serviceAccountName, in the pod",
                ApiForbiddenError.exit_code,
            )
        ]
    client = ApiClient(place)
    found: list[Diagnosis] = []
    try:
        for role, rights in needed.items():
            refused = [right for right in rights if not is_allowed(client, right, namespace)]
            found.append(judge_rights(role, rights, refused))
    except ApiProblem as problem:
        if problem.status == 404:
            text = f"{place.url} answers, but cannot review rights: it belongs to localcluster, or not to Kubernetes"
            return [Diagnosis("API server", text, applies=False), judge_clock(client.answer_date, time.time())]
        error = problem.to_error("The token of the service account is not accepted")
        return [
            Diagnosis(
                "API server",
                str(problem),
                cost,
                "look at the service account, the network and the NetworkPolicy of this pod",
                error.exit_code,
            )
        ]
    return [Diagnosis("API server", f"{place.url} answers"), *found, judge_clock(client.answer_date, time.time())]


def _read_token(place: ApiPlace, case: DoctorCase) -> str:
    """Return the token of the service account, or "" if there is none. No later output shows the token.

    Raises: ConfigError: see read_text.
    """
    token = read_text(place.account / "token") or ""
    case.secrets.keep(token)
    return token


def find_roles(environ: Mapping[str, str]) -> list[str]:
    """Return the roles that the program of a pod has, according to the pod's environment."""
    if environ.get("DRIVER_ADDRESS") or environ.get("DRIVER_PORT"):
        return ["driver"]
    if environ.get("SCALE_TO_ZERO"):
        return ["master"]
    return ["launcher"] if environ.get("JOB_NAME") and any(environ.get(name) for name in _LAUNCHERS) else []


def needed_rights(role: str, environ: Mapping[str, str]) -> tuple[Right, ...]:
    """Return the rights of a role, including the right to scale each object of SCALE_TO_ZERO.

    The autoscaler needs its rights to pods and Jobs only in NAMESPACES, if its pod has this variable.
    """
    rights = RIGHTS[role]
    listed = [name.strip() for name in environ.get("NAMESPACES", "").split(",") if name.strip()]
    if role == "autoscaler" and listed:
        own = [right for right in rights if right.namespaced or right.resource == "nodes"]
        given = [right for right in rights if right not in own]
        rights = (*own, *(right._replace(namespaced=True, namespace=name) for name in listed for right in given))
    if role in ("master", "driver"):
        targets = [target.partition("/") for target in environ.get("SCALE_TO_ZERO", "").split()]
        rights += tuple(Right("patch", "apps", f"{kind}/scale", name) for kind, _, name in targets)
    return rights


def is_allowed(client: ApiClient, right: Right, namespace: str) -> bool:
    """Return whether the API server grants the right.

    Raises: ApiProblem.
    """
    status = client.ask("POST", REVIEWS, right.review(namespace)).get("status")
    return isinstance(status, dict) and status.get("allowed") is True


def judge_rights(role: str, rights: tuple[Right, ...], refused: list[Right]) -> Diagnosis:
    """Return the result of the check whether a role has its rights."""
    subject = f"rights of the {role}"
    if not refused:
        return Diagnosis(subject, ", ".join(map(str, rights)) or "none are needed")
    cost, remedy = LACKS[role]
    listed = ", ".join(map(str, refused))
    return Diagnosis(subject, f"missing: {listed}", cost, remedy, ApiForbiddenError.exit_code)


def judge_clock(date: str, now: float) -> Diagnosis:
    """Compare the header Date of an HTTP answer with this machine's clock.

    Args: date: the text of the header, whose time has whole seconds.  now: seconds since the epoch.
    """
    moment = parse_date(date)
    if moment is None:
        return Diagnosis("clock", "not compared, because the answer of the API server has no time", applies=False)
    skew = moment + 0.5 - now
    if abs(skew) > MOST_SKEW_S:
        return judge_skew("the API server", skew)
    return Diagnosis("clock", f"within {max(1, round(abs(skew)))} s of the API server's clock")
