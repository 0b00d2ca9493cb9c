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


@contextlib.contextmanager
def warnings_only() -> Iterator[None]:
    """Write no lines below WARNING in the `with` block."""
    before = logger.level
    logger.setLevel(max(before, logging.WARNING))
    try:
        yield
    finally:
        logger.setLevel(before)


def log(level: int, message: str, at: str) -> None:
    """Write a log line with the file and line number of v0.10 (`networks.py:1482`); users may search for this text."""
    if logger.isEnabledFor(level):
        file, _, line = at.partition(":")
        logger.handle(logger.makeRecord("paddle", level, file, int(line), message, (), None))
