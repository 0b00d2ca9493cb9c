"""The place of a worker belongs to the process that took it first, not to its children, which have its variables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from scripted_workers import ScriptedJob

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.health.places import name_process
from paddle_cluster.elastic import state as states
from paddle_cluster.elastic.hosts import SlotInfo, get_host_assignments, list_slot_variables, parse_hosts
from paddle_cluster.elastic.http_server import RendezvousServer
from paddle_cluster.elastic.process import membership
from paddle_cluster.elastic.rendezvous import create_rendezvous_handler
from paddle_cluster.elastic.rendezvous_client import RendezvousClient

# a child of a worker, e.g. a process that a DataLoader has spawned, which imports the script of the worker
CHILD = """
from paddle_cluster.elastic.process.membership import WORKER
from paddle_base.runtime.errors import ConfigError
try:
    WORKER.init()
except ConfigError as exc:
    print(exc)
"""


def test_the_first_process_has_the_place() -> None:
    job = ScriptedJob({"a": 1})
    (worker,) = job.start(1)
    claim, name = job.driver.claim_place, worker.incarnation
    assert [claim(*worker.place, name, holder) for holder in ("7.70", "8.80", "7.70")] == ["7.70"] * 3
    assert claim(*worker.place, "an earlier process", "8.80") == "8.80"  # its place is gone, which it hears elsewhere
    job.end()


def test_the_next_driver_learns_who_has_the_place_from_a_heartbeat() -> None:
    job = ScriptedJob({"a": 1})
    (worker,) = job.start(1)
    job.driver.record_heartbeat(*worker.place, worker.incarnation, 1, [], "7.70")
    assert job.driver.claim_place(*worker.place, worker.incarnation, "8.80") == "7.70"
    job.end()


def test_a_place_in_a_job_without_a_driver_belongs_to_the_first_process() -> None:
    """A child of a worker of `gloo_run` became its rank, because a plain store knew no places."""
    server = RendezvousServer(secret="s")
    client = RendezvousClient("127.0.0.1", server.start(), "s", timeout=10.0)
    slots = get_host_assignments(parse_hosts("a:2"), 2)
    try:
        for _ in range(2):  # the second job of a server begins with free places
            server.init(slots)
            assert [client.claim("a", 0, "i", holder) for holder in ("7.70", "8.80", "7.70")] == [("7.70", False)] * 3
            assert client.claim("a", 1, "j", "8.80") == ("8.80", False)
    finally:
        server.stop()


@pytest.mark.parametrize("is_elastic", [False, True])
def test_a_child_with_the_variables_of_its_worker_gets_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch, is_elastic: bool
) -> None:
    """Such a child sent heartbeats as its parent, reported READY for a slot that worked, and once became a rank."""
    job = ScriptedJob({"a": 1})
    server = RendezvousServer(secret="s")
    port = server.start(create_rendezvous_handler(job.driver), address="127.0.0.1")
    (one,) = job.start(1)
    environ = {
        **list_slot_variables(SlotInfo("a", 0, 0, 0, 1, 1, 1)),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_ELASTIC": "1" if is_elastic else "",
        "PADDLE_ELASTIC_INCARNATION": one.incarnation,
        "PADDLE_ELASTIC_GENERATION": "1",
        "PADDLE_SECRET": "s",
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    worker = membership.WorkerMembership()
    try:
        worker.init()
        root = Path(membership.__file__).parents[2]
        child = subprocess.run(
            [sys.executable, "-c", CHILD], cwd=root, capture_output=True, text=True, timeout=60, check=True
        )
        assert f"hvd.init(): the place of a[0] belongs to its process {os.getpid()}, whose variables" in child.stdout
        assert not job.recorded()
        worker.shutdown()
        worker._process = "1.1"  # as in a fork, which has the memory of its worker
        with pytest.raises(ConfigError, match=r"the place of a\[0\] belongs to its process 1, whose variables"):
            worker.init()
    finally:
        worker.end()
        server.stop()
        job.end()


def test_a_child_that_never_called_init_takes_no_notices_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its addresses replaced those of the worker, which then heard of no change of hosts."""
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1")
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_PORT", "1")
    monkeypatch.setattr(states, "WORKER", membership.WorkerMembership())
    notices = mock.Mock(addresses=())
    monkeypatch.setattr(states, "notification_manager", notices)
    with pytest.raises(ConfigError, match=r"hvd\.init"):
        states.run_fn(lambda _: None, lambda: None)(mock.Mock(sync=lambda: states.WORKER.group))
    notices.init.assert_not_called()


def test_the_name_of_a_process_is_its_own() -> None:
    assert name_process() == name_process()
    assert name_process().partition(".")[0] == str(os.getpid())
