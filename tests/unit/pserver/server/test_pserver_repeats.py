"""The answers of a trainer's current request, when pieces of it are repeated after a break."""

import pytest

from pserver.server.trainer_session import TrainerSession
from pserver.wire.protocol import Message, MessageFlag, Op


@pytest.mark.parametrize(("pieces", "answers"), [(1, 1), (1, 5), (2, 2), (2, 5), (3, 1), (3, 3), (4, 2)])
def test_the_repeated_pieces_of_a_request_bring_all_its_answers_back(pieces, answers):
    """Of a request for rows with 2 pieces and 5 answers, answers 2 to 4 never came again."""
    trainer = TrainerSession(1, bytes(15), "10.0.0.1", {}, session=bytes(8), heard=0.0)
    for piece in range(pieces):
        trainer.take(Message(Op.PUSH, bytes(8), 1, 7, flags=MessageFlag.ROWS, piece=piece), "pushed")
    sent = trainer.reply_array(Op.PUSH, memoryview(bytearray(answers * (2 << 20))), flags=MessageFlag.CHECKPOINT)
    assert len(sent) == answers and all(one.flags & MessageFlag.CHECKPOINT for _, one in sent)
    again = [one for piece in range(pieces) for one in trainer.repeat(piece)]
    assert sorted(one.piece for _, one in again) == list(range(answers))
