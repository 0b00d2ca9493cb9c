"""The log lines of the config language.

Example: `[INFO 2026-11-20 10:59:12,950 networks.py:1482] The input order is [word, label]`.
"""

import contextlib
import logging
from collections.abc import Iterator

from paddle_base.runtime import glog


class _Stderr(logging.Handler):
    """Writes each log record to the current sys.stderr with a single write."""

    def emit(self, record: logging.LogRecord) -> None:
        glog.write(self.format(record) + "\n")


def _make_logger() -> logging.Logger:
    made = logging.getLogger("paddle")
    if not any(isinstance(handler, _Stderr) for handler in made.handlers):
        handler = _Stderr()
        handler.setFormatter(logging.Formatter("[%(levelname)s %(asctime)s %(filename)s:%(lineno)s] %(message)s"))
        made.addHandler(handler)
        made.setLevel(logging.INFO)
        made.propagate = False
    return made


logger = _make_logger()


_said: set[str] = set()  # the messages that `new_warnings_only` has let through in this process


@contextlib.contextmanager
def new_warnings_only() -> Iterator[None]:
    """In the `with` block, write no lines below WARNING, and each other line once in a process."""

    def is_new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_first = record.levelno >= logging.WARNING and text not in _said
        if is_first:
            _said.add(text)
        return is_first

    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)


def log(level: int, message: str, at: str) -> None:
    """Write a log line with the file and line number of v0.10 (`networks.py:1482`); users may search for this text."""
    if logger.isEnabledFor(level):
        file, _, line = at.partition(":")
        logger.handle(logger.makeRecord("paddle", level, file, int(line), message, (), None))
