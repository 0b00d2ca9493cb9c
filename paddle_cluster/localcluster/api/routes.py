"""Computes the API's response to a request from the pods of the store, without sockets."""

from __future__ import annotations

import base64
import binascii
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from paddle_cluster.localcluster.api.objects import status_object
from paddle_cluster.localcluster.api.selectors import SelectorError, parse_field_selector, parse_label_selector
from paddle_cluster.localcluster.api.store import PodListSnapshot, PodStore, StoredPod


@dataclass(frozen=True)
class ApiRequest:
    """One request; `number` counts from 1, and header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    number: int = 1


@dataclass(frozen=True)
class ApiResponse:
    """One response; if `hang` is set, the server sends nothing and keeps the connection open until the server ends."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: bool = False

    @classmethod
    def failure(cls, code: int, reason: str, message: str, **headers: str) -> ApiResponse:
        """Return a response with a Status object; the argument Retry_After="1" becomes the header `Retry-After: 1`."""
        body = json.dumps(status_object(code, reason, message)).encode()
        return cls(code, body, headers={name.replace("_", "-"): value for name, value in headers.items()})

    @classmethod
    def html(cls, status: int = 200) -> ApiResponse:
        """Return an HTML page, such as the error page of a proxy between client and server."""
        return cls(status, b"<html><body><h1>Bad Gateway</h1></body></html>", "text/html")

    @classmethod
    def empty(cls, status: int = 200) -> ApiResponse:
        """Return a response without a body."""
        return cls(status, b"")

    @classmethod
    def never(cls) -> ApiResponse:
        """Return a response that is never sent."""
        return cls(0, b"", hang=True)


Hook = Callable[[ApiRequest], ApiResponse | None]


def parse_request(method: str, target: str, headers: Mapping[str, str], number: int) -> ApiRequest:
    """Return the request that a request line and its headers describe."""
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return ApiRequest(method, parts.path, query, {name.lower(): value for name, value in headers.items()}, number)


class Routes:
    """Answers list and get requests for pods in one namespace, for one user with one token.

    Thread safety: any thread can call `answer`. Lists that many clients request repeatedly (1000 waiting launchers) are
    encoded once per version of the store.
    """

    LISTS_KEPT = 8

    def __init__(self, store: PodStore, token: str | None, namespace: str, service_account: str = "default"):
        """Set the only accepted token (None: no token is needed) and the only namespace that can be read."""
        self.token = token
        self._store = store
        self._namespace = namespace
        self._user = f"system:serviceaccount:{namespace}:{service_account}"
        self._lists: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def answer(self, request: ApiRequest) -> ApiResponse:
        """Return the response to a request."""
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            return ApiResponse.failure(401, "Unauthorized", "Unauthorized")
        match = re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods(?:/([^/]+))?/?", request.path)
        if match is None:
            return ApiResponse.failure(404, "NotFound", "the server could not find the requested resource")
        namespace, name = match[1], match[2]
        verb = {"GET": "get" if name else "list", "POST": "create", "DELETE": "delete", "PUT": "update"}
        if namespace != self._namespace or request.method != "GET":
            return self._forbidden(verb.get(request.method, "patch"), namespace)
        if request.query.get("watch") in ("1", "true"):
            return ApiResponse.failure(405, "MethodNotAllowed", "watch is not served here; list again")
        return self._get(namespace, name) if name else self._list(namespace, request.query)

    def _forbidden(self, verb: str, namespace: str) -> ApiResponse:
        message = f'pods is forbidden: User "{self._user}" cannot {verb} resource "pods" in API group ""'
        return ApiResponse.failure(403, "Forbidden", f'{message} in the namespace "{namespace}"')

    def _get(self, namespace: str, name: str) -> ApiResponse:
        pod = self._store.get(name, namespace)
        if pod is None:
            return ApiResponse.failure(404, "NotFound", f'pods "{name}" not found')
        return ApiResponse(200, json.dumps(pod.body).encode())

    def _list(self, namespace: str, query: Mapping[str, str]) -> ApiResponse:
        start = ""
        version = None
        if query.get("continue"):
            try:
                version, start = _decode_continue(query["continue"])
            except ValueError:
                return ApiResponse.failure(400, "BadRequest", "continue key is not valid")
        snapshot = self._store.snapshot(version)
        if snapshot is None:
            message = "The provided continue parameter is too old to display a consistent list result."
            return ApiResponse.failure(410, "Expired", message)
        limit, oldest = query.get("limit", "0"), query.get("resourceVersion") or ""
        if not limit.isdecimal():
            return ApiResponse.failure(400, "BadRequest", f"limit: {limit!r} is no number")
        if oldest and not oldest.isdecimal():
            return ApiResponse.failure(400, "BadRequest", f"invalid resource version: resourceVersion: {oldest!r}")
        if int(oldest or 0) > snapshot.version:
            message = f"Timeout: Too large resource version: {oldest}, current: {snapshot.version}"
            return ApiResponse.failure(504, "Timeout", message, Retry_After="1")
        if oldest == "0":  # Kubernetes answers such a request from a cache, and then ignores `limit`
            limit = "0"
        selectors = (query.get("labelSelector", ""), query.get("fieldSelector", ""))
        key = (snapshot.version, namespace, *selectors, start, int(limit))
        try:
            return ApiResponse(200, self._encoded_list(key, snapshot))
        except SelectorError as error:
            return ApiResponse.failure(400, "BadRequest", str(error))

    def _encoded_list(self, key: tuple[Any, ...], snapshot: PodListSnapshot) -> bytes:
        with self._lock:
            if key in self._lists:
                return self._lists[key]
        _, namespace, labels, fields, start, limit = key
        fits, fields_fit = parse_label_selector(labels), parse_field_selector(fields)
        pods = [
            pod
            for pod in snapshot.pods
            if pod.name > start and pod.namespace == namespace and fits(pod.body) and fields_fit(pod.body)
        ]
        encoded = _encode_page(pods, snapshot.version, limit, counted=not labels and not fields)
        with self._lock:
            self._lists[key] = encoded
            while len(self._lists) > self.LISTS_KEPT:
                self._lists.popitem(last=False)
        return encoded


def _encode_page(pods: list[StoredPod], version: int, limit: int, counted: bool) -> bytes:
    page = pods[:limit] if limit else pods
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if len(page) < len(pods):
        metadata["continue"] = _encode_continue(version, page[-1].name)
        if counted:
            metadata["remainingItemCount"] = len(pods) - len(page)
    head = json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": metadata})[:-1].encode()
    return head + b', "items": [' + b",".join(pod.encoded for pod in page) + b"]}"


def _encode_continue(version: int, name: str) -> str:
    return base64.urlsafe_b64encode(json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": name}).encode()).decode()


def _decode_continue(token: str) -> tuple[int, str]:
    try:
        content = json.loads(base64.urlsafe_b64decode(token.encode()))
        return int(content["rv"]), str(content["start"])
    except (binascii.Error, UnicodeError, KeyError, TypeError) as error:
        raise ValueError(token) from error
