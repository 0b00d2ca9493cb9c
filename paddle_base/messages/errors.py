"""The errors of control messages.

Each of these errors is a `ControlError`:

- `RequestRefusedError`: the other side has refused the request.
- `NoAnswerError`: no answer has arrived before the deadline of the request.
- `ClosedError`: this side is closed.
- `NoCurveError`: the job has a secret, and this libzmq lacks CURVE.

A message that the protocol does not allow is a `SchemaError` (paddle_base/runtime/schema.py); the other side receives
the reason. A faulty message from outside never raises an error in the application, because paddle_base/messages/ counts
faulty messages, and answers or drops them. No I/O.
"""

from __future__ import annotations

from paddle_base.runtime.errors import ConfigError


class ControlError(Exception):
    """The base class of the errors of messages/."""


class RequestRefusedError(ControlError):
    """The other side refuses a request. `code` is one word for programs, and the text is for people.

    A handler raises this error to refuse a member's request. The member's request then ends with an error of the same
    code and text.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class NoAnswerError(ControlError):
    """A request has no answer at its deadline; the text contains the reason if it is known."""


class ClosedError(ControlError):
    """The client is closed, or another process has its place."""


class NoCurveError(ControlError, ConfigError):
    """This libzmq cannot encrypt, and therefore cannot prove that the program knows the job's secret."""
