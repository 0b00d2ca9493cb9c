from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from each import each

from paddle_cluster.localcluster.api.objects import PodState, pod_object
from paddle_cluster.localcluster.api.routes import ApiResponse, Routes, parse_request
from paddle_cluster.localcluster.api.selectors import SelectorError, parse_field_selector, parse_label_selector
from paddle_cluster.localcluster.api.store import PodStore

PODS = "/api/v1/namespaces/default/pods"


def running(name: str, job: str = "j", **about: Any) -> dict[str, Any]:
    return pod_object(PodState(name, job, f"uid-{name}", "job-uid", phase="Running", ip="127.9.0.2", **about))


@pytest.fixture
def store() -> PodStore:
    store = PodStore()
    for number in range(5):
        store.put(running(f"j-{number}", index=number, labels={"tier": "even" if number % 2 == 0 else "odd"}))
    store.put(running("other-0", job="other"))
    store.put(running("j-9", namespace="elsewhere"))
    return store


@pytest.fixture
def routes(store: PodStore) -> Routes:
    return Routes(store, "t", "default")


def ask(
    routes: Routes, path: str = PODS, method: str = "GET", token: str | None = "t", **query: Any
) -> tuple[ApiResponse, Any]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    response = routes.answer(parse_request(method, f"{path}?{urlencode(query)}", headers, 1))
    return response, json.loads(response.body)


def names(routes: Routes, **query: Any) -> list[str]:
    return [pod["metadata"]["name"] for pod in ask(routes, **query)[1]["items"]]


def test_a_list_has_the_namespaces_pods_sorted_by_name(routes: Routes):
    response, body = ask(routes)
    assert (response.status, body["kind"], body["apiVersion"]) == (200, "PodList", "v1")
    assert [pod["metadata"]["name"] for pod in body["items"]] == ["j-0", "j-1", "j-2", "j-3", "j-4", "other-0"]
    assert "continue" not in body["metadata"]


def test_resource_versions_rise_with_every_change(routes: Routes, store: PodStore):
    before = int(ask(routes)[1]["metadata"]["resourceVersion"])
    store.put(running("j-0"))
    after = ask(routes)[1]
    assert int(after["metadata"]["resourceVersion"]) == before + 1
    assert after["items"][0]["metadata"]["resourceVersion"] == str(before + 1)


def test_a_removed_pod_is_gone(routes: Routes, store: PodStore):
    assert store.remove("j-0")
    assert not store.remove("j-0")
    assert "j-0" not in names(routes)


def test_one_pod_is_got_by_name(routes: Routes):
    response, body = ask(routes, f"{PODS}/j-3")
    assert (response.status, body["kind"], body["metadata"]["name"]) == (200, "Pod", "j-3")


# ----- refusals -----

REFUSALS = {
    "wrong token": ({"token": "x"}, 401, "Unauthorized", "Unauthorized"),
    "no token": ({"token": None}, 401, "Unauthorized", "Unauthorized"),
    "other namespace": (
        {"path": "/api/v1/namespaces/elsewhere/pods"},
        403,
        "Forbidden",
        'pods is forbidden: User "system:serviceaccount:default:default" cannot list resource "pods" in API group "" '
        'in the namespace "elsewhere"',
    ),
    "other verb": (
        {"path": f"{PODS}/j-0", "method": "DELETE"},
        403,
        "Forbidden",
        'pods is forbidden: User "system:serviceaccount:default:default" cannot delete resource "pods" in API group "" '
        'in the namespace "default"',
    ),
    "unknown pod": ({"path": f"{PODS}/none"}, 404, "NotFound", 'pods "none" not found'),
    "unknown path": ({"path": "/apis/x"}, 404, "NotFound", "the server could not find the requested resource"),
    "watch": ({"watch": "true"}, 405, "MethodNotAllowed", "watch is not served here; list again"),
    "bad selector": ({"labelSelector": "a in b"}, 400, "BadRequest", "unable to parse requirement: 'a in b'"),
    "bad limit": ({"limit": "-1"}, 400, "BadRequest", "limit: '-1' is no number"),
    "bad resourceVersion": (
        {"resourceVersion": "abc"},
        400,
        "BadRequest",
        "invalid resource version: resourceVersion: 'abc'",
    ),
    "bad continue": ({"continue": "%%%"}, 400, "BadRequest", "continue key is not valid"),
}


@pytest.mark.parametrize(("question", "code", "reason", "message"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_a_status_object(routes: Routes, question: dict[str, Any], code: int, reason: str, message: str):
    response, body = ask(routes, **question)
    assert response.status == code
    assert body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


# ----- paging -----


def test_pages_join_to_the_whole_list(routes: Routes):
    found, token = [], ""
    while True:
        body = ask(routes, limit=2, labelSelector="job-name=j", **{"continue": token})[1]
        found.append([pod["metadata"]["name"] for pod in body["items"]])
        token = body["metadata"].get("continue", "")
        if not token:
            break
    assert found == [["j-0", "j-1"], ["j-2", "j-3"], ["j-4"]]


def test_the_first_page_says_how_many_remain_where_nothing_is_selected(routes: Routes):
    assert ask(routes, limit=4)[1]["metadata"]["remainingItemCount"] == 2
    assert "remainingItemCount" not in ask(routes, limit=4, labelSelector="job-name")[1]["metadata"]


def test_a_list_from_memory_has_no_pages(routes: Routes):
    body = ask(routes, limit=2, resourceVersion="0", labelSelector="job-name=j")[1]
    assert len(body["items"]) == 5 and "continue" not in body["metadata"]


def test_a_list_at_least_as_new_as_one_that_is_still_to_come_is_refused_for_now(routes: Routes):
    version = int(ask(routes)[1]["metadata"]["resourceVersion"])
    assert ask(routes, resourceVersion=version)[0].status == 200
    response, body = ask(routes, resourceVersion=version + 1)
    assert (response.status, body["reason"], response.headers["Retry-After"]) == (504, "Timeout", "1")


def test_a_later_page_shows_the_list_as_it_was_at_the_first(routes: Routes, store: PodStore):
    token = ask(routes, limit=2)[1]["metadata"]["continue"]
    store.remove("j-3")
    assert names(routes, **{"continue": token}) == ["j-2", "j-3", "j-4", "other-0"]


def test_a_page_of_a_forgotten_list_is_expired(routes: Routes, store: PodStore):
    token = ask(routes, limit=2)[1]["metadata"]["continue"]
    for _ in range(PodStore.SNAPSHOTS_KEPT + 1):
        store.put(running("j-0"))
        ask(routes)
    response, body = ask(routes, **{"continue": token})
    assert (response.status, body["reason"]) == (410, "Expired")


# ----- selectors -----

LABELS = {"job-name": "j", "batch.kubernetes.io/job-name": "j", "tier": "even"}
SELECTORS = {
    "": True,
    "job-name=j": True,
    "job-name==j": True,
    "job-name=k": False,
    "job-name!=k": True,
    "none!=k": True,
    "job-name=j,tier=even": True,
    "job-name=j,tier=odd": False,
    "batch.kubernetes.io/job-name=j": True,
    "tier in (odd,even)": True,
    "tier in (odd)": False,
    "tier notin (odd)": True,
    "none notin (odd)": True,
    "none in (odd)": False,
    "tier": True,
    "!tier": False,
    "!none": True,
    "none": False,
    "tier in (odd, even), job-name = j": True,
    "none=": False,
}


@each(("selector", "fits"), SELECTORS.items())
def test_label_selectors_choose(selector: str, fits: bool):
    assert parse_label_selector(selector)({"metadata": {"labels": LABELS}}) is fits


FIELDS = {
    "": True,
    "status.phase=Running": True,
    "status.phase!=Running": False,
    "metadata.name==j-0": True,
    "status.phase=Running,metadata.name=k": False,
}


@pytest.mark.parametrize(("selector", "fits"), FIELDS.items())
def test_field_selectors_choose(selector: str, fits: bool):
    assert parse_field_selector(selector)(running("j-0")) is fits


@pytest.mark.parametrize("selector", ["a=b=c", "=b", "a in b", "a,,b", "a in (b"])
def test_a_label_selector_that_does_not_parse_is_an_error(selector: str):
    with pytest.raises(SelectorError):
        parse_label_selector(selector)


@pytest.mark.parametrize("selector", ["spec.x=1", "status.phase"])
def test_a_field_selector_for_other_fields_is_an_error(selector: str):
    with pytest.raises(SelectorError):
        parse_field_selector(selector)
