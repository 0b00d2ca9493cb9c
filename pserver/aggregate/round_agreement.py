"""What a trainer does before its first push of an epoch, from what all services say of their rounds (pure).

A round counts on all services or on none. Every service keeps the gradients of a round, until a COMMIT says that all of
them have all gradients. A trainer that is lost may leave a round that some services have taken and others have not. So
every trainer of a new view asks all services with ENTER, after which no service completes a round of an earlier view,
and decides by the answers, as every other trainer does:

- A round that any service has taken was complete on all: those that have it prepared take it, too.
- A round that is prepared on all, and taken by none, is taken by all.
- Any other round counts nowhere. Its gradients are pushed again in the new view.

All answers to the COMMITs have come before the trainer pushes: its push drops what is prepared on a service.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pserver.wire.views import NO_ROUND, EnterAnswer, RoundKey


class RoundAgreement(NamedTuple):
    """What is to be done.

    services: numbers of those that are sent COMMIT of `key`.  is_own_done: whether the gradient that this trainer
    pushed last, with the key `own`, has counted; if not, it is pushed again.  next_round: the number in this epoch of
    the round that is pushed next.  values: by service, the last round that it has taken when all COMMITs are answered;
    a trainer that does not have the values of that round fetches them.
    """

    key: RoundKey
    services: tuple[int, ...]
    is_own_done: bool
    next_round: int
    values: tuple[RoundKey, ...]


def agree(answers: Sequence[EnterAnswer], epoch: int, own: RoundKey | None = None) -> RoundAgreement:
    """Return what a trainer does that has entered an epoch.

    Args: answers: of all services, dense and sparse, in any order that stays.
        own: the round of its last push, if it does not know whether that has counted.
    """
    newest = max((one.done for one in answers), default=NO_ROUND)
    prepared = {one.prepared for one in answers}
    if len(prepared) == 1 and (everywhere := prepared.pop()) is not None:
        newest = max(newest, everywhere)
    late = tuple(number for number, one in enumerate(answers) if one.prepared == newest and one.done < newest)
    values = tuple(newest if number in late else one.done for number, one in enumerate(answers))
    counted = [one.own for one in answers if one.own is not None]
    is_own_done = own is not None and (own in counted or (bool(late) and own == newest))
    return RoundAgreement(newest, late, is_own_done, 1 + (newest.number if newest.epoch == epoch else 0), values)
