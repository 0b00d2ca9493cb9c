"""False answers of an API server, and what the launcher says of each."""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Iterator
from typing import Any

from builders import items, one_pod
from hostile_api import (
    HostileApi,
    Script,
    answer,
    bomb,
    for_ever,
    head,
    later,
    say,
    silence,
    slowly,
    spell,
)

TOKEN = "eyJhbGciOiJSUzI1NiJ9.a-token-of-the-service-account.c2lnbmF0dXJl"
NO_PODLIST = "something that is no pod list"


@dataclasses.dataclass(frozen=True)
class Case:
    """An answer, what the launcher makes of it, and how it ends.

    Where the answer never comes to an end (`stays`), it ends with status 69 at START_TIMEOUT. Elsewhere the second
    answer is a good one, so that no case waits for a deadline, and none depends on how busy the machine is.
    """

    script: Script
    said: str
    status: int = 0
    stays: bool = False  # every answer is the same
    is_plain: bool = False  # the server speaks no TLS


def stays(script: Script, said: str, **others: Any) -> Case:
    return Case(script, said, 69, stays=True, **others)


def echo(api: HostileApi, request: bytes) -> list[bytes]:
    """Refuses with the request in the message, as some proxies do."""
    return list(answer({"message": request.decode()}, 500)(api, request))


def endless_pages(api: HostileApi, request: bytes) -> Iterator[bytes]:
    """A page that names another one, a twentieth of a second later."""
    api.closed.wait(0.05)
    yield from answer({"metadata": {"continue": "more"}, "items": []})(api, request)


LOST = "does not answer at https"
TOO_MUCH = f"(more than 64 MiB|{LOST})"  # a busy machine does not get so far in the time of a request
CASES: dict[str, Case] = {
    # too much
    "a gzip bomb": Case(later(lambda: answer(bomb(2000), Content_Encoding="gzip")), "more than 64 MiB"),
    "a gzip bomb as an error": Case(later(lambda: answer(bomb(200), 500, Content_Encoding="gzip")), "more than 64 MiB"),
    "a gzip bomb in a redirect": Case(
        later(lambda: answer(bomb(200), 302, Content_Encoding="gzip", Location="https://127.0.0.1:1/")),
        "more than 64 MiB",
    ),
    "a gzip bomb in a gzip bomb": Case(
        later(lambda: answer(bomb(1000, 2), Content_Encoding="gzip, gzip")),
        'Content-Encoding is "gzip, gzip", expected gzip',
    ),
    "a packing that was not asked for": Case(answer(b"x", Content_Encoding="br"), 'Content-Encoding is "br"'),
    "gzip that is none": Case(answer(b"{}" * 50, Content_Encoding="gzip"), "it is no gzip"),
    "gzip that is cut off": Case(answer(bomb(1)[:500], Content_Encoding="gzip"), "its gzip is cut off"),
    "a body without end": stays(for_ever(head(), bytes(1 << 20)), TOO_MUCH),
    "a body without end in chunks": stays(
        for_ever(head(Transfer_Encoding="chunked"), b"100000\r\n" + bytes(1 << 20) + b"\r\n"), TOO_MUCH
    ),
    "a chunk whose size never ends": stays(for_ever(head(Transfer_Encoding="chunked"), b"1" * (1 << 20)), LOST),
    "a chunk of no size": Case(say(head(Transfer_Encoding="chunked") + b"x\r\n"), LOST),
    "headers without end": stays(for_ever(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 1000), LOST),
    "a header without end": stays(for_ever(b"HTTP/1.1 200 OK\r\nA: ", bytes(1 << 16)), LOST),
    "a status line without end": stays(for_ever(b"HTTP/1.1 ", b"2" * (1 << 16)), LOST),
    "go on, without end": stays(for_ever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000), LOST),
    "cookies": Case(answer({}, **{f"Set_Cookie{n}": "a=b" for n in range(9)}, Set_Cookie="x" * 60000), "no items"),
    "pages without end": stays(
        endless_pages,  # the deadline finds any step of any page; test_launcher_outside.py counts them
        "(returned a list of pods with more than 1000 pages|did not list all pods in time|TimeoutError: )",
    ),
    "five million values": Case(
        later(lambda: answer(gzip.compress(b'{"items":[' + b"[]," * 5_000_000 + b"1]}", 1), Content_Encoding="gzip")),
        "values, at most 4000000",
    ),
    # too slow
    "silence": stays(silence, LOST),
    "a body, byte by byte": stays(slowly(head(Content_Length="999"), b" "), LOST),
    "chunks, byte by byte": stays(slowly(head(Transfer_Encoding="chunked"), b"1\r\n \r\n"), LOST),
    "headers, byte by byte": stays(slowly(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"), LOST),
    "Retry-After: 999999999": stays(answer({"message": "slow"}, 429, Retry_After="999999999"), "429: slow"),
    "Retry-After: 400 digits": stays(answer({"message": "slow"}, 503, Retry_After="9" * 400), "503: slow"),
    "Retry-After: a far day": stays(answer({}, 503, Retry_After="Fri, 31 Dec 9999 23:59:59 GMT"), "503: "),
    "Retry-After: -1": stays(answer({}, 503, Retry_After="-1"), "503: "),
    "Retry-After: NaN": stays(answer({}, 503, Retry_After="NaN"), "503: "),
    # no HTTP
    "no TLS": stays(silence, LOST, is_plain=True),
    "nothing": Case(say(b""), LOST),
    "another protocol": Case(say(b"SSH-2.0-OpenSSH_9.6\r\n"), LOST),
    "half of the body": Case(say(head(Content_Length="999") + b'{"items":'), LOST),
    "two lengths": Case(say(head(Content_Length="3, 4") + b"{}"), LOST),
    "another status": Case(answer(b"", 999), "answered 999: empty answer"),
    "another protocol is offered": Case(say(head(101, Upgrade="h2c")), "answered 101", 78),
    "no content": Case(say(head(204)), "answered 204", 78),
    "a redirect": Case(answer(b"", 307, Location="https://127.0.0.1:1/"), "answered 307", 78),
    # no JSON, or another; tests/unit/launcher/test_launcher_bad_lists.py has more
    "nothing in it": Case(answer(b""), NO_PODLIST),
    "HTML": stays(answer(b"<html>sign in</html>"), f"{NO_PODLIST}.*<html>sign in"),
    "lists, nested": Case(answer(b"[" * 1_000_000), f"{NO_PODLIST} .the JSON text is nested too deep"),
    "an error, nested": Case(answer(b'{"message":' * 100_000, 500), "answered 500: "),
    "an error of another type": Case(answer({"message": [["x"]]}, 500), "answered 500: "),
    "null for a pod": Case(answer(items(None)), r"items\[0\] is null, expected an object"),
    # texts that are meant for the log
    "an error that ends its line": stays(
        answer({"message": "no\n2026-01-01 00:00:00 start_paddle: training finished\x1b[2J"}, 500),
        r"answered 500: no 2026-01-01 00:00:00 start_paddle: training finished\\x1b\[2J",
    ),
    "an error without end": Case(answer({"message": "x" * 1_000_000}, 500), r"answered 500: x{1000}\.\.\.$"),
    "an error that echoes the token": Case(echo, "Authorization: Bearer <token>"),
    "an error that spells the token": Case(
        answer(b'{"message": "' + spell(TOKEN) + b'"}', 500), "answered 500: <token>"
    ),
    "HTML that echoes the token": Case(answer(f"<p>{TOKEN}".encode()), "<p><token>"),
    "a pod whose texts end their lines": Case(
        answer(
            one_pod(
                metadata__name="own\nstart_paddle: x",
                spec={"nodeName": "node\r\x1b]0;title\x07"},
                status={"phase": "Pending\u2028", "reason": "Bad", "message": f"first\nsecond {TOKEN} \x9b\u202e"},
            )
        ),
        r"own start_paddle: x on node \\x1b\]0;title\\x07: Pending, Bad: first second <token> \\x9b\\u202e",
    ),
    "a name that no encoding has": Case(
        answer(one_pod(metadata__name="\ud800", status__phase="Pending")), r"0 of 1 Running; \\ud800: Pending"
    ),
}
