"""What a master finds in etcd below its job that no master has written."""

import base64
import time
from typing import Any, cast

import pytest
from etcd3gw.lease import Lease

from paddle_base.registry.endpoints import EtcdEndpoints
from paddle_base.registry.etcd import EtcdClaim
from paddle_base.registry.interface import LEADER
from paddle_base.runtime.errors import DamagedError
from paddle_cluster.master.store.etcd import EtcdLeadership
from paddle_cluster.master.tasks.encoding import decode_state
from paddle_cluster.master.tasks.state import TaskSettings


class Page:
    """An etcd with one page of keys."""

    def __init__(self, *pairs: tuple[bytes, bytes]) -> None:
        self.pairs = [{"key": base64.b64encode(key), "value": base64.b64encode(value)} for key, value in pairs]

    def call(self, *_: object) -> dict[str, Any]:
        return {"kvs": self.pairs}


def load(*pairs: tuple[bytes, bytes]) -> None:
    etcd = cast(EtcdEndpoints, Page(*pairs))
    claim = EtcdClaim(etcd, "/job/", LEADER, cast(Lease, None), 1, time.monotonic() + 60.0)
    leadership = EtcdLeadership(claim)
    decode_state(TaskSettings(num_passes=1), leadership.load(), time.time())


@pytest.mark.parametrize("pair", [(b"/job/master/x\xff", b"1"), (b"/job/master/save", b"\xff")])
def test_a_key_or_value_that_is_no_text_is_named_with_what_to_do(pair: tuple[bytes, bytes]) -> None:
    name = pair[0].decode(errors="replace")
    with pytest.raises(DamagedError, match=rf"the key '{name}' of etcd, or its value, is no text.*etcdctl del"):
        load(pair)


@pytest.mark.parametrize("value", [b"[" * 100_000, b"1e999", b'["a",1,1e999,0]', b"{}"])
def test_a_value_that_no_master_writes_is_damage(value: bytes) -> None:
    """A value with a hundred thousand brackets ended the master with a traceback and status 70."""
    with pytest.raises(DamagedError, match="the stored state of the master is damaged"):
        load((b"/job/master/number/a", b'["a",1,1]'), (b"/job/master/state", value))
