"""The claim of a server's index, and what it says to the server's loop."""

import pytest

from paddle_base.registry import keeping
from paddle_base.registry.directory import DirectoryRegistry
from paddle_base.registry.records import JobEnd
from paddle_base.runtime.errors import DamagedError, LeaseLostError, PeerUnreachableError, VolumeError
from pserver.life import lease as module
from pserver.life import server_life
from pserver.life.lease import LeaseKeeper
from pserver.life.server_life import GOODBYE_S, TaskLife


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


class FakeClaim:
    """A claim whose renewals do what the test says."""

    key, token, ttl = "ps/3", 7, 5.0

    def __init__(self, clock):
        self.clock, self.valid_until = clock, clock.now + 5.0
        self.trouble = None

    def renew(self):
        if self.trouble is not None:
            raise self.trouble
        self.valid_until = self.clock.now + 5.0


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(keeping, "time", made)
    monkeypatch.setattr(server_life, "time", made)
    return made


@pytest.fixture
def claim(clock):
    return FakeClaim(clock)


@pytest.fixture
def keeper(clock, claim, tmp_path):
    return LeaseKeeper(DirectoryRegistry(tmp_path), claim)


def test_a_claim_that_is_renewed_is_valid(clock, keeper):
    for _ in range(5):
        clock.now += 4.0
        keeper.renew()
        assert keeper.is_valid and keeper.error is None and keeper.end is None


@pytest.mark.parametrize("kind", [PeerUnreachableError, VolumeError])
def test_a_registry_that_is_away_for_a_while_suspends_the_server(clock, keeper, claim, kind):
    life = TaskLife(keeper, 600.0)
    assert life.begin_turn()
    claim.trouble = kind("no etcd answers")
    clock.now += 4.0
    keeper.renew()
    assert life.begin_turn()
    clock.now += 1.0
    keeper.renew()
    assert not life.begin_turn() and not keeper.is_valid and keeper.error is None
    claim.trouble = None
    keeper.renew()
    assert life.begin_turn()


def test_a_registry_that_stays_away_is_an_error_in_the_end(clock, keeper, claim):
    claim.trouble = PeerUnreachableError("no etcd answers")
    clock.now += 5.0 + module.SUSPENDED_S
    keeper.renew()
    assert keeper.error is None
    clock.now += 1.0
    keeper.renew()
    with pytest.raises(LeaseLostError, match="could not be renewed for 606 s: no etcd answers"):
        TaskLife(keeper, 600.0).begin_turn()


def test_a_server_that_was_frozen_answers_nothing_before_its_claim_is_looked_at(clock, keeper, claim):
    """Its thread has not run yet either."""
    life = TaskLife(keeper, 600.0)
    clock.now += 60.0
    assert not life.begin_turn()
    claim.trouble = LeaseLostError("it was not renewed")
    keeper.renew()
    with pytest.raises(LeaseLostError):
        life.begin_turn()


def test_the_thread_renews_until_the_end(tmp_path):
    registry = DirectoryRegistry(tmp_path, 0.3)
    claim = registry.claim("ps/0", "")
    with LeaseKeeper(registry, claim) as keeper:
        first = claim.valid_until
        while claim.valid_until == first or keeper.end is None:
            assert keeper.error is None
            registry.put("job/end", JobEnd("out of data").value)
    assert keeper.end == JobEnd("out of data")


def test_an_end_of_the_job_that_is_none_ends_the_server(keeper, tmp_path):
    DirectoryRegistry(tmp_path).put("job/end", "over")
    keeper.renew()
    assert isinstance(keeper.error, DamagedError)


class FakeService:
    def __init__(self):
        self.sessions, self.trainers = self, []

    def list_present(self):
        return self.trainers


class FakeSnapshots:
    def turn(self, interval):
        return interval == 600.0


def test_a_job_is_over_when_its_trainers_have_left_or_had_the_time_to(clock, keeper):
    life, service = TaskLife(keeper, 600.0), FakeService()
    assert not life.end_turn()
    life.begin([FakeService(), service], FakeSnapshots())
    assert life.end_turn() and not life.is_over
    service.trainers.append(1)
    keeper.end = JobEnd()
    assert not life.is_over
    clock.now += GOODBYE_S - 1
    assert not life.is_over
    service.trainers.clear()
    assert life.is_over
    service.trainers.append(1)
    clock.now += 1
    assert life.is_over
