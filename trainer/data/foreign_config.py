"""Restrict the files and modules that a merged model file may name.

A merged model file may come from other people, unlike the user's config script. docs/security.md describes the
restrictions for users.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
from pathlib import Path

from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from paddle_base.runtime.errors import ConfigError, MissingInputError
from trainer.config.scripts.python2 import is_script_file

PROVIDER_MODULES = (
    "paddle.trainer.PyDataProvider2",
    "paddle.trainer.PyDataProviderWrapper",
    "trainer.data.provider2",
    "trainer.data.older.wrapper",
)
REMEDY = "give --config=<your config script>"
MOST_LIST_BYTES = 1 << 26  # maximum bytes of a list file


def check_outputs(config: TrainerConfig, *, is_saving: bool) -> None:
    """Check that output files are inside the working directory, and that no result_file exists yet.

    Args: is_saving: whether passes are saved to the directory that the model file names.
    Raises: ConfigError: a file may not be used; the text names its path.
    """
    for evaluator in config.model_config.evaluators:
        if evaluator.result_file:
            what = f"the model file lets the evaluator {evaluator.name} write to {evaluator.result_file!r}"
            path = _inside(evaluator.result_file, what, REMEDY)
            if os.path.exists(path):  # noqa: PTH110 - it never fails
                raise ConfigError(
                    f"{what}; this file exists, and a model file must not overwrite a file: remove it, or {REMEDY}"
                )
        if os.path.exists(evaluator.dict_file) and not os.path.isfile(evaluator.dict_file):  # noqa: PTH110, PTH113
            raise ConfigError(
                f"the model file lets the evaluator {evaluator.name} read {evaluator.dict_file!r}, which is no file; "
                f"{REMEDY}"
            )
    if is_saving:
        _inside(config.save_dir, f"the model file saves to {config.save_dir!r}", "give --save_dir=<directory>")


def _inside(name: str, what: str, remedy: str) -> Path:
    """Return the path if, after links are resolved, it is below the working directory; otherwise raise ConfigError."""
    path = Path(name)
    if path.is_absolute() or not path.resolve().is_relative_to(Path.cwd().resolve()):
        raise ConfigError(f"{what}, which is outside of the working directory {Path.cwd()}; {remedy}")
    return path


def check_provider(name: str) -> None:
    """Check that a module that a model file names may be imported.

    The module must be a Python file that imports PyDataProvider2 or PyDataProviderWrapper. The file must be in the
    user's directories, that is, in the working directory or in --python_path. All other modules are refused.

    Raises: ConfigError: the module may not be imported.  MissingInputError: the module does not exist.
    """
    found: importlib.machinery.ModuleSpec | None = None
    path = None
    parts = name.split(".")
    for number, part in enumerate(parts):
        whole = ".".join(parts[: number + 1])
        # this finder reads no module; importlib.util.find_spec would run the package around it
        found = importlib.machinery.PathFinder.find_spec(whole, path) if part.isidentifier() else None
        if found is None:
            raise MissingInputError(
                f"the model file names the data provider module {name}, which is neither in {Path.cwd()} nor in "
                f"--python_path; {REMEDY}"
            )
        path = found.submodule_search_locations
        if found.origin is not None and not is_script_file(found.origin):
            raise ConfigError(
                f"the model file names the data provider module {name}, which is {found.origin}: only modules of the "
                f"working directory and of --python_path may be named; {REMEDY}"
            )
    origin = None if found is None else found.origin
    if origin is None or not origin.endswith(".py") or not _imports_provider(Path(origin)):
        raise ConfigError(
            f"the model file names the data provider module {name}, but {origin or name} does not import "
            f"{PROVIDER_MODULES[0]} or {PROVIDER_MODULES[1]}: it is not run; {REMEDY}"
        )


def _imports_provider(path: Path) -> bool:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return _mentions_provider(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(alias.name in PROVIDER_MODULES for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom):
            names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
            if any(one in PROVIDER_MODULES for one in names):
                return True
    return False


def _mentions_provider(path: Path) -> bool:
    """Return whether a file that Python 3 cannot parse, maybe one of Python 2, contains the name of such a module."""
    try:
        data = path.read_bytes()
        return b"PyDataProvider2" in data or b"PyDataProviderWrapper" in data
    except OSError:
        return False
