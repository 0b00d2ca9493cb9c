"""Pods with networks of their own: a bridge in a namespace of this process, one cable for each pod.

The namespace is gone with the process, however it ends, and so is everything that was done to it: nothing outside is
touched.
"""

from __future__ import annotations

import functools
import os
import subprocess

PREFIX = "10.77.0"  # of the pods' addresses; the namespace has no other network


@functools.cache
def isolate() -> tuple[str, ...] | None:
    """Return the command that runs another one in a network namespace of its own; None where that cannot be had."""
    root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    command = ("unshare", *root, "--net", "--")
    trial = "ip link add br0 type bridge && ip link set lo up"
    try:
        subprocess.run([*command, "sh", "-c", trial], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return command


def make_bridge() -> None:
    """Make the pods' bridge, in a namespace of our own: the API server is at its address."""
    _run("ip", "link", "set", "lo", "up")
    # an address of its own: else it is that of some pod's cable, changes when the pod ends, and the others miss it
    _run("ip", "link", "add", "br0", "address", "02:77:00:00:00:01", "type", "bridge", "forward_delay", "0")
    _run("ip", "addr", "add", f"{PREFIX}.1/24", "dev", "br0")
    _run("ip", "link", "set", "br0", "up")
    # localcluster tries whether it could bind a pod's address, which only the pod will have
    _run("sysctl", "-qw", "net.ipv4.ip_nonlocal_bind=1")


def cut(address: str) -> None:
    """Let no frame of a pod pass, in either direction; nobody is told, its own end of the cable stays up."""
    _run("ip", "link", "set", _cable(address), "nomaster")


def heal(address: str) -> None:
    """Let all frames pass again."""
    _run("ip", "link", "set", _cable(address), "master", "br0")


def isolate_port(address: str, is_isolated: bool) -> None:
    """Let no frame pass between a pod and others that are isolated, too; all others are reached as before."""
    _run("ip", "link", "set", _cable(address), "type", "bridge_slave", "isolated", "on" if is_isolated else "off")


def _cable(address: str) -> str:
    return f"p{address.rpartition('.')[2]}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=20, stdout=subprocess.DEVNULL)
