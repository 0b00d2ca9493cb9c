"""Masters that die, freeze and thaw: what a standby goes on with, and that a former leader writes nothing."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from etcd_process import EtcdProcess
from master_processes import MasterProcess, train, trainer

from paddle_base.messages.envelope import MemberId
from paddle_base.runtime.errors import ConfigError
from paddle_cluster.master.client import MasterClient, TaskGrant
from paddle_cluster.master.store.directory import DirectoryStore
from paddle_cluster.master.store.etcd import EtcdStore
from paddle_cluster.master.store.interface import MasterStore

FILES = [f"part-{number:02d}" for number in range(20)]
TTL = 2.0


class Place:
    """A store, by the flags that a master gets and the book that a trainer has."""

    def __init__(self, directory: Path, flag: str, book: Callable[[], MasterStore]) -> None:
        self.directory, self.flag, self.book = directory, flag, book
        self.masters = 0

    def master(self, *flags: str) -> MasterProcess:
        self.masters += 1
        log = self.directory / f"log-{self.masters}"
        return MasterProcess(log, self.flag, f"--ttl={TTL:g}s", "--member_ttl=4s", *flags)

    def trainer(self, uid: str) -> MasterClient:
        return MasterClient(self.book(), "job", MemberId(uid, 1), patience=60.0)


@pytest.fixture(params=["directory", "etcd"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "directory":
        store = tmp_path / "store"
        yield Place(tmp_path, f"--store_dir={store}", lambda: DirectoryStore(store / "job"))
    else:
        etcd: EtcdProcess = request.getfixturevalue("etcd")
        yield Place(tmp_path, f"--etcd_endpoints={etcd.endpoint}", lambda: EtcdStore([etcd.endpoint], "job"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM], ids=lambda one: one.name)
def test_a_standby_goes_on_where_the_leader_has_stopped(place: Place, how: signal.Signals) -> None:
    """The trainer keeps its task: its lease is longer than a busy machine takes to find the new leader."""
    flags = ("--num_passes=2", "--member_ttl=30s")
    given: list[tuple[int, str]] = []
    accepted: list[bool] = []
    with place.master(*flags) as first:
        first.wait_for("serving on")
        with place.master(*flags) as second, place.trainer("a") as client:
            second.wait_for("stands by")
            pass_number = client.set_dataset(FILES)
            for _ in range(5):
                task = client.get_task(pass_number)
                assert isinstance(task, TaskGrant)
                given.append((task.pass_number, *task.files))
                accepted.append(client.finish(task, 1))
            held = client.get_task(pass_number)
            assert isinstance(held, TaskGrant)
            given.append((held.pass_number, *held.files))
            began = time.monotonic()
            first.signal(how)
            second.wait_for("serving on", TTL + 20)
            took = time.monotonic() - began
            assert took < TTL + 2, "from the last sign of life to serving"
            accepted.append(client.finish(held, 1))
            for task in train(client, FILES):
                given.append((task.pass_number, *task.files))
            status = client.status()
            client.leave()
            assert second.end() == 0
            first.signal(signal.SIGCONT)
            assert first.end() == {signal.SIGTERM: 143, signal.SIGKILL: -9, signal.SIGSTOP: 75}[how]
    assert given == [(number, name) for number in range(2) for name in FILES]
    assert all(accepted)
    assert [(one["done"], one["dispatches"], one["samples"]) for one in status["passes"]] == [(20, 20, 20)] * 2


def test_a_former_leader_that_thaws_writes_nothing(place: Place) -> None:
    with place.master() as first:
        first.wait_for("serving on")
        with place.trainer("a") as client, place.trainer("late") as late:
            client.set_dataset(FILES)
            assert isinstance(late.get_task(0), TaskGrant)
            first.signal(signal.SIGSTOP)
            # what comes to a frozen leader is there when it thaws
            answers: list[object] = []
            waiting = threading.Thread(target=lambda: answers.append(late.get_task(0)))
            waiting.start()
            with place.master() as second:
                second.wait_for("serving on")
                done = [task for task in (client.get_task(0) for _ in range(3)) if isinstance(task, TaskGrant)]
                assert all(client.finish(task, 1) for task in done)
                waiting.join(30)
                before = dict(client.status())
                first.signal(signal.SIGCONT)
                assert first.end() == 75
                assert dict(client.status()) == before
                second.signal(signal.SIGKILL)
                second.end()
                with place.master() as third:
                    third.wait_for("serving on")
                    after = client.status()
                    for name in ("pass", "todo", "pending", "done", "failed", "holders"):
                        assert after[name] == before[name]


def test_a_second_trainer_gets_an_error_and_a_restarted_one_the_place(tmp_path: Path) -> None:
    """A child with the environment of its trainer took the place of its parent, because it had begun later."""
    with MasterProcess(tmp_path / "log", f"--store_dir={tmp_path}/store", "--member_ttl=60s"):
        with trainer(tmp_path / "store", "a") as old:
            old.set_dataset(FILES[:1])
            held = old.get_task(0)
            assert isinstance(held, TaskGrant)
            refusal = "the place of a belongs to its process 1, which is connected and works"
            with trainer(tmp_path / "store", "a", incarnation=2) as child, pytest.raises(ConfigError, match=refusal):
                _ = child.number
            assert old.number == 0
        with trainer(tmp_path / "store", "a", incarnation=0) as new:  # by a clock that was set back
            again = new.get_task(0)
            assert isinstance(again, TaskGrant)
            assert (again.number, again.epoch) == (held.number, 2)
            assert new.finish(again, 1)
