"""The signs of life of a worker."""

from __future__ import annotations

from unittest import mock

import pytest

from paddle_cluster.elastic.process import membership


def test_a_worker_says_at_once_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was frozen in its first two seconds had never said anything, and the others waited for it for ever."""
    client = mock.Mock()
    monkeypatch.setattr(membership, "RendezvousClient", mock.Mock(return_value=client))
    worker = membership.WorkerMembership()
    worker._stop.set()
    worker._beat()
    client.heartbeat.assert_called_once_with("localhost", 0, "", 0, (), "")
