"""The name server of the test cluster: it answers for names of headless Services, as CoreDNS does, and for no others.

usage: name_server.py ADDRESS API_SERVER CA_FILE TOKEN_FILE       (the standard library is enough)
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

ZONE = ["svc", "cluster", "local"]
A, IN = 1, 1
TTL_S = 2  # seconds; lifetime of an answer, and of the data from the API server
NO_ERROR, FORMAT_ERROR, SERVER_FAILURE, NO_NAME = 0, 1, 2, 3
API_S = 5.0

Endpoints = list[tuple[str, str]]  # (address, host name of the pod or "")


class Slices:
    """The endpoints of Services, from the API server; if it does not answer, the last known ones."""

    def __init__(self, server: str, authority: str, token: str) -> None:
        self.server, self.token = server, token
        self.context = ssl.create_default_context(cafile=authority)
        self.known: dict[tuple[str, str], tuple[float, Endpoints]] = {}

    def read(self, namespace: str, service: str) -> Endpoints:
        """Return the endpoints. Raises: OSError, ValueError, KeyError: the API server has never answered."""
        key = (namespace, service)
        if key in self.known and time.monotonic() - self.known[key][0] < TTL_S:
            return self.known[key][1]
        try:
            found = self.ask(namespace, service)
        except (OSError, ValueError, KeyError):
            if key not in self.known:
                raise
            found = self.known[key][1]
        self.known[key] = (time.monotonic(), found)
        return found

    def ask(self, namespace: str, service: str) -> Endpoints:
        query = urllib.parse.urlencode({"labelSelector": f"kubernetes.io/service-name={service}"})
        url = f"{self.server}/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?{query}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=API_S, context=self.context) as answer:
            slices = json.load(answer)["items"]
        return [
            (address, one.get("hostname", ""))
            for each in slices
            for one in each.get("endpoints") or []
            if one.get("conditions", {}).get("ready") is not False
            for address in one["addresses"]
        ]


def find(labels: list[str], slices: Slices) -> list[str] | None:
    """The addresses of a name; None if there is no such name."""
    if labels[-3:] != ZONE or not 5 <= len(labels) <= 6:
        return None
    service, namespace = labels[-5], labels[-4]
    found = slices.read(namespace, service)
    pods = [address for address, host in found if len(labels) == 5 or host == labels[0]]
    return pods or None


def read_question(message: bytes) -> tuple[list[str], int, bytes]:
    """The labels and type of a question, and its bytes. Raises: ValueError, IndexError, struct.error."""
    labels, place = [], 12
    while length := message[place]:
        if length > 63 or len(labels) > 32:
            raise ValueError("no plain name")
        labels.append(message[place + 1 : place + 1 + length].decode("ascii").lower())
        place += 1 + length
    kind, _ = struct.unpack_from("!HH", message, place + 1)
    return labels, kind, message[12 : place + 5]


def reply(message: bytes, slices: Slices) -> bytes:
    number, flags = struct.unpack_from("!HH", message)
    records, question, code = b"", b"", NO_ERROR
    try:
        labels, kind, question = read_question(message)
        addresses = find(labels, slices)
        code = NO_NAME if addresses is None else NO_ERROR
        chosen = addresses or [] if kind == A else []
        count = len(chosen[:20])
        for address in chosen[:20]:
            records += struct.pack("!HHHIH", 0xC00C, A, IN, TTL_S, 4) + socket.inet_aton(address)
    except (OSError, KeyError):
        code, count = SERVER_FAILURE, 0
    except (ValueError, IndexError, struct.error):
        code, count = FORMAT_ERROR, 0
    head = struct.pack("!HHHHHH", number, 0x8580 | (flags & 0x0100) | code, bool(question), count, 0, 0)
    return head + question + records


def main(address: str, server: str, authority: str, tokens: str) -> None:
    slices = Slices(server, authority, Path(tokens).read_text().partition(",")[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((address, 53))
        while True:
            message, sender = sock.recvfrom(4096)
            if len(message) >= 12:
                sock.sendto(reply(message, slices), sender)


if __name__ == "__main__":
    main(*sys.argv[1:])
