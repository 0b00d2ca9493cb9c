"""How a program and an etcd prove to each other who they are: TLS, a client certificate, and a user with a password.

    PADDLE_ETCD_CA               file with the certificate of the authority that has signed etcd's certificate
    PADDLE_ETCD_CERT             file with this program's certificate, for an etcd with --client-cert-auth
    PADDLE_ETCD_KEY              file with the key of that certificate
    PADDLE_ETCD_USER             name of a user of etcd's authentication
    PADDLE_ETCD_PASSWORD_FILE    file with the password of the user

A program's flags, such as --etcd_ca, set these variables. Without PADDLE_ETCD_CA, the authorities of the package
requests count. The files come from a mounted Secret.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.network.answers import UNTRANSLATED, TimedSession, read_answer
from paddle_base.runtime.regular_files import open_regular

CA, CERT, KEY = "PADDLE_ETCD_CA", "PADDLE_ETCD_CERT", "PADDLE_ETCD_KEY"
USER, PASSWORD_FILE = "PADDLE_ETCD_USER", "PADDLE_ETCD_PASSWORD_FILE"
MOST_BYTES = 64 << 10  # of a file
ANSWER_LIMIT = 64 << 20  # maximum bytes of an answer, packed and unpacked; a page of a master's state has 15 MB
VALUES = 4_000_000  # maximum values in an answer; a page of a master's state has 300,000


@dataclass(frozen=True)
class EtcdAccess:
    """The paths of the certificates, and the user; all of them are empty for an etcd that asks for nothing."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    user: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> EtcdAccess:
        """Read the variables and the files that they name.

        Raises: ConfigError: a file cannot be read, or one variable of a pair is missing.
        """
        given = {name: environ.get(name, "") for name in (CA, CERT, KEY, USER, PASSWORD_FILE)}
        for one, other in ((CERT, KEY), (USER, PASSWORD_FILE)):
            if bool(given[one]) != bool(given[other]):
                missing, there = (other, one) if given[one] else (one, other)
                raise ConfigError(f"{there} is set, and {missing} is not: etcd needs both, or none of them")
        for name in (CA, CERT, KEY):
            if given[name]:
                _read(name, given[name])
        password = _read(PASSWORD_FILE, given[PASSWORD_FILE]) if given[USER] else ""
        return cls(given[CA], given[CERT], given[KEY], given[USER], password)

    def check(self, protocol: str, endpoint: str) -> None:
        """Check that no password goes over an open connection, and no certificate is forgotten.

        Raises: ConfigError: the endpoint begins with http:// although this program has a proof for it.
        """
        given = [name for name, value in ((CA, self.ca), (CERT, self.certificate), (USER, self.user)) if value]
        if protocol != "https" and given:
            raise ConfigError(
                f"--etcd_endpoints has {endpoint}, which is not encrypted, and {given[0]} is set: write https://"
            )

    def open_session(self) -> EtcdSession:
        """Return a session that proves to etcd who this program is."""
        session = EtcdSession()
        if self.ca:
            session.verify = self.ca
        if self.certificate:
            session.cert = (self.certificate, self.key)
        return session


class EtcdSession(TimedSession):
    """Connections to etcd, or to whatever answers in its place: an answer is complete in time, and not too large."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request, and read the answer unless the caller asks for a stream.

        Raises: requests.RequestException.  OSError: a file of `EtcdAccess` is gone.  ValueError: the answer is a
            redirect, which could take the password elsewhere, or exceeds a limit.
        """
        response = super().send(request, **{**options, "stream": True})
        if 300 <= response.status_code < 400:
            response.close()
            raise ValueError(f"it answers with a redirect, {response.status_code}, which is not followed")
        if not options.get("stream"):
            body = read_body(response)
            if response.status_code == requests.codes["ok"] and not body.lstrip().startswith(b"{"):
                raise ValueError("its answer is no JSON object")
            response.raw = io.BytesIO(body)
        return response


def read_body(response: requests.Response) -> bytes:
    """Return the body of an answer that was not read yet. Raises: requests.ConnectionError, ValueError."""
    try:
        with response:
            body = read_answer(response.raw, response.headers.get("Content-Encoding", ""), ANSWER_LIMIT)
    except (UNTRANSLATED, OSError) as problem:
        raise requests.ConnectionError(str(problem)) from problem
    # A leader loads a million keys; `parse_bounded` would need four times as long for them as this and json.
    if sum(map(body.count, (b"[", b"{", b","))) > VALUES:
        raise ValueError(f"its answer has more than {VALUES} values")
    return body


def _read(variable: str, name: str) -> str:
    try:
        with open_regular(Path(name)) as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "the file is not UTF-8 text"
        raise ConfigError(
            f"{variable} names {name}, which cannot be read: {reason}; mount a Secret with it, as k8s/tasks does"
        ) from exc
    text = text.rstrip("\r\n")  # editors and `echo` add a line end; spaces may belong to a password
    if not text or len(content) > MOST_BYTES:
        raise ConfigError(f"{variable} names {name}, which holds {'nothing' if not text else 'too much'}")
    return text
