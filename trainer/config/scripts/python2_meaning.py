"""What Python 2 computed otherwise: calls in a syntax tree of Python 3 that give Python 2's results.

The names of the functions are `NAMES`, which the builtins of a program must have. Files of Python 3 do not use them.
"""

from __future__ import annotations

import ast
import functools
import itertools
import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

_BAD_BYTES = "surrogateescape"
_BUILTINS = ("filter", "input", "map", "next", "range", "round", "sorted", "zip")
_METHOD_NAMES = """
    decode encode items keys sort tostring translate values viewitems viewkeys viewvalues write"""
_METHODS = frozenset(_METHOD_NAMES.split())
_MODULES = {"pickle": "cPickle"}  # the file that `pickle` reads or writes may be open in text mode, too
_Node = TypeVar("_Node", bound=ast.AST)
_SCOPES = (ast.FunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)


def give_meaning(tree: ast.Module) -> ast.Module:
    """Return the tree with Python 2's meaning. It is changed in place."""
    return _Meaning().of(tree)


class _Meaning(ast.NodeTransformer):
    """Replaces what Python 2 computed otherwise."""

    def __init__(self) -> None:
        self._divides = True
        self._own: set[str] = set()

    def of(self, tree: ast.Module) -> ast.Module:
        """Return the tree with Python 2's meaning."""
        self._own = set(_bound_names(tree))
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                self._divides &= all(name.name != "division" for name in node.names)
        found: ast.Module = self.visit(tree)
        return found

    # ----- Division

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div) or not self._divides:
            return node
        return _call("__divide_of_python_2__", node, node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div) or not self._divides:
            return node
        target = node.target
        if isinstance(target, ast.Name):
            value = _call("__divide_in_place_of_python_2__", node, ast.Name(target.id, ast.Load()), node.value)
            return _at(ast.Assign([target], value), node)
        if isinstance(target, ast.Attribute):
            where: list[ast.expr] = [target.value, ast.Constant(target.attr)]
            return _at(ast.Expr(_call("__divide_attribute_of_python_2__", node, *where, node.value)), node)
        where = [target.value, _index(target.slice)]
        return _at(ast.Expr(_call("__divide_item_of_python_2__", node, *where, node.value)), node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        names = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        for name in {"__div__": "__truediv__", "__idiv__": "__itruediv__", "__rdiv__": "__rtruediv__"}.items():
            if name[0] in names and name[1] not in names:
                target = ast.Name(name[1], ast.Store())
                node.body.append(_at(ast.Assign([target], ast.Name(name[0], ast.Load())), node.body[-1]))
        return node

    # ----- Functions, methods and modules

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id in _BUILTINS and node.id not in self._own:
            return _at(ast.Name(f"__{node.id}_of_python_2__", ast.Load()), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        if isinstance(called, ast.Name) and called.id == "str" and len(node.args) > 1:  # it was `unicode`
            return _call("__unicode_of_python_2__", node, *node.args)
        if not isinstance(called, ast.Attribute) or called.attr not in _METHODS:
            return node
        found = _call("__call_of_python_2__", node, called.value, ast.Constant(called.attr), *node.args)
        found.keywords = node.keywords
        return found

    def visit_Import(self, node: ast.Import) -> ast.AST:
        for one in node.names:
            if one.name in _MODULES:
                one.asname = one.asname or one.name
                one.name = _MODULES[one.name]
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if not node.level:
            node.module = _MODULES.get(str(node.module), node.module)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Let StopIteration end a generator, as in Python 2: of a call of `next` in it, or of `raise StopIteration`."""
        self.generic_visit(node)
        if any(isinstance(one, ast.Yield | ast.YieldFrom) for one in _of_scope(node)):
            start = int(ast.get_docstring(node, clean=False) is not None)
            end = ast.ExceptHandler(ast.Name("StopIteration", ast.Load()), None, [ast.Return()])
            body = ast.Try(node.body[start:] or [ast.Pass()], [end], [], [])
            node.body[start:] = [_at(body, node.body[-1])]
        return node


def _at(node: _Node, place: ast.AST) -> _Node:
    return ast.fix_missing_locations(ast.copy_location(node, place))


def _call(name: str, at: ast.AST, *arguments: ast.expr) -> ast.Call:
    call: ast.Call = _at(ast.Call(ast.Name(name, ast.Load()), list(arguments), []), at)
    return call


def _index(node: ast.expr) -> ast.expr:
    """Return what stands between brackets as an expression: slice(1, None) for `1:`."""
    if isinstance(node, ast.Slice):
        ends = [one or ast.Constant(None) for one in (node.lower, node.upper, node.step)]
        return ast.Call(ast.Name("slice", ast.Load()), ends, [])
    return ast.Tuple([_index(one) for one in node.elts], ast.Load()) if isinstance(node, ast.Tuple) else node


def _of_scope(function: ast.AST) -> Iterable[ast.AST]:
    """Yield the nodes of a function without those of the functions in it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, _SCOPES):
            yield child
            yield from _of_scope(child)


def _bound_names(tree: ast.Module) -> Iterable[str]:
    """Yield every name that the file itself gives to something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


# ----- What the calls compute


def divide(a: Any, b: Any) -> Any:
    """Return a / b as Python 2 computed it."""
    return a // b if _is_integer(a) and _is_integer(b) else operator.truediv(a, b)


def _divide_in_place(a: Any, b: Any) -> Any:
    if _is_integer(a) and _is_integer(b):
        a //= b
    else:
        a /= b
    return a


def _divide_attribute(thing: Any, name: str, b: Any) -> None:
    setattr(thing, name, _divide_in_place(getattr(thing, name), b))


def _divide_item(thing: Any, index: Any, b: Any) -> None:
    thing[index] = _divide_in_place(thing[index], b)


def _is_integer(value: Any) -> bool:
    kind = getattr(getattr(value, "dtype", None), "kind", "")  # of numpy's arrays and numbers
    return isinstance(value, int) or kind in ("i", "u", "b")


def _sorted(items: Iterable[Any], cmp: Any = None, key: Any = None, reverse: bool = False) -> list[Any]:
    return sorted(items, key=_key(cmp, key), reverse=reverse)


def _key(cmp: Any, key: Any) -> Any:
    """Return the `key` of Python 3 for a function that compares two items, and perhaps a `key`."""
    if cmp is None:
        return key
    compared = functools.cmp_to_key(cmp)
    return compared if key is None else lambda item: compared(key(item))


def _sort(items: list[Any], cmp: Any = None, key: Any = None, reverse: bool = False) -> None:
    items.sort(key=_key(cmp, key), reverse=reverse)


def _map(function: Any, *items: Iterable[Any]) -> list[Any]:
    if function is None:
        return list(itertools.zip_longest(*items)) if len(items) > 1 else list(*items)
    return list(map(function, *items))


def _filter(function: Any, items: Any) -> Any:
    kept = filter(function, items)
    if isinstance(items, str):
        return "".join(kept)
    return tuple(kept) if isinstance(items, tuple) else list(kept)


def _next(thing: Any, *default: Any) -> Any:
    """Return the next item. `thing.next()` has become this call, also if it is no iterator, as a TarFile."""
    if not hasattr(thing, "__next__") and hasattr(thing, "next"):
        return thing.next()
    return next(thing, *default)


def _round(number: Any, digits: int = 0) -> float:
    """Round half away from zero."""
    rounded = float(round(abs(number), digits))
    step = 10.0**-digits
    half = abs(number) - rounded == step / 2  # Python 3 has rounded it to an even digit below
    return float((rounded + step if half else rounded) * (1 if number >= 0 else -1))


def _unicode(text: Any, *encoding: str) -> str:
    return str(text, *encoding) if isinstance(text, bytes) else str(text)


_TEXT_CODECS = ("utf", "gb", "big5", "latin", "ascii", "iso", "cp", "euc", "shift", "unicode")


def _call_method(thing: Any, name: str, /, *arguments: Any, **options: Any) -> Any:
    """Call a method of `_METHODS` as Python 2 did."""
    if name in ("decode", "encode") and isinstance(thing, str):  # all texts are Unicode already
        codec = str(arguments[0] if arguments else "utf-8").lower()
        return thing if codec.startswith(_TEXT_CODECS) else getattr(thing, name)(*arguments, **options)
    if name == "sort" and isinstance(thing, list):
        return _sort(thing, *arguments, **options)
    if name == "translate" and isinstance(thing, str) and len(arguments) > 1:
        kept = thing.translate(dict.fromkeys(map(ord, arguments[1])))
        return kept if arguments[0] is None else kept.translate(arguments[0])
    if name == "write":
        return _write(thing, *arguments, **options)
    if name == "tostring" and not hasattr(thing, name):
        return thing.tobytes(*arguments, **options)
    if isinstance(thing, Mapping) and not arguments and not options:
        found = getattr(thing, name.removeprefix("view"))()
        return found if name.startswith("view") else list(found)
    return getattr(thing, name)(*arguments, **options)


def _write(file: Any, *data: Any, **options: Any) -> Any:
    """Write a text or bytes into a file, whichever it takes."""
    try:
        return file.write(*data, **options)
    except TypeError:
        if len(data) == 1 and isinstance(data[0], str):
            return file.write(data[0].encode("utf-8", _BAD_BYTES))
        if len(data) == 1 and isinstance(data[0], bytes):
            if hasattr(file, "buffer"):
                file.flush()
                return file.buffer.write(data[0])
            return file.write(data[0].decode("utf-8", _BAD_BYTES))
        raise


NAMES: Mapping[str, Any] = {
    "__call_of_python_2__": _call_method,
    "__divide_of_python_2__": divide,
    "__divide_attribute_of_python_2__": _divide_attribute,
    "__divide_item_of_python_2__": _divide_item,
    "__divide_in_place_of_python_2__": _divide_in_place,
    "__filter_of_python_2__": _filter,
    "__input_of_python_2__": lambda *prompt: eval(input(*prompt)),
    "__map_of_python_2__": _map,
    "__next_of_python_2__": _next,
    "__range_of_python_2__": lambda *numbers: list(range(*numbers)),
    "__round_of_python_2__": _round,
    "__sorted_of_python_2__": _sorted,
    "__unicode_of_python_2__": _unicode,
    "__zip_of_python_2__": lambda *items: list(zip(*items, strict=False)),
}
