"""The settings of a job.

Names are those of Horovod 0.28's `horovod.runner.elastic.settings` and `horovod.runner.common.util.settings`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from paddle_cluster.elastic.constants import AGENT_PORT
from paddle_cluster.elastic.discovery import HostDiscovery


@dataclass(kw_only=True)
class BaseSettings:
    """The settings of any job.

    Attributes:
    - num_proc: minimum number of workers of the first generation.
    - nics: names of network interfaces, as a collection or as a text with commas.
    - output_filename: directory for the workers' output; "": there is no directory.
    - elastic: whether the job continues after a worker has failed.
    - key: secret of the job; None: the secret of the environment, or else a new secret.
    - run_func_mode: whether the workers run a function.
    - ssh_port, ssh_identity_file, extra_mpi_args, tcp_flag, binding_args, start_timeout: have no effect, because
      neither ssh nor MPI is used, and no interfaces are probed.
    """

    num_proc: int = 1
    verbose: int = 0
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    extra_mpi_args: str | None = None
    tcp_flag: bool | None = None
    binding_args: str | None = None
    key: bytes | None = None
    start_timeout: Any = None
    output_filename: str | None = ""
    run_func_mode: bool | None = None
    nics: Collection[str] | None = None
    elastic: bool = False
    prefix_output_with_timestamp: bool = False

    def join_nics(self) -> str:
        """Return the names of the network interfaces with commas; "": all interfaces."""
        return self.nics if isinstance(self.nics, str) else ",".join(sorted(self.nics or ()))


@dataclass
class StaticSettings(BaseSettings):
    """The settings of a job with fixed hosts; `hosts` is a text `name:slots,name:slots`."""

    hosts: str | None = None


Settings = StaticSettings  # Horovod's name


@dataclass
class ElasticSettings(BaseSettings):
    """The settings of a job; settings without a default come first, in Horovod's order.

    Attributes:
    - min_num_proc: minimum number of workers of every later generation.
    - max_num_proc: maximum number of workers; None: no maximum.
    - elastic_timeout: maximum seconds of a wait for slots.
    - reset_limit: maximum number of times that workers may resume; None: any number.
    - failures_per_host: number of failed workers after which a host is blacklisted.
    - wait_for_replacement: whether all workers wait for the start of a new process, as in Horovod.
    - heartbeat_timeout: seconds of silence after which a worker is ended.
    - gloo_timeout_seconds: maximum seconds until the workers have connected; None: the environment decides, or 30.
    - store_dir: directory from which a restarted driver takes over the job and its workers; "": the workers end with
      the driver.
    - driver_grace: seconds for which workers wait for the next driver.
    - hands_over: whether the workers continue after a SIGTERM to the driver, and wait for the next driver.
    - agent_port: port on which the agents listen.
    - agent_timeout: seconds of silence after which an agent counts as lost.
    - has_agents: whether an agent also runs the workers of this machine.
    - address: address at which the workers of agents reach the driver; "": the local address of the connection to the
      agent.
    - port: port on which the driver listens; 0: any free port.
    - variables: further variables of every worker.
    """

    discovery: HostDiscovery
    min_num_proc: int
    max_num_proc: int | None
    elastic_timeout: float | None
    reset_limit: int | None
    cooldown_range: tuple[float, float] | None = None
    _: KW_ONLY
    elastic: bool = True
    failures_per_host: int = 1
    wait_for_replacement: bool = False
    heartbeat_timeout: float = 30.0
    gloo_timeout_seconds: float | None = None
    store_dir: str = ""
    driver_grace: float = 60.0
    hands_over: bool = False
    agent_port: int = AGENT_PORT
    agent_timeout: float = 10.0
    has_agents: bool = False
    address: str = ""
    port: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)
