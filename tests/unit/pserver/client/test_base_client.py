"""What a client sends early, late and again, without sockets."""

import numpy as np
import pytest

from paddle_base.runtime.errors import BugError
from pserver.client.client import Client
from pserver.client.connection import Poller
from pserver.client.server_channel import ServiceRequest
from pserver.wire import protocol
from pserver.wire.protocol import Message, MessageFlag, Op

PIECES = 3
SIZE = PIECES * protocol.piece_elements()
FIRST, LAST, REST = 0, PIECES - 1, (0, 1)


@pytest.fixture
def joined(make_channel):
    """A client that has joined one service, and its channel."""
    client = Client([("somewhere", 1)], trainer_id=0, num_trainers=1)
    channel = make_channel(SIZE)
    client._use([channel])
    client._exchange._poller = Poller([])
    client._check_vector = lambda array: None
    return client, channel


def answer(channel, *pieces):
    for piece in pieces:
        payload = [np.full(protocol.piece_elements(), piece, np.float32).tobytes()]
        message = Message(
            Op.PUSH, bytes(8), 0, channel.sequence, flags=MessageFlag.ANSWER, payload=payload, piece=piece
        )
        channel.receive(protocol.encode(message))


def sent(channel):
    return [(one.sequence, one.piece) for one in channel.connection.sent]


def test_a_hello_that_was_lost_with_its_connection_is_sent_once_more(joined):
    """A server does not answer the PING of a trainer that has not joined, so nothing else would find the loss."""
    client, channel = joined
    client.begin(ServiceRequest(Op.HELLO, "join"))
    channel.connection.established = None
    for breaks in (0, 1, 1, 1):
        channel.connection.breaks = breaks
        client._ask_progress([channel])
    assert [(one.op, one.piece) for one in channel.connection.sent] == [(Op.HELLO, 0)]


def test_one_call_sends_what_is_left_of_a_begun_push_and_receives_all(joined):
    """The updater had to know whether its push had begun, and called another method then."""
    client, channel = joined
    gradient, values = np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    client.begin_push(gradient, values, 4)
    client.push_from(2 * protocol.piece_elements())
    assert sent(channel) == [(1, LAST)]
    answer(channel, LAST)
    client._exchange.receive = lambda timeout: answer(channel, *REST)
    client.push_pull(gradient, values, 4, checkpoint=True)
    assert sent(channel) == [(1, LAST), (1, 0), (1, 1)]
    assert [bool(one.flags & MessageFlag.CHECKPOINT) for one in channel.connection.sent] == [False, True, True]
    assert values[:: protocol.piece_elements()].tolist() == [0, 1, 2]
    del channel.connection.sent[:]
    client._exchange.receive = lambda timeout: answer(channel, *range(PIECES))
    client.push_pull(gradient, values, 4)
    assert sent(channel) == [(2, piece) for piece in range(PIECES)]


def test_piece_0_waits_for_the_flags_of_the_push(joined):
    client, channel = joined
    array = np.zeros(SIZE, np.float32)
    client.begin_push(array, array, 4)
    client.push_from(0)
    assert sent(channel) == [(1, 2), (1, 1)]


def test_the_number_of_a_request_that_was_begun_but_not_sent_is_used_again(make_channel):
    channel = make_channel(SIZE)
    for sends, number in ((False, 1), (True, 1), (False, 2), (False, 2), (True, 2), (True, 3)):
        channel.begin(ServiceRequest(Op.START_PASS, "start"))
        assert channel.sequence == number
        if sends:
            channel.send_piece(FIRST)


def test_a_client_that_has_not_joined_or_is_closed_says_so(joined):
    client, _ = joined
    client.close()
    for one in (client, Client([("somewhere", 1)], trainer_id=0, num_trainers=1)):
        for call, *given in ((one.start_pass,), (one.gather_checkpoint, {}), (one.collect,)):
            with pytest.raises(BugError, match="has not joined, or is closed"):
                call(*given)
