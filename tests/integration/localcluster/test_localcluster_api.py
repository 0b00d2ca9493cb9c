"""The API server over real TLS connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from waiting import until

from paddle_cluster.localcluster import ApiResponse, ApiServer, PodState, PodStore, pod_object
from paddle_cluster.localcluster.api import server

TIMEOUT = 20


def fill(store: PodStore, count: int) -> None:
    for number in range(count):
        address = f"10.0.{number // 250}.{number % 250 + 1}"
        state = PodState(f"j-{number}-abcde", "j", f"uid-{number}", "c", index=number, phase="Running", ip=address)
        store.put(pod_object(state))


@pytest.fixture
def api() -> Iterator[ApiServer]:
    store = PodStore()
    fill(store, 3)
    with ApiServer(store, token="t") as api:
        yield api


def ask(api: ApiServer, token: str = "t", **more: float) -> requests.Response:
    url = f"{api.url}/api/v1/namespaces/default/pods?labelSelector=job-name=j"
    headers = {"Authorization": f"Bearer {token}"}
    return requests.get(url, headers=headers, verify=api.ca_file, timeout=more.get("timeout", TIMEOUT))


def test_pods_are_listed_over_tls(api: ApiServer):
    assert len(ask(api).json()["items"]) == 3


def test_a_client_without_the_ca_refuses_the_server(api: ApiServer):
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(api.url, verify=True, timeout=TIMEOUT)


def test_the_service_account_files_let_a_client_in(api: ApiServer, tmp_path):
    api.write_service_account(tmp_path / "account")
    files = {path.name: path.read_text() for path in (tmp_path / "account").iterdir()}
    assert (files["token"], files["namespace"]) == ("t", "default")
    assert "BEGIN CERTIFICATE" in files["ca.crt"]


def test_a_token_that_was_changed_is_refused_and_the_new_one_let_in(api: ApiServer):
    api.token = "new"
    assert [ask(api).status_code, ask(api, "new").status_code] == [401, 200]
    assert api.statuses == {401: 1, 200: 1}


FAULTS = {
    "401": (ApiResponse.failure(401, "Unauthorized", "Unauthorized"), 401),
    "403": (ApiResponse.failure(403, "Forbidden", "pods is forbidden"), 403),
    "429": (ApiResponse.failure(429, "TooManyRequests", "slow down", Retry_After="1"), 429),
    "500": (ApiResponse.failure(500, "InternalError", "etcd"), 500),
    "HTML": (ApiResponse.html(), 200),
    "empty": (ApiResponse.empty(), 200),
}


@pytest.mark.parametrize(("fault", "status"), FAULTS.values(), ids=FAULTS)
def test_a_hook_answers_a_fault_once(api: ApiServer, fault: ApiResponse, status: int):
    api.hook = lambda request: fault if request.number == 1 else None
    broken, whole = ask(api), ask(api)
    assert (broken.status_code, broken.content) == (status, fault.body)
    assert broken.headers["Content-Type"] == fault.content_type
    assert broken.headers.get("Retry-After") == fault.headers.get("Retry-After")
    assert len(whole.json()["items"]) == 3


def test_a_request_that_hangs_does_not_hold_up_others_nor_the_end(api: ApiServer):
    api.hook = lambda request: ApiResponse.never() if request.number == 1 else None
    with pytest.raises(requests.exceptions.ReadTimeout):
        ask(api, timeout=0.2)
    assert ask(api).status_code == 200


def test_a_client_that_never_shakes_hands_does_not_hold_up_others(api: ApiServer):
    with socket.create_connection((api.host, api.port), timeout=TIMEOUT):
        assert ask(api).status_code == 200


def test_the_end_cuts_connections_that_are_kept_alive():
    with ApiServer(PodStore(), token="t") as api, requests.Session() as session:
        url = f"{api.url}/api/v1/namespaces/default/pods"
        session.get(url, headers={"Authorization": "Bearer t"}, verify=api.ca_file, timeout=TIMEOUT)
    until(lambda: count_threads() == 0, "the end of the request's thread")


def test_a_connection_that_says_nothing_gets_no_thread(api: ApiServer):
    """Each connection had a thread for 300 s, whatever it said."""
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(socket.create_connection((api.host, api.port), TIMEOUT))
        assert ask(api).status_code == 200
        until(lambda: count_threads() == 0, "the end of the request's thread")


def test_a_tls_handshake_that_does_not_go_on_keeps_no_thread(api: ApiServer, monkeypatch: pytest.MonkeyPatch):
    """After its first byte a connection had a thread for 300 s."""
    monkeypatch.setattr(server, "LIMITS", server.LIMITS._replace(head_s=0.1))
    with socket.create_connection((api.host, api.port), TIMEOUT) as stream:
        stream.sendall(b"\x16")
        assert stream.recv(1) == b""


def count_threads() -> int:
    return sum(thread.name == "request" for thread in threading.enumerate())


def test_a_thousand_pods_are_listed_to_many_clients_while_they_change():
    store = PodStore()
    fill(store, 1000)
    with ApiServer(store, token="t") as api:

        def list_all(_: int) -> set[str]:
            return {pod["status"]["podIP"] for pod in ask(api).json()["items"]}

        with ThreadPoolExecutor(16) as pool:
            answers = pool.map(list_all, range(48))
            fill(store, 50)
        assert {len(addresses) for addresses in answers} == {1000}
        assert api.request_count == 48
        assert 0 < api.peak_rate() <= 48


@pytest.mark.parametrize("length", ["-1", "x", "9" * 5000, "9" * 17], ids=lambda length: length[:5])
def test_a_request_without_a_usable_length_is_refused_and_its_connection_closed(api: ApiServer, length: str):
    """A negative length made the server read until the client went away."""
    headers = {"Authorization": "Bearer t", "Content-Length": length}
    with requests.Session() as session:
        request = session.prepare_request(requests.Request("GET", f"{api.url}/api/v1/namespaces/default/pods"))
        request.headers.update(headers)
        assert session.send(request, verify=api.ca_file, timeout=TIMEOUT).status_code == 400
