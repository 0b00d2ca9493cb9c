"""The settings of a job. Names are Horovod 0.28's (`horovod.runner.elastic.settings`) where Horovod has the setting."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from elastic.constants import AGENT_PORT
from elastic.discovery import HostDiscovery


@dataclass(frozen=True)
class ElasticSettings:
    """The settings of a job; those without a default come first, in Horovod's order.

    Attributes: num_proc: least number of workers of the first generation.  min_num_proc: least number of workers of
        every later generation.  max_num_proc: None: no bound.  elastic_timeout: seconds to wait for slots.
        reset_limit: how often workers may resume; None: any number of times.  elastic: False: the job ends when a
        worker fails.  output_filename: directory for the workers' output, "" for none.  heartbeat_timeout: seconds.
        store_dir: directory from which a restarted driver takes over the job and its workers; "": the workers end
        with the driver.  driver_grace: seconds for which workers wait for the next driver.  hands_over: SIGTERM leaves
        the workers to the next driver.  agent_port: port of the agents.  agent_timeout: seconds of silence after which
        an agent counts as lost.  has_agents: an agent also runs the workers of this machine.  address: address at which
        the workers of agents reach the driver; "": the local address of the connection to the agent.  port: port of
        the driver; 0: any free port.
    """

    discovery: HostDiscovery
    min_num_proc: int
    max_num_proc: int | None
    elastic_timeout: float | None
    reset_limit: int | None
    cooldown_range: tuple[float, float] | None = None
    _: KW_ONLY
    num_proc: int = 1
    elastic: bool = True
    failures_per_host: int = 2
    heartbeat_timeout: float = 30.0
    gloo_timeout_seconds: float = 30.0
    nics: str = ""
    output_filename: str = ""
    prefix_output_with_timestamp: bool = False
    verbose: int = 0
    store_dir: str = ""
    driver_grace: float = 60.0
    hands_over: bool = False
    agent_port: int = AGENT_PORT
    agent_timeout: float = 10.0
    has_agents: bool = False
    address: str = ""
    port: int = 0
