"""The definitions of the messages between trainers and the master; the package `messages` transfers the messages.

No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping

from paddle_base.runtime.schema import Call, Fields, Integer, Items, Maybe, Number, Protocol, Shape, Text, Truth, Word
from paddle_cluster.master.tasks.dataset import LONGEST_NAME, MOST_FILES, PART_NAMES
from paddle_cluster.master.tasks.dispatch import JOB_DONE, JOB_FAILED, PASS_END, TASK, WAIT
from paddle_cluster.master.tasks.events import BUSY, GRANTED, OUTCOMES, SAVED

LONGEST_WAIT_S = 3600.0  # maximum seconds that a request for a task may stay open
LONGEST_SAVE_S = 86400.0
TRAINER, WATCHER = "trainer", "watcher"  # a watcher only asks for the status, and holds no tasks

_DIGEST = Text(64, least=64)
_TASK = Fields(id=Integer(0), epoch=Integer(1), limit=Number(0.0), files=Items(Text(LONGEST_NAME, least=1), 1 << 16))
_DATASET = Fields(state=Word(("known", "send")), next=Integer(0, MOST_FILES), **{"pass": Integer(0)})
MEMBER_FIELDS: Mapping[str, Shape] = {
    "uid": Text(200),
    "incarnation": Integer(0),
    "number": Integer(0),
    "joined": Number(0.0),
    "connected": Truth(),
    "tasks": Items(Integer(0), 64),
}
HOLDER_FIELDS: Mapping[str, Shape] = {
    "task": Integer(0),
    "epoch": Integer(1),
    "uid": Text(200),
    "incarnation": Integer(0),
    "since": Number(0.0),
}
PASS_FIELDS: Mapping[str, Shape] = {
    "pass": Integer(0),
    "done": Integer(0),
    "discarded": Integer(0),
    "dispatches": Integer(0),
    "failures": Integer(0),
    "samples": Integer(0),
    "repeated": Integer(0),
    "unreported": Integer(0),
    "ended": Number(0.0),
    "names": Items(Text(1000), 100),
}
_TASK_ANSWER = Fields(
    state=Word((TASK, WAIT, PASS_END, JOB_DONE, JOB_FAILED)),
    task=Maybe(_TASK),
    reason=Text(4000),
    **{"pass": Integer(0)},
)
_NEXT = Fields(request=Integer(1), **{"pass": Integer(0)})
MOST_MEMBERS = 4096  # maximum joined members
_VIEW = Fields(epoch=Integer(0), members=Items(Integer(0), MOST_MEMBERS))
MOST_SHOWN = 100  # maximum members, holders and passes in a status

MASTER = Protocol(
    name="master",
    version=4,
    # `number` is the number that a master of this job has given to this process before, or null
    hello=Fields(role=Word((TRAINER, WATCHER)), config=Text(64), number=Maybe(Integer(0))),
    # `number` is null for a watcher
    welcome=Fields(lease=Number(0.0), number=Maybe(Integer(0)), passes=Integer(1), view=_VIEW),
    requests={
        # a trainer first sends the digest of its file list and the number of files; if the master does not know the
        # list, the trainer then sends the list in parts
        "offer_dataset": Call(Fields(digest=_DIGEST, config=Text(64), files=Integer(0, MOST_FILES)), _DATASET),
        "dataset_part": Call(
            Fields(digest=_DIGEST, first=Integer(0, MOST_FILES), names=Items(Text(LONGEST_NAME, least=1), PART_NAMES)),
            _DATASET,
        ),
        # `request` is a number that the trainer gives to the request; a repeated request gets the same task
        "get_task": Call(
            Fields(request=Integer(1), patience=Number(0.0, LONGEST_WAIT_S), **{"pass": Integer(0)}),
            _TASK_ANSWER,
        ),
        # a report with `next` also requests a task, but does not wait for one; one answer contains both results
        "report_task": Call(
            Fields(
                id=Integer(0),
                epoch=Integer(1),
                outcome=Word(OUTCOMES),
                samples=Integer(0),
                reason=Text(1000),
                next=Maybe(_NEXT),
                **{"pass": Integer(0)},
            ),
            Fields(accepted=Truth(), reason=Text(1000), next=Maybe(_TASK_ANSWER)),
        ),
        "request_save": Call(
            Fields(block=Number(0.0, LONGEST_SAVE_S), **{"pass": Integer(0)}),
            Fields(state=Word((GRANTED, BUSY, SAVED))),
        ),
        "report_saved": Call(Fields(**{"pass": Integer(0)}), Fields(accepted=Truth(), reason=Text(1000))),
        "depart": Call(Fields()),
        "status": Call(
            Fields(),
            Fields(
                phase=Text(20),
                reason=Text(4000),
                leader=Integer(0),
                todo=Integer(0),
                pending=Integer(0),
                done=Integer(0),
                failed=Integer(0),
                holders=Items(Fields(**HOLDER_FIELDS), MOST_SHOWN),
                members=Items(Fields(**MEMBER_FIELDS), MOST_SHOWN),
                passes=Items(Fields(**PASS_FIELDS), MOST_SHOWN),
                **{"pass": Integer(0)},
            ),
        ),
    },
    # the master sends the view to all members after each change
    pushes={"view": _VIEW},
)
