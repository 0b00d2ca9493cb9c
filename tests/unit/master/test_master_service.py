"""The master's service over a fake network: lists in parts, questions that wait, answers after the store has them."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from fake_network import FakeClient, FakeNetwork

from paddle_base.messages.client_core import ClientCore
from paddle_base.messages.envelope import MemberId
from paddle_base.messages.errors import NoAnswerError, RequestRefusedError
from paddle_base.messages.server_core import Dispatcher, ServerCore
from paddle_base.runtime.errors import LeaseLostError
from paddle_cluster.master.protocol import MASTER, TRAINER, WATCHER
from paddle_cluster.master.service import MasterService
from paddle_cluster.master.store.interface import Write
from paddle_cluster.master.tasks import dataset
from paddle_cluster.master.tasks.dataset import digest_of
from paddle_cluster.master.tasks.encoding import decode_state
from paddle_cluster.master.tasks.state import TaskSettings

FILES = [f"part-{number}" for number in range(6)]


class Listening:
    """A member that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def welcomed(self, server: MemberId, welcome: Mapping[str, Any]) -> None:
        self.heard.append(welcome)

    def pushed(self, kind: str, body: Mapping[str, Any]) -> None:
        self.heard.append((kind, body))

    def disconnected(self, reason: str) -> None: ...


class MemoryStore:
    """Keys and values, and the leader's token. `commit` raises LeaseLostError after `dies_after` writes."""

    def __init__(self) -> None:
        self.pairs: dict[str, str] = {}
        self.token = 0
        self.dies_after: int | None = None


class MemoryLeadership:
    """See `Leadership`; the previous leader has lost the lead."""

    def __init__(self, store: MemoryStore) -> None:
        store.token += 1
        self.claim: Any = SimpleNamespace(token=store.token)
        self.store = store

    def load(self) -> Iterable[tuple[str, str]]:
        return sorted(self.store.pairs.items())

    def commit(self, writes: Sequence[Write]) -> None:
        """Store some writes, one by one."""
        for key, value in writes:
            if self.store.token != self.claim.token:
                raise LeaseLostError(f"leader {self.store.token} has taken over")
            if self.store.dies_after is not None:
                if not self.store.dies_after:
                    raise LeaseLostError("the test ends this leadership")
                self.store.dies_after -= 1
            if value is None:
                self.store.pairs.pop(key, None)
            else:
                self.store.pairs[key] = value

    def publish(self, address: str) -> None: ...

    def resign(self) -> None: ...


class Stage:
    """A network with a master."""

    def __init__(self, files_per_task: int = 2, **settings: Any) -> None:
        self.network = FakeNetwork()
        self.store = MemoryStore()
        self.settings = TaskSettings(**settings)
        self.files_per_task = files_per_task
        self.numbers = itertools.count(1)
        self.heard: dict[str, Listening] = {}
        self.begin()

    def begin(self) -> None:
        """Let another master lead."""
        leadership = MemoryLeadership(self.store)
        token = leadership.claim.token
        state = decode_state(self.settings, leadership.load(), self.network.now, token)
        self.service = MasterService(state, leadership, self.files_per_task, lambda: self.network.now)
        core = ServerCore(MASTER, "job", MemberId("master", token), silence=3.0)
        self.service.dispatcher = Dispatcher(core, self.service, self.network.notes.append)
        self.network.serve("m", self.service.dispatcher)

    def join(self, uid: str, role: str = TRAINER, config: str = "", incarnation: int = 1) -> FakeClient:
        hello = {"role": role, "config": config, "number": None}
        core = ClientCore(MASTER, "job", MemberId(uid, incarnation), "the master", lambda: hello)
        self.heard[uid] = Listening()
        client = self.network.join("m", core, self.heard[uid])
        self.run()
        return client

    def run(self, seconds: float = 0.0) -> None:
        self.network.advance(seconds)
        self.network.run()
        self.service.work(0.0)
        self.network.run()

    def submit(self, client: FakeClient, kind: str, **body: Any) -> Any:
        answer = client.caller.submit(kind, body, 60.0)
        self.run()
        return answer

    def ask(self, client: FakeClient, kind: str, **body: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self.submit(client, kind, **body).result(0)
        return answer

    def offer(self, client: FakeClient, files: list[str], config: str = "") -> Any:
        return self.submit(client, "offer_dataset", digest=digest_of(files), config=config, files=len(files))

    def send(self, client: FakeClient, files: list[str], first: int = 0, names: list[str] | None = None) -> Any:
        return self.submit(
            client, "dataset_part", digest=digest_of(files), first=first, names=files if names is None else names
        )

    def give(self, client: FakeClient) -> None:
        """Offer the list FILES, and send it."""
        self.offer(client, FILES)
        self.send(client, FILES)

    def report(self, client: FakeClient, task: Mapping[str, Any], outcome: str) -> None:
        body = {"id": task["id"], "epoch": 1, "pass": 0, "samples": 1, "reason": "bad", "next": None}
        self.ask(client, "report_task", outcome=outcome, **body)

    def get(self, client: FakeClient, pass_number: int = 0) -> Any:
        number = next(self.numbers)
        return self.submit(client, "get_task", request=number, patience=30.0, **{"pass": pass_number})


def test_a_list_comes_in_parts_and_a_part_that_comes_twice_changes_nothing() -> None:
    stage = Stage()
    client = stage.join("a")
    assert stage.offer(client, FILES).result(0) == {"state": "send", "next": 0, "pass": 0}
    assert stage.send(client, FILES, 0, FILES[:4]).result(0)["next"] == 4
    assert stage.send(client, FILES, 0, FILES[:4]).result(0)["next"] == 4
    assert stage.send(client, FILES, 4, FILES[4:]).result(0) == {"state": "known", "next": 6, "pass": 0}
    assert stage.service.state.table.files == [tuple(FILES[0:2]), tuple(FILES[2:4]), tuple(FILES[4:6])]


def test_of_two_that_offer_a_list_one_sends_and_the_other_waits() -> None:
    stage = Stage()
    first, second, other = (stage.join(uid) for uid in "abc")
    stage.offer(first, FILES)
    same, different = stage.offer(second, FILES), stage.offer(other, FILES[1:])
    assert not same.done() and not different.done()
    stage.send(first, FILES)
    assert same.result(0)["state"] == "known"
    with pytest.raises(RequestRefusedError, match=r"has 5 files and digest .* of the job's first trainer has 6 files"):
        different.result(0)


def test_the_next_one_sends_when_the_first_is_lost() -> None:
    stage = Stage()
    first, second = stage.join("a"), stage.join("b")
    stage.offer(first, FILES)
    stage.send(first, FILES, 0, FILES[:2])
    waits = stage.offer(second, FILES)
    stage.network.cut(first)
    stage.run(0.1)
    assert waits.result(0) == {"state": "send", "next": 0, "pass": 0}
    assert stage.send(second, FILES).result(0)["state"] == "known"


def test_a_list_that_is_not_as_its_digest_says_is_refused() -> None:
    stage = Stage()
    client = stage.join("a")
    stage.offer(client, FILES)
    with pytest.raises(RequestRefusedError, match="the 6 received files have digest"):
        stage.send(client, FILES, 0, [*FILES[:5], "other"]).result(0)
    with pytest.raises(RequestRefusedError, match="offer it again"):
        stage.send(client, FILES).result(0)
    with pytest.raises(RequestRefusedError, match="the file list is empty"):
        stage.offer(client, []).result(0)


def test_a_trainer_with_another_config_does_not_join() -> None:
    stage = Stage()
    first = stage.join("a", config="a" * 64)
    stage.offer(first, FILES, "a" * 64)
    stage.send(first, FILES)
    assert "this trainer's config has digest bbbb" in stage.join("c", config="b" * 64).caller.trouble
    assert stage.join("d").caller.trouble == ""


def test_a_question_waits_without_a_word_until_there_is_a_task() -> None:
    stage = Stage(files_per_task=6)
    first, second = stage.join("a"), stage.join("b")
    stage.give(first)
    task = stage.get(first).result(0)["task"]
    waits = stage.get(second)
    stage.run(10.0)
    assert not waits.done()
    stage.report(first, task, "failed")
    assert waits.result(0)["task"]["epoch"] == 2


def test_nobody_hears_of_what_is_not_stored() -> None:
    stage = Stage()
    client = stage.join("a")
    stage.give(client)
    stage.store.dies_after = 0
    answer = client.caller.submit("get_task", {"request": 1, "patience": 30.0, "pass": 0}, 5.0)
    with pytest.raises(LeaseLostError):
        stage.run()
    stage.network.run()
    assert not answer.done()
    stage.store.dies_after = None
    stage.begin()
    stage.run(3.0)
    stage.run()
    assert answer.result(0)["task"] == {"id": 0, "epoch": 1, "limit": 1200.0, "files": FILES[:2]}


def test_a_watcher_sees_the_status_and_is_no_member() -> None:
    stage = Stage()
    client, watcher = stage.join("a"), stage.join("w", role=WATCHER)
    stage.give(client)
    stage.get(client)
    status = stage.ask(watcher, "status")
    assert [one["uid"] for one in status["members"]] == ["a"]
    assert (status["todo"], status["pending"], status["phase"]) == (2, 1, "running")
    assert [(one["task"], one["uid"], one["since"]) for one in status["holders"]] == [(0, "a", stage.network.now)]


def test_a_silent_member_loses_its_tasks_and_its_question_is_refused() -> None:
    stage = Stage(files_per_task=3, member_lease=3.0)
    first, second = stage.join("a"), stage.join("b")
    stage.give(first)
    stage.get(first), stage.get(second)
    waits = stage.get(first)
    stage.network.freeze(first)
    for _ in range(8):
        stage.run(1.0)
    assert stage.get(second).result(0)["task"]["id"] == 0
    stage.network.mend(first)
    for _ in range(3):
        stage.run(1.0)
    with pytest.raises((RequestRefusedError, NoAnswerError)):
        waits.result(0)


def test_many_waiting_trainers_are_sent_nothing_until_there_is_something() -> None:
    stage = Stage(files_per_task=6, num_passes=2)
    trainers = [stage.join(f"t{number}") for number in range(200)]
    stage.give(trainers[0])
    task = stage.get(trainers[0]).result(0)["task"]
    waiting = [stage.get(one) for one in trainers[1:]]
    events = stage.service.events
    stage.run(1.0)
    assert stage.service.events - events <= 2
    stage.report(trainers[0], task, "finished")
    assert {one.result(0)["state"] for one in waiting} == {"pass_end"}


def test_a_member_hears_its_number_and_the_view_when_it_is_welcome() -> None:
    stage = Stage()
    first = stage.join("a")
    stage.join("w", role=WATCHER)
    stage.give(first)
    stage.get(first)
    stage.join("b")
    assert [stage.heard[uid].heard[0]["number"] for uid in "awb"] == [0, None, 1]
    assert [stage.heard[uid].heard[0]["view"]["members"] for uid in "ab"] == [[], [0]]


def test_a_member_is_welcome_when_its_number_is_stored() -> None:
    stage = Stage()
    stage.store.dies_after = 1
    with pytest.raises(LeaseLostError):
        stage.join("a")
    stage.network.run()
    assert stage.heard["a"].heard == []
    stage.store.dies_after = None
    stage.begin()
    stage.join("b")
    stage.run(3.0)
    assert [stage.heard[uid].heard[0]["number"] for uid in "ab"] == [0, 1]


def test_a_member_hears_of_a_view_before_the_answer_that_it_comes_from() -> None:
    stage = Stage(files_per_task=3)
    first, second = stage.join("a"), stage.join("b")
    stage.give(first)
    heard: list[int] = []
    for client in (first, second):
        answer = client.caller.submit("get_task", {"request": 9, "patience": 30.0, "pass": 0}, 60.0)
        answer.add_done_callback(lambda _: heard.append(len(stage.heard["b"].heard)))
    stage.run()
    epoch = stage.heard["b"].heard[0]["view"]["epoch"]
    assert stage.heard["b"].heard[1:] == [("view", {"epoch": epoch + 2, "members": [0, 1]})], "one push for both"
    assert heard == [2, 2]


def test_parts_fit_into_messages() -> None:
    files = [f"{'d' * 500}/{number}" for number in range(2000)]
    parts = list(dataset.split_names(files))
    assert [name for part in parts for name in part] == files
    assert len(parts) > 1
    assert max(sum(map(len, part)) for part in parts) < 300_000
    tasks = dataset.group_files(files, 3)
    assert [task for part in dataset.split_tasks(tasks) for task in part] == tasks
