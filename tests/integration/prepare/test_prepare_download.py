"""DATA_URL against a real https server on loopback: digest, certificate, retries, refusals, signals."""

import contextlib
import hashlib
import io
import itertools
import os
import signal
import ssl
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import forked
import pytest
import trustme

from paddle_base.remote import https_store
from paddle_base.remote.addresses import parse_address
from paddle_base.remote.patience import Patience
from paddle_base.remote.tree import download_all
from paddle_base.runtime.errors import PeerUnreachableError

EXAMPLES = Path(__file__).parents[3] / "examples"


def archive():
    content = "".join(f"{i % 2}\tword{i % 7} more\n" for i in range(40)).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as output:
        info = tarfile.TarInfo("preprocessed_data/train.txt")
        info.size = len(content)
        output.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


ARCHIVE = archive()
DIGEST = hashlib.sha256(ARCHIVE).hexdigest()


class Server(ThreadingHTTPServer):
    """Answers with the archive, or first with whatever `answers` holds: a status, "cut", "hang" or a Location."""

    daemon_threads = True

    def __init__(self, authority):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.starts = [], []
        self.tag, self.ranges = '"one"', False
        self.requests = 0
        self.ended = threading.Event()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server_port}/data/preprocessed_data.tar.gz"

    def handle_error(self, request, client_address):
        """A client that leaves in the middle is part of these tests."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests += 1
        answer = self.server.answers.pop(0) if self.server.answers else 200
        if isinstance(answer, int) and answer != 200:
            self.send_error(answer)
            return
        if str(answer).startswith("http"):
            self.send_response(302)
            self.send_header("Location", answer)
            self.end_headers()
            return
        start = (
            int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            if self.server.ranges and "Range" in self.headers
            else 0
        )
        self.server.starts.append(start)
        self.send_response(206 if start else 200)
        self.send_header("ETag", self.server.tag)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(ARCHIVE) - 1}/{len(ARCHIVE)}")
        self.send_header("Content-Length", str(len(ARCHIVE) - start))
        self.end_headers()
        self.wfile.write(ARCHIVE[start : start + 20] if answer in ("cut", "hang", "change") else ARCHIVE[start:])
        if answer == "change":
            self.server.tag = '"another"'
        if answer == "hang":
            self.server.ended.wait(60)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def server(authority):
    running = Server(authority)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield running
    finally:
        running.ended.set()
        running.shutdown()
        thread.join(30)
        running.server_close()


@pytest.fixture
def command(tmp_path, server, authority):
    """Start prepare on the server's archive, and end it at the end of the test."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with contextlib.ExitStack() as processes:

        def start(*flags, **environ):
            settings = {
                "OUT_DIR": str(tmp_path / "job"),
                "SPLIT_COUNT": "3",
                "DATA_SOURCE": "quick_start",
                "DATA_URL": server.url,
                "DATA_SHA256": DIGEST,
                "DATA_TIMEOUT": "30",
                "EXAMPLES_DIR": str(EXAMPLES),
                "SSL_CERT_FILE": str(tmp_path / "ca.pem"),
            }
            settings = {**os.environ, **settings, **environ}
            return processes.enter_context(forked.server().open(["paddle", "prepare", *flags], tmp_path, settings))

        yield start


def end(process):
    errors = process.communicate(timeout=60)[1]
    return process.returncode, errors


def test_d3_a_download_over_tls_with_its_digest_becomes_shards(command, tmp_path):
    """The original fetched over plain HTTP and checked nothing."""
    status, errors = end(command())
    assert (status, errors.count("\n")) == (0, 1)
    assert len((tmp_path / "job" / "2" / "data" / "train.txt").read_text().splitlines()) in (10, 11)


def test_d3_another_archive_than_expected_is_refused_and_nothing_published(command, tmp_path):
    """The original trained on whatever the address gave."""
    status, errors = end(command(DATA_SHA256="0" * 64))
    assert status == 65
    assert f"has SHA-256 {DIGEST}" in errors
    assert not list((tmp_path / "job").glob("*"))


def test_d3_a_server_that_we_do_not_trust_is_refused(command, tmp_path):
    """The original could not know whom it talked to."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    status, errors = end(command(SSL_CERT_FILE=str(tmp_path / "other.pem")))
    assert status == 78
    assert "the certificate is not trusted" in errors


def test_d3_a_redirect_away_from_tls_is_refused(command, server):
    """The original followed anything."""
    server.answers = ["http://127.0.0.1:1/elsewhere"]
    status, errors = end(command())
    assert status == 65
    assert "which is not https" in errors


@pytest.mark.parametrize("answers", [[503, 500], ["cut"], [429]], ids=["server error", "truncated", "too many"])
def test_a_passing_failure_is_tried_again(command, server, answers):
    server.answers = list(answers)
    status, errors = end(command())
    assert status == 0, errors
    assert server.requests == len(answers) + 1
    assert errors.count("next try in") == len(answers)


def test_a_download_that_was_cut_off_goes_on_at_the_byte_where_it_stopped(command, server):
    """It began again at the first byte, so a large file never came over a poor network."""
    server.answers, server.ranges = ["cut", "cut"], True
    status, errors = end(command())
    assert status == 0, errors
    assert server.starts == [0, 20, 40]


def test_a_file_that_changes_between_two_attempts_is_noticed_by_its_etag(command, server):
    server.answers = ["change"]
    status, errors = end(command())
    assert status == 65
    assert f"DATA_URL {server.url} has changed while it was read: its ETag is another one" in errors


@pytest.mark.parametrize(("answer", "expected"), [(404, 66), (410, 66), (401, 77), (403, 77)])
def test_an_answer_that_will_not_change_ends_at_once(command, server, answer, expected):
    server.answers = [answer] * 9
    status, errors = end(command())
    assert (status, server.requests) == (expected, 1)
    assert str(answer) in errors
    assert "Traceback" not in errors


def test_a_server_that_stays_broken_ends_the_job_at_the_deadline(command, server):
    server.answers = [500] * 99
    status, errors = end(command(DATA_TIMEOUT="1"))
    assert status == 69
    assert "500" in errors
    assert "tried for 1 s" in errors


def test_a_download_larger_than_the_limit_ends(command, server, tmp_path):
    status, errors = end(command(DATA_MAX_BYTES="100"))
    assert (status, server.requests) == (65, 1)
    assert f"DATA_URL {server.url}: the input has more than 100 bytes" in errors
    assert not list((tmp_path / "job").glob("*"))


def test_a_download_that_goes_on_ends_at_the_deadline(tmp_path, monkeypatch):
    answer = contextlib.nullcontext(SimpleNamespace(headers={}, status=200, read1=lambda _: b"x"))
    opener = SimpleNamespace(open=lambda url, timeout: answer)
    monkeypatch.setattr(https_store, "build_opener", lambda *_: opener)
    moments = itertools.count()
    patience = Patience("DATA_URL", 5, "raise DATA_TIMEOUT", clock=lambda: float(next(moments)))
    with pytest.raises(PeerUnreachableError, match=r"\d of an unknown number of bytes had arrived when 5 s were over"):
        download_all(parse_address("https://here/", "DATA_URL"), tmp_path, patience)


def test_a_server_that_is_not_there_is_unreachable(command):
    status, errors = end(command(DATA_URL="https://127.0.0.1:1/a.tar.gz", DATA_TIMEOUT="1"))
    assert status == 69
    assert "Connection refused" in errors


def test_sigterm_in_a_download_ends_with_143_and_leaves_nothing(command, server, tmp_path):
    server.answers = ["hang"]
    process = command()
    deadline = time.monotonic() + 30
    while not list((tmp_path / "job").glob(".preparing-*/input/*")):
        assert time.monotonic() < deadline, "the download never began"
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    status, said = end(process)
    assert (status, "stopped by SIGTERM: no part of the new data set can be used" in said) == (143, True)
    assert not list((tmp_path / "job").glob("*"))


def test_a_file_address_needs_no_digest(command, tmp_path):
    (tmp_path / "mine.tgz").write_bytes(ARCHIVE)
    status, errors = end(command(DATA_URL=(tmp_path / "mine.tgz").as_uri(), DATA_SHA256=""))
    assert status == 0, errors
