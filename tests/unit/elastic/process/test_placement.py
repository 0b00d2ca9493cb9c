"""What a worker reads from its environment, and that it says at once that it lives."""

from __future__ import annotations

from unittest import mock

import pytest

from paddle_base.runtime.errors import ConfigError
from paddle_cluster.elastic.process import membership
from paddle_cluster.elastic.process.placement import ProcessPlacement, read_placement, read_settings

PLACE = ProcessPlacement("host-2", 3, 4, 1, 2, 1, 2, 0)


def test_without_a_launcher_a_worker_is_alone() -> None:
    assert read_placement({}) == ProcessPlacement()
    settings = read_settings({})
    assert (settings.address, settings.is_elastic, settings.timeout) == ("", False, 30.0)


def test_a_slot_is_read_as_it_was_written() -> None:
    assert read_placement(PLACE.variables()) == PLACE
    assert read_placement({**PLACE.variables(), "PADDLE_ELASTIC_GENERATION": "7"}).generation == 7


@pytest.mark.parametrize(
    ("name", "value"),
    [("HOROVOD_SIZE", "many"), ("HOROVOD_LOCAL_RANK", ""), ("HOROVOD_RANK", "4"), ("HOROVOD_CROSS_SIZE", "-1")],
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name.replace("SIZE", "")):
        read_placement({**PLACE.variables(), name: value})


def test_seconds_that_are_none_are_named() -> None:
    with pytest.raises(ConfigError, match="HOROVOD_GLOO_TIMEOUT_SECONDS is 'soon'"):
        read_settings({"HOROVOD_GLOO_TIMEOUT_SECONDS": "soon"})


def test_the_driver_is_where_the_variables_say() -> None:
    settings = read_settings(
        {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "7000", "HOROVOD_ELASTIC": "1"}
    )
    assert (settings.address, settings.port, settings.is_elastic) == ("10.0.0.1", 7000, True)


def test_a_worker_says_at_once_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was frozen in its first two seconds had never said anything, and the others waited for it for ever."""
    client = mock.Mock()
    monkeypatch.setattr(membership, "RendezvousClient", mock.Mock(return_value=client))
    worker = membership.WorkerMembership()
    worker._stop.set()
    worker._beat()
    client.heartbeat.assert_called_once_with("localhost", 0, "", 0, (), "")
