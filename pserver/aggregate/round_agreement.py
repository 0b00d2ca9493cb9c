"""Decide what a trainer does before its first push of an epoch, from the rounds that all services report.

The module does no input or output. A round counts on all services or on none. A service that has the gradients of all
trainers has prepared the round. The service stores the gradients until COMMIT. A trainer sends COMMIT to all services
after all of them have prepared the round. A service completes the round at COMMIT. If a trainer is lost while it sends
COMMIT, only some services complete the round. Every trainer of a new view (the set of trainers of an epoch) therefore
sends ENTER to all services. After ENTER, a service refuses every COMMIT of an earlier view. The answers to ENTER lead
every trainer to the same decision:

- If any service has completed a round, all services had prepared it. The other services complete the round now.
- If all services have prepared a round and none has completed it, all services complete the round.
- Any other round is dropped, and its gradients are pushed again in the new view.

A dropped round keeps its number if the epoch is the same, because a service that has prepared a round refuses all other
rounds of the epoch. Two servers that are lost one after the other may have taken all completed rounds with them; then
the prepared round is not the next one after the newest completed round, and the numbers in between are skipped. Because
the number is the same, a trainer also recognises its gradient if a late COMMIT completes the prepared round after all.

A trainer pushes only after all COMMITs are answered, because a push makes a service drop a round that is only prepared.

If a server is lost between the answers to two trainers, these may decide differently about a prepared round of an
earlier epoch. A service that has completed the round for one trainer then refuses the other's push, which may be of the
same gradient. This trainer enters the view again, and learns that the gradient has counted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from pserver.wire.views import NO_ROUND, EnterAnswer, RoundKey


class RoundAgreement(NamedTuple):
    """The decision of a trainer about the last round, which it makes before its first push of an epoch.

    - `key`: the newest round that counts.
    - `services`: numbers of the services that must still complete this round, and therefore receive COMMIT.
    - `is_own_done`: whether this trainer's last gradient has counted; otherwise the trainer pushes it again.
    - `next_round`: number of the next round in this epoch; a dropped round of this epoch is repeated with its number.
    - `values`: for each service, its last completed round after all COMMITs are answered. A trainer whose values come
      from another round fetches the values again.
    """

    key: RoundKey
    services: tuple[int, ...]
    is_own_done: bool
    next_round: int
    values: tuple[RoundKey, ...]


def agree(answers: Sequence[EnterAnswer], epoch: int, own: Collection[RoundKey] = ()) -> RoundAgreement:
    """Return the decision about the last round, for a trainer that has entered an epoch.

    Args: answers: the answers of all services, dense and sparse, always in the same order. own: the rounds
        for which the trainer has pushed its last gradient, if the trainer does not know whether it has counted.
    """
    newest = max((one.done for one in answers), default=NO_ROUND)
    prepared = [one.prepared for one in answers if one.prepared is not None]
    if len(prepared) == len(answers) and len(set(prepared)) == 1:
        newest = max(newest, prepared[0])
    late = tuple(number for number, one in enumerate(answers) if one.prepared == newest and one.done < newest)
    values = tuple(newest if number in late else one.done for number, one in enumerate(answers))
    counted = {one.own for one in answers} | ({newest} if late else set())
    is_own_done = not counted.isdisjoint(own)
    following = RoundKey(epoch, newest.number + 1 if newest.epoch == epoch else 1)
    following = max([following, *(key for key in prepared if key.epoch == epoch)])
    return RoundAgreement(newest, late, is_own_done, following.number, values)
