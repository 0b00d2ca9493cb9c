"""Names, modules and the import path that configurations and data providers written for Python 2 need.

Only the user's modules get these names. The user's modules are the script and every module that the script imports from
the working directory, from the configuration's directory, or from a directory that `--python_path` or a script adds to
`sys.path`.
The user's modules have the builtins of Python 3, and also `xrange, unicode, basestring, long, raw_input, reduce, cmp`.
In these modules:

- `map`, `filter` and `zip` return a `LazyList`, which behaves like a list of Python 2 and an iterator of Python 3.
- `cPickle` (which reads Python 2 pickles), `cStringIO` and `__builtin__` can be imported, and `sys.maxint` exists.
- Methods that Python 3 removed (`iteritems`, `itervalues`, `iterkeys`, `has_key`, `next`) can be called.
- If a method of a bytes object, such as a line of a gzip file, gets a text argument, the bytes are decoded first.
- A text file may contain bytes that are not UTF-8.

Users must themselves correct print statements and divisions of integers with `/`. For a print statement, an error
names the line.
"""

import ast
import builtins
import contextlib
import functools
import importlib
import importlib.machinery
import io
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import IO, Any

OUR_PACKAGES = frozenset({"paddle", "paddle_base", "paddle_cluster", "pserver", "trainer"})
SCRIPT_NAME = "__config__"  # the __name__ of a config script
_INSTALLED_PACKAGES = ("site-packages", "dist-packages")
_BAD_BYTES = "surrogateescape"  # the error handler that preserves bytes that are not UTF-8
OUR_ROOT = Path(__file__).resolve().parents[3]


class LazyList(Sequence[Any]):
    """The result of `map`, `filter` and `zip` in a script: a list as in Python 2, which is filled on demand.

    A LazyList supports `len()`, indices, repeated loops and the methods of lists. It also supports `next()`, and its
    items can come from an infinite iterator.
    """

    def __init__(self, items: Iterable[Any]):
        self._rest = iter(items)
        self._items: list[Any] = []
        self._given = 0

    def _all(self) -> list[Any]:
        self._items.extend(self._rest)
        return self._items

    def __iter__(self) -> Iterator[Any]:
        position = 0
        while True:
            if position == len(self._items):
                try:
                    self._items.append(next(self._rest))
                except StopIteration:
                    return
            yield self._items[position]
            position += 1

    def __next__(self) -> Any:
        if self._given == len(self._items):
            self._items.append(next(self._rest))
        self._given += 1
        return self._items[self._given - 1]

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, index: Any) -> Any:
        return self._all()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._all()[index] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._all(), name)

    def __add__(self, other: Iterable[Any]) -> list[Any]:
        return self._all() + list(other)

    def __radd__(self, other: Iterable[Any]) -> list[Any]:
        return list(other) + self._all()

    def __eq__(self, other: object) -> bool:
        return self._all() == (other._all() if isinstance(other, LazyList) else other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self._all()),)

    def __repr__(self) -> str:
        return repr(self._all())


def _listed(function: Callable[..., Iterable[Any]]) -> Callable[..., LazyList]:
    @functools.wraps(function, updated=())
    def listed(*arguments: Any, **options: Any) -> LazyList:
        return LazyList(function(*arguments, **options))

    return listed


def _open(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> IO[Any]:
    """Open a file; bytes of a text file that are not UTF-8 (Latin-1 data) are preserved."""
    # arguments[1] is the encoding, and arguments[2] is the error handler
    if "b" not in mode and len(arguments) < 3:
        options.setdefault("errors", None if len(arguments) == 2 or options.get("encoding") else _BAD_BYTES)
    opened: IO[Any] = builtins.open(file, mode, *arguments, **options)  # noqa: SIM115, PTH123 - the script closes it
    return opened


def _cmp(a: Any, b: Any) -> int:
    return int(a > b) - int(a < b)


# for each method that Python 3 removed, a function that returns the result of the method in Python 2
_DROPPED_METHODS: Mapping[str, Callable[..., Any]] = {
    "has_key": lambda mapping, key: key in mapping,
    "iteritems": lambda mapping: iter(mapping.items()),
    "iterkeys": lambda mapping: iter(mapping.keys()),
    "itervalues": lambda mapping: iter(mapping.values()),
    "next": next,
}
_CALL_METHOD = "__call_python_2_method__"
# methods of bytes that raise TypeError in Python 3 if an argument is text
_TEXT_METHOD_NAMES = """
    count endswith find index lstrip partition replace rfind rindex rpartition rsplit rstrip split startswith strip"""
_TEXT_METHODS = frozenset(_TEXT_METHOD_NAMES.split())
_CALL_TEXT_METHOD = "__call_python_2_text_method__"


def _call_method(thing: Any, name: str, /, *arguments: Any, **options: Any) -> Any:
    """Call a method with a name in `_DROPPED_METHODS`; if the object has no such method, return Python 2's result."""
    method = getattr(thing, name, None)
    has_it = name == "next" or isinstance(thing, Mapping)
    if method is None and has_it and not options:
        return _DROPPED_METHODS[name](thing, *arguments)
    return getattr(thing, name)(*arguments, **options)


def _call_text_method(thing: Any, name: str, /, *arguments: Any, **options: Any) -> Any:
    """Call a method of `_TEXT_METHODS`; if `thing` is bytes and refuses an argument that is text, decode `thing`."""
    if type(thing) is bytes and any(isinstance(argument, str | tuple) for argument in arguments):
        with contextlib.suppress(TypeError):
            return getattr(thing, name)(*arguments, **options)
        thing = thing.decode("utf-8", _BAD_BYTES)
    return getattr(thing, name)(*arguments, **options)


class _MethodCalls(ast.NodeTransformer):
    """Replaces calls like `thing.iteritems()` by calls of `_call_method` and `_call_text_method`, in the same line."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in _DROPPED_METHODS:
            function = ast.Name(_CALL_METHOD, ast.Load())
        elif isinstance(called, ast.Attribute) and called.attr in _TEXT_METHODS and node.args:
            function = ast.Name(_CALL_TEXT_METHOD, ast.Load())
        else:
            return node
        call = ast.Call(function, [called.value, ast.Constant(called.attr), *node.args], node.keywords)
        return ast.fix_missing_locations(ast.copy_location(call, node))


def compile_script(text: Any, path: str) -> CodeType:
    """Compile a configuration or a module of the user for execution with `SCRIPT_BUILTINS`.

    Raises: SyntaxError: the syntax is wrong, or is valid in Python 2 only, such as a print statement.
    """
    return compile_tree(ast.parse(text, path), path)


def compile_tree(tree: ast.Module, path: str) -> CodeType:
    """Compile the tree of a script for execution with `SCRIPT_BUILTINS`."""
    # dont_inherit: the future imports of this module do not apply to the script
    code: CodeType = compile(_MethodCalls().visit(tree), path, "exec", dont_inherit=True)
    return code


PYTHON_2_NAMES: Mapping[str, Any] = {
    "basestring": (str, bytes),  # scripts use `basestring` only in isinstance()
    "cmp": _cmp,
    "filter": _listed(filter),
    "long": int,
    "map": _listed(map),
    "open": _open,
    "raw_input": input,
    "reduce": functools.reduce,
    "unicode": str,
    "xrange": range,
    "zip": _listed(zip),
    _CALL_METHOD: _call_method,
    _CALL_TEXT_METHOD: _call_text_method,
}
SCRIPT_BUILTINS: dict[str, Any] = {**vars(builtins), **PYTHON_2_NAMES}


def _string_module() -> ModuleType:
    module = ModuleType("cStringIO", "The module that Python 2 called cStringIO.")
    vars(module).update(StringIO=io.StringIO, BytesIO=io.BytesIO)
    return module


def binary(file: Any) -> Any:
    """Return a file that takes and gives bytes. Python 2 opened files of bytes by "w" and "r", too."""
    return getattr(file, "buffer", file)


def _pickle_module() -> ModuleType:
    # the strings of a Python 2 pickle are bytes; they are decoded as Latin-1, because this always succeeds
    module = ModuleType("cPickle", "The module that Python 2 called cPickle.")
    vars(module).update({name: getattr(pickle, name) for name in pickle.__all__})
    vars(module).update(
        dump=lambda value, file, protocol=0: pickle.dump(value, binary(file), protocol),
        load=lambda file: pickle.load(binary(file), encoding="latin1"),
        loads=functools.partial(pickle.loads, encoding="latin1"),
    )
    return module


cPickle = _pickle_module()


def install_modules() -> None:
    """Make `cPickle`, `cStringIO`, `__builtin__` and `sys.maxint` available in this process."""
    sys.modules.setdefault("__builtin__", builtins)
    sys.modules.setdefault("cPickle", cPickle)
    if "cStringIO" not in sys.modules:
        sys.modules["cStringIO"] = _string_module()
    vars(sys).setdefault("maxint", sys.maxsize)


class ScriptLoader(importlib.machinery.SourceFileLoader):
    """Executes a user's module with `SCRIPT_BUILTINS`, and writes no byte code files to the volume of the job."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module."""
        vars(module)["__builtins__"] = _finder.builtins
        super().exec_module(module)

    def get_code(self, fullname: str) -> CodeType | None:
        """Compile the module and return its code."""
        path = self.get_filename(fullname)
        return _finder.compile(self.get_data(path), path)


class ScriptFinder:
    """Finds modules as Python does, but loads modules from the user's directories with a `ScriptLoader`."""

    def __init__(self) -> None:
        self.directories: tuple[Path, ...] = ()
        self.compile: Callable[[bytes, str], CodeType] = compile_script
        self.builtins = SCRIPT_BUILTINS
        self.loaded: set[str] = set()
        self._added: list[str] = []
        self._path_before: frozenset[str] | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's spec, or None if the module is not a module of the user."""
        if fullname.partition(".")[0] in OUR_PACKAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or type(spec.loader) is not importlib.machinery.SourceFileLoader:
            return None
        if self.owns(spec.origin):
            spec.loader = ScriptLoader(fullname, spec.origin)
            self.loaded.add(fullname)
            return spec
        return None

    def owns(self, filename: str) -> bool:
        """Return whether a file is in a user's directory, outside of this project and outside of installed packages.

        The user's directories include those that --python_path or a script has added to `sys.path` since the first call
        of `enter`.
        """
        if filename.startswith("<"):  # code without a file has names like "<string>" and "<frozen os>"
            return False
        path = Path(filename).resolve()
        before = sys.path if self._path_before is None else self._path_before
        later = (Path(entry).resolve() for entry in sys.path if entry not in before)
        if not any(path.is_relative_to(directory) for directory in (*self.directories, *later)):
            return False
        if path.is_relative_to(OUR_ROOT) and path.relative_to(OUR_ROOT).parts[0] in OUR_PACKAGES:
            return False
        return not any(part in _INSTALLED_PACKAGES for part in path.parts)

    def enter(self, directories: Iterable[Path], *, forget: bool) -> None:
        """Search for the user's modules first in `directories`, which replace the directories of the previous call.

        Args: forget: whether modules that are already loaded are loaded again at their next import.
        """
        if self._path_before is None:
            self._path_before = frozenset(sys.path)
        for entry in self._added:
            if entry in sys.path:
                sys.path.remove(entry)
        self.directories = tuple(dict.fromkeys(directory.resolve() for directory in directories))
        self._added = [str(directory) for directory in self.directories]
        sys.path[:0] = self._added
        if self not in sys.meta_path:
            sys.meta_path.insert(_position_of_path_finder(), self)
        if forget:
            for name in self.loaded:
                sys.modules.pop(name, None)
            self.loaded.clear()
        importlib.invalidate_caches()


def _position_of_path_finder() -> int:
    # a builtin or frozen module takes precedence over a file with the same name
    finders: list[Any] = sys.meta_path
    return finders.index(importlib.machinery.PathFinder) if importlib.machinery.PathFinder in finders else len(finders)


_finder = ScriptFinder()


def use_directories(*directories: str | Path, forget: bool = False) -> None:
    """Make the user's modules in these directories importable, with the Python 2 names.

    Args:
        directories: the directories of configurations and providers; they come first in sys.path and replace the
            directories of the previous call.
        forget: whether the user's modules are executed again at their next import. Repeated parses of a script then
            give equal results.
    """
    install_modules()
    _finder.enter((Path(directory) for directory in directories), forget=forget)


def use_compiler(compile: Callable[[bytes, str], CodeType], names: dict[str, Any]) -> None:
    """Compile the user's modules by this function, and give them these names as their builtins."""
    _finder.compile, _finder.builtins = compile, names


def use_python_path(text: str) -> None:
    """Make the user's modules importable from the working directory and the directories in `text`, such as `a:b`."""
    use_directories(Path.cwd())
    sys.path += filter(None, text.split(":"))


def is_script_file(filename: str) -> bool:
    """Return whether a file is a module of the user, according to the last call of `use_directories`."""
    return _finder.owns(filename)
