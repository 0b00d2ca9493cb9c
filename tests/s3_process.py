"""Runs an S3 server for tests, and a proxy before it that answers wrongly; tests/s3/build compiles the server."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ports import free_ports

BINARY = Path(os.environ.get("S3_DIR", "/var/tmp/paddle-s3")) / "versitygw"
START_S = 30.0
KEY, SECRET = "TESTACCESSKEY", "a-secret-that-no-log-shows"


def require_s3() -> None:
    """Skip the test if the server was not compiled; in CI, fail."""
    if not BINARY.exists():
        reason = "tests/s3/build compiles the S3 server that this needs"
        assert not os.environ.get("ETCD_REQUIRED"), reason
        pytest.skip(reason)


def environ_of(endpoint: str) -> dict[str, str]:
    """Return the usual variables, by which a program finds the server and its credentials."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


class S3Process:
    """An S3 server whose buckets are the directories below `root`; files that are put there are objects."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "buckets"
        self.root.mkdir(parents=True)
        self._log = directory / "versitygw.log"
        (self.port,) = free_ports(1)
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        command = [BINARY, "--quiet", f"--port=127.0.0.1:{self.port}", "posix", self.root]
        credentials = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **credentials})
        until = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            assert time.monotonic() < until and self.process.poll() is None, self._log.read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


Fault = Callable[["ProxyHandler", http.client.HTTPResponse, bytes], None]


def half(handler: ProxyHandler, answer: http.client.HTTPResponse, body: bytes) -> None:
    """Send the head of the answer and half of the body, and hang up."""
    handler.send_head(answer, len(body))
    handler.wfile.write(body[: len(body) // 2])
    handler.hang_up()


def refuse(handler: ProxyHandler, answer: http.client.HTTPResponse, body: bytes) -> None:
    """Hang up without an answer."""
    handler.hang_up()


def throttle(seconds: int) -> Fault:
    """Return a fault that answers 503 with Retry-After."""
    said = (
        b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate</Message></Error>"
    )

    def send(handler: ProxyHandler, answer: http.client.HTTPResponse, body: bytes) -> None:
        handler.send_response(503)
        handler.send_header("Retry-After", str(seconds))
        handler.send_header("Content-Type", "application/xml")
        handler.send_header("Content-Length", str(len(said)))
        handler.end_headers()
        handler.wfile.write(said)

    return send


def corrupt(handler: ProxyHandler, answer: http.client.HTTPResponse, body: bytes) -> None:
    """Send the answer with another first byte, and without the checksum that botocore would compare."""
    for name in [name for name in answer.headers if name.lower().startswith("x-amz-checksum")]:
        del answer.headers[name]
    handler.send_head(answer, len(body))
    handler.wfile.write(bytes([body[0] ^ 1]) + body[1:])


class ProxyHandler(BaseHTTPRequestHandler):
    """Forwards a request, and answers as the next fault says, if the request is one for which faults are planned."""

    protocol_version = "HTTP/1.1"
    server: FaultyProxy

    def log_message(self, format: str, *args: object) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:  # the client has left, or the S3 server is gone
            self.hang_up()

    def _forward(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        proxy = self.server
        upstream = http.client.HTTPConnection("127.0.0.1", proxy.upstream, timeout=30)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(content or None)
            answer = upstream.getresponse()
            body = answer.read()
        finally:
            upstream.close()
        fault = proxy.next_fault(self.command, self.path, self.headers.get("Range", ""))
        if fault is not None:
            fault(self, answer, body)
            return
        self.send_plain(answer, body)

    def send_plain(self, answer: http.client.HTTPResponse, body: bytes) -> None:
        self.send_head(answer, int(answer.headers.get("Content-Length") or len(body)))
        self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward

    def send_head(self, answer: http.client.HTTPResponse, length: int) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class FaultyProxy(ThreadingHTTPServer):
    """A server before the S3 server. `faults` are the answers to the next requests of the kind `applies` selects.

    Attributes: requests: (method, path, range) of each request.
    """

    daemon_threads = True

    def __init__(self, upstream: int) -> None:
        super().__init__(("127.0.0.1", 0), ProxyHandler)
        self.upstream = upstream
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"
        self.faults: list[Fault] = []
        self.applies: Callable[[str, str], bool] = lambda method, path: method == "GET" and "list-type" not in path
        self.requests: list[tuple[str, str, str]] = []
        self._lock = threading.Lock()

    def next_fault(self, method: str, path: str, part: str) -> Fault | None:
        with self._lock:
            self.requests.append((method, path, part))
            return self.faults.pop(0) if self.faults and self.applies(method, path) else None

    @contextlib.contextmanager
    def running(self) -> Iterator[FaultyProxy]:
        thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join()
            self.server_close()
