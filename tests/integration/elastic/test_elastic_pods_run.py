"""`paddle elastic run --discovery=kubernetes` against an API server over TLS; the pods' agents are real processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import elastic_hold
import pytest
from elastic_agents import LIMIT_S, SECRET, started_agents
from ports import free_ports
from test_elastic_agents import A, B, read_pids, wait_for_size
from test_elastic_run import started

from paddle_cluster.localcluster.api.routes import ApiResponse
from paddle_cluster.localcluster.api.server import ApiServer
from paddle_cluster.localcluster.api.store import PodStore

C = "127.0.0.4"
LABELS = {"app.kubernetes.io/part-of": "paddle", "app.kubernetes.io/component": "worker"}


def pod(name: str, address: str, slots: int = 1, **metadata: Any) -> dict[str, Any]:
    own = {"name": name, "uid": f"uid-of-{address}", "labels": LABELS, "annotations": {"paddle/slots": str(slots)}}
    status = {"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": "True"}]}
    created = {"creationTimestamp": f"2026-11-23T10:00:0{address[-1]}Z"}
    return {"metadata": {**own, **created, **metadata}, "spec": {}, "status": status}


def test_pods_are_the_hosts_of_a_job_while_the_api_server_has_its_troubles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PodStore()
    store.put(pod("worker-0", A, 2))
    store.put(pod("worker-1", B))
    store.put({**pod("other", C), "metadata": {**pod("other", C)["metadata"], "labels": {}}})
    account = tmp_path / "account"
    account.mkdir()
    port = free_ports(1)[0]
    with ApiServer(store) as api, started_agents(tmp_path, port, A, B, C) as agents:
        api.write_service_account(account)
        for name, value in {
            "PADDLE_SECRET": SECRET,
            "KUBERNETES_SERVICE_HOST": api.host,
            "KUBERNETES_SERVICE_PORT_HTTPS": str(api.port),
            "SERVICE_ACCOUNT_DIR": str(account),
        }.items():
            monkeypatch.setenv(name, value)
        flags = ["-np", "3", "--min-np", "2", "--discovery", "kubernetes", "--agent-port", str(agents.port)]
        with started(tmp_path, *flags, worker=[sys.executable, elastic_hold.__file__, str(tmp_path)]) as process:
            wait_for_size(tmp_path, 3)
            pids = read_pids(tmp_path, "worker-?.?")
            assert sorted(pids) == ["worker-0.0", "worker-0.1", "worker-1.0"]
            failures = iter(
                [ApiResponse.failure(429, "TooManyRequests", "slow down"), ApiResponse.failure(500, "x", "y")]
            )
            api.hook = lambda _request: next(failures, None)
            store.put(pod("worker-1", B, deletionTimestamp="2026-11-23T10:00:30Z"))
            wait_for_size(tmp_path, 2)
            store.remove("worker-1")
            store.put(pod("worker-1", C))
            wait_for_size(tmp_path, 3)
            again = read_pids(tmp_path, "worker-?.?")
            (tmp_path / "stop").touch()
            _, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, log
    assert {slot for slot in pids if pids[slot] == again[slot]} == {"worker-0.0", "worker-0.1"}
    assert log.count("the pods cannot be listed, and the last 2 hosts are used") == 2
    assert "the API server lists the pods again" in log
    assert "reports FAILURE" not in log
