"""Trainers that find no master, because the job is over."""

import pytest

from paddle_base.registry.directory import DirectoryRegistry
from paddle_base.registry.records import JobEnd
from paddle_base.registry.servers import JOB_END
from paddle_base.runtime.errors import DamagedError, DataError, PeerUnreachableError
from trainer.tasks.job_end import EndWatch, JobOverError, tell_end


class Watched:
    """A watch whose master and clock are the test's."""

    def __init__(self, registry):
        self.now, self.is_joined, self.looks = 100.0, False, 0
        self.watch = EndWatch(registry, lambda: self.is_joined, self.look, lambda: self.now)

    def look(self):
        self.looks += 1

    def at(self, now, *, is_joined=False):
        self.now, self.is_joined = now, is_joined
        self.watch()


@pytest.fixture
def registry(tmp_path):
    return DirectoryRegistry(tmp_path, 5.0)


def test_the_registry_is_asked_only_without_a_master_and_not_too_often(registry):
    watched = Watched(registry)
    watched.at(100.0)
    registry.put(JOB_END, JobEnd().value)
    watched.at(101.9)
    watched.at(103.0, is_joined=True)
    with pytest.raises(JobOverError) as caught:
        watched.at(103.1)
    assert caught.value.end == JobEnd() and watched.looks == 4


def test_a_registry_that_is_away_says_nothing():
    class Away:
        def read(self, prefix):
            raise PeerUnreachableError("etcd is away")

    Watched(Away()).at(100.0)


def test_a_key_that_no_master_writes_is_named(registry):
    registry.put(JOB_END, "tomorrow")
    with pytest.raises(DamagedError, match="job/end"):
        Watched(registry).at(100.0)


def test_a_late_trainer_ends_as_the_job_has(capsys):
    tell_end(JobEnd())
    assert "the job is over: all its passes are done" in capsys.readouterr().err
    with pytest.raises(DataError, match="the master has ended the job: all 3 tasks of pass 0 have failed"):
        tell_end(JobEnd("all 3 tasks of pass 0 have failed"))
