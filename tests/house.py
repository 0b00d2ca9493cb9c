"""The bounds of the code that `make lint` checks: sizes, parameters, folders, names of classes and tests, imports.

Usage: python tests/house.py. It prints each violation of a bound, and each exception that has become unnecessary; if
there is any, it ends with 1.
"""

from __future__ import annotations

import ast
import fnmatch
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("paddle", "paddle_base", "paddle_cluster", "pserver", "trainer")
# the bounds; __init__.py does not count as a file, and self not as a parameter
FILE_LINES, CLASS_LINES, FUNCTION_LINES, ATTRIBUTES, PARAMETERS, FOLDER_FILES, MOST = 600, 300, 60, 12, 7, 20, 15
INPUT_AND_OUTPUT = frozenset((
    "os", "pathlib", "queue", "random", "requests", "select", "selectors", "shutil", "socket", "subprocess", "tempfile",
    "threading", "time", "zmq",
))  # fmt: skip
Trees = Mapping[str, ast.Module]  # path from the root -> syntax tree
Reasons = Mapping[tuple[str, str], str]  # (rule, pattern of subjects) -> reason of the exception

_2017 = "the signature is that of 2017, which users' configs call"
EXCEPTIONS: Reasons = {
    ("attributes", "trainer/data/provider2.py:DataProvider"): "the attributes that an init_hook of 2017 reads and sets",
    ("late import", "*/__main__.py:*"): "a wrong flag and the probe need no numpy, 0.15 s of bench/launch.py",
    ("late import", "pserver/server/*"): "numpy, 0.15 s of bench/launch.py, comes after the first hello",
    ("late import", "paddle/v2/*"): "pillow, scipy, matplotlib and IPython, only where a program uses them",
    ("late import", "trainer/merge_model.py:*"): "a wrong flag is answered before numpy comes",
    (
        "late import",
        "paddle_cluster/elastic/launch.py:*run*",
    ): "numpy, 0.1 s, only where a function and not a command is run",
    (
        "late import",
        "paddle_cluster/launcher/c*/*.py:*",
    ): "zmq, 0.04 s, and requests, 0.1 s: --help takes neither, and the fork server starts before them",
    ("late import", "trainer/telemetry/*"): "the page of the report and of metrics, only where they are wanted",
    ("late import", "trainer/*:*_import_servers"): "73 ms of CPU time that a local run saves",
    ("parameters", "*/elastic/*"): "Horovod 0.28's, which its users and tests call",
    ("parameters", "*/recurrent[./]*"): "the letters of the formula; numpy and C take the same ones in the same order",
    (
        "parameters",
        "paddle_cluster/localcluster/cluster.py:Cluster.__init__",
    ): "settings by keyword, each with a default",
    ("parameters", "trainer/arrays/arguments.py:Argument.__init__"): "the fields of v0.10's Argument, all optional",
    ("parameters", "trainer/config/*"): _2017,
    ("parameters", "trainer/data/*:provider"): _2017,
}


class Finding(NamedTuple):
    """A violation of a bound: the rule, the file or name to which an exception refers, and the facts."""

    rule: str
    subject: str
    found: str


def read_trees(root: Path) -> Trees:
    """Return the syntax tree of every module of the product."""
    paths = [*root.glob("start_paddle.py"), *(path for room in ROOMS for path in sorted((root / room).rglob("*.py")))]
    return {path.relative_to(root).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def find_all(root: Path) -> list[Finding]:
    """Return all violations."""
    trees = read_trees(root)
    lines = {path: (root / path).read_text(encoding="utf-8").count("\n") for path in trees}
    found = [Finding("file", path, f"{count} lines") for path, count in lines.items() if count > FILE_LINES]
    found += [each for path, tree in trees.items() for each in check_definitions(path, tree)]
    found += [each for path in trees for each in check_purity(path, trees)]
    found += [*check_folders(trees), *check_class_names(trees), *check_circles(trees), *check_test_names(root)]
    return sorted(found)


def check_definitions(path: str, tree: ast.AST, prefix: str = "") -> Iterator[Finding]:
    """Yield the violations of classes and functions: too long, too many attributes or parameters, or imports inside."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from check_definitions(path, node, prefix)
            continue
        yield from check_definitions(path, node, f"{prefix}{node.name}.")
        subject, lines = f"{path}:{prefix}{node.name}", node.end_lineno - node.lineno + 1
        inner = list(ast.walk(node))
        if isinstance(node, ast.ClassDef):
            stored = [one for one in inner if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)]
            names = {one.attr for one in stored if isinstance(one.value, ast.Name) and one.value.id == "self"}
            if lines > CLASS_LINES:
                yield Finding("class", subject, f"{lines} lines")
            if len(names) > ATTRIBUTES:
                yield Finding("attributes", subject, f"{len(names)} attributes")
            continue
        arguments = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        count = len([name for name in arguments if name not in ("self", "cls")])
        if lines > FUNCTION_LINES:
            yield Finding("function", subject, f"{lines} lines")
        if count > PARAMETERS:
            yield Finding("parameters", subject, f"{count} parameters")
        if any(isinstance(one, ast.Import | ast.ImportFrom) for one in inner):
            yield Finding("late import", subject, "an import inside a function")


def check_purity(path: str, trees: Trees) -> Iterator[Finding]:
    """Yield the modules of input and output that a module imports although it, or its folder, says "No I/O."."""
    says = [
        ast.get_docstring(trees[each]) or "" for each in {path, f"{path.rpartition('/')[0]}/__init__.py"} & trees.keys()
    ]
    if not any("No I/O." in text for text in says):
        return
    for node in trees[path].body:
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (Finding("I/O", path, name) for name in names if name.partition(".")[0] in INPUT_AND_OUTPUT)


def check_folders(trees: Trees) -> Iterator[Finding]:
    """Yield the folders with too many files."""
    counts = Counter(path.rpartition("/")[0] for path in trees if not path.endswith("__init__.py"))
    yield from (Finding("folder", name, f"{count} files") for name, count in counts.items() if count > FOLDER_FILES)


def check_class_names(trees: Trees) -> Iterator[Finding]:
    """Yield the names that more than one class of a package has."""
    places = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[path.partition("/")[0], node.name].append(path)
    yield from (Finding("class name", name, ", ".join(where)) for (_, name), where in places.items() if len(where) > 1)


def check_test_names(root: Path) -> Iterator[Finding]:
    """Yield the file names that occur twice in tests/, because pytest imports all test files as top-level modules."""
    places = defaultdict(list)
    for path in sorted((root / "tests").rglob("test_*.py")):
        places[path.name].append(path.relative_to(root).as_posix())
    yield from (Finding("test name", name, ", ".join(where)) for name, where in places.items() if len(where) > 1)


def check_circles(trees: Trees) -> Iterator[Finding]:
    """Yield the sets of modules that import each other; imports for types and imports inside functions count too."""
    paths = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in trees}
    imports = {name: imported(trees[path], paths) - {name} for name, path in paths.items()}
    reached = {name: reach(name, imports) for name in paths}
    circles = {frozenset(one for one in those if name in reached[one]) for name, those in reached.items()} - {
        frozenset()
    }
    yield from (Finding("circle", " ".join(sorted(names)), "import each other") for names in circles)


def imported(tree: ast.Module, ours: Mapping[str, str]) -> set[str]:
    """Return the modules of this project that a module imports."""
    names = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{one.name}" for one in node.names]
            names |= {name if name in ours else node.module or "" for name in inner}
    return names & ours.keys()


def reach(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that a module imports, directly or indirectly."""
    found: set[str] = set()
    rest = [start]
    while rest:
        new = imports[rest.pop()] - found
        found |= new
        rest += new
    return found


def judge(found: list[Finding], exceptions: Reasons) -> Iterator[str]:
    """Yield the problems: violations without an exception, unnecessary exceptions, and too many exceptions."""
    fits = {
        (rule, pattern): {one for one in found if rule == one.rule and fnmatch.fnmatch(one.subject, pattern)}
        for rule, pattern in exceptions
    }
    permitted = set().union(*fits.values())
    yield from (" | ".join(one) for one in found if one not in permitted)
    yield from (f"no exception any more: {' | '.join(key)}" for key, those in fits.items() if not those)
    if len(exceptions) > MOST:
        yield f"{len(exceptions)} exceptions, at most {MOST}"


def main() -> int:
    """Print all problems, and return the exit status."""
    lines = list(judge(find_all(ROOT), EXCEPTIONS))
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
