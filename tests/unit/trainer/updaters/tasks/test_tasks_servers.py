"""How servers are found, joined, and joined again; the services themselves are faked."""

import threading

import pytest

from paddle_base.registry.servers import JOB_END
from paddle_base.runtime.errors import ConfigError, LostPeerError, PeerUnreachableError, StoppedError
from pserver.client.tasks.services import TaskModel
from pserver.optim.settings import Optimization, ParameterSpec
from trainer.updaters.tasks import servers as module
from trainer.updaters.tasks.errors import TaskTakenError
from trainer.updaters.tasks.servers import TaskServers

DEADLINE = 20.0
DENSE, TABLE = [ParameterSpec("w", 4)], [ParameterSpec("t", 8, sparse_update=True)]
PLAIN = Optimization("momentum", 1.0)


class FakeServices:
    """Joined services; `refusals` are raised by the next joins, one after the other."""

    made, refusals = [], []

    def __init__(self, dense, sparse, model, **options):
        if self.refusals:
            found = self.refusals.pop(0)
            raise found() if callable(found) else found
        self.dense, self.sparse, self.options = dense, sparse, options
        self.given, self.told, self.is_closed = [], 0, False
        self.made.append(self)

    def give(self, values, tables):
        self.given.append((values, tables))

    def fetch(self, values, pass_number):
        self.fetched = pass_number

    def tell_view(self):
        self.told += 1

    def close(self):
        self.is_closed = True


@pytest.fixture(autouse=True)
def made(monkeypatch):
    monkeypatch.setattr(module, "JoinedServices", FakeServices)
    monkeypatch.setattr(FakeServices, "made", [])
    monkeypatch.setattr(FakeServices, "refusals", [])
    monkeypatch.setattr(module, "WATCH_S", 0.01)
    return FakeServices.made


@pytest.fixture
def servers(registry, membership):
    return TaskServers(registry, membership)


def connect(servers, tables=()):
    servers.connect(TaskModel(DENSE, tables, PLAIN), "values", "tables")


def test_all_services_are_joined_server_by_server_with_the_attempt_of_each(servers, registered, made):
    zero = registered.start(0, "10.0.0.1", (7164, 7165), (9000,))
    one = registered.start(1, "10.0.0.2", (7164, 7165), (9001,))
    connect(servers, TABLE)
    assert [tuple(each) for each in made[0].dense] == [
        ("10.0.0.1", 7164, zero),
        ("10.0.0.1", 7165, zero),
        ("10.0.0.2", 7164, one),
        ("10.0.0.2", 7165, one),
    ]
    assert [tuple(each) for each in made[0].sparse] == [("10.0.0.1", 9000, zero), ("10.0.0.2", 9001, one)]
    options = made[0].options
    assert (options["trainer_id"], options["uid"], options["incarnation"]) == (3, "pod", 1)
    assert (made[0].given, made[0].fetched) == ([("values", "tables")], 0)


def test_a_second_trainer_gives_nothing_and_takes_the_values(servers, registry, membership, registered, made):
    registered.start(0), registered.start(1)
    connect(TaskServers(registry, membership))
    connect(servers)
    assert [len(one.given) for one in made] == [1, 0]
    assert made[1].fetched == 0


def test_missing_servers_are_waited_for_and_named(servers, registered, monkeypatch, capfd, made):
    monkeypatch.setattr(module, "WAIT_LINE_S", 0.0)
    registered.start(0)
    thread = threading.Thread(target=connect, args=(servers,))
    thread.start()
    for _ in range(1000):
        if "for parameter server 1 of 2" in (text := capfd.readouterr().err):
            break
        thread.join(0.02)
    assert "for parameter server 1 of 2" in text
    registered.start(1)
    thread.join(DEADLINE)
    assert len(made) == 1


def test_the_wait_for_servers_has_an_end_and_names_them(registry, membership, registered):
    registered.start(1)
    hasty = TaskServers(registry, type(membership)(**vars(membership) | {"patience": 0.1}))
    with pytest.raises(PeerUnreachableError, match=r"waited \d s for parameter server 0 of 2; start the missing"):
        connect(hasty)


def test_before_any_server_was_ever_started_that_is_said(tmp_path, membership):
    from paddle_base.registry.directory import DirectoryRegistry

    hasty = TaskServers(DirectoryRegistry(tmp_path, 5.0), type(membership)(**vars(membership) | {"patience": 0.1}))
    with pytest.raises(PeerUnreachableError, match="none was ever started for this job"):
        connect(hasty)


def test_a_lost_server_is_named_and_what_was_done_is_done_again(servers, registered, made, capfd):
    registered.start(0), registered.start(1)
    connect(servers)
    calls = []

    def act(services):
        calls.append(services)
        if len(calls) == 1:
            registered.end(1)
            registered.start(1, "10.0.0.9")
            raise LostPeerError("pserver 10.0.0.2:7164 is lost: it does not answer")
        return "done"

    assert servers.run(act) == "done"
    assert calls == made
    assert [one.is_closed for one in made] == [True, False]
    assert made[1].dense[1].host == "10.0.0.9"
    assert capfd.readouterr().err.count("pserver 10.0.0.2:7164 is lost: it does not answer; this trainer waits") == 1


def test_servers_that_cannot_be_joined_yet_are_asked_again(servers, registered, made):
    """A server's claim outlives it by its time to live."""
    registered.start(0), registered.start(1)
    FakeServices.refusals[:] = [PeerUnreachableError("does not answer"), LostPeerError("was lost meanwhile")]
    connect(servers)
    assert len(made) == 1


def test_what_no_waiting_mends_is_raised_at_once(servers, registered, made):
    registered.start(0), registered.start(1)
    FakeServices.refusals[:] = [ConfigError("another model")]
    with pytest.raises(ConfigError, match="another model"):
        connect(servers)


def test_servers_that_are_lost_again_and_again_end_the_trainer_at_last(registry, membership, registered):
    registered.start(0), registered.start(1)
    hasty = TaskServers(registry, type(membership)(**vars(membership) | {"patience": 0.2}))

    def act(services):
        raise LostPeerError("lost again")

    with pytest.raises(LostPeerError, match="lost again"):
        hasty._model = TaskModel(DENSE, (), PLAIN)
        hasty.run(act)


def test_while_servers_are_joined_a_new_one_in_the_registry_ends_the_trial(servers, registered, made, monkeypatch):
    monkeypatch.setattr(module, "RECORDS_S", 0.0)
    registered.start(0), registered.start(1)
    connect(servers)
    refuse = made[0].options["refuse"]
    assert refuse() is None
    registered.end(1)
    assert "parameter server 1 of 2" in str(refuse())
    registered.start(1)
    assert "was started again" in str(refuse())


def test_when_the_job_is_over_nobody_waits_for_servers(servers, registry):
    registry.put(JOB_END, '{"phase": "done", "reason": ""}')
    with pytest.raises(TaskTakenError, match="the job is over"):
        connect(servers)


def test_servers_with_other_ports_are_refused_by_name(servers, registered):
    registered.start(0, ports=(1, 2)), registered.start(1, ports=(1,))
    with pytest.raises(ConfigError, match="server 0 has 2 ports and 0 sparse ports, but server 1 has 1 ports and 0"):
        connect(servers)


def test_tables_need_sparse_ports(servers, registered):
    registered.start(0), registered.start(1)
    with pytest.raises(ConfigError, match=r"have no ports for tables; give `paddle pserver`"):
        connect(servers, TABLE)


def test_only_synchronous_training_tells_the_servers_of_views(servers, registered, master, made):
    registered.start(0), registered.start(1)
    connect(servers)
    master.tell(4, 3)
    assert made[0].options["view"]() == (4, (3,))
    assert made[0].told == 1
    other = TaskServers(servers._registry, servers._membership)
    other.connect(TaskModel(DENSE, (), Optimization("momentum", 1.0, algorithm="async_sgd")), "values", "tables")
    assert made[1].options["view"]() is None
    master.tell(5, 3)
    assert made[1].told == 0


def test_the_trainer_that_begins_the_job_says_so_before_it_gives_values(registry, membership, registered, made):
    registered.start(0), registered.start(1)
    begun = []

    def begin():
        begun.append([len(one.given) for one in made])

    for _ in range(2):
        connect(TaskServers(registry, type(membership)(**vars(membership) | {"begin": begin})))
    assert begun == [[0]]


def test_a_trainer_that_is_to_stop_waits_for_no_server(registry, membership):
    def look():
        raise StoppedError("stopped by SIGTERM")

    waiting = TaskServers(registry, type(membership)(**vars(membership) | {"look": look}))
    with pytest.raises(StoppedError):
        connect(waiting)
