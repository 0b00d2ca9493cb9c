"""Whose mistake it was: an exception of a config script becomes one line that names the user's file and line."""
from __future__ import annotations

import re
import traceback
from pathlib import Path
from types import FrameType, TracebackType

from pserver.errors import ConfigError, DataError, PaddleError
from trainer.compat import is_script_file
from trainer.config.misuse import Misuse
from trainer.config.names import HELPERS, RAW_NAMES, suggestion

_CALL = re.compile(r"(?:\w+\.)*?(\w+)(?:\.__init__)?\(\) ")
_MAIN_ONLY = "; it exists in the main config only, not in modules that it imports"


def explain(error: BaseException, title: str) -> PaddleError:
    """Return the error to report: ConfigError for wrong use of the language, DataError for the script's own exceptions.

    Args:
        error: what the script raised, with its traceback.
        title: the script's name, for errors that no line of the user's caused.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return DataError(f"{shown(error.filename)} line {error.lineno}: {type(error).__name__}: {error.msg}")
    place, inner = _places(error.__traceback__)
    where = place or title
    if isinstance(error, Misuse):
        if inner is not None:
            error.enter(inner)
        return ConfigError(f"{where}: {error}")
    wrong_use = _wrong_use(error, ours=inner is not None)
    if wrong_use:
        return ConfigError(f"{where}: {wrong_use}")
    text = "".join(traceback.format_exception_only(error)).strip()
    return DataError(f"{where}: {text}")


def _places(trace: TracebackType | None) -> tuple[str, str | None]:
    """Return the user's line (with the line of the config that led to it), and the class of ours that it was calling."""
    lines: list[str] = []
    inner = None
    while trace is not None:
        frame = trace.tb_frame
        if _is_users(frame):
            lines.append(f"{shown(frame.f_code.co_filename)} line {trace.tb_lineno}")
            inner = None
        elif inner is None:
            inner = frame.f_code.co_qualname.partition(".")[0]
        trace = trace.tb_next
    if not lines:
        return "", inner
    called_from = f" (from {lines[0]})" if lines[0] != lines[-1] else ""
    return lines[-1] + called_from, inner


def _is_users(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "__config__" or is_script_file(frame.f_code.co_filename)


def shown(filename: str) -> str:
    """Return a file's name relative to the working directory where it lies below it."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _wrong_use(error: BaseException, *, ours: bool) -> str:
    """Return the message if Python itself refused a name or an argument of the language, else nothing."""
    name = getattr(error, "name", None)
    if isinstance(error, NameError) and isinstance(name, str):
        if name in RAW_NAMES:
            return f"{error}{_MAIN_ONLY}"
        return f"{error}{suggestion(name)}" if suggestion(name) else ""
    if isinstance(error, ImportError | AttributeError) and _is_ours(error):
        return str(error)
    call = _CALL.match(str(error)) if isinstance(error, TypeError) and not ours else None
    return str(error) if call and any(call[1] in names for names in HELPERS.values()) else ""


def _is_ours(error: ImportError | AttributeError) -> bool:
    module = error.name if isinstance(error, ImportError) else getattr(error.obj, "__name__", "")
    return str(module).startswith("paddle.")
