"""A registry in a directory, and a master that says what a test wants."""

from typing import NamedTuple

import pytest

from paddle_base.registry.directory import DirectoryRegistry
from paddle_base.registry.servers import DESIRED, ServerRecord
from trainer.updaters.tasks.servers import TaskMembership

TTL = 0.5  # seconds; a claim that nobody renews is soon free


class GivenView(NamedTuple):
    epoch: int = 0
    members: tuple[int, ...] = ()


class FakeMaster:
    """The client of a master."""

    def __init__(self, number=0, view=None):
        self.number, self.view = number, view or GivenView()
        self.callback = lambda view: None

    def on_view(self, callback):
        self.callback = callback

    def tell(self, epoch, *members):
        self.view = GivenView(epoch, members)
        self.callback(self.view)


class Registered:
    """The servers in a registry; each is there while its claim is held."""

    def __init__(self, registry):
        self.registry, self.claims = registry, {}

    def start(self, index, host="10.0.0.1", ports=(7164,), sparse_ports=()):
        record = ServerRecord(index, 0, host, ports, sparse_ports)
        self.claims[index] = self.registry.claim(f"ps/{index}", record.value)
        return f"ps{index}.{self.claims[index].token}"

    def end(self, index):
        self.claims.pop(index).release()


@pytest.fixture
def registry(tmp_path):
    made = DirectoryRegistry(tmp_path / "registry", 60.0)
    made.put_new(DESIRED, "2")
    return made


@pytest.fixture
def registered(registry):
    return Registered(registry)


@pytest.fixture
def master():
    return FakeMaster(3)


@pytest.fixture
def membership(master):
    return TaskMembership(master, "pod", 1, "job", "secret", patience=20.0)
