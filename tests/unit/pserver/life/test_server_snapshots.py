"""Snapshots of a server: when they are taken, what a server goes on from, and that it always can."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tasks_wire import ElasticWire

from paddle_base.registry.directory import DirectoryRegistry
from paddle_base.registry.records import find_checkpoint
from paddle_base.runtime.errors import ConfigError, DamagedError, LeaseLostError, LostFileError
from pserver.life import snapshots as module
from pserver.life.recovery import name_directory, recover
from pserver.life.snapshots import RETRY_S, Snapshots, SnapshotStore
from pserver.optim.settings import Optimization

ADAM = Optimization("adam", 0.1, algorithm="async_sgd")
INTERVAL = 600.0


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def time_ns(self):
        return 7


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


class Place:
    """A registry, a directory of snapshots, and servers of index 0 there, one after the other."""

    def __init__(self, folder):
        self.registry, self.directory = DirectoryRegistry(folder / "registry", 60.0), folder / "snapshots"
        self.claim = None

    def begin(self, *services):
        """The snapshots of the next server, which has recovered."""
        if self.claim is not None:
            self.claim.release()
        self.claim = self.registry.claim("ps/0", "")
        assert self.claim is not None
        snapshots = Snapshots(services, SnapshotStore(self.claim, 0, self.directory))
        found = recover(services, self.registry, 0, self.directory)
        if found is not None:
            snapshots.resume(found[1])
        return snapshots

    @property
    def files(self):
        return sorted(path.name for path in self.directory.iterdir()) if self.directory.exists() else []


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def begin_wire(**initial):
    wire = ElasticWire()
    wire.ready(**({"optimization": ADAM} | initial))
    return wire


def finish(snapshots, interval=INTERVAL):
    """Wait for what is being written; return whether it is stored."""
    assert snapshots._task is not None
    snapshots._task.wait()
    return snapshots.turn(interval)


def state_of(service):
    capture = service.take_snapshot()
    return capture.note, {name: array.tobytes() for name, array in capture.arrays.items()}


# ----- When


def test_a_snapshot_is_taken_when_the_interval_is_over_and_something_has_changed(place, clock):
    wire = begin_wire()
    snapshots = place.begin(wire.service)
    clock.now += 2 * INTERVAL
    assert not snapshots.turn(INTERVAL) and snapshots._task is None
    wire.trainers[0].push_alone(1, np.ones(7))
    assert not snapshots.turn(INTERVAL)
    assert finish(snapshots)
    assert (snapshots.stored, find_checkpoint(place.registry, 0).step, len(place.files)) == (1, 1, 1)
    wire.trainers[0].push_alone(2, np.ones(7))
    clock.now += INTERVAL - 1
    assert not snapshots.turn(INTERVAL) and snapshots._task is None
    clock.now += 1
    assert not snapshots.turn(INTERVAL) and finish(snapshots)
    assert (snapshots.stored, find_checkpoint(place.registry, 0).step, len(place.files)) == (2, 2, 1)


def test_first_values_are_not_acknowledged_before_they_are_stored(place, clock):
    wire = ElasticWire()
    snapshots = place.begin(wire.service)
    wire.service.on_values = snapshots.ask
    one, two = (wire.trainer(number).join() for number in (0, 1))
    two.fetch()
    one.initialise(range(7), optimization=ADAM)
    asked = (len(one.inbox), len(two.inbox))
    wire.check()
    assert (len(one.inbox), len(two.inbox)) == asked and place.files == []
    assert not snapshots.turn(INTERVAL) and finish(snapshots)
    wire.check()
    assert (len(one.inbox), len(two.inbox)) == (asked[0] + 1, asked[1] + 1)
    assert two.values.tolist() == list(range(7)) and len(place.files) == 1


def test_a_service_waits_for_a_snapshot_that_was_taken_after_it_asked(place):
    wires = [begin_wire(), begin_wire()]
    snapshots = place.begin(*(wire.service for wire in wires))
    first = snapshots.ask(wires[0].service)
    snapshots.turn(INTERVAL)
    second = snapshots.ask(wires[1].service)
    assert finish(snapshots) and first.is_done and not second.is_done
    assert finish(snapshots) and second.is_done


def test_a_snapshot_that_cannot_be_written_is_tried_again(place, clock, monkeypatch):
    wire = begin_wire()
    snapshots = place.begin(wire.service)
    waits = snapshots.ask(wire.service)
    place.directory.write_text("a file in its place")
    snapshots.turn(INTERVAL)
    assert not finish(snapshots) and snapshots.failed == 1 and not waits.is_done
    place.directory.unlink()
    clock.now += RETRY_S - 1
    assert not snapshots.turn(INTERVAL) and snapshots._task is None
    clock.now += 1
    assert not snapshots.turn(INTERVAL) and finish(snapshots) and waits.is_done and snapshots.stored == 1


def test_a_server_that_is_stopped_stores_its_state_once_more(place):
    wire = begin_wire()
    snapshots = place.begin(wire.service)
    snapshots.ask(wire.service)
    snapshots.turn(INTERVAL)
    wire.trainers[0].push_alone(1, np.ones(7))
    snapshots.store_last()
    assert find_checkpoint(place.registry, 0).step == 1
    files = place.files
    snapshots.store_last()
    assert place.files == files and len(files) == 1


def test_a_server_without_values_stores_nothing(place):
    snapshots = place.begin(ElasticWire().service)
    snapshots.store_last()
    assert place.files == [] and find_checkpoint(place.registry, 0) is None


# ----- What a server goes on from


@pytest.mark.parametrize("settings", [ADAM, Optimization("momentum", 0.1)], ids=["async", "sync"])
def test_the_next_server_has_values_optimiser_and_what_was_known_of_trainers(place, settings):
    wire = begin_wire(values=range(7), optimization=settings)
    one = wire.trainers[0]
    if settings.is_asynchronous:
        one.push_alone(1, np.arange(7))
    else:
        one.enter(5, 0).push_round((5, 1), np.arange(7)).commit((5, 1))
    place.begin(wire.service).store_last()
    again = ElasticWire()
    place.begin(again.service)
    assert state_of(again.service) == state_of(wire.service) and again.service.steps == 1


def test_sparse_and_dense_services_go_on_together(place):
    dense, sparse, unused = begin_wire(), ElasticWire(), ElasticWire()
    rows = sparse.ready_rows()[0]
    rows.enter(1, 0).push_rows([1, 3], 2.0, **{"epoch": 1, "round": 1, "pass": 0}).commit((1, 1))
    place.begin(dense.service, sparse.service, unused.service).store_last()
    again = [ElasticWire() for _ in range(3)]
    place.begin(*(one.service for one in again))
    assert state_of(again[0].service) == state_of(dense.service)
    assert state_of(again[1].service) == state_of(sparse.service)
    assert again[2].service.take_snapshot() is None


def test_a_server_with_other_ports_is_told_so(place):
    place.begin(begin_wire().service, begin_wire().service)._store.store([({"service": 1, "capture": {}}, {})], 0)
    with pytest.raises(
        ConfigError, match=r"has service 1, but this server has 1 services; start this server with the --ports_num"
    ):
        place.begin(ElasticWire().service)


def test_a_directory_that_has_moved_is_found_by_its_new_name(place):
    wire = begin_wire()
    wire.trainers[0].push_alone(1, np.ones(7))
    place.begin(wire.service).store_last()
    place.directory = place.directory.rename(place.directory.with_name("moved"))
    again = ElasticWire()
    place.begin(again.service)
    assert again.service.steps == 1


def test_a_snapshot_that_is_damaged_or_gone_is_named(place):
    wire = begin_wire()
    wire.trainers[0].push_alone(1, np.ones(7))
    place.begin(wire.service).store_last()
    path = place.directory / place.files[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=r"the snapshot .*server-0000-.* is damaged: .*restore it from a backup"):
        place.begin(ElasticWire().service)
    path.unlink()
    with pytest.raises(LostFileError, match=r"the snapshot .*server-0000-.* cannot be read"):
        place.begin(ElasticWire().service)


def test_a_snapshot_whose_parts_do_not_fit_is_named(place):
    wire = begin_wire()
    snapshots = place.begin(wire.service)
    contents = snapshots._take()
    contents[0][0]["capture"]["counters"]["size"] = 5
    snapshots._store.store(contents, 0)
    with pytest.raises(DamagedError, match=r"the snapshot .*server-0000-.* is damaged: its parts do not fit"):
        place.begin(ElasticWire().service)


@pytest.mark.parametrize("note", [{}, {"service": 0}, {"service": "0", "capture": {}}, {"service": 0, "capture": []}])
def test_a_file_that_says_nothing_of_a_service_is_damaged(place, note):
    place.begin(begin_wire().service)._store.store([(note, {})], 0)
    with pytest.raises(DamagedError, match="is damaged"):
        place.begin(ElasticWire().service)


def test_a_server_of_a_job_that_has_begun_does_not_begin_with_nothing(place):
    place.registry.put("init/done", "{}")
    with pytest.raises(DamagedError, match="the job has begun, but the registry has no ckpt/0"):
        place.begin(ElasticWire().service)


def test_a_former_owner_replaces_no_snapshot_and_removes_no_file(place):
    wire = begin_wire()
    former = place.begin(wire.service)
    former.store_last()
    wire.trainers[0].push_alone(1, np.ones(7))
    former.store_last()
    kept = place.files
    place.begin(ElasticWire().service)
    wire.trainers[0].push_alone(2, np.ones(7))
    with pytest.raises(LeaseLostError):
        former.store_last()
    assert set(kept) < set(place.files) and find_checkpoint(place.registry, 0).step == 1
    place.begin(ElasticWire().service)
    assert place.files == kept


def test_names_of_directories():
    store = Path("/s")
    assert name_directory("", store, "a") == store / "a" / "checkpoints"
    assert name_directory("", None, "a") == Path("/checkpoints/a")
    assert name_directory("/c", store, "a") == Path("/c/a")


# ----- A server that dies while it stores


STEPS = ("mkdir", "write_file", "replace", "sync_directory", "put", "remove")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_server_that_is_killed_at_any_step_of_a_snapshot_goes_on_from_the_older_or_the_newer_one(
    place, tmp_path, step, when
):
    """The process that stores is a real one, and SIGKILL ends it."""
    wire = begin_wire()
    wire.trainers[0].push_alone(1, np.ones(7))
    place.begin(wire.service).store_last()
    place.claim.release()
    older = state_of(wire.service)
    program = Path(__file__).with_name("snapshot_victim.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, program, tmp_path, step, when], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    newer = done.stdout.strip()
    again = ElasticWire()
    found = recover([again.service], DirectoryRegistry(tmp_path / "registry"), 0, place.directory)
    is_newer = (step, when) in {("put", "after"), ("remove", "before"), ("remove", "after")}
    assert found is not None and again.service.steps == (2 if is_newer else 1)
    assert newer == "stores 2" and (is_newer or state_of(again.service) == older)
