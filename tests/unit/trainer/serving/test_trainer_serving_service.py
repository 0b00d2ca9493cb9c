"""`paddle serve` over HTTP, in this process: the requests of the Book, lists, bad requests, and the limits."""

import http.client
import json
import socket
import tarfile
import threading
import time

import numpy as np
import pytest
from each import each
from waiting import DEADLINE_S, until

import paddle.v2 as paddle
from paddle.v2 import data_type, layer
from paddle_base.runtime.command import FlagValues
from paddle_base.runtime.errors import DataError, PaddleError
from paddle_base.runtime.network import bodies
from trainer.serving import batcher
from trainer.serving.flags import FLAGS
from trainer.serving.server import ModelServer

WORDS = 7


class Model:
    """Files of a network with an image and words: the mean of an embedding and a product, or a tag for each word."""

    def __init__(self, directory, kind="vector"):
        image = layer.data(name="img", type=data_type.dense_vector(4))
        words = layer.data(name="words", type=data_type.integer_value_sequence(WORDS))
        embedding = layer.embedding(input=words, size=3)
        tags = layer.fc(input=embedding, size=2, act=paddle.activation.Softmax())
        mean = layer.pooling(input=embedding, pooling_type=paddle.pooling.Avg())
        joined = layer.fc(input=[image, mean], size=2, act=paddle.activation.Softmax())
        self.output = {"vector": joined, "tags": tags, "id": layer.max_id(input=joined), "both": [joined, tags]}[kind]
        self.names = ["words"] if kind == "tags" else ["img", "words"]
        self.write(directory)

    def write(self, directory):
        """Writes the two files, with random parameters."""
        self.parameters = paddle.parameters.create(self.output)
        draw = np.random.default_rng(3)
        for name in self.parameters.names():
            self.parameters.set(name, draw.random(self.parameters.get_shape(name), np.float32))
        self.tar, self.topology = directory / "model.tar", directory / "topology"
        with self.tar.open("wb") as file:
            self.parameters.to_tar(file)
        with self.topology.open("wb") as file:
            paddle.topology.Topology(self.output).serialize_for_inference(file)

    def infer(self, *samples, **more):
        rows = [[sample[name] for name in self.names] for sample in samples]
        feeding = {name: column for column, name in enumerate(self.names)}
        return paddle.infer(
            output_layer=self.output, parameters=self.parameters, input=rows, feeding=feeding, **more
        ).tolist()


ONE = {"img": [1, 2.5, -3, 0], "words": [1, 2, 6]}
TWO = {"img": [0, 0, 1, 0.25], "words": [5]}


class Running:
    """A service in this process, whose batches another thread computes."""

    def __init__(self, model, *flags):
        given = [f"--model={model.tar}", f"--topology={model.topology}", "--port=0", *flags]
        self.server = ModelServer(FlagValues.read(given, FLAGS))
        self.server.listen(["127.0.0.1"], 0)
        self.thread = threading.Thread(target=self.server.batcher.run)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.batcher.stop()
        self.thread.join(DEADLINE_S)
        assert self.server.end(time.monotonic() + DEADLINE_S)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=DEADLINE_S)

    def post(self, body, path="/", method="POST", connection=None):
        one = connection or self.connect()
        one.request(method, path, body if isinstance(body, bytes | None) else json.dumps(body).encode())
        answer = one.getresponse()
        text = answer.read().decode()
        if connection is None:
            one.close()
        assert text.count("\n") == 1 or path != "/"
        return answer.status, text

    def ask(self, body, **more):
        status, text = self.post(body, **more)
        assert status == 200, text
        found = json.loads(text)
        assert (found["code"], found["message"]) == (0, "success")
        return found["data"]


def test_a_request_of_the_book_is_answered_with_what_infer_returns(tmp_path):
    model = Model(tmp_path)
    with Running(model) as service:
        assert service.ask(ONE) == model.infer(ONE)
        assert service.ask({**TWO, "unused": "x"}) == model.infer(TWO)


def test_a_list_of_samples_is_answered_with_a_list(tmp_path):
    """The words of several samples stand one below another in an output; each sample gets its own."""
    model = Model(tmp_path, "tags")
    with Running(model) as service:
        found = service.ask([ONE, TWO, ONE])
    assert [len(one) for one in found] == [3, 1, 3]
    np.testing.assert_allclose(found[0] + found[1], model.infer(ONE, TWO), rtol=1e-6)


def test_fields_and_outputs_stand_one_after_another(tmp_path):
    model = Model(tmp_path, "id")
    with Running(model, "--field=prob,id") as service:
        prob, ids = service.ask(ONE)
        assert ids == model.infer(ONE, field="id")
        assert prob == model.infer(ONE, field="prob")
        assert [ids for _, ids in service.ask([ONE, TWO])] == [[one] for one in model.infer(ONE, TWO, field="id")]
    both = Model(tmp_path, "both")
    with Running(both) as service:
        first, second = service.ask(ONE)
        assert (np.shape(first), np.shape(second)) == ((1, 2), (3, 2))
    with Running(both, "--field=id") as service:
        status, text = service.post(ONE)
    assert status == 500 and "--field: the layer __fc_layer_1__ has no field 'id'; it has value" in text


class Generator(Model):
    """Files of a network that searches the two best sequences of words after each word of a source."""

    def __init__(self, directory):
        source = layer.data(name="words", type=data_type.integer_value_sequence(WORDS))
        embedding = layer.embedding(input=source, size=3, param_attr=paddle.attr.ParamAttr(name="vectors"))
        start = layer.last_seq(input=embedding)

        def step(read, word):
            memory = layer.memory(name="state", size=3, boot_layer=start)
            state = layer.fc(input=[word, memory, read], size=3, name="state")
            return layer.fc(input=state, size=WORDS, act=paddle.activation.Softmax())

        word = layer.GeneratedInput(size=WORDS, embedding_name="vectors", embedding_size=3)
        inputs = [layer.StaticInput(input=start), word]
        self.output = layer.beam_search(
            name="group",
            step=step,
            input=inputs,
            bos_id=0,
            eos_id=1,
            beam_size=2,
            num_results_per_sample=2,
            max_length=4,
        )
        self.names = ["words"]
        self.write(directory)


def test_each_sample_gets_its_own_results_of_a_beam_search(tmp_path):
    model = Generator(tmp_path)
    with Running(model, "--field=prob,id") as service:
        alone = [service.ask(sample) for sample in (ONE, TWO)]
        together = service.ask([ONE, TWO])
    assert [ids for _, ids in together] == [ids for _, ids in alone]
    np.testing.assert_allclose([prob for prob, _ in together], [prob for prob, _ in alone], rtol=1e-5)
    assert [prob for prob, _ in alone] == [model.infer(sample, field="prob") for sample in (ONE, TWO)]
    assert alone[0][1] + alone[1][1] == model.infer(ONE, TWO, field="id")


BAD = [
    ({"img": [1, 2, 3, 4]}, "sample 0 has no value for the data layer words (integer_value_sequence(7))"),
    (
        {**ONE, "img": [1, 2]},
        "sample 0: data layer img (dense_vector(4)): it has 2 numbers instead of 4",
    ),
    ([ONE, {**ONE, "words": [1, 9]}], "sample 1: data layer words (integer_value_sequence(7)): item 1: id 9"),
    ({**ONE, "words": 3}, "data layer words (integer_value_sequence(7)): 3 is no list"),
    ({**ONE, "words": ["a"]}, "data layer words"),
    ({**ONE, "img": [1, 2, 3, None]}, "data layer img"),
    ({**ONE, "img": {"a": 1}}, "data layer img"),
    ({**ONE, "img": [1e39, 0, 0, 0]}, "data layer img"),
    ({"image": [1], "words": [1]}, "is image meant?"),
    ([3], "sample 0 is 3; it must be an object with img, words"),
    ([], "the list has 0 samples; it must have 1 to 32"),
    (3, "sample 0 is 3"),
    (b"{", "that is not JSON"),
    (b"\xff", "that is not JSON"),
    (b'{"img": NaN}', "with NaN"),
    (b"[" * 50 + b"]" * 50, "with more than 6 levels"),
]


def test_a_wrong_body_is_400_and_the_message_names_the_sample_and_the_data_layer(tmp_path):
    with Running(Model(tmp_path)) as service:
        for body, text in BAD:
            status, answer = service.post(body)
            found = json.loads(answer)
            assert (status, found["code"]) == (400, -1), (body, answer)
            assert text in found["message"], (body, answer)
        assert service.ask(ONE)


def test_what_exceeds_a_limit_is_refused_with_one_line(tmp_path):
    limits = ("--max_body_bytes=200", "--batch_size=2", "--max_values=40")
    with Running(Model(tmp_path), *limits) as service:
        cases = [
            (b" " * 201, "/", "POST", 413, "the body of a request has at most 200 bytes"),
            ([{}, {}, {}], "/", "POST", 413, "the list has 3 samples; it must have 1 to 2"),
            ([1] * 50, "/", "POST", 400, "with about 50 values; at most 40 are accepted"),
            ({}, "/other", "POST", 404, "samples are posted to /"),
            ({}, "/", "PUT", 405, "this server answers only"),
            (None, "/", "POST", 411, "a body needs one Content-Length"),
        ]
        for body, path, method, status, text in cases:
            if body is None:
                answer = send(service.server.port, b"POST / HTTP/1.1\r\n\r\n")
                assert answer.startswith(b"HTTP/1.1 411 ") and text.encode() in answer
                continue
            found, answer = service.post(body, path, method)
            assert found == status and text in answer, (found, answer)


def send(port, data):
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as stream:
        stream.sendall(data)
        parts = []
        while part := stream.recv(4096):
            parts.append(part)
        return b"".join(parts)


def test_a_body_that_does_not_come_is_408(tmp_path, monkeypatch):
    monkeypatch.setattr(bodies, "BODY_S", 0.05)
    with Running(Model(tmp_path)) as service:
        answer = send(service.server.port, b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ") and b'"code":-1' in answer


def test_a_connection_serves_several_requests(tmp_path):
    model = Model(tmp_path)
    with Running(model) as service:
        one = service.connect()
        assert [service.ask(body, connection=one) for body in (ONE, TWO)] == [model.infer(ONE), model.infer(TWO)]
        one.close()


def test_a_client_that_asks_before_it_sends_a_body_is_told_to_go_on(tmp_path):
    """curl does so with a body of more than 1 MiB."""
    body = json.dumps(ONE).encode()
    with (
        Running(Model(tmp_path)) as service,
        socket.create_connection(("127.0.0.1", service.server.port), timeout=DEADLINE_S) as stream,
    ):
        head = f"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        stream.sendall(head.encode())
        assert stream.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        stream.sendall(body)
        assert stream.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")


@each(
    ("head", "status"),
    [
        (b"POST /\r\n\r\n", 400),
        (b"POST / HTTP/9.9\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\n" + b"a: b\r\n" * 150 + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\nContent-Length: -3\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"hello\r\n\r\n", 400),
    ],
)
def test_a_malformed_head_is_answered(tmp_path, head, status):
    with Running(Model(tmp_path)) as service:
        answer = send(service.server.port, head)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
        assert service.ask(ONE)


class Held:
    """Holds back the thread that computes until `open`."""

    def __init__(self, service, monkeypatch):
        self.began, self.gate, self.batches = threading.Event(), threading.Event(), []
        model, compute = service.server._model, service.server._model.compute

        def wait(parts, samples):
            self.batches.append(samples)
            self.began.set()
            assert self.gate.wait(DEADLINE_S)
            return compute(parts, samples)

        monkeypatch.setattr(model, "compute", wait)


def start(service, bodies_):
    """Begin requests in threads, and return the threads and their answers."""
    answers = {}
    threads = [
        threading.Thread(target=lambda n=n, b=b: answers.__setitem__(n, service.post(b))) for n, b in enumerate(bodies_)
    ]
    for one in threads:
        one.start()
    return threads, answers


def test_requests_that_wait_are_one_batch_and_a_wrong_one_spoils_only_itself(tmp_path, monkeypatch):
    model = Model(tmp_path)
    with Running(model) as service:
        held = Held(service, monkeypatch)
        first, _ = start(service, [ONE])
        assert held.began.wait(DEADLINE_S)
        rest, answers = start(service, [TWO, ONE, {**ONE, "words": [99]}, [ONE, TWO]])
        until(lambda: service.server.batcher._queue.qsize() == 3, "three requests wait")
        held.gate.set()
        for one in first + rest:
            one.join(DEADLINE_S)
    assert held.batches == [1, 4]
    assert [answers[n][0] for n in range(4)] == [200, 200, 400, 200]
    np.testing.assert_allclose(json.loads(answers[0][1])["data"], model.infer(TWO), rtol=1e-6)
    np.testing.assert_allclose(json.loads(answers[1][1])["data"], model.infer(ONE), rtol=1e-6)


def test_an_error_of_a_batch_is_the_answer_of_the_request_that_causes_it(tmp_path, monkeypatch):
    with Running(Model(tmp_path), "--batch_wait_ms=10000", "--batch_size=3") as service:
        model, compute = service.server._model, service.server._model.compute

        def refuse(parts, samples):
            if any(part[1][0].tolist() == [1] for part in parts):
                raise DataError("one word is not enough")
            return compute(parts, samples)

        monkeypatch.setattr(model, "compute", refuse)
        threads, answers = start(service, [ONE, TWO, ONE])
        for one in threads:
            one.join(DEADLINE_S)
    assert [answers[n][0] for n in range(3)] == [200, 400, 200] and "one word is not enough" in answers[1][1]


def test_too_many_and_late_requests_are_503_and_the_service_goes_on(tmp_path, monkeypatch):
    with Running(Model(tmp_path), "--max_requests=1", "--request_timeout=0.2s") as service:
        held = Held(service, monkeypatch)
        threads, answers = start(service, [ONE])
        assert held.began.wait(DEADLINE_S)
        status, text = service.post(ONE)
        assert status == 503 and "there are too many requests" in text
        threads[0].join(DEADLINE_S)
        assert answers[0][0] == 503 and "the answer was not ready within 0.2 s" in answers[0][1]
        held.gate.set()
        until(lambda: service.post(TWO)[0] == 200, "the service answers again")


def test_a_stop_answers_what_has_come_and_closes_the_port(tmp_path, monkeypatch):
    service = Running(Model(tmp_path))
    held = Held(service, monkeypatch)
    threads, answers = start(service, [ONE])
    assert held.began.wait(DEADLINE_S)
    later, later_answers = start(service, [TWO])
    until(lambda: service.server.batcher._queue.qsize() == 1, "a request waits")
    service.server.batcher.stop()
    ending = threading.Thread(target=service.__exit__)
    ending.start()
    held.gate.set()
    for one in [*threads, *later, ending]:
        one.join(DEADLINE_S)
    assert answers[0][0] == later_answers[0][0] == 200
    with pytest.raises(ConnectionRefusedError):
        service.post(ONE)


def test_a_stop_that_comes_just_before_a_wait_ends_it(tmp_path, monkeypatch):
    """The handler of a signal runs in the thread that computes. If the signal came before its wait, it never ran."""
    monkeypatch.setattr(batcher, "LOOK_S", 0.01)
    service = Running(Model(tmp_path))
    service.server.batcher._is_stopped = True  # as `stop` without its message, which wakes the thread
    service.thread.join(DEADLINE_S)
    assert not service.thread.is_alive() and service.server.end(time.monotonic() + DEADLINE_S)


def test_an_output_that_is_not_finite_is_an_error(tmp_path):
    model = Model(tmp_path)
    for name in model.parameters.names():
        model.parameters.set(name, np.full(model.parameters.get_shape(name), np.nan, np.float32))
    with model.tar.open("wb") as file:
        model.parameters.to_tar(file)
    with Running(model) as service:
        status, text = service.post(ONE)
    assert status == 500 and "an output is not a finite number" in text


def test_the_pages_tell_health_and_numbers(tmp_path):
    with Running(Model(tmp_path)) as service:
        service.ask([ONE, TWO])
        service.post({})
        assert service.post(None, "/healthz", "GET") == (200, "ok\n")
        assert service.post(None, "/readyz", "GET") == (200, "ok\n")
        # a request is counted after its answer is sent
        until(lambda: 'paddle_serve_requests_total{status="400"} 1.0' in service.post(None, "/metrics", "GET")[1])
        status, page = service.post(None, "/metrics", "GET")
    assert status == 200
    lines = page.splitlines()
    assert "paddle_serve_samples_total 2.0" in lines and "paddle_serve_batches_total 1.0" in lines


@each(
    ("flags", "text"),
    [
        (["--field=values"], "--field is 'values'; write some of value, id, prob"),
        (["--input_types=img:dense_vector"], "the file of --topology has the types"),
        (["--topology="], "has parameters only"),
        (["--model=none.tar"], "--model=none.tar cannot be read"),
        (["--model=other.tar"], "other.tar does not fit --topology=.*: No such parameter"),
        (["--topology=none"], "--topology=none cannot be read"),
    ],
)
def test_a_wrong_flag_is_one_line(tmp_path, monkeypatch, flags, text):
    model = Model(tmp_path)
    monkeypatch.chdir(tmp_path)
    with tarfile.open("other.tar", "w"):
        pass
    given = [f"--model={model.tar}", f"--topology={model.topology}", *flags]
    with pytest.raises(PaddleError, match=text):
        ModelServer(FlagValues.read(given, FLAGS))
