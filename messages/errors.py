"""The errors of control messages.

    ControlError
     +- SchemaError          a message that the protocol does not allow; the other side receives the reason
     +- RequestRefusedError  the other side has refused the request
     +- NoAnswerError        no answer before the deadline of the request
     +- ClosedError          this side is closed
     +- NoCurveError         the job has a secret, and this libzmq lacks CURVE

A message from outside never raises an error in the application. messages/ answers or drops a faulty message, and counts
it.
"""

from __future__ import annotations

from runtime.errors import ConfigError


class ControlError(Exception):
    """The base class of the errors of messages/."""


class SchemaError(ControlError):
    """A message does not match the protocol's table. `code`: the kind of mismatch as one word, for programs."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class RequestRefusedError(ControlError):
    """The other side refuses a request. `code` is one word for programs, the text is for people.

    A handler raises this error to refuse a member's request. The member's request then ends with an error of the same
    code and text.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class NoAnswerError(ControlError):
    """A request has no answer at its deadline; the text contains the reason if it is known."""


class ClosedError(ControlError):
    """The client is closed, or a newer incarnation of its member has replaced it."""


class NoCurveError(ControlError, ConfigError):
    """This libzmq cannot encrypt, and therefore cannot prove that the program knows the job's secret."""
