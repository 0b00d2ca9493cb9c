"""The messages of rounds on one port: many connections at a time, by the compiled kernels.

In a round every trainer sends a PUSH. Of this message only the samples, two flags, the tag and the payload are not
known before it arrives. One call therefore receives the foreseen pushes of all connections that are ready, each at its
place in memory, and one call sends the answers to all trainers. Everything else (another message, the end of a
connection, a fault) is handed back to its `Connection` with all bytes that have been received, and is handled as if
this module did not exist.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from pserver.server.peer import Peer, encode_answer
from pserver.server.service import Service
from pserver.wire import protocol
from pserver.wire.connection import Frames, Pool, Traffic
from pserver.wire.protocol import Message, Op

if TYPE_CHECKING:
    from paddle_base.kernels.server_rounds import ExpectedMessage

_NOTHING = memoryview(bytearray())

Answer = tuple[Peer | None, Message | None]  # None instead of a peer: it is gone; instead of a message: it must leave


class RoundTraffic:
    """The foreseen pushes of one port, and the answers to many connections.

    Args: pool: the memory for payloads. traffic: the counter of bytes.
    """

    def __init__(self, service: Service, pool: Pool, traffic: Traffic) -> None:
        self._service, self._pool, self._traffic = service, pool, traffic
        # by file descriptor of the connection: the peer and the received part of the push
        self._pushes: dict[int, tuple[Peer, ExpectedMessage]] = {}
        self._kernels: ModuleType | None = None  # with numpy, which the first hello must not wait for

    # ----- In -----

    def foresee(self, peer: Peer, answer: Message) -> None:
        """After the answer to a push, expect the next push on this connection if it is known."""
        connection = peer.connection
        if answer.op != Op.PUSH or not peer.has_joined or peer.is_leaving or peer.file in self._pushes:
            return
        if connection is None or not connection.is_between_messages:
            return
        found = self._service.foresee_push(peer.name, answer.trainer)
        if found is None:
            return
        from paddle_base.kernels import server_rounds

        self._kernels = server_rounds
        header, length = found
        try:
            payload = self._pool.take(length) if length else _NOTHING
        except MemoryError:
            return  # the push is received as every other message; if there is no memory, its connection ends
        self._pushes[peer.file] = peer, server_rounds.ExpectedMessage.of(peer.file, header, payload)

    def receive(
        self, ready: Sequence[tuple[int, int]]
    ) -> tuple[list[tuple[Peer, Message, bytes]], Sequence[tuple[int, int]]]:
        """Receive the foreseen pushes of the ready connections.

        Return the pushes that are complete, each with its header, and the events that are left to handle. Among these
        are the connections whose messages are not as foreseen; `hand_back` has what was received of them.
        """
        pushes, kernels = self._pushes, self._kernels
        if not pushes or kernels is None:
            return [], ready
        due, others = [], []
        for one in ready:
            push = pushes.get(one[0])
            if push is None or one[1] != select.EPOLLIN:
                others.append(one)
            else:
                due.append(push)
        if not due:
            return [], ready
        statuses, received = kernels.receive_expected([message for _, message in due], protocol.PUSH_MASK)
        self._traffic.received += received
        arrived = []
        for (peer, message), status in zip(due, statuses, strict=True):
            if status == kernels.COMPLETE:
                del pushes[peer.file]
                header = message.header
                arrived.append(
                    (peer, protocol.read_push(header, (message.payload,) if message.payload else ()), header)
                )
            elif status != kernels.WAITS:
                others.append((peer.file, select.EPOLLIN))
        return arrived, others

    def hand_back(self, peer: Peer) -> list[Frames]:
        """Expect no push on a connection any more, and give the received bytes to its `Connection`. Return the messages
        that the bytes contain.
        """
        push = self._pushes.pop(peer.file, None)
        if push is None or peer.connection is None:
            return []
        return peer.connection.restore(push[1].list_received())

    def forget(self, peer: Peer) -> None:
        """Expect no push on a connection that is not read any more."""
        self._pushes.pop(peer.file, None)

    # ----- Out -----

    def send(self, answers: Sequence[Answer], watch: Callable[[Peer], None]) -> Sequence[Answer]:
        """Send messages to different connections as far as possible; return those that must be sent one by one.

        Args: watch: a function that is called with a peer if a part of its message waits to be sent.
        """
        kernels = self._kernels
        if kernels is None or len({peer.file if peer else -1 for peer, _ in answers}) < len(answers):
            return answers
        others, chosen, calls = [], [], []
        for one in answers:
            peer, message = one
            if peer is None or message is None or peer.is_leaving or peer.connection is None or peer.unsent:
                others.append(one)
                continue
            header, note, *payload = encode_answer(message, peer.handshake.keys.sending)
            if len(payload) > 1:
                others.append(one)
                continue
            chosen.append((peer, message))
            calls.append((peer.file, b"".join((header, note)), memoryview(payload[0]) if payload else _NOTHING))
        if not calls:
            return others
        for (peer, message), (_, head, array), sent in zip(chosen, calls, kernels.send_answers(calls), strict=True):
            # a broken connection is found by the next read
            if sent >= 0:
                self._traffic.sent += sent
                if sent < len(head) + array.nbytes and peer.connection is not None:
                    peer.connection.send_rest([head, array], sent)
                    watch(peer)
            self.foresee(peer, message)
        return others
