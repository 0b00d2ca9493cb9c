"""The order of the run loop (spec/elastic.md 1.6), told by what it calls."""

from __future__ import annotations

from unittest import mock

import pytest

from paddle_cluster.elastic.errors import HorovodInternalError, HostsUpdatedInterrupt
from paddle_cluster.elastic.process.membership import WORKER
from paddle_cluster.elastic.process.placement import WorkerSettings
from paddle_cluster.elastic.state import run_fn


class ToldState:
    """Writes down what is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.addresses: tuple[tuple[str, int], ...] = ()

    def sync(self) -> None:
        self.calls.append("sync")

    def restore(self) -> None:
        self.calls.append("restore")

    def on_reset(self) -> None:
        self.calls.append("on_reset")

    def init(self) -> None:
        self.calls.append("listen")

    def register_listener(self, listener: object) -> None:
        assert listener is self
        self.calls.append("register")

    def remove_listener(self, listener: object) -> None:
        assert listener is self
        self.calls.append("remove")


def train(*endings: object) -> tuple[ToldState, object]:
    """Runs a function that ends in these ways, one after the other."""
    told, left = ToldState(), list(endings)

    def function(state: ToldState, argument: int) -> object:
        assert argument == 5
        state.calls.append("train")
        ending = left.pop(0)
        if isinstance(ending, BaseException):
            raise ending
        return ending

    def finish() -> None:
        told.calls.append("finish")

    def reset() -> None:
        told.calls.append("reset")

    try:
        with mock.patch("paddle_cluster.elastic.state.notification_manager", told):
            return told, run_fn(function, reset, finish)(told, argument=5)
    except Exception as exc:
        return told, exc


def test_a_normal_end() -> None:
    told, result = train("done")
    assert result == "done"
    assert told.calls == ["listen", "register", "sync", "train", "finish", "remove"]


def test_a_failure_restores_before_the_next_generation_and_syncs_after_it() -> None:
    told, _ = train(HorovodInternalError("lost"), "done")
    assert told.calls[3:] == ["train", "restore", "reset", "on_reset", "sync", "train", "finish", "remove"]


@pytest.mark.parametrize("is_elastic", [True, False])
def test_only_an_elastic_job_promises_to_continue_after_a_failure(
    is_elastic: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker of a fixed job said that the training continues, and the driver ended it."""
    monkeypatch.setattr(WORKER, "settings", WorkerSettings(is_elastic=is_elastic))
    train(HorovodInternalError("rank 1 is lost"), "done")
    said = capsys.readouterr().err
    assert ("training continues from the last commit: rank 1 is lost" in said) == is_elastic
    assert ("this job ends, because its number of workers is fixed" in said and "--min-np 1" in said) != is_elastic


def test_a_change_of_hosts_keeps_the_state_and_syncs() -> None:
    told, _ = train(HostsUpdatedInterrupt(), "done")
    assert told.calls[3:] == ["train", "reset", "on_reset", "sync", "train", "finish", "remove"]


def test_skip_sync_is_taken_once() -> None:
    told, _ = train(HostsUpdatedInterrupt(True), HorovodInternalError("lost"), "done")
    assert told.calls[3:] == [
        *["train", "reset", "on_reset"],
        *["train", "restore", "reset", "on_reset"],
        *["sync", "train", "finish", "remove"],
    ]


def test_another_exception_ends_the_loop_and_is_no_success() -> None:
    told, error = train(ValueError("wrong"))
    assert isinstance(error, ValueError)
    assert told.calls == ["listen", "register", "sync", "train", "remove"]


def test_the_wrapped_function_keeps_its_name() -> None:
    def named(state: object) -> None: ...

    assert run_fn(named, lambda: None).__name__ == "named"


@pytest.mark.parametrize("count", [1, 5])
def test_there_is_no_limit_of_repetitions_in_the_worker(count: int) -> None:
    told, _ = train(*[HorovodInternalError("lost")] * count, "done")
    assert told.calls.count("train") == count + 1
