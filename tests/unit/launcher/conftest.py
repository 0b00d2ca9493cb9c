"""Every test here reads on stdout what the launcher says."""

import pytest
from launching import launcher_log

from paddle_cluster.launcher.cluster import call_slots, kubernetes


@pytest.fixture(autouse=True)
def no_wait_for_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of the API server leave at once; test_launcher_call_slots has Pacer itself."""

    class AtOnce(call_slots.Pacer):
        def wait(self) -> None:
            pass

    monkeypatch.setattr(kubernetes, "Pacer", AtOnce)


__all__ = ["launcher_log"]
