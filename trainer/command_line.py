"""Command lines of the small commands: argparse, with this project's exit status for errors."""

from __future__ import annotations

import argparse
from typing import NoReturn

from runtime.errors import UsageError


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError instead of ending the process with status 2."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"{message}; {self.format_usage().strip()}")
