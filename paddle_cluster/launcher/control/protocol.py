"""The messages between launchers. The module does no input or output.

Trainer 0's launcher is the server. Each other launcher connects with its pod's UID, receives the attempt that begins,
and reports a failure of its programs. The server then announces the end of the attempt and its cause. The launcher of a
pod without a trainer reports that all trainers have left the pserver. The launcher of a program of ENTRY reports that
the program has ended with status 0.
"""

from __future__ import annotations

from paddle_base.messages.envelope import MAX_BYTES
from paddle_base.runtime.schema import Call, Fields, Integer, Items, Maybe, Number, Protocol, Text
from paddle_cluster.launcher.variables import MOST_TRAINERS

LONGEST_MESSAGE = 8000  # maximum characters of an error's message, which quotes at most 4,000 bytes of a log

# a report about the end of an attempt in a pod, with the fields of error.json (failures.make_error)
ERROR = Fields(
    time=Number(0, 1e11),
    attempt=Text(200),
    trainer_id=Integer(),
    host=Text(300),
    program=Text(50),
    exit_code=Integer(0, 255),
    signal=Text(50),
    message=Text(LONGEST_MESSAGE),
)
RECORD = Text(MAX_BYTES)  # the text of job.json; attempts.parse_record checks its fields
ENDED = Fields(attempt=Text(200), failure=Maybe(ERROR))  # failure is null while the first failure is unknown

RENDEZVOUS = Protocol(
    name="rendezvous",
    version=1,
    hello=Fields(ip=Text(45), host=Text(300), last=Maybe(ERROR)),  # last: the report about the newest attempt
    welcome=Fields(record=Maybe(RECORD), ended=Items(ENDED, 10), done=Text(200)),
    requests={
        "report": Call(Fields(error=ERROR)),
        "left": Call(Fields(attempt=Text(200))),
        "finished": Call(Fields(attempt=Text(200), trainer_id=Integer(0, MOST_TRAINERS - 1))),
    },
    pushes={"begin": Fields(record=RECORD), "ended": ENDED, "done": Fields(attempt=Text(200))},
)
