"""The cause of a failed request, which the errors of several libraries contain one in another. No I/O."""

from __future__ import annotations


def find_cause(problem: BaseException) -> BaseException:
    """Return the innermost cause of a failed request; it is more specific than the exceptions that contain it."""
    cause = problem
    while True:
        inner = getattr(cause, "reason", None) or cause.__cause__ or cause.__context__ or next(iter(cause.args), None)
        if not isinstance(inner, BaseException):
            return cause
        cause = inner
