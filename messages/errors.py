"""What can go wrong with control messages.

    ControlError
     +- SchemaError          a message that is none of the protocol; the other side answers with the reason
     +- RequestRefusedError  the other side has answered that it will not do what was asked
     +- NoAnswerError        no answer before the deadline of the request
     +- ClosedError          this side is closed
     +- NoCurveError         the job has a secret, and this libzmq has no CURVE

A message from outside never raises through a server or client: it is answered, or dropped, and counted.
"""

from __future__ import annotations

from runtime.errors import ConfigError


class ControlError(Exception):
    """Anything that this room raises."""


class SchemaError(ControlError):
    """A message is not what the protocol's table says. `code` is one word for programs."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class RequestRefusedError(ControlError):
    """The other side refuses a request. `code` is one word for programs, the text is for people.

    A handler raises it to refuse what a member asks for; the member's request then ends with the same error.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class NoAnswerError(ControlError):
    """A request has no answer at its deadline; the text says why, as far as it is known."""


class ClosedError(ControlError):
    """The client is closed, or was replaced by a newer incarnation of the same member."""


class NoCurveError(ControlError, ConfigError):
    """This libzmq cannot encrypt, and so cannot prove the job's secret."""
