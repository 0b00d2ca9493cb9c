"""The sockets of the control connection. This is the only module of the launcher that imports zmq."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from paddle_base.messages.client import ControlClient
from paddle_base.messages.client_core import ClientCore, ClientPace
from paddle_base.messages.envelope import MemberId
from paddle_base.messages.gate.gate import GateLimits
from paddle_base.messages.keys import derive_keys
from paddle_base.messages.server import ControlAccess, ControlServer
from paddle_base.messages.server_core import ServerCore
from paddle_base.runtime.backoff import exponential_backoff
from paddle_base.runtime.environment import read_environment
from paddle_base.runtime.errors import HELD_PORT, PortInUseError
from paddle_cluster.launcher.control.guest import RendezvousGuest
from paddle_cluster.launcher.control.host import RendezvousHost
from paddle_cluster.launcher.control.protocol import RENDEZVOUS
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import say

EVERY_ADDRESS = "0.0.0.0"
# Minimum value of two limits, which are the numbers of connections of members and of peers that are not authenticated
# yet. In a large job both limits are higher, because all launchers connect at the same time.
LEAST_PEERS = 128
# the delays between connection attempts are short, because trainer 0's launcher may start at any moment
PACE = ClientPace(delays=lambda: exponential_backoff(0.05, 1.0))


def open_server(
    config: LauncherConfig, realm: str, member: MemberId, host: RendezvousHost, admits: Callable[[str], bool]
) -> ControlServer:
    """Return the server of trainer 0's launcher.

    Args: admits: returns whether a launcher at an address may connect; called only in a job without a secret.
    Raises: PortInUseError: another process has the port.
    """
    keys = derive_keys(read_environment(os.environ).secret)
    access = ControlAccess(keys, admits if keys is None else lambda address: True)
    most = max(LEAST_PEERS, 2 * config.layout.pods)  # a pod and its replacement may both be connected
    core = ServerCore(RENDEZVOUS, realm, member, most_members=most)
    limits = GateLimits(unauthenticated=most, peers=most)
    try:
        try:
            return ControlServer(config.pod_ip, config.control_port, core, host, access, limits=limits, note=say)
        except OSError as problem:
            if problem.errno != errno.EADDRNOTAVAIL:  # inside the pod, no network interface may have the pod's address
                raise
            return ControlServer(EVERY_ADDRESS, config.control_port, core, host, access, limits=limits, note=say)
    except OSError as problem:
        reason = HELD_PORT if problem.errno == errno.EADDRINUSE else problem.strerror
        held = "" if problem.errno != errno.EADDRINUSE else f"end it if it is a launcher of pod {config.pod_name}, or "
        raise PortInUseError(
            f"cannot listen on port {config.control_port} of {config.pod_ip} for the other launchers: {reason}; "
            f"{held}set CONF_PADDLE_CONTROL_PORT to another port"
        ) from problem


def open_client(
    config: LauncherConfig, realm: str, member: MemberId, guest: RendezvousGuest, server_ip: str
) -> ControlClient:
    """Return a client that connects this launcher to trainer 0's launcher."""
    name = f"trainer 0's launcher at {server_ip}:{config.control_port}"
    core = ClientCore(RENDEZVOUS, realm, member, name, guest.hello, PACE)
    keys = derive_keys(read_environment(os.environ).secret)
    # for a server in 127.0.0.0/8 the system would choose the source address 127.0.0.1 instead of this pod's address
    source = config.pod_ip if config.pod_ip.startswith("127.") else ""
    return ControlClient(server_ip, config.control_port, core, guest, keys=keys, note=say, source=source)
