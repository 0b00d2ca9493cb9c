"""Resolve `--nics` to addresses: an interface name, a label such as `lo:1`, or an IPv4 address."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct

from paddle_base.runtime.errors import ConfigError

ANY_ADDRESS = "0.0.0.0"
_SIOCGIFADDR = 0x8915
_SIOCGIFCONF = 0x8912
_ROOM = 40 * 1024  # bytes of the buffer, which suffice for a thousand names


def resolve_nics(nics: str) -> list[str]:
    """Return the address to bind for each name of a comma-separated list; for an empty list, return ANY_ADDRESS.

    Raises: ConfigError: a name does not exist; the text lists the existing names.
    """
    return [resolve_nic(name) for name in split_names(nics)] or [ANY_ADDRESS]


def split_names(nics: str) -> list[str]:
    """Return the names of a comma-separated list."""
    return [name.strip() for name in nics.split(",") if name.strip()]


def find_own_addresses(nics: str) -> list[str]:
    """Return the addresses at which programs reach this host: `nics`, or all addresses if `nics` is empty or wrong."""
    return list(find_own_nics(nics).values())


def find_own_nics(nics: str) -> dict[str, str]:
    """Return {name of the interface: address} for the addresses that `find_own_addresses` returns."""
    try:
        return {name: resolve_nic(name) for name in split_names(nics)} or list_nics()
    except ConfigError:
        return list_nics()


def find_address(nics: dict[str, str]) -> str:
    """Return the address at which other hosts reach this machine: the first non-loopback address of `list_nics`."""
    return next((one for one in nics.values() if not one.startswith("127.")), "127.0.0.1")


def resolve_nic(name: str) -> str:
    """Return the IPv4 address of an interface or label; return a name that is an IPv4 address unchanged.

    Raises: ConfigError: the name has no IPv4 address. An address is not checked here, because binding checks it.
    """
    try:
        return str(ipaddress.IPv4Address(name))
    except ValueError:
        pass
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            request = struct.pack("256s", name.encode()[:15])
            answer = fcntl.ioctl(control, _SIOCGIFADDR, request)
            return socket.inet_ntoa(answer[20:24])
        except OSError as exc:
            there = ", ".join(f"{nic} ({address})" for nic, address in sorted(list_nics().items())) or "none"
            raise ConfigError(
                f"--nics names '{name}', which has no IPv4 address here ({exc.strerror}); the existing names: {there}"
            ) from exc


def list_nics() -> dict[str, str]:
    """Return the IPv4 address of every interface and label of this machine."""
    # struct ifconf {int length; void *buffer}: the kernel fills the buffer with entries of 40 bytes
    buffer = array.array("B", bytes(_ROOM))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, _SIOCGIFCONF, struct.pack("iL", _ROOM, buffer.buffer_info()[0]))
    length = struct.unpack("iL", answer)[0]
    found = {}
    for at in range(0, length, 40):
        entry = buffer[at : at + 40].tobytes()
        found[entry[:16].rstrip(b"\0").decode(errors="replace")] = socket.inet_ntoa(entry[20:24])
    return found


def find_way(address: str) -> str:
    """Return the address of this machine on the route to another machine.

    Raises: OSError: there is no route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # connecting a UDP socket chooses the route and sends nothing
        return str(probe.getsockname()[0])
