"""Reads and writes values of a key-value store of `paddle_cluster.elastic.http_server`.

Names are those of `horovod.runner.http.http_client`. Requests are signed with the secret of the environment
(PADDLE_SECRET). Values are plain data and arrays.
"""

from __future__ import annotations

import os

from paddle_base.runtime.environment import read_environment
from paddle_base.runtime.errors import PaddleError
from paddle_cluster.elastic.rendezvous.client import RendezvousClient
from paddle_cluster.elastic.runner.common.codec import dumps_base64, loads_base64

ASK_S = 30.0  # maximum seconds until the store has answered


def read_data_from_kvstore(addr: str, port: int | str, scope: str, key: str) -> object:
    """Return a value. Raises: RuntimeError: the store does not answer, or has no such value."""
    try:
        found = _open(addr, port).get(scope, key)
        if found is None:
            raise RuntimeError(f"the store at {addr}:{port} has no value {scope}/{key}")
        return loads_base64(found)
    except PaddleError as exc:
        raise RuntimeError(f"{scope}/{key} cannot be read: {exc}") from exc


def put_data_into_kvstore(addr: str, port: int | str, scope: str, key: str, value: object) -> None:
    """Store a value.

    Raises: RuntimeError: the store does not answer.  UsageError: the value is neither plain data nor arrays.
    """
    content = dumps_base64(value, to_ascii=False)
    try:
        _open(addr, port).put(scope, key, content)
    except PaddleError as exc:
        raise RuntimeError(f"{scope}/{key} cannot be stored: {exc}") from exc


def _open(addr: str, port: int | str) -> RendezvousClient:
    return RendezvousClient(addr, int(port), read_environment(os.environ).secret, ASK_S)
