"""Passes workers' requests to the driver, except for requests that only read or write a value of the store.

- `GET /rank_and_size/<host>:<local_rank>?incarnation=I&generation=G&state=0|1&wait=S` is answered with six integers.
  The status 204 means that the worker has to repeat the request.
- `PUT /worker_addresses/<host>:<local_rank>` has the body {"incarnation", "addresses": [[ip, port], ...]}.
- `PUT /places/<host>:<local_rank>` has the body {"incarnation", "holder"}, and is answered with {"holder"}: the process
  that has the place of the worker, because it has asked first. With {"is_newcomer": true} it has to ask for its rank.
- `PUT /leaving/<host>:<local_rank>` has the body {"incarnation"}, and is answered with {"leaves"}: whether a worker
  that has received SIGTERM is to leave at its next commit.
- `GET /newcomers/all` is answered with {"start"}: whether new workers start that have not joined yet.
- `PUT /heartbeat/<host>:<local_rank>` has the body {"incarnation", "generation", "addresses", "holder"}.
- `PUT /done/<host>:<local_rank>` has the body {"incarnation"}.
"""

from __future__ import annotations

import json
from http import HTTPStatus

from paddle_base.runtime import glog
from paddle_base.runtime.schema import Integer, Items, Record, Row, SchemaError, Shape, Such, Text, parse_object
from paddle_cluster.elastic.http_server import MOST_WAIT_S, PUT_PLACES, HttpAnswer, HttpRequest, RendezvousHandler
from paddle_cluster.elastic.rendezvous_client import GENERATION_HEADER, GROUP_SCOPE, NEWCOMERS_SCOPE
from paddle_cluster.elastic.worker_reports import WorkerReports

GET_RANK_AND_SIZE = "rank_and_size"
PUT_WORKER_ADDRESSES = "worker_addresses"
MOST_TEXT = 200  # maximum characters of an incarnation and of an address
MOST_ADDRESSES = 64
MOST_JSON_BYTES = 16 << 10
_TEXT = Such(Text(MOST_TEXT), str.isprintable, "a printable text")
_FIELDS: dict[str, Shape] = {
    "incarnation": _TEXT,
    "holder": _TEXT,
    "generation": Integer(0, (1 << 31) - 1),
    "addresses": Items(Row((_TEXT, Integer(1, 65535))), MOST_ADDRESSES),
}
_BODY, _ADDRESSES = Record(*_FIELDS, **_FIELDS), Record("incarnation", "holder", "generation", **_FIELDS)


def create_rendezvous_handler(driver: WorkerReports) -> type[RendezvousHandler]:
    """Return a handler for a `RendezvousServer` that passes requests to a driver."""

    class ElasticRendezvousHandler(RendezvousHandler):
        """Answers the requests of elastic workers."""

        def answer(self, request: HttpRequest) -> HttpAnswer:
            if not driver.is_open:
                return HttpAnswer(HTTPStatus.SERVICE_UNAVAILABLE, b"the driver does not know its workers yet\n")
            try:
                given = answer_worker(driver, request)
            except SchemaError as exc:
                return HttpAnswer(HTTPStatus.BAD_REQUEST, f"{exc}\n".encode())
            except Exception as exc:  # a single request must end neither the driver nor the server
                glog.error(
                    f"cannot answer {request.method} /{request.scope}/{glog.clean(request.key)}: "
                    f"{type(exc).__name__}: {exc}"
                )
                return HttpAnswer(HTTPStatus.INTERNAL_SERVER_ERROR, b"the driver could not answer\n")
            return super().answer(request) if given is None else given

    return ElasticRendezvousHandler


def answer_worker(driver: WorkerReports, request: HttpRequest) -> HttpAnswer | None:
    """Return the answer to a worker's request, or None if the store has to answer the request.

    Raises: SchemaError: the request is malformed.
    """
    match request.method, request.scope:
        case "GET", scope if scope == GET_RANK_AND_SIZE:
            return _answer_rank(driver, request)
        case "GET", scope if scope == NEWCOMERS_SCOPE:
            return HttpAnswer(HTTPStatus.OK, json.dumps({"start": driver.has_newcomers()}).encode())
        case "PUT", scope if scope in ("heartbeat", "done", "leaving", PUT_PLACES, PUT_WORKER_ADDRESSES):
            host, local_rank = _read_slot(request.key)
            return _take(driver, request, host, local_rank)
        case "PUT", scope if scope.startswith(GROUP_SCOPE):
            driver.record_joined(
                _read_number(scope.removeprefix(GROUP_SCOPE), "generation"), _read_number(request.key, "rank")
            )
            return None
        case _:
            return None


def _answer_rank(driver: WorkerReports, request: HttpRequest) -> HttpAnswer:
    host, local_rank = _read_slot(request.key)
    incarnation = request.query.get("incarnation", "")
    _TEXT.check(incarnation, "incarnation")
    generation = _read_number(request.query.get("generation", "0"), "generation")
    wait = request.wait if "wait" in request.query else MOST_WAIT_S
    has_state = request.query.get("state", "1") != "0"
    found = driver.query_rank(host, local_rank, incarnation, generation, wait, has_state)
    if found is None:
        return HttpAnswer(HTTPStatus.NO_CONTENT)
    slot, new = found
    return HttpAnswer(HTTPStatus.OK, slot.to_response_string().encode(), {GENERATION_HEADER: str(new)})


def _take(driver: WorkerReports, request: HttpRequest, host: str, local_rank: int) -> HttpAnswer:
    if len(request.body) > MOST_JSON_BYTES:
        raise SchemaError("size", "the body is too long")
    shape = _ADDRESSES if request.scope == PUT_WORKER_ADDRESSES else _BODY
    fields = parse_object(request.body, shape, "the body", depth=3, values=4 * MOST_ADDRESSES)
    incarnation, holder = fields.get("incarnation", ""), fields.get("holder", "")
    addresses = [(host, port) for host, port in fields.get("addresses", [])]
    if request.scope == PUT_PLACES:
        found = driver.claim_place(host, local_rank, incarnation, holder)
        answer: dict[str, object] = {"holder": found}
        if driver.is_newcomer(host, local_rank, incarnation):
            answer["is_newcomer"] = True
        return HttpAnswer(HTTPStatus.OK, json.dumps(answer).encode())
    if request.scope == "leaving":
        leaves = driver.record_leaving(host, local_rank, incarnation)
        return HttpAnswer(HTTPStatus.OK, json.dumps({"leaves": leaves}).encode())
    if request.scope == "done":
        driver.record_done(host, local_rank, incarnation)
    elif request.scope == "heartbeat":
        driver.record_heartbeat(host, local_rank, incarnation, fields.get("generation", 0), addresses, holder)
    else:
        driver.register_worker_addresses(host, local_rank, incarnation, addresses)
    return HttpAnswer(HTTPStatus.OK)


def _read_slot(key: str) -> tuple[str, int]:
    host, colon, local_rank = key.rpartition(":")
    if not host or not colon:
        raise SchemaError("form", "a slot has the form <host>:<local rank>")
    return host, _read_number(local_rank, "local rank")


def _read_number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise SchemaError("form", f"{name} is no number")
    return int(text)
