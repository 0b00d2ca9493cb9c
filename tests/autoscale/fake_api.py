"""A Kubernetes API server for tests: nodes, pods, Jobs and Leases behind real HTTPS, with watches and faults."""

from __future__ import annotations

import copy
import http.server
import json
import re
import ssl
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme

Item = dict[str, Any]
PATHS = {
    "nodes": re.compile(r"/api/v1/nodes"),
    "pods": re.compile(r"/api/v1(?:/namespaces/(?P<namespace>[^/]+))?/pods"),
    "jobs": re.compile(r"/apis/batch/v1(?:/namespaces/(?P<namespace>[^/]+))?/jobs(?:/(?P<name>[^/]+))?"),
    "leases": re.compile(r"/apis/coordination.k8s.io/v1/namespaces/(?P<namespace>[^/]+)/leases(?:/(?P<name>[^/]+))?"),
}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WATCH_S = 3.0  # of one watch, whatever was asked for


class FakeApi:
    """The objects, who may do what, and what goes wrong.

    `faults`: (method, kind) -> answers to give first, as (status, headers). `forbidden`: of these, for ever, also
    (method, namespace/kind). `denied`: Jobs that an admission policy holds, and its words. `lacking`: (verb, resource)
    of rights that a SelfSubjectAccessReview does not grant. `ahead_s`: of this server's clock.
    """

    def __init__(self, directory: Path) -> None:
        self.items: dict[str, dict[str, Item]] = {kind: {} for kind in PATHS}
        self.events: list[tuple[str, str, Item]] = []
        self.version = 1
        self.changed = threading.Condition()
        self.faults: defaultdict[tuple[str, str], list[tuple[int, dict[str, str]]]] = defaultdict(list)
        self.forbidden: set[tuple[str, str]] = set()
        self.denied: dict[str, str] = {}
        self.lacking: set[tuple[str, str]] = set()
        self.reviews: list[Item] = []
        self.ahead_s = 0.0
        self.patches: list[tuple[str, Any]] = []
        self.account = directory / "account"
        self.account.mkdir()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.account / "ca.crt"))
        (self.account / "token").write_text("the-token-of-the-test")
        (self.account / "namespace").write_text("science")
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (ApiHandler,), {"api": self}))
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """What a pod of this cluster has."""
        port = str(self._server.server_address[1])
        where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT_HTTPS": port}
        return {**where, "SERVICE_ACCOUNT_DIR": str(self.account)}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def put(self, kind: str, item: Item) -> None:
        """Create or replace an object, and tell watchers."""
        with self.changed:
            metadata = item["metadata"]
            key = f"{metadata.get('namespace', '')}/{metadata['name']}"
            self.version += 1
            metadata["resourceVersion"] = str(self.version)
            metadata.setdefault("uid", f"uid-of-{kind}-{key}")
            event = "MODIFIED" if key in self.items[kind] else "ADDED"
            self.items[kind][key] = copy.deepcopy(item)
            self.events.append((kind, event, copy.deepcopy(item)))
            self.changed.notify_all()

    def remove(self, kind: str, key: str) -> None:
        with self.changed:
            self.version += 1
            item = self.items[kind].pop(key)
            item["metadata"]["resourceVersion"] = str(self.version)
            self.events.append((kind, "DELETED", item))
            self.changed.notify_all()

    def parallelism(self, key: str) -> int:
        with self.changed:
            return int(self.items["jobs"][key]["spec"]["parallelism"])

    # ---- answers
    def review(self, body: Item) -> Item:
        asked = body["spec"]["resourceAttributes"]
        self.reviews.append(asked)
        resource = "/".join(filter(None, [asked["resource"], asked.get("subresource")]))
        return {"status": {"allowed": (asked["verb"], resource) not in self.lacking}}

    def answer(
        self, method: str, kind: str, names: dict[str, str | None], body: Any
    ) -> tuple[int, Item, dict[str, str]]:
        with self.changed:
            if {(method, kind), (method, f"{names.get('namespace')}/{kind}")} & self.forbidden:
                return 403, {"message": f'{kind} is forbidden: User "autoscaler" cannot {method} resource'}, {}
            if self.faults[method, kind]:
                status, headers = self.faults[method, kind].pop(0)
                return status, {"message": f"made to fail with {status}"}, headers
            key = f"{names.get('namespace') or ''}/{names.get('name')}"
            if method == "GET" and not names.get("name"):
                inside = [one for one in self.items[kind].values() if _is_inside(one, names.get("namespace"))]
                return 200, {"metadata": {"resourceVersion": str(self.version)}, "items": copy.deepcopy(inside)}, {}
            found = self.items[kind].get(key)
            if method != "POST" and found is None:
                return 404, {"message": f"{kind} {key} not found"}, {}
            if method == "PATCH" and key in self.denied:
                return 403, {"message": self.denied[key]}, {}
            if method == "PATCH":
                return self._patch(kind, key, body)
            if method in ("POST", "PUT"):
                old = (found or {}).get("metadata", {}).get("resourceVersion")
                if (method == "POST" and found) or (found and body["metadata"].get("resourceVersion") != old):
                    return 409, {"message": "the object has been modified"}, {}
                body["metadata"]["namespace"] = names["namespace"]
                self.put(kind, body)
                key = f"{names['namespace']}/{body['metadata']['name']}"
            return 200, copy.deepcopy(self.items[kind][key]), {}

    def _patch(self, kind: str, key: str, body: Any) -> tuple[int, Item, dict[str, str]]:
        made = copy.deepcopy(self.items[kind][key])
        for step in body:
            *path, last = step["path"].strip("/").split("/")
            place = made
            for name in path:
                place = place[name]
            if step["op"] == "test" and place.get(last) != step["value"]:
                return 422, {"message": "the server rejected our request: testing value failed"}, {}
            place[last] = step["value"]
        self.patches.append((key, body))
        self.put(kind, made)
        return 200, made, {}


def _is_inside(item: Item, namespace: str | None) -> bool:
    return namespace is None or item["metadata"].get("namespace") == namespace


class ApiHandler(http.server.BaseHTTPRequestHandler):
    api: FakeApi  # of the subclass that a server has
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string((time.time() if timestamp is None else timestamp) + self.api.ahead_s)

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def _serve(self) -> None:
        where = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        if self.headers.get("Authorization") != f"Bearer {(self.api.account / 'token').read_text()}":
            return self._reply(401, {"message": "Unauthorized"}, {})
        if where.path == REVIEWS:
            return self._reply(201, self.api.review(body), {})
        for kind, pattern in PATHS.items():
            match = pattern.fullmatch(where.path)
            if match:
                query = parse_qs(where.query)
                if "watch" in query:
                    return self._watch(kind, match.groupdict().get("namespace"), int(query["resourceVersion"][0]))
                return self._reply(*self.api.answer(self.command, kind, match.groupdict(), body))
        return self._reply(404, {"message": "the server could not find the requested resource"}, {})

    do_GET = do_POST = do_PUT = do_PATCH = _serve

    def _reply(self, status: int, item: Item, headers: dict[str, str]) -> None:
        data = json.dumps(item).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _watch(self, kind: str, namespace: str | None, version: int) -> None:
        if {("WATCH", kind), ("WATCH", f"{namespace}/{kind}")} & self.api.forbidden:
            return self._reply(403, {"message": f'{kind} is forbidden: User "autoscaler" cannot watch resource'}, {})
        if self.api.faults["WATCH", kind]:
            status, headers = self.api.faults["WATCH", kind].pop(0)
            return self._reply(status, {"message": f"made to fail with {status}"}, headers)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        sent = 0
        ended = threading.Event()
        timer = threading.Timer(WATCH_S, lambda: (ended.set(), _wake(self.api)))
        timer.daemon = True
        timer.start()
        while not ended.is_set():
            with self.api.changed:
                new, sent = self.api.events[sent:], len(self.api.events)
                if not new:
                    self.api.changed.wait(WATCH_S)
                    continue
            for other, event, item in new:
                is_new = int(item["metadata"]["resourceVersion"]) > version
                if other == kind and is_new and _is_inside(item, namespace):
                    line = json.dumps({"type": event, "object": item}).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")


def _wake(api: FakeApi) -> None:
    with api.changed:
        api.changed.notify_all()


# ---- objects
def node(name: str, cpu: str = "16", **spec: Any) -> Item:
    status = {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"}}
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": spec,
        "status": {**status, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def template(cpu: str = "5") -> Item:
    return {"containers": [{"name": "trainer", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}


def job(name: str, parallelism: int, least: str | None = "1", most: str | None = "60", **metadata: Any) -> Item:
    notes = {"paddle/trainers-min": least, "paddle/trainers-max": most}
    given = {key: text for key, text in notes.items() if text is not None}
    return {
        "metadata": {
            "namespace": "science",
            "name": name,
            "annotations": given,
            "creationTimestamp": "2026-11-23T07:00:00Z",
            **metadata,
        },
        "spec": {"parallelism": parallelism, "template": {"spec": template()}},
        "status": {},
    }


def pod(name: str, of: str = "", on: str = "", cpu: str = "5", phase: str = "Running") -> Item:
    owner = [{"kind": "Job", "uid": f"uid-of-jobs-science/{of}", "controller": True}] if of else []
    metadata = {"namespace": "science", "name": name, "ownerReferences": owner}
    return {
        "metadata": {**metadata, "creationTimestamp": "2026-11-23T07:00:00Z"},
        "spec": {**template(cpu), **({"nodeName": on} if on else {})},
        "status": {"phase": phase if on else "Pending"},
    }
