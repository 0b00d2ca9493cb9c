"""The messages of rounds on one port: many connections at a time, by the compiled kernels.

In a round every trainer sends a PUSH. Of this message only the samples, two flags, the tag and the payload are not
known before it arrives. One call therefore receives the foreseen pushes of all connections that are ready, each at its
place in memory, and checks their signatures. One call writes and sends the answers of all trainers, and expects their
next pushes. Everything else (another message, the end of a connection, a fault) is handed back to its `Connection` with
all bytes that have been received, and is handled as if this module did not exist.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from types import ModuleType

from pserver.server.foreseen_push import ForeseenPush
from pserver.server.peer import Peer
from pserver.server.service import Service
from pserver.server.trainer_session import Outgoing, PushForm
from pserver.wire import protocol
from pserver.wire.connection import Frames, Traffic
from pserver.wire.protocol import Buffer, Message, Op

_NOTHING = memoryview(b"")


class RoundTraffic:
    """The foreseen pushes of one port, and the answers to many connections.

    Args: traffic: the counter of bytes.
    """

    def __init__(self, service: Service, traffic: Traffic) -> None:
        self._service, self._traffic = service, traffic
        self._pushes: dict[int, ForeseenPush] = {}  # by file descriptor of the connection
        self._of_name: dict[bytes, ForeseenPush] = {}  # the same by name of the connection
        self._kernels: ModuleType | None = None  # with numpy, which the first hello must not wait for

    # ----- In -----

    def foresee(self, peer: Peer, answer: Message) -> None:
        """After the answer to a push, expect the next push on this connection if it is known."""
        connection = peer.connection
        if answer.op != Op.PUSH or not peer.has_joined or peer.is_leaving:
            return
        push = self._pushes.get(peer.file)
        if connection is None or not connection.is_between_messages or (push and push.is_expected):
            return
        form = self._service.foresee_push(peer.name, answer.trainer)
        if form is None:
            self.forget(peer)
        elif push is not None and push.rounds is form.rounds and push.trainer is form.trainer:
            push.expected.expect(form.header)
            push.sequence, push.is_expected, push.is_taken = form.sequence, True, False
        else:
            self._make(peer, form)

    def _make(self, peer: Peer, form: PushForm) -> None:
        import numpy as np

        from paddle_base.kernels import server_rounds

        self._kernels = server_rounds
        self.forget(peer)
        try:
            payload = memoryview(bytearray(0 if form.is_local else form.length))
        except MemoryError:
            return  # the push is received as every other message; if there is no memory, its connection ends
        memory = form.trainer.memory
        place = payload if memory is None else memory.outbox[: form.length]
        keys = peer.handshake.keys
        expected = server_rounds.ExpectedMessage.of(peer.file, form.header, payload, keys.receiving, keys.sending)
        push = ForeseenPush(peer, form.trainer, form.rounds, expected, np.frombuffer(place, np.float32), form.sequence)
        self._pushes[peer.file] = self._of_name[peer.name] = push

    def receive(self, ready: Sequence[tuple[int, int]]) -> tuple[list[ForeseenPush], Sequence[tuple[int, int]]]:
        """Receive the foreseen pushes of the ready connections.

        Return the pushes that are complete, and the events that are left to handle. Among these are the connections
        whose messages are not as foreseen; `hand_back` has what was received of them.
        """
        pushes, kernels = self._pushes, self._kernels
        if not pushes or kernels is None:
            return [], ready
        due, others = [], []
        for one in ready:
            push = pushes.get(one[0])
            if push is None or not push.is_expected or one[1] != select.EPOLLIN:
                others.append(one)
            else:
                due.append(push)
        if not due:
            return [], ready
        statuses, received = kernels.receive_expected([push.expected for push in due], protocol.PUSH_MASK)
        self._traffic.received += received
        arrived, complete, waits = [], kernels.COMPLETE, kernels.WAITS
        read, at = protocol.PUSH_FIELDS.unpack_from, due[0].expected.header_at
        for push, status in zip(due, statuses, strict=True):
            if status == complete:
                push.flags, push.samples = read(push.expected.state, at)
                push.is_expected, push.is_taken = False, True
                arrived.append(push)
            elif status != waits:
                others.append((push.peer.file, select.EPOLLIN))
        return arrived, others

    def hand_back(self, peer: Peer) -> list[Frames]:
        """Expect no push on a connection any more, and give the received bytes to its `Connection`. Return the messages
        that the bytes contain.
        """
        push = self._pushes.get(peer.file)
        if push is None or not push.is_expected or peer.connection is None:
            return []
        push.is_expected = False
        return peer.connection.restore(push.expected.list_received())

    def forget(self, peer: Peer) -> None:
        """Expect no push on a connection that is not read any more."""
        push = self._pushes.pop(peer.file, None)
        if push is not None and self._of_name.get(peer.name) is push:
            del self._of_name[peer.name]

    # ----- Out -----

    def send(self, answers: Sequence[Outgoing], watch: Callable[[Peer], None]) -> Sequence[Outgoing]:
        """Send answers to foreseen pushes as far as possible; return the messages that must be sent one by one.

        Args: watch: a function that is called with a peer if a part of its message waits to be sent.
        """
        of_name = self._of_name
        if not of_name:
            return answers
        others: list[Outgoing] = []
        behind = set()  # names of connections with a message in `others`, which nothing may overtake
        group: list[ForeseenPush] = []  # pushes with the same answer but for its trainer and sequence
        first: Message | None = None  # the answer to the first of them
        for one in answers:
            name, message = one
            push = of_name.get(name)
            if push is None or message is None or not _is_answer(push, message) or name in behind:
                others.append(one)
                behind.add(name)
                continue
            push.is_taken = False
            if first is not None and message[4:7] == first[4:7] and message[7] is first[7]:
                group.append(push)
                continue
            if first is not None:
                self._send(first, group, watch)
            first, group = message, [push]
        if first is not None:
            self._send(first, group, watch)
        return others

    def _send(self, message: Message, pushes: Sequence[ForeseenPush], watch: Callable[[Peer], None]) -> None:
        """Send the same answer to several pushes, and expect the next pushes."""
        assert self._kernels is not None
        payload: Buffer = message.payload[0] if message.payload else _NOTHING
        op, session, _, _, argument, flags, *_ = message
        header = protocol.pack_answer(op, flags, session, argument, len(payload))
        messages = [push.expected for push in pushes]
        sent, unsent = self._kernels.send_answers(messages, header, protocol.ANSWER_ECHO, protocol.SEQUENCE_AT, payload)
        self._traffic.sent += sent
        for push in pushes:
            push.sequence += 1
            push.is_expected = True
        for index, count in unsent:
            peer = pushes[index].peer
            # a broken connection is found by the next read
            if count >= 0 and peer.connection is not None:
                peer.connection.send_rest([messages[index].answer, payload], count)
                watch(peer)


def _is_answer(push: ForeseenPush, message: Message) -> bool:
    """Return whether a message is the answer to a push that `RoundTraffic` has received, and may be sent at once."""
    if not push.is_taken or message.sequence != push.sequence or message.op is not Op.PUSH:
        return False
    if message.note or message.piece or len(message.payload) > 1:
        return False
    connection = push.peer.connection
    return connection is not None and connection.is_idle
