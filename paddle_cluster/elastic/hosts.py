"""Hosts with slots, and the rank of each slot.

Names, signatures and order are those of Horovod 0.28's `horovod.runner.common.util.hosts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import MissingInputError, reading_error
from paddle_base.runtime.regular_files import open_regular
from paddle_cluster.elastic.constants import HOROVOD_HOSTNAME

SLOT_NUMBERS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
MOST_HOST_FILE_BYTES = 1 << 20
MOST_HOST_SLOTS = 999_999  # maximum slots of a host that is no pod; the driver makes an object for each slot


class HostInfo:
    """A host, and the number of workers that may run on the host."""

    def __init__(self, hostname: str, slots: int) -> None:
        self.hostname, self.slots = hostname, slots

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """Parse a host from a text `name:slots`.

        Raises: ValueError: the text is not in this form.
        """
        name, colon, slots = host_string.strip().rpartition(":")
        if not name or not colon or not (slots.isascii() and slots.isdigit()) or len(slots) > len(str(MOST_HOST_SLOTS)):
            raise ValueError(f"'{host_string}' is no host with its slots; write it as name:slots, e.g. worker-0:2")
        return HostInfo(name, int(slots))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostInfo) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.hostname, self.slots))

    def __repr__(self) -> str:
        return f"HostInfo({self.hostname!r}, {self.slots})"


class SlotInfo:
    """A slot of a host with its ranks.

    Attributes:
    - rank, size: rank of the worker among all workers, and number of all workers.
    - local_rank, local_size: the same two numbers for the workers of the host. A local rank below that of another
      worker may be free, because it is never given to a worker that runs; the size counts it.
    - cross_rank, cross_size: the same two numbers for the workers that have this local rank, on all hosts.
    """

    def __init__(
        self,
        hostname: str,
        rank: int,
        local_rank: int,
        cross_rank: int,
        size: int | None = None,
        local_size: int | None = None,
        cross_size: int | None = None,
    ) -> None:
        self.hostname, self.rank, self.local_rank, self.cross_rank = hostname, rank, local_rank, cross_rank
        self.size, self.local_size, self.cross_size = size, local_size, cross_size

    def to_response_string(self) -> str:
        """Return the slot as the answer to a request for a rank: six integers separated by commas."""
        return ",".join(str(getattr(self, name)) for name in SLOT_NUMBERS)

    @staticmethod
    def from_response_string(hostname: str, response_string: str) -> SlotInfo:
        """Parse a slot from the answer to a request for a rank.

        Raises: ValueError: the answer has another form.
        """
        words = response_string.split(",")
        if len(words) != 6 or any(len(word) > 11 for word in words):
            raise ValueError(f"'{response_string[:100]}' is no rank: it has to be six integers with commas")
        rank, size, local_rank, local_size, cross_rank, cross_size = map(int, words)
        return SlotInfo(hostname, rank, local_rank, cross_rank, size, local_size, cross_size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SlotInfo) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.hostname, self.to_response_string()))

    def __repr__(self) -> str:
        return f"SlotInfo({self.hostname!r}, {self.to_response_string()})"


def list_slot_variables(slot: Any) -> dict[str, str]:
    """Return the variables of a worker that contain its slot and ranks; `slot` has the attributes of a `SlotInfo`."""
    numbers = {f"HOROVOD_{name.upper()}": str(getattr(slot, name)) for name in SLOT_NUMBERS}
    return {HOROVOD_HOSTNAME: slot.hostname, **numbers}


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_host_files(filename: str) -> str:
    """Return the hosts of a file with lines `name slots=number`, as text for `parse_hosts`.

    Raises: ValueError: a line has another form, or the file is too large or no UTF-8 text.  MissingInputError,
        VolumeError: the file cannot be read.
    """
    try:
        with open_regular(Path(filename)) as file:
            content = file.read(MOST_HOST_FILE_BYTES + 1)
    except OSError as exc:
        raise reading_error(MissingInputError, f"--hostfile: {filename} cannot be read", exc) from exc
    if len(content) > MOST_HOST_FILE_BYTES:
        raise ValueError(f"{filename} has more than {MOST_HOST_FILE_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError as exc:
        raise ValueError(f"--hostfile: {filename} is no UTF-8 text ({exc.reason}); save it as UTF-8") from exc
    hosts = []
    # lines as an editor counts them; splitlines() would also divide at a form feed
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.split()
        if not words:
            continue
        name, _, slots = words[-1].partition("=")
        if len(words) != 2 or name != "slots" or not slots:
            raise ValueError(
                f"{filename}:{number}: '{glog.clean(line.rstrip(), 200)}' is no host; write it as name slots=number"
            )
        hosts.append(f"{words[0]}:{slots}")
    return ",".join(hosts)


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """Return the names of hosts, and the number of slots of each host.

    Raises: ValueError: a part of the text is no host, or a host has two numbers of slots.
    """
    found = parse_hosts(hosts)
    slots: dict[str, int] = {}
    for host in found:
        if slots.setdefault(host.hostname, host.slots) != host.slots:
            raise ValueError(
                f"{host.hostname} has {slots[host.hostname]} slots and then {host.slots}; name a host once"
            )
    return [host.hostname for host in found], slots


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Parse the hosts of a text `name:slots,name:slots`.

    Raises: ValueError: a part of the text is no host.
    """
    return [HostInfo.from_string(one) for one in hosts_string.split(",")]


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Return the slots of the hosts in the order of the ranks, at most `max_num_proc` slots.

    Args: hosts: hosts in the order of the ranks.  max_num_proc: maximum number of slots; None: no maximum.
    Raises: ValueError: there are fewer slots than `min_num_proc`.
    """
    slots: list[SlotInfo] = []
    for host in hosts:
        for local_rank in range(host.slots):
            if max_num_proc is not None and len(slots) == max_num_proc:
                break
            slots.append(SlotInfo(host.hostname, len(slots), local_rank, 0))
    if len(slots) < min_num_proc:
        raise ValueError(f"Requested more processes ({min_num_proc}) than there are available slots ({len(slots)})")
    complete_slots(slots)
    return slots


def complete_slots(slots: Sequence[SlotInfo]) -> None:
    """Set the sizes and the cross ranks of slots whose ranks are known; the slots are in the order of the hosts."""
    local_sizes: dict[str, int] = {}
    cross_sizes: Counter[int] = Counter()
    for slot in slots:
        slot.cross_rank = cross_sizes[slot.local_rank]
        cross_sizes[slot.local_rank] += 1
        local_sizes[slot.hostname] = max(slot.local_rank + 1, local_sizes.get(slot.hostname, 0))
    for slot in slots:
        slot.size, slot.local_size = len(slots), local_sizes[slot.hostname]
        slot.cross_size = cross_sizes[slot.local_rank]
