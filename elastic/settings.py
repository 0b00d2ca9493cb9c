"""What a job is run with. Names are Horovod 0.28's (`horovod.runner.elastic.settings`), as far as it has them."""

from __future__ import annotations

from dataclasses import dataclass

from elastic.constants import AGENT_PORT
from elastic.discovery import HostDiscovery


@dataclass(frozen=True)
class ElasticSettings:
    """A job.

    Attributes: num_proc: workers that the first generation begins with, at least.  min_num_proc: the same for every
        later one.  max_num_proc: None: no bound.  elastic_timeout: seconds to wait for slots.  reset_limit: how often
        workers may resume; None: any number of times.  is_elastic: a job that is not ends when a worker fails.
        output_filename: directory for the workers' output, "" for none.  heartbeat_timeout: seconds.
        store_dir: where a driver that is started again finds the job and its workers; "": they end with the driver.
        driver_grace: seconds for which they wait for another driver.  hands_over: SIGTERM leaves them to it.
        agent_port: of the agents.  agent_timeout: seconds of silence after which an agent is lost.  has_agents: also on
        this machine.  address: by which workers of agents reach the driver; "": found by the way to the agent.
        port: of the driver; 0: any free one.
    """

    discovery: HostDiscovery
    num_proc: int
    min_num_proc: int
    max_num_proc: int | None = None
    elastic_timeout: float | None = None
    reset_limit: int | None = None
    cooldown_range: tuple[float, float] | None = None
    is_elastic: bool = True
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
