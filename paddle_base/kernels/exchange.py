"""Exchange messages with several peers in one call without the GIL, as long as only expected answers arrive.

The plain form is the connection of the caller (`pserver.wire.connection`), which sends and receives one message after
the other. The compiled form knows no protocol: it compares the heads of answers with the heads that the caller expects.
It stops at anything else, and its caller continues from the returned state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled

IS_COMPILED = compiled is not None
# the places of the numbers in `progress`
REST_SENT, PIECE_SENT, SCRATCH_END, PIECE, PIECE_RECEIVED = range(5)
PROGRESS = 5  # number of the numbers in `progress`

Buffer = bytes | bytearray | memoryview
Numbers = npt.NDArray[np.int64]


class ExchangeStatus:
    """Why an exchange has ended; plain integers, because making a member of an enum takes as long as a message."""

    COMPLETE = 0  # all is sent, all awaited pieces have arrived, and nothing else has
    TIMEOUT = 1
    INTERRUPTED = 2  # by a signal
    UNSETTLED = 3  # something is not awaited: another head, the end of a line, or its failure


class Line(NamedTuple):
    """What is exchanged with one peer.

    A piece is sent as a head and a payload, and its answer has the same form. The payload of a piece consists of some
    areas of the flat arrays. All heads of one direction have the same length.

    - `file`: the number of a connected socket.
    - `rest`: buffers that are sent before the pieces.
    - `sending`: 1 for each piece that is to be sent; the exchange sets it to 0 when the piece is sent. Pieces are sent
      in order.
    - `heads_out`: the heads of the pieces, one after the other.
    - `outbox`: memory shared with the peer, into which the payloads are copied in place of sending them, or None.
    - `awaited`: 1 for each piece whose answer is awaited, in any order; the exchange sets it to 0 when it has arrived.
    - `heads_in`: the heads of the expected answers, all different.
    - `inbox`: memory shared with the peer, from which the payloads are copied in place of receiving them, or None.
    - `areas_out`, `areas_in`: for each area its places in the flat array and in the shared memory, and its length, all
      in bytes.
    - `starts_out`, `starts_in`: piece p has the areas [starts[p], starts[p + 1]).
    - `scratch`: memory for received heads and what follows them.
    - `progress`: SCRATCH_END: the number of received bytes in `scratch`, also before the exchange. After the exchange:
      REST_SENT: sent bytes of `rest`. PIECE_SENT: sent bytes of the first piece in `sending`, with its head. PIECE: the
      piece of which a part has arrived, or -1. PIECE_RECEIVED: received bytes of its payload.

    Shapes: sending, awaited: (pieces,); the two directions may have different numbers of pieces. areas: (areas, 3).
    starts: (pieces + 1,). progress: (PROGRESS,).
    """

    file: int
    rest: tuple[Buffer, ...]
    sending: bytearray
    heads_out: Buffer
    outbox: memoryview | None
    areas_out: Numbers
    starts_out: Numbers
    awaited: bytearray
    heads_in: Buffer
    inbox: memoryview | None
    areas_in: Numbers
    starts_in: Numbers
    scratch: memoryview
    progress: Numbers


def exchange(source: Any, target: Any, lines: Sequence[Line], seconds: float) -> int:
    """Send all pieces in `sending`, and receive all that are awaited; return an `ExchangeStatus`.

    Payloads are sent from `source` and received into `target`. A piece is written only after its head has arrived. No
    byte is lost: what has arrived is in `target`, or in the scratch memory.

    Args: source, target: contiguous arrays; None: the messages of this direction have no payloads. seconds: maximum
        time to wait for the peers; with 0, the exchange sends and receives what is possible at once.
    Raises: ValueError, TypeError: the fields of a line do not fit each other. The function may be called only if
        IS_COMPILED.
    """
    assert compiled is not None
    found: int = compiled.exchange(source, target, tuple(lines), seconds)
    return found
