"""Which trainer gives the first values, and what happens when it dies on the way."""

import json
import threading

import pytest

from paddle_base.registry.directory import DirectoryRegistry
from paddle_base.registry.servers import INIT_DONE, INIT_LOCK
from paddle_base.runtime.errors import ConfigError, LostPeerError, PeerUnreachableError, StoppedError
from trainer.updaters.tasks import first_values as module
from trainer.updaters.tasks.first_values import agree_on_first_values

DEADLINE = 20.0


def agree(registry, give=lambda: None, name="trainer 1", digest="a.1-b.2", patience=DEADLINE):
    agree_on_first_values(registry, name, digest, give, patience)


def test_the_first_trainer_gives_its_values_and_the_second_takes_them(registry):
    given = []
    agree(registry, lambda: given.append(1), "trainer 1")
    agree(registry, lambda: given.append(2), "trainer 2")
    assert given == [1]
    done = registry.read(INIT_DONE)[INIT_DONE].value
    assert json.loads(done) == {"by": "trainer 1", "digest": "a.1-b.2"}
    assert INIT_LOCK not in registry.read("init/")


def test_of_many_at_a_time_one_gives(registry):
    given, threads = [], []
    for number in range(6):
        threads.append(threading.Thread(target=agree, args=(registry, lambda n=number: given.append(n))))
        threads[-1].start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    assert len(given) == 1


def test_when_giving_fails_the_lock_is_free_at_once_and_nothing_says_done(registry):
    def fail():
        raise LostPeerError("a server is gone")

    with pytest.raises(LostPeerError):
        agree(registry, fail)
    assert registry.read("init/") == {}
    given = []
    agree(registry, lambda: given.append(2))
    assert given == [2]


def test_a_holder_that_died_is_followed_by_the_next_trainer(tmp_path):
    dead = DirectoryRegistry(tmp_path, 0.3)
    assert dead.claim(INIT_LOCK, "trainer 0 (died)")
    given = []
    agree(DirectoryRegistry(tmp_path, 0.3), lambda: given.append(1))
    assert given == [1]


def test_a_holder_that_was_frozen_says_nothing_and_another_one_gives(tmp_path):
    """It thaws when another one has the lock: what it would say then is refused."""
    mine, other = (DirectoryRegistry(tmp_path, 60.0) for _ in range(2))
    given = []

    class Frozen:
        """A registry whose claim is another one's from the moment that it is used."""

        def __getattr__(self, name):
            return getattr(mine, name)

        def claim(self, key, value):
            claim = mine.claim(key, value)
            if claim is None:
                return None
            if not given:
                claim.release()
                agree(other, lambda: given.append("other"), "trainer 2")
                assert mine.read(INIT_DONE)
            return claim

    agree(Frozen(), lambda: given.append("frozen"))
    assert given == ["other"]
    assert json.loads(mine.read(INIT_DONE)[INIT_DONE].value)["by"] == "trainer 2"


def test_the_lock_is_kept_while_values_travel_for_longer_than_its_time_to_live(tmp_path):
    mine, other = (DirectoryRegistry(tmp_path, 0.3) for _ in range(2))
    order, is_other_waiting = [], threading.Event()

    def give():
        order.append("begins")
        thread.start()
        assert is_other_waiting.wait(DEADLINE)
        for _ in range(4):  # the other one has looked for longer than the time to live
            known = other.read("init/")
            other.wait("init/", known, 0.3)
        order.append("ends")

    def look(prefix, known, timeout):
        is_other_waiting.set()
        return other.__class__.wait(other, prefix, known, timeout)

    other.wait = look
    thread = threading.Thread(target=agree, args=(other, lambda: order.append("other")))
    agree(mine, give)
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert order == ["begins", "ends"]


def test_values_of_another_model_are_refused_and_both_trainers_are_named(registry):
    agree(registry, name="trainer 1", digest="a.1-b.2")
    with pytest.raises(ConfigError, match=r"trainer 1 sent values for a\.1-b\.2, and trainer 2 has c\.3-b\.2"):
        agree(registry, name="trainer 2", digest="c.3-b.2")


@pytest.mark.parametrize("value", ["", "[]", "{}", '{"by": 1, "digest": "d"}', "{" * 5000, '{"digest": "d"}'])
def test_a_done_mark_that_no_trainer_writes_is_refused(registry, value):
    registry.put(INIT_DONE, value)
    with pytest.raises(ConfigError, match="which no trainer writes"):
        agree(registry)


def test_the_wait_for_a_holder_has_an_end_and_names_it(registry, monkeypatch):
    monkeypatch.setattr(module, "WATCH_S", 0.01)
    registry.claim(INIT_LOCK, "trainer 7 (pod-a)")
    with pytest.raises(PeerUnreachableError, match=r"trainer 7 \(pod-a\) has not sent"):
        agree(registry, patience=0.1)


def test_a_trainer_that_is_to_stop_waits_for_no_other_ones_values(registry):
    assert registry.claim(INIT_LOCK, "trainer 0")

    def look():
        raise StoppedError("stopped by SIGTERM")

    with pytest.raises(StoppedError):
        agree_on_first_values(registry, "trainer 1", "a.1-b.2", lambda: None, DEADLINE, look)
