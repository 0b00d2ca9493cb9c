"""Pure functions for the addresses of parameter servers: the hosts of `--pservers=host,host:port`, and their ports.

No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddle_base.runtime.errors import UsageError

LAST_PORT = 65535
MOST_DIGITS = 5  # maximum number of digits of a port


def list_hosts(text: str, port: int, ports: int) -> list[tuple[str, int]]:
    """Return each host with its first port. The default of the first port is `port`.

    Args: ports: number of consecutive ports of each host.
    Raises: UsageError: the text contains a malformed or repeated host or port.
    """
    hosts = [_read_host(one.strip(), port, text) for one in text.split(",")]
    for number, (host, first) in enumerate(hosts):
        if first + ports - 1 > LAST_PORT:
            raise UsageError(
                f"--pservers: {host} would need the ports {first} to {first + ports - 1}; the last port is {LAST_PORT}"
            )
        for other, before in hosts[:number]:
            if other == host and abs(first - before) < ports:
                raise UsageError(
                    f"--pservers is '{text}': {host}:{before} and {host}:{first}, with {ports} ports each, are not "
                    "two servers, because their ports overlap"
                )
    return hosts


def list_services(hosts: Sequence[tuple[str, int]], offset: int, count: int) -> list[tuple[str, int]]:
    """Return the (host, port) of `count` services of each host. Their first port is the host's port plus `offset`."""
    return [(host, first + offset + number) for host, first in hosts for number in range(count)]


def is_host_name(text: str) -> bool:
    """Return whether a text can be a name or IPv4 address; each part between two dots must have 1 to 63 characters.

    `socket.getaddrinfo` raises a UnicodeError for any other text.
    """
    try:
        return bool(text.encode("idna"))
    except UnicodeError:
        return False


def _read_host(text: str, port: int, whole: str) -> tuple[str, int]:
    host, colon, number = text.partition(":")
    if not is_host_name(host) or ":" in number or any(each.isspace() for each in host):
        raise UsageError(
            f"--pservers is '{whole}'; it must be hosts separated by commas, each as name or IPv4 address, with or "
            "without :port"
        )
    if not colon:
        return host, port
    if not (number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS and 1 <= int(number) <= LAST_PORT):
        raise UsageError(f"--pservers is '{whole}': '{number}' of {host} is no port; it must be in [1, {LAST_PORT}]")
    return host, int(number)
