"""Programs in the syntax of Python 2, compiled as they are, with their own line numbers.

The package fissix, which continues Python's lib2to3, rewrites the syntax. `python2_meaning` then replaces what Python 2
computed otherwise, and `python2_libraries` has what its libraries had. The names and methods that configs may use, too,
come from `python2`. A program of files that Python 3 can parse keeps Python 3's meaning.
"""

from __future__ import annotations

import ast
import functools
import importlib
import io
import logging
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

try:
    from fissix.pgen2 import driver, pgen

    # fissix would keep its grammar as a pickle below the home directory, which a pod cannot write; it is made in 20 ms
    driver.load_grammar = pgen.generate_grammar
    from fissix.pgen2.parse import ParseError
    from fissix.pgen2.tokenize import TokenError
    from fissix.refactor import RefactoringTool
except ImportError:  # an optional package
    RefactoringTool = None

from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError
from trainer.config.scripts import python2, python2_meaning
from trainer.config.scripts.python2 import SCRIPT_BUILTINS, compile_tree
from trainer.config.scripts.python2_libraries import install_modules

# the rewriters of syntax; names, modules and methods need none
_FIXERS = """
    except exec funcattrs has_key metaclass methodattrs ne next nonzero numliterals paren print raise repr
    standarderror sys_exc throw tuple_params unicode"""
_TUPLE_PARAMETER = "xxx_todo_changeme"  # the name that fissix gives to a parameter that was a tuple


# what a tree has only if its file is no Python 2
_ONLY_PYTHON_3 = (ast.JoinedStr, ast.AnnAssign, ast.Nonlocal, ast.AsyncFunctionDef, ast.YieldFrom, ast.NamedExpr)


def compile_program(text: bytes, path: str, *, is_python_2: bool = False) -> CodeType:
    """Compile a file of a program: as Python 3 if it is, else as Python 2.

    Args: is_python_2: whether other files of the program are Python 2. Then a file that is both is Python 2, too.
    Raises: SyntaxError: the file is neither.  ConfigError: it is Python 2, and fissix is not installed.
    """
    try:
        tree = ast.parse(text, path)
    except SyntaxError as error:
        return _compile_python_2(text, path, error)
    if is_python_2 and not any(isinstance(one, _ONLY_PYTHON_3) for one in ast.walk(tree)):
        try:
            return _compile_python_2(text, path, SyntaxError())
        except SyntaxError:
            pass  # such as print(..., file=...)
    return compile_tree(tree, path)


def _compile_python_2(text: bytes, path: str, error: SyntaxError) -> CodeType:
    return compile_tree(python2_meaning.give_meaning(_parse(text, path, error)), path)


def find_python_2(path: Path, directories: tuple[Path, ...]) -> Path | None:
    """Return a file of a program that only Python 2 can parse, or None if there is none.

    Args: directories: where its modules are; modules elsewhere are not read.
    Raises: OSError: a file cannot be read.
    """
    waiting, seen = [path], {path.resolve()}
    while waiting:
        one = waiting.pop()
        text = one.read_bytes()
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError) as error:
            if one == path or _can_parse(text, str(one), error):
                return one
            continue
        for module in _imported(tree):
            for place in (one.parent, *directories):
                base = place.joinpath(*module.split("."))
                for found in (base.with_suffix(".py"), base / "__init__.py"):
                    if found.is_file() and found.resolve() not in seen:
                        seen.add(found.resolve())
                        waiting.append(found)
    return None


def _can_parse(text: bytes, path: str, error: Exception) -> bool:
    """Return whether Python 2 can parse a file that Python 3 cannot parse."""
    try:
        _parse(text, path, SyntaxError(str(error)))
    except SyntaxError:
        return False
    except ConfigError:  # fissix is not installed: the compiler says so
        return True
    return True


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the modules that a file may import: of `from a import b` these are a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = [node.module] if node.module else []
            yield from start
            yield from (".".join([*start, one.name]) for one in node.names)


def _parse(text: bytes, path: str, error: SyntaxError) -> ast.Module:
    """Return the tree of a file of Python 2, with the line numbers of the file."""
    if RefactoringTool is None:
        raise ConfigError(
            f"{path} line {error.lineno} is Python 2, which the package fissix rewrites: pip install fissix"
        )
    logging.getLogger("fissix").setLevel(logging.ERROR)
    fixers = [f"fissix.fixes.fix_{name}" for name in _FIXERS.split()]
    source = _decode(text)
    try:
        rewritten = str(RefactoringTool(fixers).refactor_string(source, path))
    except (ParseError, TokenError) as failure:
        line = failure.context[1][0] if isinstance(failure, ParseError) else failure.args[1][0]
        raise SyntaxError("neither Python 3 nor Python 2", (path, line, None, None)) from error
    tree = ast.parse(rewritten, path)
    _restore_lines(tree)
    return tree


def _decode(text: bytes) -> str:
    """Return the text of a file in the encoding that it names, with spaces in place of tabs and a last line break."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
    decoded = text.decode(encoding, "surrogateescape").replace("\r\n", "\n").expandtabs(8)
    return decoded if decoded.endswith("\n") else decoded + "\n"


def _restore_lines(tree: ast.Module) -> None:
    """Take out the lines that fissix added: the first line of a function with a tuple as its parameter."""
    added = sorted(
        node.body[0].lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(argument.arg.startswith(_TUPLE_PARAMETER) for argument in node.args.args)
    )
    if not added:
        return
    for node in ast.walk(tree):
        for name in ("lineno", "end_lineno"):
            line = getattr(node, name, None)
            if line is not None:
                setattr(node, name, line - sum(one <= line for one in added))


def _execfile(path: str, names: dict[str, Any] | None = None) -> None:
    frame = sys._getframe(1)
    exec(compile_program(Path(path).read_bytes(), path), frame.f_globals if names is None else names)


def _reload(module: ModuleType) -> ModuleType:
    return module if module is sys else importlib.reload(module)  # programs of 2017 reload sys for its encoding


_BUILTINS: dict[str, Any] = {
    **SCRIPT_BUILTINS,
    **python2_meaning.NAMES,
    "StandardError": Exception,
    "apply": lambda function, arguments=(), keywords=None: function(*arguments, **(keywords or {})),
    "buffer": memoryview,
    "execfile": _execfile,
    "file": SCRIPT_BUILTINS["open"],
    "intern": sys.intern,
    "reload": _reload,
    "unichr": chr,
}


def run_program(path: Path, arguments: list[str]) -> None:
    """Run a file as Python's main program, with its directory first on the module path.

    If this file, or a module in its directory or in the working directory that it imports, is Python 2, all are.
    Raises: what the program raises.  OSError: the file cannot be read.
    """
    text = path.read_bytes()
    directories = (path.resolve().parent, Path.cwd())
    cause = find_python_2(path, directories)
    if cause is not None and cause != path:
        glog.info(f"{path} runs as Python 2, because {cause.name}, which it imports, is Python 2")
    compile_file = functools.partial(compile_program, is_python_2=cause is not None)
    python2.use_directories(*directories)
    python2.use_compiler(compile_file, _BUILTINS)
    install_modules()
    main = ModuleType("__main__")
    vars(main).update(__file__=str(path), __builtins__=_BUILTINS)
    sys.modules["__main__"] = main
    sys.argv = [str(path), *arguments]
    exec(compile_file(text, str(path)), vars(main))
