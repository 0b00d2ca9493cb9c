"""Error messages for scripts: an exception becomes one line that names the user's file and line."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError, PaddleError
from trainer.config.building.argument_errors import ArgumentError
from trainer.config.building.declare import helper
from trainer.config.building.names import UnknownName, helper_names, lookup, module_line, suggestion
from trainer.config.scripts.python2 import OUR_PACKAGES, OUR_ROOT, SCRIPT_NAME, compile_script, is_script_file
from trainer.config.scripts.python2_hints import python2_hint

_CALL = re.compile(r"(?:\w+\.)*?(\w+)(?:\.__init__)?\(\) ")
# modules whose stack frames are between the frame of a script and the frame of the function that the script calls
_GO_BETWEENS = (helper.__module__, compile_script.__module__, "paddle.older_modules", "trainer.v2.functions")
_VALUE_ERRORS = (TypeError, ValueError, OverflowError)


@dataclass(frozen=True)
class ScriptPlace:
    """The line of a script, and the function of the language that this line called (None if it called none)."""

    where: str
    inside: str | None


def explain(error: BaseException, title: str) -> PaddleError | None:
    """Return the error to report, or None if the exception is a bug of this project.

    Args:
        error: the exception that ended the script, with its traceback.
        title: the name of the script, for exceptions that no line of the script raised.
    Returns: a ConfigError for wrong use of the language, a MissingInputError for a file that the script does not find,
        or a DataError for any other exception of the script's own code.
    """
    place = _find_place(error.__traceback__, title)
    if isinstance(error, SyntaxError) and error.filename and is_script_file(error.filename):
        text = f"{type(error).__name__}: {error.msg}{python2_hint(error)}"
        return DataError(f"{shown(error.filename)} line {error.lineno}: {text}")
    if isinstance(error, ArgumentError):
        if place.inside:
            error.enter(place.inside)
        return ConfigError(f"{place.where}: {error}")
    if isinstance(error, PaddleError):
        return type(error)(f"{place.where}: {error}")
    wrong_use = _wrong_use(error, place)
    if wrong_use:
        return ConfigError(f"{place.where}: {wrong_use}")
    # endless recursion of a script can raise RecursionError in any function, so this error is no bug of this project
    if place.inside and not isinstance(error, RecursionError):
        return None
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    if isinstance(error, FileNotFoundError):
        return MissingInputError(f"{place.where}: {text}{start_hint(error)}")
    hint = module_line(str(error.name)) if isinstance(error, NameError) else ""
    if isinstance(error, ImportError):
        hint = hidden_module_hint(str(error.name))
    return DataError(f"{place.where}: {text}{hint or python2_hint(error)}")


def hidden_module_hint(name: str) -> str:
    """Return what to do if a package of this program stands before the user's module of that name, or ""."""
    top = name.partition(".")[0]
    found = sys.modules.get(top)
    if found is None or top == "paddle" or OUR_ROOT / top not in map(Path, getattr(found, "__path__", ())):
        return ""
    return f"; this program has a package {top}, which hides a module of that name: rename the module"


def _find_place(trace: TracebackType | None, title: str) -> ScriptPlace:
    lines: list[str] = []
    inside = None
    while trace is not None:
        frame = trace.tb_frame
        module = str(frame.f_globals.get("__name__"))
        if module == SCRIPT_NAME or is_script_file(frame.f_code.co_filename):
            lines.append(f"{shown(frame.f_code.co_filename)} line {trace.tb_lineno}")
            inside = None
        elif inside is None and lines and module.partition(".")[0] in OUR_PACKAGES and module not in _GO_BETWEENS:
            inside = frame.f_code.co_qualname.partition(".")[0]
        trace = trace.tb_next
    if not lines:
        return ScriptPlace(title, None)
    return ScriptPlace(lines[-1] + (f" (from {lines[0]})" if lines[0] != lines[-1] else ""), inside)


def start_hint(error: BaseException) -> str:
    """Return where a relative name of a file that does not exist was looked for, or an empty text."""
    name = error.filename if isinstance(error, FileNotFoundError) else None
    if not isinstance(name, str) or not name or Path(name).is_absolute():
        return ""
    with contextlib.suppress(OSError):  # the working directory was removed
        return f"; the name is relative to {Path.cwd()}, the directory in which the program was started"
    return ""


def shown(filename: str) -> str:
    """Return the name of a file; the name is relative if the file is below the working directory."""
    path = Path(filename)
    with contextlib.suppress(OSError, ValueError):  # the working directory was removed, or the file is outside of it
        return str(path.relative_to(Path.cwd()))
    return str(path)


def _wrong_use(error: BaseException, place: ScriptPlace) -> str:
    """Return the message if the language rejected a name or an argument, else ""."""
    if isinstance(error, UnknownName):
        return str(error)
    if isinstance(error, NameError | ImportError) and place.inside:
        return ""  # the exception is a bug of this project
    if isinstance(error, ImportError) and str(error.name).startswith("paddle."):
        return f"{error.msg.partition(' (')[0]}{suggestion(error.msg.partition(chr(39))[2].partition(chr(39))[0])}"
    if isinstance(error, NameError) and suggestion(str(error.name)):
        return f"{error}{suggestion(str(error.name))}"
    if not isinstance(error, _VALUE_ERRORS):
        return ""
    if place.inside:
        return f"{place.inside}: {type(error).__name__}: {error}"
    call = _CALL.match(str(error)) if isinstance(error, TypeError) else None
    if call is None or call[1] not in helper_names():
        return ""
    return f"{error}; its arguments are {', '.join(inspect.signature(lookup(call[1])).parameters)}"
