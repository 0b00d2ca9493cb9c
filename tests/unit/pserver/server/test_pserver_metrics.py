"""What /healthz, /readyz and /metrics answer, and what a server's metrics say (no sockets)."""

import builtins
import re
from http import HTTPStatus
from types import SimpleNamespace

import pytest
from each import each
from prometheus_client.parser import text_string_to_metric_families
from tasks_wire import ElasticWire

from paddle_base.runtime.health import metrics
from paddle_base.runtime.health.liveness import Liveness
from paddle_base.runtime.health.metrics import Exposition, Metric, Sample, add_up, label_of
from paddle_base.runtime.network.pages import Pages, reply
from pserver.optim.settings import Optimization
from pserver.server import server_metrics
from pserver.server.event_loop import Options, Server
from pserver.server.server_metrics import METRICS, ServerMetrics
from pserver.wire.connection import Traffic
from pserver.wire.protocol import Op

ASYNCHRONOUS = Optimization("momentum", 0.1, algorithm="async_sgd")


def get(pages, path):
    return reply(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), pages.answer).decode()


def test_a_program_is_live_and_ready_until_it_says_why_not():
    why = {"stuck": "", "not_ready": "no values yet"}
    pages = Pages(lambda: why["stuck"], lambda: why["not_ready"])
    assert get(pages, "/healthz").endswith("\r\n\r\nok\n")
    assert get(pages, "/readyz").startswith("HTTP/1.1 503 ") and get(pages, "/readyz").endswith("no values yet\n")
    why["not_ready"] = ""
    assert get(pages, "/readyz?verbose=1").startswith("HTTP/1.1 200 OK\r\n")
    why["stuck"] = "it is stuck"
    assert [get(pages, path).endswith("\r\n\r\nit is stuck\n") for path in ("/healthz", "/readyz")] == [True, True]


@each(
    "head, status",
    [
        (b"GET /healthz HTTP/1.0\n\n", 200),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /\xff\xfe HTTP/1.1\r\n\r\n", 404),
        (b"GET http://x/healthz HTTP/1.1\r\n\r\n", 404),
        (b"POST /healthz HTTP/1.1\r\n\r\n", 405),
        (b"GET /healthz\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\n\n", 400),
    ],
)
def test_whatever_is_asked_gets_an_answer(head, status):
    answer = reply(head, Pages(lambda: "", lambda: "").answer)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    (length,) = re.findall(rb"Content-Length: (\d+)", answer)
    body = answer.split(b"\r\n\r\n", 1)[1]
    assert len(body) == (0 if head.startswith(b"HEAD") else int(length))


def test_without_the_library_metrics_are_answered_with_what_to_install(monkeypatch):
    real = builtins.__import__

    def missing(name, *arguments):
        if name.startswith("prometheus_client"):
            raise ModuleNotFoundError(name)
        return real(name, *arguments)

    monkeypatch.setattr(metrics.importlib, "import_module", missing)
    pages = Pages(lambda: "", lambda: "", Exposition(list))
    answer = pages.answer("/metrics")
    assert answer.status is HTTPStatus.NOT_IMPLEMENTED and "pip install" in answer.text
    assert pages.answer("/healthz").status is HTTPStatus.OK


def test_a_page_is_made_once_in_a_while_however_often_it_is_asked_for():
    made = []
    pages = Pages(lambda: "", lambda: "", Exposition(lambda: made.append(1) or []))
    assert pages.answer("/metrics") is pages.answer("/metrics")
    assert len(made) == 1


def test_trainers_beyond_the_limit_share_one_series():
    waited = Metric("paddle_x_seconds_total", "x", ("trainer",))
    assert [label_of(number) for number in (0, 127, 128, 999)] == ["0", "127", "others", "others"]
    samples = [Sample(waited, 1.5, (label_of(number),)) for number in (0, 500, 600)]
    assert list(add_up(samples)) == [Sample(waited, 1.5, ("0",)), Sample(waited, 3.0, ("others",))]


def series(read):
    """Every series on the page: {(name, label values): value}."""
    exposition = Exposition(read)
    assert exposition.is_there
    text, kind = exposition.render()
    assert kind.startswith("text/plain")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def served(wire, request):
    """A server whose one service is that of a wire, after two rounds in which trainer 1 was 1.25 s late."""
    ticks = iter(range(1000))
    period = getattr(request, "param", 500)  # batches
    wire = wire(2, clock=lambda: float(next(ticks)), log_period=period)  # every step takes a second
    server = Server([], Options(num_trainers=2, job="job", attempt="2.ab"))
    port = SimpleNamespace(service=wire.service, traffic=Traffic(), list_unsent=lambda: [0, 3, 2])
    port.traffic.received, port.traffic.sent = 1000, 500
    server.services, server.listeners = [wire.service], [port]
    yield wire, server
    server._poller.close()


def test_a_servers_metrics_are_what_it_did(served):
    wire, server = served
    liveness = Liveness()
    liveness.turned = wire.now
    read = ServerMetrics(server, 60.0, liveness).read
    assert series(read)["paddle_pserver_ready", "10.0.0.1:7164"] == 0
    one, two = wire.ready()
    for _ in range(2):
        one.push(1)
        wire.now += 1.25
        two.push(1)
    liveness.turned = wire.now + 3
    found = series(read)
    name = "10.0.0.1:7164"
    assert found["paddle_build_info", "2.ab", "job", "pserver", "0.11.0"] == 1
    assert found["paddle_pserver_ready", name] == 1
    assert found["paddle_pserver_rounds_total", name] == 2
    assert found["paddle_pserver_round_seconds_total", name] == 2.5
    assert found["paddle_pserver_step_seconds_total", name] == 2
    assert found["paddle_pserver_wait_seconds_total", name, "1"] == 2.5
    assert found["paddle_pserver_wait_seconds_total", name, "0"] == 0
    assert found["paddle_pserver_silence_seconds", name, "0"] == 4.25
    assert found["paddle_pserver_silence_seconds", name, "1"] == 3
    assert found["paddle_pserver_received_bytes_total", name] == 1000
    assert found["paddle_pserver_sent_bytes_total", name] == 500
    assert found["paddle_pserver_connections", name] == 3 and found["paddle_pserver_queue_messages", name] == 5
    assert found["paddle_pserver_wanted_trainers", name] == found["paddle_pserver_joined_trainers", name] == 2
    assert "process_resident_memory_bytes" in {key[0] for key in found}
    for trainer in (one, two):
        trainer.ask(Op.FINISH_PASS)
    found = series(read)
    assert found["paddle_pserver_passes_total", name] == 1 and found["paddle_pserver_silence_seconds", name, "1"] == 0


@pytest.mark.parametrize("served", [1], indirect=True, ids=["a period of one batch"])
def test_waits_are_counted_through_the_log_periods(served):
    wire, server = served
    one, two = wire.ready()
    for _ in range(3):
        one.push(1)
        wire.now += 0.5
        two.push(1)
    assert series(ServerMetrics(server, 60.0).read)["paddle_pserver_wait_seconds_total", "10.0.0.1:7164", "1"] == 1.5


def test_lag_is_counted_by_trainer(served):
    wire, server = served
    one, two = wire.ready(optimization=ASYNCHRONOUS)
    for trainer in (one, one, one, two, two):  # the first of trainer 1 is the fourth step: too old
        trainer.push(1)
    found = series(ServerMetrics(server, 60.0).read)
    name = "10.0.0.1:7164"
    assert [found["paddle_pserver_async_gradients_total", name, k] for k in "01"] == [3, 2]
    assert [found["paddle_pserver_discarded_gradients_total", name, k] for k in "01"] == [0, 1]
    assert found["paddle_pserver_lag_steps_total", name] == 1 + 1 + 1 + 4 + 1


def test_every_series_is_in_the_table_of_metrics(served):
    wire, server = served
    wire.ready()
    known = {metric.name for metric in METRICS}
    assert {sample.metric.name for sample in ServerMetrics(server, 60.0).read()} <= known
    assert len(known) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"paddle_(build|pserver)_[a-z_]+", metric.name), metric.name


def test_a_server_is_stuck_when_its_loop_has_not_turned_for_long_and_ready_when_it_has_values(served):
    wire, server = served
    liveness = Liveness()
    seen = ServerMetrics(server, 60.0, liveness)
    assert seen.why_stuck() == "" and seen.why_not_ready() == "no trainer has joined yet"
    wire.trainer(0).join()
    assert seen.why_not_ready() == "no values yet on 10.0.0.1:7164"
    wire.ready()
    assert seen.why_not_ready() == ""
    liveness.turned -= 61
    assert seen.why_stuck() == "the main loop of the pserver has made no progress for 61 s"
    server.listeners = []
    assert seen.why_not_ready() == "the ports are not bound"
    assert server_metrics.LIVENESS is not liveness


def test_the_metrics_of_an_elastic_server_are_of_the_trainers_that_are_there():
    wire = ElasticWire()
    server = Server([], Options(job="job", attempt="ps0.7"))
    server.services = [wire.service]
    liveness = Liveness()
    read = ServerMetrics(server, 60.0, liveness).read
    one, two = wire.ready(2, optimization=ASYNCHRONOUS)
    one.push_alone(1, 1.0)
    one.push_alone(2, 1.0)
    wire.now += 2
    two.push_alone(1, 1.0)
    liveness.turned = wire.now + 1
    found, name = series(read), "10.0.0.1:7164"
    assert [found[f"paddle_pserver_{one}", name] for one in ("ready", "joined_trainers", "rounds_total")] == [1, 2, 0]
    assert [found["paddle_pserver_async_gradients_total", name, number] for number in "01"] == [2, 1]
    assert [found["paddle_pserver_silence_seconds", name, number] for number in "01"] == [3, 1]
    assert not {"paddle_pserver_wanted_trainers", "paddle_pserver_passes_total"} & {key[0] for key in found}
    two.ask(Op.GOODBYE)
    found = series(read)
    assert found["paddle_pserver_joined_trainers", name] == 1
    assert ("paddle_pserver_silence_seconds", name, "1") not in found
    assert found["paddle_pserver_async_gradients_total", name, "1"] == 1
    server._poller.close()
