"""The hosts that a job may use: the discovery and the order of the hosts, and the blacklist of failed hosts.

Names and signatures are those of Horovod 0.28's `horovod.runner.elastic.discovery`.
"""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from paddle_base.runtime import glog
from paddle_cluster.elastic.hosts import MOST_HOST_SLOTS
from paddle_cluster.elastic.worker import HostUpdateResult

LOOK_S = 0.1  # seconds between two checks for the end of the script or of the job
MOST_OUTPUT_BYTES = 8 << 20


def run_script(command: str, limit_s: float, is_stopped: threading.Event | None = None) -> str:
    """Run a shell command and return its standard output.

    The script is over when its process has ended, even if a child of it, e.g. a shared connection of ssh, keeps its
    output open.

    Args: is_stopped: event that ends the command.
    Raises: ValueError: the command fails, prints too much, or was stopped.  subprocess.TimeoutExpired: the command
        takes longer than `limit_s` seconds.  OSError: the command cannot be started.
    """
    process = subprocess.Popen(
        command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    with process:
        try:
            text = _read_output(process, time.monotonic() + limit_s, is_stopped or threading.Event())
            status = process.wait()
        except TimeoutError as exc:
            raise subprocess.TimeoutExpired(command, limit_s) from exc
        finally:
            if process.poll() is None:
                _kill(process)
    if status:
        raise ValueError(f"the command ended with status {status}")
    return text.decode("utf-8", "replace")


def _read_output(process: subprocess.Popen[bytes], until: float, is_stopped: threading.Event) -> bytes:
    """Return what a process has printed until its end.

    Raises: ValueError: the process prints too much, or was stopped.  TimeoutError: it has not ended in time.
    """
    assert process.stdout is not None
    text, is_open = bytearray(), True
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            has_ended = process.poll() is not None  # before the look at the output, which is complete then
            if is_open and selector.select(0 if has_ended else LOOK_S):
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                text += chunk
                is_open = bool(chunk)
                if len(text) > MOST_OUTPUT_BYTES:
                    raise ValueError(f"the command prints more than {MOST_OUTPUT_BYTES} bytes")
            elif has_ended:
                return bytes(text)
            elif not is_open:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_S)
            if is_stopped.is_set():
                raise ValueError("the job has been stopped")
            if time.monotonic() > until:
                raise TimeoutError


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a script and its children; a replaced `Popen` of a test may have no process number."""
    with contextlib.suppress(ProcessLookupError, TypeError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


LONGEST_COOLDOWN_S = 3600.0
SCRIPT_S = 60.0  # maximum seconds that a discovery script may run
MOST_HOSTS = 100_000
FORM = "write a host as name or name:slots, e.g. worker-1:2"


class HostState:
    """The blacklist state of a host, and the event that ends its workers.

    Args: cooldown_range: shortest and longest time in seconds after which the host may be used again; None: the host is
        never used again.  draw: returns a random number from 0 to 1.
    Raises: ValueError: the range is invalid.
    """

    def __init__(
        self, cooldown_range: Sequence[float] | None = None, draw: Callable[[], float] = random.random
    ) -> None:
        self._event = threading.Event()
        self._is_blacklisted = False
        self._count = self._failures = 0
        self._range = check_cooldown_range(cooldown_range)
        self._cooldown_end = 0.0
        self._draw = draw

    def get_event(self) -> threading.Event:
        """Return the event that ends the workers of the host; return a new event if the last event is set."""
        if self._event.is_set():
            self._event = threading.Event()
        return self._event

    def set_event(self) -> None:
        """End the workers of the host."""
        self._event.set()

    def charge(self) -> int:
        """Count a failure; return the number of failures since the host was last blacklisted."""
        self._failures += 1
        return self._failures

    def blacklist(self) -> None:
        """Exclude the host until its cooldown has ended."""
        self._is_blacklisted = True
        self._failures = 0
        now = time.monotonic()
        if now < self._cooldown_end:
            return
        self._set_cooldown(now)
        self.set_event()

    def whitelist(self) -> None:
        """Allow the host again."""
        self._cooldown_end = 0.0
        self._is_blacklisted = False

    def is_blacklisted(self) -> bool:
        """Return whether the host must not be used."""
        return self._is_blacklisted

    def is_resurrected(self) -> bool:
        """Return whether the cooldown of the host has ended."""
        return 0.0 < self._cooldown_end <= time.monotonic()

    def _set_cooldown(self, now: float) -> None:
        if self._range is not None:
            least, most = self._range
            self._count = min(self._count + 1, 30)
            self._cooldown_end = now + min(max(least * 2**self._count + self._draw() * least, least), most)


def check_cooldown_range(cooldown_range: Sequence[float] | None) -> tuple[float, float] | None:
    """Check a range of seconds and return the range.

    Raises: ValueError: the range is invalid.
    """
    if not cooldown_range:
        return None
    least, most = cooldown_range
    if not 1 <= least <= most <= LONGEST_COOLDOWN_S:
        raise ValueError(
            f"--blacklist-cooldown-range is {least:g} {most:g}; it has to be two numbers of seconds, "
            f"1 <= MIN <= MAX <= {LONGEST_COOLDOWN_S:g}"
        )
    return float(least), float(most)


class FoundHosts(dict[str, int]):
    """Number of slots of each host, in the order of the ranks.

    Attributes: uids: by name, the unique id of the host that has the name now, if the discovery knows the id.
        addresses: by name, the address of a host that cannot be reached by its name.
    """

    def __init__(
        self,
        slots: Mapping[str, int],
        uids: Mapping[str, str] | None = None,
        addresses: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(slots)
        self.uids, self.addresses = dict(uids or {}), dict(addresses or {})


class DiscoveredHosts:
    """The hosts at one moment; a `DiscoveredHosts` never changes.

    Attributes:
    - host_slots: number of slots of each host, including excluded hosts.
    - host_assignment_order: names of the hosts that may be used, in the order of the ranks: the oldest host is first.
    - uids: by name, the unique id of the host that has the name now, if the id is known.
    """

    def __init__(
        self,
        host_slots: Mapping[str, int],
        host_assignment_order: Sequence[str],
        uids: Mapping[str, str] | None = None,
    ) -> None:
        self.host_slots, self.host_assignment_order = dict(host_slots), list(host_assignment_order)
        self.uids = dict(uids or {})

    @property
    def available_hosts(self) -> set[str]:
        """The names of the hosts that may be used."""
        return set(self.host_assignment_order)

    def get_slots(self, host: str) -> int:
        """Return the number of slots of a host, or 0 for an unknown name."""
        return self.host_slots.get(host, 0)

    def count_available_slots(self) -> int:
        """Return the number of slots of the hosts that may be used."""
        return sum(map(self.get_slots, self.host_assignment_order))

    def filter_available_hosts(self, is_excluded: Callable[[str], bool]) -> DiscoveredHosts:
        """Return these hosts without the excluded hosts."""
        order = [host for host in self.host_assignment_order if not is_excluded(host)]
        return DiscoveredHosts(self.host_slots, order, self.uids)

    def update(self, hosts_state: Mapping[str, HostState]) -> DiscoveredHosts:
        """Return these hosts without the blacklisted hosts; `hosts_state` has a state for every host."""
        return self.filter_available_hosts(lambda host: hosts_state[host].is_blacklisted())

    def __repr__(self) -> str:
        return f"DiscoveredHosts({', '.join(f'{host}:{self.get_slots(host)}' for host in self.host_assignment_order)})"


class HostManager:
    """The hosts that a discovery finds, without the blacklisted hosts.

    Thread safety: every method may be called from any thread; only `update_available_hosts` waits for the discovery.
    """

    def __init__(self, discovery: HostDiscovery, cooldown_range: Sequence[float] | None = None) -> None:
        self._range = check_cooldown_range(cooldown_range)
        self._discovery = discovery
        self._lock = threading.RLock()
        self._states: dict[str, HostState] = {}
        self._uids: dict[str, str] = {}  # the last unique id of each name, including hosts that are gone
        self._current = DiscoveredHosts({}, [])

    @property
    def current_hosts(self) -> DiscoveredHosts:
        """The hosts that may be used now."""
        with self._lock:
            return self._current.filter_available_hosts(self.is_blacklisted)

    def update_available_hosts(self) -> int:
        """Run the discovery; return the change of hosts as flags of `HostUpdateResult`.

        Raises: every exception of the discovery.
        """
        found = self._discovery.find_available_hosts_and_slots()
        uids: dict[str, str] = getattr(found, "uids", {})
        with self._lock:
            before = self._current
            replaced = {host for host, uid in uids.items() if self._uids.get(host, uid) != uid}
            self._uids.update(uids)
            for host in replaced:  # a new host has this name; the earlier failures belong to the old host
                self._find_state(host).set_event()
                del self._states[host]
            replaced &= before.host_slots.keys()
            back = {host for host in found if self._find_state(host).is_resurrected()}
            result = compare_hosts(before.host_slots, found)
            result |= HostUpdateResult.added if back else 0
            result |= HostUpdateResult.mixed if replaced else 0
            if result == HostUpdateResult.no_update:
                return result
            for host in back:
                glog.info(f"the cooldown of {host} has ended, so the host may be used again")
                self._find_state(host).whitelist()
            old = [host for host in before.host_assignment_order if host not in back | replaced]
            self._current = DiscoveredHosts(found, self.order_available_hosts(list(found), old), uids)
            return result

    def stop(self) -> None:
        """End a running discovery; a discovery of the user may lack the method for it."""
        getattr(self._discovery, "stop", lambda: None)()

    def blacklist(self, host: str) -> None:
        """Exclude a host, and end its workers."""
        with self._lock:
            if not self.is_blacklisted(host):
                glog.warning(f"{host} is blacklisted")
            self._find_state(host).blacklist()

    def is_blacklisted(self, host: str) -> bool:
        """Return whether a host must not be used."""
        with self._lock:
            return host in self._states and self._states[host].is_blacklisted()

    def list_blacklisted(self) -> list[str]:
        """Return the hosts that the discovery finds now and that are blacklisted."""
        with self._lock:
            return [host for host in self._current.host_slots if self.is_blacklisted(host)]

    def is_same(self, host: str, uid: str) -> bool:
        """Return whether the host with this unique id is the newest host of the name."""
        with self._lock:
            return self._uids.get(host, uid) == uid

    def charge(self, host: str) -> int:
        """Count a failure of a worker of a host; return the number of failures."""
        with self._lock:
            return self._find_state(host).charge()

    def get_host_event(self, host: str) -> threading.Event:
        """Return the event that ends the workers of a host."""
        with self._lock:
            return self._find_state(host).get_event()

    def _find_state(self, host: str) -> HostState:
        if host not in self._states:
            self._states[host] = HostState(self._range)
        return self._states[host]

    @staticmethod
    def order_available_hosts(available_hosts: Collection[str], prev_host_assignment_order: Sequence[str]) -> list[str]:
        """Return the hosts in order: first the previous hosts in their previous order, then the new hosts.

        New hosts keep the order of `available_hosts`. If `available_hosts` is a set, the new hosts are sorted by name.
        """
        new = sorted(available_hosts) if isinstance(available_hosts, set | frozenset) else available_hosts
        old = [host for host in prev_host_assignment_order if host in available_hosts]
        return old + [host for host in new if host not in old]


def compare_hosts(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Return the change of slots as flags of `HostUpdateResult`."""
    result = HostUpdateResult.no_update
    if any(after.get(host, -1) < slots for host, slots in before.items()):
        result |= HostUpdateResult.removed
    if any(before.get(host, -1) < slots for host, slots in after.items()):
        result |= HostUpdateResult.added
    return result


class HostDiscovery:
    """The base class of all discoveries of hosts."""

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return the number of slots of each host.

        Raises: RuntimeError: the discovery has failed this time.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """End a running discovery, because the job is over; any thread may call this method."""


class HostDiscoveryScript(HostDiscovery):
    """Finds the hosts that a script prints; each line is `name` or `name:slots`.

    Args: discovery_script: a shell command.  slots: number of slots of a host whose line has no number.
    """

    def __init__(self, discovery_script: str, slots: int | None) -> None:
        self._script, self._slots = discovery_script, slots
        self._is_stopped = threading.Event()

    def stop(self) -> None:
        """End a running script."""
        self._is_stopped.set()

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Run the script and parse its output.

        Raises: RuntimeError: the script fails, takes too long, or prints a line that is no host.
        """
        return self._read(self._execute_discovery_script())

    def _execute_discovery_script(self) -> str:
        try:
            return run_script(self._script, SCRIPT_S, self._is_stopped)
        except (OSError, subprocess.SubprocessError, ValueError) as exc:
            raise RuntimeError(f"the discovery script {self._script} has failed: {exc}") from exc

    def _read(self, text: str) -> dict[str, int]:
        hosts: dict[str, int] = {}
        for line in map(str.strip, text.split("\n")):
            if not line or line.startswith("#"):
                continue
            name, colon, number = line.rpartition(":") if ":" in line else (line, "", "")
            if not colon and self._slots is None and not any(map(str.isspace, line)):
                raise RuntimeError(f"the discovery script prints '{line}' without slots; give --slots-per-host, too")
            if not name or len(name) > 253 or any(map(str.isspace, name)) or not name.isprintable():
                raise RuntimeError(f"the discovery script prints '{glog.clean(line, 200)}', which is no host; {FORM}")
            if colon and not (number.isascii() and number.isdigit() and len(number) <= len(str(MOST_HOST_SLOTS))):
                raise RuntimeError(
                    f"the discovery script prints '{glog.clean(line, 200)}', whose slots are no number; {FORM}"
                )
            slots = int(number) if colon else int(self._slots or 0)
            if hosts.setdefault(name, slots) != slots:
                raise RuntimeError(f"the discovery script prints {name} with {hosts[name]} and with {slots} slots")
        if len(hosts) > MOST_HOSTS:
            raise RuntimeError(f"the discovery script prints more than {MOST_HOSTS} hosts")
        return hosts


class FixedHosts(HostDiscovery):
    """A fixed set of hosts, which a test may replace."""

    def __init__(self, host_slots: Mapping[str, int]) -> None:
        self._host_slots = host_slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return the hosts."""
        found = self._host_slots
        return found if isinstance(found, FoundHosts) else dict(found)

    def set(self, host_slots: Mapping[str, int]) -> None:
        """Replace the hosts."""
        self._host_slots = host_slots
