"""The TLS of the requests to the API server."""

import ssl
from typing import Any

from urllib3.exceptions import MaxRetryError, SSLError

from paddle_base.runtime.network import answers, causes


class Connection:
    """What urllib3's connection has of it."""

    ssl_context: Any = None

    def connect(self) -> None:
        self.used = self.ssl_context


def test_a_ca_without_the_key_usage_is_accepted_as_kubectl_does() -> None:
    """With Python 3.13 all launchers waited for ever: its contexts demand extensions that the CAs of clusters lack."""
    connection = type("TimedConnection", (Connection,), {"connect": answers.connect})()
    connection.connect()
    assert not connection.used.verify_flags & ssl.VERIFY_X509_STRICT
    assert connection.used.verify_mode is ssl.CERT_REQUIRED and connection.used.check_hostname
    assert not connection.used.get_ca_certs()


def test_the_cause_of_a_failure_behind_the_handshake_is_found() -> None:
    """urllib3 only puts it into its own error, because it was never raised there."""
    cause = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required")
    failure = MaxRetryError(None, "/v3/kv/range", SSLError(cause))  # type: ignore[arg-type]
    assert causes.find_cause(failure) is cause
