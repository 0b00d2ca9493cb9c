"""One Linux machine as a cluster, without containers and without root.

For users: `python -m localcluster run k8s/job.yaml --volume mfs=./jobpath` (see --help).

For tests:

    job = load_job("k8s/job.yaml")
    job = dataclasses.replace(job, parallelism=2, completions=2)            # any field may be changed
    with Cluster(job, volumes={"mfs": directory}, entrypoint="start.sh", env={"START_TIMEOUT": "20"}) as cluster:
        cluster.wait_for_phase("0", "Running", deadline=10)                 # by index, or by a pattern for the name
        cluster.wait_for_output(r"Pass=1", deadline=60, pod="1")            # .pod .text .match
        cluster.kill("1")                                                   # or kill("1", process="paddle pserver")
        cluster.terminate("0")                                              # as kubectl delete pod
        result = cluster.wait(deadline=120)
    result.outcome.is_complete, result.outcome.reason, result.exit_status   # as the command line's
    result.pod(0).exit_code, result.pod(0).output, result.pods              # replaced pods too

    `cluster.api.hook` injects faults into the API (see `ApiServer`), `cluster.api.token` may be set anew,
    `cluster.service_account_directory` is what the pods see. `ApiServer(PodStore())` works without pods and Jobs.

What is as on Kubernetes: the list and get calls of pods over TLS with a token; the Job controller's decisions
(completions, indexes, backoffLimit, backoffLimitPerIndex, podFailurePolicy, podReplacementPolicy,
activeDeadlineSeconds); a failed pod stays listed beside its replacement, a deleted one vanishes; a pod ends with its
first process, and nothing it started survives it. What is not: file systems are shared (paths of the container are
replaced in env, command and args by directories of this machine, each told once), and so are process ids and memory:
limits, security contexts, probes and scheduling rules are read over.
"""

from localcluster.api.objects import PodState, pod_object
from localcluster.api.routes import ApiRequest, ApiResponse
from localcluster.api.server import ApiServer, peak_rate
from localcluster.api.store import PodStore
from localcluster.cluster import Cluster
from localcluster.errors import (
    HostError,
    LocalClusterError,
    ManifestError,
    MissingError,
    OptionError,
    WaitError,
)
from localcluster.host import find_entrypoint, load_job
from localcluster.job.manifest import JobSpec, parse_job
from localcluster.result import OutputLine, PodResult, Result

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
