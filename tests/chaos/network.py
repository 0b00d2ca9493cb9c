"""Gives each pod its own network: a bridge in a network namespace of this process, and a virtual cable for each pod.

The kernel removes the namespace, with everything in it, when the process ends; nothing outside is changed.
"""

from __future__ import annotations

import functools
import os
import subprocess

PREFIX = "10.77.0"  # of the pods' addresses; it is the only network of the namespace


@functools.cache
def isolate() -> tuple[str, ...] | None:
    """Return the command that runs another command in a new network namespace; None if namespaces are not available."""
    root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    command = ("unshare", *root, "--net", "--")
    trial = "ip link add br0 type bridge && ip link set lo up"
    try:
        subprocess.run([*command, "sh", "-c", trial], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return command


def make_bridge() -> None:
    """Make the pods' bridge in the namespace; the API server has the address of the bridge."""
    _run("ip", "link", "set", "lo", "up")
    # the bridge gets a fixed MAC address; otherwise it has that of a cable, which changes when this pod ends
    _run("ip", "link", "add", "br0", "address", "02:77:00:00:00:01", "type", "bridge", "forward_delay", "0")
    _run("ip", "addr", "add", f"{PREFIX}.1/24", "dev", "br0")
    _run("ip", "link", "set", "br0", "up")
    # localcluster tries to bind a pod's address, which otherwise only the pod has
    _run("sysctl", "-qw", "net.ipv4.ip_nonlocal_bind=1")


def cut(address: str) -> None:
    """Block all frames of a pod in both directions; the pod's end of the cable stays up, so no program is notified."""
    _run("ip", "link", "set", _cable(address), "nomaster")


def heal(address: str) -> None:
    """Let all frames pass again."""
    _run("ip", "link", "set", _cable(address), "master", "br0")


def isolate_port(address: str, is_isolated: bool) -> None:
    """Block the frames between a pod and all other isolated pods; frames to pods that are not isolated pass."""
    _run("ip", "link", "set", _cable(address), "type", "bridge_slave", "isolated", "on" if is_isolated else "off")


def _cable(address: str) -> str:
    return f"p{address.rpartition('.')[2]}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=20, stdout=subprocess.DEVNULL)
