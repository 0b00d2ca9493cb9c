"""The TLS of the requests to etcd: why a certificate is refused, and what of the environment counts."""

from __future__ import annotations

import datetime
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from paddle_base.registry.endpoints import EtcdEndpoints
from paddle_base.registry.etcd_access import EtcdAccess
from paddle_base.runtime.errors import PeerUnreachableError

Start = Callable[[trustme.LeafCert, bool], str]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"version": "3.6"}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.crt")
    return made


@pytest.fixture
def start(authority: trustme.CA) -> Iterator[Start]:
    servers = []

    def begin(certificate: trustme.LeafCert, asks: bool = False) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # the refusal is a part of the handshake, and is not overtaken
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"https://127.0.0.1:{server.server_port}"

    yield begin
    for one in servers:
        one.shutdown()
        one.server_close()


def ask(endpoint: str, access: EtcdAccess) -> str:
    return str(EtcdEndpoints([endpoint], access).call(lambda client: client.status())["version"])


def refuse(endpoint: str, access: EtcdAccess) -> str:
    """Return the text of the error."""
    with pytest.raises(PeerUnreachableError) as caught:
        ask(endpoint, access)
    return str(caught.value)


def test_the_reason_why_a_certificate_is_refused_is_shown(start: Start, authority: trustme.CA, tmp_path: Path) -> None:
    """It was cut off behind "Max retries exceeded"."""
    access = EtcdAccess(str(tmp_path / "ca.crt"))
    first, last = datetime.datetime(2020, 1, 1), datetime.datetime(2021, 1, 1)
    old = authority.issue_cert("127.0.0.1", not_before=first, not_after=last)
    assert ": its certificate is refused: certificate has expired;" in refuse(start(old, False), access)
    other = trustme.CA().issue_cert("127.0.0.1")
    said = refuse(start(other, False), access)
    assert ": its certificate is refused: unable to get local issuer certificate;" in said
    name = f"{'n' * 60}.{'n' * 60}.{'n' * 60}.test"
    said = refuse(start(authority.issue_cert(name), False), access)
    assert "IP address mismatch, certificate is not valid for '127.0.0.1'" in said


def test_the_reason_why_etcd_refuses_a_certificate_is_shown(
    start: Start, authority: trustme.CA, tmp_path: Path
) -> None:
    endpoint = start(authority.issue_cert("127.0.0.1"), True)
    assert ": [SSL: SSLV3_ALERT_HANDSHAKE_FAILURE]" in refuse(endpoint, EtcdAccess(str(tmp_path / "ca.crt")))
    other = trustme.CA().issue_cert("program@example.org")
    other.private_key_pem.write_to_path(tmp_path / "tls.key")
    other.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    access = EtcdAccess(str(tmp_path / "ca.crt"), str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    assert ": [SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca" in refuse(endpoint, access)


def test_the_keys_of_a_connection_are_written_nowhere(
    start: Start, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSLKEYLOGFILE was obeyed, although nothing else of the environment is used."""
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    endpoint = start(authority.issue_cert("127.0.0.1"), False)
    assert ask(endpoint, EtcdAccess(str(tmp_path / "ca.crt"))) == "3.6"
    assert not (tmp_path / "keys").exists()
