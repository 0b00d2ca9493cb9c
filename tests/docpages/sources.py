"""The error texts of the programs, read from their sources: raised errors, refusals, and what the launcher waits for.

A text is a pattern: what is filled in when it is said stands in angle brackets, by the name that the code has for it.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from docpages.blocks import ROOT
from runtime import errors as runtime_errors

PACKAGES = (
    "launcher",
    "recordio",
    "runtime",
    "registry",
    "pserver",
    "trainer",
    "master",
    "paddle",
    "prepare",
    "localcluster",
)
ERRORS = {
    name: f"{name}.errors" for name in ("launcher", "prepare", "localcluster", "recordio")
}  # of the others: runtime.errors
# functions whose returned or raised texts a user reads, and the status that such a wait ends with at its deadline
SAID = {
    "launcher/rendezvous.py": {"why_not_agreed": 69},
    "launcher/cluster/pods.py": {"why_incomplete": 69, "why_not_ready": 69, "state": 69},
    "launcher/variables.py": {"parse_variable": 78},
    "trainer/data/provider2.py": {"": 65},
}
OWN = {"SampleError": 65}  # exceptions that become an error of ours with their text
OUTCOMES = {69: "PeerUnreachableError", 75: "LostPeerError", 143: "StoppedError"}
VARIABLE_STATUS = {"status": 69, "code": 143}  # of the launcher: of its probe; after a signal
WAITS = {"ApiError": 69}  # what ends a launcher only at its deadline; some have a `final` of their own
# words for what is filled in that the code calls otherwise
BETTER = {"getuid": "uid", "geteuid": "uid", "strerror": "reason", "describe failure": "reason", "problem": "reason"}
BETTER |= {"show value": "value", "show": "value", "shorten": "value", "describe error": "its error", "exc": "reason"}
BETTER |= {"cwd": "directory", "argv": "name", "pserver num": "number", "gradient num": "number", "st size": "size"}
BETTER |= {"lineno": "number", "msg": "text", "job dir": "directory", "upper": "variable", "argument": "name"}
BETTER |= {
    "describe": "what it is",
    "one": "pserver",
    "identity": "pserver",
    "who": "trainer",
    "config of source": "names",
}
BUILT_IN = ("ValueError", "TypeError", "KeyError")
NO_TEXT = {"join", "strip", "format", "repr", "str", "sorted", "len", "shorten", "clean", "shown", "map", "list", "set"}


@dataclass(frozen=True)
class Message:
    """One text: `path` from the root, `kind` the class or function that says it, `status` the exit code."""

    path: str
    line: int
    kind: str
    status: int
    text: str

    @property
    def room(self) -> str:
        """The path in its room: start_paddle.py is the launcher's."""
        return f"launcher/{self.path}" if self.path == "start_paddle.py" else self.path

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass
class Reader(ast.NodeVisitor):
    """Collects the messages of one module."""

    path: str
    codes: dict[str, int]
    found: list[Message] = field(default_factory=list)
    functions: list[ast.AST] = field(default_factory=list)  # around the node, the module first
    parents: dict[ast.AST, tuple[ast.AST, str]] = field(default_factory=dict)
    assignments: dict[str, list[ast.Assign]] = field(default_factory=dict)  # name -> those to it, in the file's order

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.functions.append(node)
        self.generic_visit(node)
        self.functions.pop()

    def visit_Module(self, node: ast.Module) -> None:
        self.parents = parents_of(node)
        for one in sorted(filter(is_assignment, ast.walk(node)), key=lambda one: one.lineno):
            for part in (part for target in one.targets for part in ast.walk(target)):
                self.assignments.setdefault(getattr(part, "id", ""), []).append(one)
        self.functions.append(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name in self.codes and not isinstance(node.func, ast.Attribute) and node.args:
            self.add(node.args[0], name, self.final(node) or self.codes[name])
        elif name == "append" and owner is not None and last_name(owner) == "problems":
            self.add(node.args[0], "problems", 78)
        elif name == "AttemptResult" and len(node.args) > 2:
            status = self.status_of(node.args[0])
            self.add(node.args[2], OUTCOMES.get(status, "AttemptResult"), status)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        said = SAID.get(self.path, {})
        name = getattr(self.functions[-1], "name", "")
        status = said.get(name) or said.get("")
        if status and isinstance(node.exc, ast.Call) and getattr(node.exc.func, "id", "") in BUILT_IN:
            self.add(node.exc.args[0], "ValueError", status)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        name = getattr(self.functions[-1], "name", "")
        status = SAID.get(self.path, {}).get(name)
        if status and isinstance(node.value, (ast.JoinedStr, ast.Constant, ast.BinOp)):
            self.add(node.value, name, status)
        self.generic_visit(node)

    def final(self, node: ast.Call) -> int:
        """The status of an ApiError that names what it becomes."""
        names = [word.value.id for word in node.keywords if word.arg == "final" and isinstance(word.value, ast.Name)]
        return self.codes.get(names[0], 0) if names else 0

    def status_of(self, node: ast.expr) -> int:
        """The status of an AttemptResult: `LostPeerError.exit_code`, or a variable of the launcher; 0: no failure."""
        return self.codes.get(last_name(getattr(node, "value", node)), VARIABLE_STATUS.get(last_name(node), 0))

    def add(self, node: ast.expr, kind: str, status: int) -> None:
        text = " ".join(self.text(node).split())
        # a text that is another one's, or a place in front of it, is found where that one is made
        if status and re.sub(r"<[^<>]*>|[^a-z]", "", text.lower()):
            self.found.append(Message(self.path, node.lineno, kind, status, text))

    def text(self, node: ast.expr, depth: int = 0) -> str:
        """The pattern of an expression."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(self.text(part, depth) for part in node.values)
        if isinstance(node, ast.FormattedValue):
            return self.text(node.value, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and is_text(node):
            return self.text(node.left, depth) + self.text(node.right, depth)
        if isinstance(node, ast.IfExp) and is_text(node.body) and is_text(node.orelse):
            parts = [part for part in (self.text(node.body, depth), self.text(node.orelse, depth)) if part]
            return f"<{' or '.join(parts)}>" if len(parts) > 1 else parts[0]
        known = self.assigned(node) if isinstance(node, ast.Name) and depth < 3 else None
        return self.text(known, depth + 1) if known is not None else f"<{placeholder(node)}>"

    def assigned(self, node: ast.Name) -> ast.expr | None:
        """The text that a name surely has: of the last assignment before it, unless that may have been passed by."""
        last = None
        for one in self.assignments.get(node.id, ()):
            if one.lineno < node.lineno and self.function_of(one) in self.functions:
                last = one
        if last is None or not isinstance(last.targets[0], ast.Name):
            return None
        return last.value if is_text(last.value) and self.parents[last] in self.blocks_around(node) else None

    def blocks_around(self, node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
        """The blocks of statements that a node stands in, from the inside."""
        while node in self.parents:
            yield self.parents[node]
            node = self.parents[node][0]

    def function_of(self, node: ast.AST) -> ast.AST:
        """The function, or module, that a node stands in."""
        for parent, _ in self.blocks_around(node):
            if isinstance(parent, (ast.FunctionDef, ast.Module)):
                return parent
        raise ValueError("a node outside of its module")


def parents_of(tree: ast.AST) -> dict[ast.AST, tuple[ast.AST, str]]:
    """Node -> the node around it, and in which of its fields."""
    return {
        child: (node, name)
        for node in ast.walk(tree)
        for name, value in ast.iter_fields(node)
        for child in (value if isinstance(value, list) else [value])
        if isinstance(child, ast.AST)
    }


def is_assignment(node: ast.AST) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign)


def is_text(node: ast.expr) -> bool:
    """Whether an expression is a literal text, or one with something filled in."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and (is_text(node.left) or is_text(node.right))
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def last_name(node: ast.AST) -> str:
    """The last name of `a.b.c`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def placeholder(node: ast.AST) -> str:
    """A word for what is filled in: the last name in the expression that is not a function for texts."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value.replace("_", " ")
    names = [last_name(one) for one in ast.walk(node)]
    words = [name.strip("_") for name in names if name and name not in NO_TEXT and name not in ("self", "config")]
    word = words[0].lower().replace("_", " ") if words else "..."
    return BETTER.get(word, word)


def codes_of(package: str) -> dict[str, int]:
    """Class name -> exit code, of all errors that a package may raise."""
    known = {**vars(runtime_errors)} if package in ("launcher", "recordio") else {}
    known |= vars(importlib.import_module(ERRORS.get(package, "runtime.errors")))
    codes = {name: one.exit_code for name, one in known.items() if hasattr(one, "exit_code")}
    return codes | (WAITS if package == "launcher" else OWN)


def read_module(path: Path, codes: dict[str, int]) -> list[Message]:
    """The messages of a Python file."""
    reader = Reader(str(path.relative_to(ROOT)), codes)
    reader.visit(ast.parse(path.read_text(encoding="utf-8")))
    return reader.found


def read_script(path: Path) -> Iterator[Message]:
    """The messages of start.sh: `fail STATUS LINE...` and `problems+=(LINE)`."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    codes = {name: int(value) for name, value in re.findall(r"^(EXIT_\w+)=(\d+)", text, re.MULTILINE)}
    for number, line in enumerate(text.splitlines(), start=1):
        for code, words in re.findall(r"\bfail \$(EXIT_\w+) (\".*)$", line):
            texts = [part for part in re.findall(r'"((?:[^"\\]|\\.)*)"', words) if not part.startswith("${problems")]
            yield Message(path.name, number, "fail", codes[code], shell_pattern("; ".join(texts)))
        for words in re.findall(r'problems\+=\("(.*)"\)', line):
            yield Message(path.name, number, "problems", codes["EXIT_CONFIG"], shell_pattern(words))


def shell_pattern(text: str) -> str:
    """A text of the shell with what is filled in as in the others."""
    text = re.sub(r"\$\((?:[^()]|\([^()]*\))*\)", "<...>", text)
    return re.sub(r"\$(?:(\w+)|\{!?(\w+)[^}]*\})", lambda found: f"<{found[1] or found[2]}>", text)


@functools.cache
def read_all() -> tuple[Message, ...]:
    """Every message of every program."""
    found = list(read_script(ROOT / "start.sh"))
    found += read_module(ROOT / "start_paddle.py", codes_of("launcher"))
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            found += read_module(path, codes_of(package))
    return tuple(found)
