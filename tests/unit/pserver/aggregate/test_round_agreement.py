"""What a trainer decides from the answers to ENTER."""

from each import each

from pserver.aggregate.round_agreement import agree
from pserver.wire.views import NO_ROUND, EnterAnswer, RoundKey


def key(epoch, number):
    return RoundKey(epoch, number)


A, B, C = key(1, 1), key(1, 2), key(1, 3)


@each(
    "answers, own, expected",  # (services that are sent COMMIT, of which round, whether own is done, next round)
    [
        ([(NO_ROUND, None, None)] * 2, None, ((), NO_ROUND, False, 1)),
        ([(B, None, B)] * 2, B, ((), B, True, 3)),
        ([(B, None, A)] * 2, A, ((), B, True, 3)),
        # taken by one service, prepared on the others
        ([(B, C, B), (C, None, C), (B, C, B)], C, ((0, 2), C, True, 4)),
        # prepared on all, taken by none
        ([(B, C, B), (B, C, B)], C, ((0, 1), C, True, 4)),
        # prepared on some: it counts nowhere
        ([(B, C, B), (B, None, B)], C, ((), B, False, 3)),
        # a round of others is committed by a newcomer
        ([(B, C, None), (B, C, None)], None, ((0, 1), C, False, 4)),
        # a trainer that was away: a later round of others tells nothing of its own
        ([(C, None, A)] * 2, B, ((), C, False, 4)),
        ([(C, None, B)] * 2, B, ((), C, True, 4)),
        # a server that went on from a snapshot is behind, and has nothing prepared
        ([(A, None, A), (C, None, C)], C, ((), C, True, 4)),
        ([(A, None, A), (B, C, B)], C, ((), B, False, 3)),
        # two servers were lost, and with them all that counted; the rest refuses all but the round that it has prepared
        ([(NO_ROUND, C, None), (NO_ROUND, None, None)], C, ((), NO_ROUND, False, 3)),
        # one service in all
        ([(NO_ROUND, A, None)], A, ((0,), A, True, 2)),
    ],
)
def test_the_answers_decide(answers, own, expected):
    made = agree([EnterAnswer(*one) for one in answers], 1, {own} if own else ())
    assert (made.services, made.key, made.is_own_done, made.next_round) == expected
    assert set(made.values) <= {made.key, *(done for done, _, _ in answers)}


def test_rounds_are_counted_anew_in_every_epoch():
    answers = [EnterAnswer(C, None, C), EnterAnswer(B, C, B)]
    made = agree(answers, 2, {C})
    assert made.next_round == 1 and made.services == (1,) and made.is_own_done and made.values == (C, C)
    assert agree([EnterAnswer(key(2, 4)), EnterAnswer(C)], 2).next_round == 5
    assert agree([EnterAnswer(A, C, A), EnterAnswer(A, None, A)], 2, {C}).next_round == 1


def test_a_gradient_that_was_pushed_for_several_rounds_may_have_counted_in_any():
    later = key(2, 1)
    assert agree([EnterAnswer(C, None, C), EnterAnswer(NO_ROUND)], 2, {C, later}).is_own_done
    assert not agree([EnterAnswer(C, None, B), EnterAnswer(NO_ROUND)], 2, {C, later}).is_own_done
