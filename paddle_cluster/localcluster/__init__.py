"""Run a Job's manifest on one Linux machine, without containers and without root.

Users run `paddle localcluster run k8s/job.yaml --volume mfs=./jobpath` (see --help).

Tests use these functions and classes:

    job = load_job("k8s/job.yaml")
    job = dataclasses.replace(job, parallelism=2, completions=2)            # any field may be changed
    with Cluster(job, volumes={"mfs": directory}, entrypoint="start.sh", env={"START_TIMEOUT": "20"}) as cluster:
        cluster.wait_for_phase("0", "Running", deadline=10)                 # a pod's index, or a pattern for its name
        cluster.wait_for_output(r"Pass=1", deadline=60, pod="1")            # returns an OutputLine
        cluster.kill("1")                                                   # or kill("1", process="paddle pserver")
        cluster.terminate("0")                                              # like `kubectl delete pod`
        result = cluster.wait(deadline=120)
    result.outcome.is_complete, result.outcome.reason, result.exit_status   # the exit status of the command line
    result.pod(0).exit_code, result.pod(0).output, result.pods              # `pods` includes replaced pods

The attribute `cluster.api.hook` injects faults into the API (see `ApiServer`). The attribute `cluster.api.token` can be
changed at any time. The directory `cluster.service_account_directory` contains the token, CA certificate and namespace
that the pods read. A test that needs only the API can use `ApiServer(PodStore())` without a Cluster.

These features work as in Kubernetes. Pods can be listed and read over TLS with a token. The Job controller applies
completions, indexes, backoffLimit, backoffLimitPerIndex, podFailurePolicy, podReplacementPolicy and
activeDeadlineSeconds. A failed pod and its replacement are both in the list of pods, and a deleted pod is removed from
the list. A pod ends with its first process, and all other processes of the pod are then killed.

These features differ from Kubernetes. Pods share the file system, process ids and memory. Container paths in env,
command and args are replaced by directories of this machine, and each replacement is reported once. Limits, security
contexts, probes and scheduling rules are ignored.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddle_cluster.localcluster.api.objects import PodState, pod_object
    from paddle_cluster.localcluster.api.routes import ApiRequest, ApiResponse
    from paddle_cluster.localcluster.api.server import ApiServer, peak_rate
    from paddle_cluster.localcluster.api.store import PodStore
    from paddle_cluster.localcluster.cluster import Cluster
    from paddle_cluster.localcluster.errors import (
        HostError,
        LocalClusterError,
        ManifestError,
        MissingError,
        OptionError,
        WaitError,
    )
    from paddle_cluster.localcluster.host import find_entrypoint, load_job
    from paddle_cluster.localcluster.job.manifest import JobSpec, parse_job
    from paddle_cluster.localcluster.result import OutputLine, PodResult, Result

__all__ = [
    "ApiRequest",
    "ApiResponse",
    "ApiServer",
    "Cluster",
    "HostError",
    "JobSpec",
    "LocalClusterError",
    "ManifestError",
    "MissingError",
    "OptionError",
    "OutputLine",
    "PodResult",
    "PodState",
    "PodStore",
    "Result",
    "WaitError",
    "find_entrypoint",
    "load_job",
    "parse_job",
    "peak_rate",
    "pod_object",
]

# The modules are imported when a name is used: this package is imported before its main program, which says what to
# install if a package of the extra `localcluster` is missing.
_MODULES = {
    "api.objects": ("PodState", "pod_object"),
    "api.routes": ("ApiRequest", "ApiResponse"),
    "api.server": ("ApiServer", "peak_rate"),
    "api.store": ("PodStore",),
    "cluster": ("Cluster",),
    "errors": ("HostError", "LocalClusterError", "ManifestError", "MissingError", "OptionError", "WaitError"),
    "host": ("find_entrypoint", "load_job"),
    "job.manifest": ("JobSpec", "parse_job"),
    "result": ("OutputLine", "PodResult", "Result"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
