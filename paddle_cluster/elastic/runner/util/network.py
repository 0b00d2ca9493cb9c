"""Addresses of this machine and of other hosts. Names are those of `horovod.runner.util.network`."""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from paddle_base.runtime.network.interfaces import list_nics
from paddle_cluster.elastic.runner.util.threads import execute_function_multithreaded

ATTEMPTS = 100  # maximum number of ports that `find_port` tries
_Server = TypeVar("_Server")


@functools.cache
def get_local_host_addresses() -> frozenset[str]:
    """Return the IPv4 addresses of this machine."""
    return frozenset(list_nics().values())


def get_local_intfs(nic: str | None = None) -> set[str]:
    """Return the interfaces that have the address 127.0.0.1; with `nic`, only this interface."""
    return {name for name, address in list_nics().items() if address == "127.0.0.1" and nic in (None, name)}


def resolve_host_address(host_name: str) -> str | None:
    """Return an IPv4 address of a host, or None if the name is unknown."""
    try:
        return socket.gethostbyname(host_name)
    except OSError:
        return None


def filter_local_addresses(all_host_names: Sequence[str]) -> list[str]:
    """Return the hosts that are not this machine."""
    addresses = execute_function_multithreaded(resolve_host_address, [[name] for name in all_host_names]) or {}
    local = get_local_host_addresses()
    return [name for index, name in enumerate(all_host_names) if addresses[index] not in local]


def find_port(server_factory: Callable[[tuple[str, int]], _Server]) -> tuple[_Server, int]:
    """Make a server on a free port of all interfaces; return the server and the port.

    Args: server_factory: makes a server of an address; raises OSError if another program has the port.
    Raises: OSError: no port is free.
    """
    for _ in range(ATTEMPTS):
        with contextlib.closing(socket.create_server(("", 0))) as probe:
            port = int(probe.getsockname()[1])
        with contextlib.suppress(OSError):  # another program may take the port first
            return server_factory(("", port)), port
    raise OSError(f"no server could be made on any of {ATTEMPTS} free ports")


def get_driver_ip(nics: Iterable[str]) -> str:
    """Return the IPv4 address of the first interface of `nics`.

    Raises: RuntimeError: this machine has no such interface, or the interface has no address.
    """
    name, there = next(iter(nics), ""), list_nics()
    if name not in there:
        raise RuntimeError(f"'{name}' has no IPv4 address here; these interfaces have one: {', '.join(sorted(there))}")
    return there[name]
