"""The blobs that trainers leave with a server for a checkpoint: pieces, bounds, and the way back."""

import numpy as np
import pytest
from each import each

from paddle_base.runtime.errors import BugError
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store.model_setup import describe_setup
from pserver.wire import checkpoint_blobs, protocol
from pserver.wire.checkpoint_blobs import CheckpointBlobs
from pserver.wire.protocol import Fetch, Op

PARAMETERS = [ParameterSpec("w", 5), ParameterSpec("b", 2, gradient_clipping_threshold=3.0)]


def test_pieces_make_a_whole_and_a_new_one_leaves_the_old_alone(monkeypatch):
    monkeypatch.setattr(protocol, "PIECE_BYTES", 4)
    kept = CheckpointBlobs(10)
    kept.add(1, 0, 6, memoryview(b"abcd"))
    assert kept.list_arrays() == []
    kept.add(1, 1, None, memoryview(b"ef"))
    [(name, kind, before)] = kept.list_arrays()
    assert (name, kind, bytes(before)) == ("own.1", "|u1", b"abcdef")
    kept.add(1, 0, 1, memoryview(b"x"))
    assert bytes(before) == b"abcdef" and bytes(kept.whole[1]) == b"x"


@each(
    ("piece", "length", "payload"),
    [
        (0, -1, b""),
        (0, None, b""),
        (0, "4", b"abcd"),
        (0, 1 << 40, b"abcd"),
        (0, 3, b"abcd"),
        (1, None, b"ab"),
        (9, 1, b""),
    ],
)
def test_what_cannot_be_is_refused(piece, length, payload):
    kept = CheckpointBlobs(10)
    with pytest.raises(BugError):
        kept.add(0, piece, length, memoryview(payload))
    assert kept.whole == {}


@each("sizes", [[], {"own.x": 1}, {"values": 4}, {"own.1": -1}, {"own.1": 1 << 40}, {"own.1": "1"}])
def test_a_checkpoint_with_other_blobs_is_refused(sizes):
    with pytest.raises(BugError, match="invalid checkpoint blobs"):
        checkpoint_blobs.restore(sizes, 10)


def test_what_was_left_is_in_the_checkpoint_and_comes_back_with_it(wire):
    before = wire(2)
    one, two = before.ready()
    two.ask(Op.CHECKPOINT_BLOB, note={"bytes": 3}, payload=[b"abc"])
    assert two.last.op == Op.CHECKPOINT_BLOB
    two.ask(Op.CHECKPOINT, note={"own": "two"})
    one.ask(Op.CHECKPOINT, note={"own": "one"})
    note = one.last.note
    names = [name for name, _, _ in note["arrays"]]
    assert note["arrays"][-1] == ["own.1", "|u1", 3]
    arrays = {}
    for number, name in enumerate(names):
        one.ask(Op.FETCH, argument=Fetch.STATE + number)
        arrays[name] = bytes(one.last.payload[0]) if one.last.payload else b""
    assert arrays["own.1"] == b"abc"

    after = wire(2)
    one, two = after.trainer(0).join(), after.trainer(1).join()
    state = {
        "counters": note["counters"],
        "arrays": sorted(names),
        "trainers": note["trainers"],
        "blobs": {"own.1": 3},
    }
    setup = describe_setup(PARAMETERS, Optimization("momentum", 0.1)) | state
    one.ask(Op.INITIALISE, note=setup, payload=[np.zeros(7, np.float32).tobytes()])
    for number, name in enumerate(sorted(names)):
        one.ask(Op.RESTORE, argument=number, payload=[arrays[name]])
    two.ask(Op.FETCH)
    assert two.last.note["own"] == "two"
    two.ask(Op.FETCH, argument=Fetch.CHECKPOINT_BLOB)
    assert bytes(two.last.payload[0]) == b"abc"
    one.ask(Op.FETCH, argument=Fetch.CHECKPOINT_BLOB)
    assert not b"".join(map(bytes, one.last.payload))
