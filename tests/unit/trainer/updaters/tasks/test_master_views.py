"""Which view a trainer goes on with, and when it knows that its task is gone."""

import threading

import pytest

from paddle_base.runtime.errors import PeerUnreachableError, StoppedError
from pserver.wire.views import MembershipView
from trainer.updaters.tasks import views as module
from trainer.updaters.tasks.errors import TaskTakenError
from trainer.updaters.tasks.views import MasterViews

DEADLINE = 20.0


class Clock:
    """Every look at it takes some seconds."""

    def __init__(self, seconds):
        self.now, self.seconds = 0.0, seconds

    def __call__(self):
        self.now += self.seconds
        return self.now


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "LOOK_S", 0.001)


def test_a_view_with_this_trainer_is_there_at_once(master):
    views = MasterViews(master, 60.0)
    master.tell(5, 1, 3)
    assert views.newest == MembershipView(5, (1, 3)) == views.wait(4)


def test_a_later_view_is_waited_for_when_a_service_has_named_it(master, monkeypatch):
    monkeypatch.setattr(module, "LOOK_S", DEADLINE)
    views = MasterViews(master, 60.0)
    master.tell(5, 3)
    found = []
    thread = threading.Thread(target=lambda: found.append(views.wait(7)))
    thread.start()
    master.tell(6, 3)
    master.tell(8, 3, 4)
    thread.join(DEADLINE)
    assert found == [MembershipView(8, (3, 4))]


def test_the_servers_are_told_of_every_view(master):
    told = []
    MasterViews(master, 60.0, tell=lambda: told.append(master.view.epoch))
    master.tell(5, 1)
    master.tell(6, 1)
    assert told == [5, 6]


def test_a_trainer_in_no_view_has_lost_its_task(master):
    views = MasterViews(master, 60.0, Clock(1.0))
    master.tell(5, 1, 2)
    with pytest.raises(TaskTakenError, match=r"trainer 3 is not among .* a task \(in epoch 5, these are 1, 2\)"):
        views.wait(0)


def test_a_task_may_come_before_the_view(master):
    class Late(Clock):
        def __call__(self):
            if self.now > 2.0:
                master.tell(6, 3)
            return super().__call__()

    views = MasterViews(master, 60.0, Late(1.0))
    master.tell(5, 1)
    assert views.wait(0) == MembershipView(6, (3,))


@pytest.mark.parametrize("view", [(0,), (5, 3)])
def test_an_epoch_that_the_master_never_names_is_waited_for_with_an_end(master, view):
    views = MasterViews(master, 60.0, Clock(20.0))
    master.tell(*view)
    with pytest.raises(PeerUnreachableError, match="has not sent epoch 9 within 60 s"):
        views.wait(9)


def test_a_trainer_that_is_to_stop_waits_for_no_view(master):
    def look():
        raise StoppedError("stopped by SIGTERM")

    with pytest.raises(StoppedError):
        MasterViews(master, 60.0, look=look).wait(9)
