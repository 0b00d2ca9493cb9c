"""Programs in the syntax of Python 2, compiled as they are, with their own line numbers.

The package fissix, which continues Python's lib2to3, rewrites the syntax. What Python 2 computed otherwise is then
replaced in the tree: `/` of integers, `range` and the lists of a dict. A file that Python 3 can parse keeps Python 3's
meaning of these. Python 2's names, modules and methods come from `python2`, as for configs.
"""

from __future__ import annotations

import ast
import configparser
import functools
import html.parser
import importlib.machinery
import io
import itertools
import logging
import operator
import queue
import string
import subprocess
import sys
import threading
import tokenize
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
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

from paddle_base.runtime.errors import ConfigError
from trainer.config.scripts import python2
from trainer.config.scripts.python2 import SCRIPT_BUILTINS, compile_script, compile_tree

# the rewriters of syntax; names, modules and methods need none
_FIXERS = """
    except exec funcattrs has_key metaclass methodattrs ne next nonzero numliterals paren print raise repr
    standarderror sys_exc throw tuple_params unicode"""
_TUPLE_PARAMETER = "xxx_todo_changeme"  # the name that fissix gives to a parameter that was a tuple


def compile_program(text: bytes, path: str) -> CodeType:
    """Compile a file of a program: as Python 3 if it is, else as Python 2.

    Raises: SyntaxError: the file is neither.  ConfigError: it is Python 2, and fissix is not installed.
    """
    try:
        return compile_script(text, path)
    except SyntaxError as error:
        return compile_tree(_Meaning().of(_parse(text, path, error)), path)


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


class _Meaning(ast.NodeTransformer):
    """Replaces what Python 2 computed otherwise."""

    def __init__(self) -> None:
        self.divides = True

    def of(self, tree: ast.Module) -> ast.Module:
        """Return the tree with Python 2's meaning."""
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                self.divides &= all(name.name != "division" for name in node.names)
        found: ast.Module = self.visit(tree)
        return found

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div) or not self.divides:
            return node
        return self._call("__divide_as_python_2__", node, node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div) or not self.divides or not isinstance(node.target, ast.Name):
            return node
        value = self._call("__divide_as_python_2__", node, ast.Name(node.target.id, ast.Load()), node.value)
        return ast.fix_missing_locations(ast.copy_location(ast.Assign([node.target], value), node))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        if isinstance(called, ast.Name) and called.id in ("range", "input") and not node.keywords:
            return self._call(f"__{called.id}_of_python_2__", node, *node.args)
        if isinstance(called, ast.Attribute) and called.attr in ("keys", "values", "items") and not node.args:
            return self._call("__list_of_python_2__", node, called.value, ast.Constant(called.attr))
        return node

    @staticmethod
    def _call(name: str, at: ast.AST, *arguments: ast.expr) -> ast.Call:
        call = ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
        return ast.fix_missing_locations(ast.copy_location(call, at))


def _divide(a: Any, b: Any) -> Any:
    return a // b if _is_integer(a) and _is_integer(b) else operator.truediv(a, b)


def _is_integer(value: Any) -> bool:
    kind = getattr(getattr(value, "dtype", None), "kind", "")  # of numpy's arrays and numbers
    return isinstance(value, int) or kind in ("i", "u", "b")


def _list(thing: Any, name: str) -> Any:
    found = getattr(thing, name)()
    return list(found) if isinstance(thing, Mapping) else found


def _execfile(path: str, names: dict[str, Any] | None = None) -> None:
    frame = sys._getframe(1)
    exec(compile_program(Path(path).read_bytes(), path), frame.f_globals if names is None else names)


def _reload(module: ModuleType) -> ModuleType:
    return module if module is sys else importlib.reload(module)  # programs of 2017 reload sys for its encoding


_BUILTINS: dict[str, Any] = {
    **SCRIPT_BUILTINS,
    "StandardError": Exception,
    "apply": lambda function, arguments=(), keywords=None: function(*arguments, **(keywords or {})),
    "buffer": memoryview,
    "execfile": _execfile,
    "file": SCRIPT_BUILTINS["open"],
    "intern": sys.intern,
    "reload": _reload,
    "unichr": chr,
    "__divide_as_python_2__": _divide,
    "__list_of_python_2__": _list,
    "__range_of_python_2__": lambda *numbers: list(range(*numbers)),
    "__input_of_python_2__": lambda *prompt: eval(input(*prompt)),
}


def _module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name, f"The module that Python 2 called {name}.")
    vars(module).update(members)
    return module


def _install_modules() -> None:
    """Make Python 2's modules importable, and its members of modules that are still here."""
    for name, module in {
        "ConfigParser": configparser,
        "HTMLParser": html.parser,
        "Queue": queue,
        "StringIO": _module("StringIO", StringIO=io.StringIO),
        "commands": _module("commands", getoutput=subprocess.getoutput, getstatusoutput=subprocess.getstatusoutput),
        "thread": _module("thread", get_ident=threading.get_ident, allocate_lock=threading.Lock),
        "urllib2": _module("urllib2", **vars(urllib.request), **_public(urllib.error)),
        "urlparse": urllib.parse,
    }.items():
        if importlib.machinery.PathFinder.find_spec(name) is None:  # the program's own commands.py comes first
            sys.modules.setdefault(name, module)
    for name, function in {"imap": map, "izip": zip, "ifilter": filter}.items():
        vars(itertools).setdefault(name, function)
    vars(itertools).setdefault("izip_longest", itertools.zip_longest)
    for name in ("letters", "lowercase", "uppercase"):
        vars(string).setdefault(name, getattr(string, f"ascii_{name}"))
    for name in ("join", "split", "strip", "replace", "lower", "upper"):
        vars(string).setdefault(name, functools.partial(_call_of_text, name))
    vars(string).setdefault("maketrans", str.maketrans)
    for name in ("urlopen", "urlretrieve"):
        vars(urllib).setdefault(name, getattr(urllib.request, name))
    for name in ("quote", "unquote", "urlencode"):
        vars(urllib).setdefault(name, getattr(urllib.parse, name))
    vars(sys).setdefault("setdefaultencoding", lambda _: None)


def _public(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name not in vars(urllib.request)}


def _call_of_text(name: str, text: Any, *arguments: Any) -> Any:
    if name == "join":
        return (arguments[0] if arguments else " ").join(text)
    return getattr(text, name)(*arguments)


def run_program(path: Path, arguments: list[str]) -> None:
    """Run a file as Python's main program, with its directory first on the module path.

    The modules in this directory and in the working directory may be Python 2, too.
    Raises: what the program raises.  OSError: the file cannot be read.
    """
    text = path.read_bytes()
    python2.use_directories(path.resolve().parent, Path.cwd())
    python2.use_compiler(compile_program, _BUILTINS)
    _install_modules()
    main = ModuleType("__main__")
    vars(main).update(__file__=str(path), __builtins__=_BUILTINS)
    sys.modules["__main__"] = main
    sys.argv = [str(path), *arguments]
    exec(compile_program(text, str(path)), vars(main))
