"""Decides which errors of a store are final, and describes them without secrets. No I/O.

The libraries behind fsspec have classes of their own. This module knows them by the names of the classes and by the
HTTP status that they carry, because none of these libraries has to be installed.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from paddle_base.runtime.errors import (
    ApiForbiddenError,
    ConfigError,
    DataError,
    MissingInputError,
    PaddleError,
    reading_error,
)
from paddle_base.runtime.kubernetes.answers import parse_date, parse_retry_after
from paddle_base.runtime.kubernetes.text import one_line

MOST_SKEW_S = 300.0  # seconds; a server of S3 refuses a request whose time is 900 s from its own
NO_CREDENTIALS = frozenset({
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError",
    "ProfileNotFound", "UnknownCredentialError", "InvalidConfigError", "ConfigParseError", "SSOTokenLoadError",
    "UnauthorizedSSOTokenError", "DefaultCredentialsError", "RefreshError", "ClientAuthenticationError",
    "CredentialUnavailableError",
})  # fmt: skip
BAD_SETTINGS = frozenset({
    "NoRegionError", "InvalidRegionError", "InvalidEndpointConfigurationError", "InvalidURL",
    "InvalidProxiesConfigError",
})  # fmt: skip
EXPIRED = frozenset({"FileExpired"})  # the error of s3fs if the ETag of an open object is another one
OF_PARSER = "HttpProcessingError"  # errors of aiohttp's own parser, whose `code` is none of the server's
REFUSED, ABSENT, CHANGED, MOVED = (401, 403), 404, 412, (301, 307, 400)
TEMPORARY = (408, 425, 429)
OWN_BUGS = (TypeError, AttributeError, NameError, AssertionError, NotImplementedError, ImportError)
CREDENTIALS: Mapping[str, str] = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the pod an identity",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or give the pod an identity",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or give the pod an identity",
}


class ChangedError(DataError):
    """A file has changed since it was listed or opened."""


class StaleVersionError(Exception):
    """What a source raises if its file has another version than the one that is known."""


class BrokenTransferError(OSError):
    """A transfer has ended early, or its content is damaged; a further attempt may succeed."""


class Failed(NamedTuple):
    """What an answer with an error contains: HTTP status (0: no answer), the store's word for it, and the headers."""

    status: int
    code: str
    headers: Mapping[str, str]


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and the errors that it contains or comes from."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [getattr(one, "reason", None), one.__cause__, one.__context__, *one.args[:2]]


def read_failure(error: BaseException) -> Failed:
    """Return status, code and headers of the answer that an error of a library comes from."""
    for one in causes(error):
        response = getattr(one, "response", None)
        if isinstance(response, dict):  # botocore
            about, inner = response.get("ResponseMetadata") or {}, response.get("Error") or {}
            return Failed(
                _number(about.get("HTTPStatusCode")), str(inner.get("Code", "")), _lower(about.get("HTTPHeaders"))
            )
        if any(kind.__name__ == OF_PARSER for kind in type(one).__mro__):
            continue
        for field in ("status_code", "status", "code"):  # azure, aiohttp, and both gcsfs and urllib
            status = _number(getattr(one, field, None))
            if 100 <= status < 600:
                return Failed(status, "", _lower(getattr(one, "headers", None) or getattr(response, "headers", None)))
    return Failed(0, "", {})


def retry_after(error: BaseException) -> float:
    """Return the seconds of the answer's Retry-After header, at most 60, or 0."""
    return parse_retry_after(read_failure(error).headers.get("retry-after"))


def describe(error: BaseException) -> str:
    """Return one line about an error: the answer's status, and the words of the library or of the server."""
    failed = read_failure(error)
    said = [str(failed.status)] if failed.status else []
    words = one_line(str(error) or type(error).__name__, 200)
    return " ".join([*said, *([failed.code] if failed.code and failed.code not in words else []), words])


def find_final(error: Exception, shown: str, scheme: str, now: float) -> PaddleError | None:
    """Return the error for a failure that recurs at each attempt, or None if a further attempt may succeed.

    Args: shown: what the address is, and the address.  now: seconds since the epoch, compared with the server's clock.
    """
    if isinstance(error, StaleVersionError):
        return changed(shown)
    if scheme == "file":
        return (
            reading_error(MissingInputError, f"{shown} cannot be read", error) if isinstance(error, OSError) else None
        )
    kinds = {type(one).__name__ for one in causes(error)}
    if kinds & NO_CREDENTIALS:
        advice = CREDENTIALS.get(scheme, CREDENTIALS["s3"])
        return ConfigError(f"{shown}: there are no credentials for it ({describe(error)}); {advice}")
    if kinds & BAD_SETTINGS:
        return ConfigError(f"{shown}: {describe(error)}; correct AWS_REGION, AWS_ENDPOINT_URL or the address")
    for one in causes(error):
        if isinstance(one, ssl.SSLCertVerificationError):
            variable = "SSL_CERT_FILE" if scheme == "https" else "AWS_CA_BUNDLE"
            reason = one.verify_message
            return ConfigError(f"{shown}: the certificate is not trusted ({reason}); for a private CA, set {variable}")
    if kinds & EXPIRED:
        return changed(shown)
    return _of_answer(error, read_failure(error), shown, now)


def changed(shown: str) -> ChangedError:
    """Return the error of a file that has changed while it was read."""
    return ChangedError(
        f"{shown} has changed while it was read: its ETag is another one; run the same command again when nothing "
        "writes there, or give new data a new name"
    )


def _of_answer(error: Exception, failed: Failed, shown: str, now: float) -> PaddleError | None:
    status, said = failed.status, describe(error)
    if status in REFUSED or isinstance(error, PermissionError):
        skew = (parse_date(failed.headers.get("date", "")) or now) - now
        if abs(skew) > MOST_SKEW_S or failed.code == "RequestTimeTooSkewed":
            apart = f"{abs(skew):.0f} s {'behind' if skew > 0 else 'ahead of'}"
            return ApiForbiddenError(
                f"{shown}: {said}; the clock of this machine is {apart} the server's: set the clock"
            )
        return ApiForbiddenError(f"{shown}: {said}; the server denies access: correct the credentials or their rights")
    if failed.code == "NoSuchBucket":
        return MissingInputError(f"{shown}: {said}; correct the name of the bucket, or AWS_ENDPOINT_URL and AWS_REGION")
    if status == ABSENT or isinstance(error, FileNotFoundError):
        return MissingInputError(f"{shown}: {said}; correct the address")
    if status == CHANGED:
        return changed(shown)
    if status in MOVED:
        return ConfigError(f"{shown}: {said}; correct AWS_REGION, AWS_ENDPOINT_URL or the address")
    if 400 <= status < 500 and status not in TEMPORARY:
        return MissingInputError(f"{shown}: {said}; correct the address")
    return None


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _lower(headers: Any) -> dict[str, str]:
    try:
        return {str(name).lower(): str(value) for name, value in dict(headers or {}).items()}
    except (TypeError, ValueError):
        return {}
