"""The table of docs/layers.md, from what the code, its tests and the golden files hold; run as a script it rewrites it.

.venv/bin/python tests/layer_support.py
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from trainer.layers import INTERNAL, LAYERS
from trainer.layers.mixed import OPERATORS, PROJECTIONS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "layers.md"
BEGIN, END = "<!-- table: tests/layer_support.py -->", "<!-- end of table -->"
LANGUAGE = ROOT / "trainer" / "config" / "layers"
TESTS = ROOT / "tests" / "unit" / "trainer"
GOLDEN = ROOT / "tests" / "golden"

UNTESTED = {"multibox_loss", "priorbox", "cross_entropy_over_beam"}  # in the language, in no golden message
# what stands in a message for one function of the language; the last three are older names of agents
GROUP = {"recurrent_layer_group", "scatter_agent", "gather_agent", "agent"}
GROUP |= {"sequence_agent", "sequence_gather_agent", "sequence_scatter_agent"}
# types that the language picks where a layer is built, out of sight of `language_types`
PICKED = {"cudnn_batch_norm", "cudnn_conv", "cudnn_convt", "exconv", "exconvt"}


def page_table() -> str:
    """Return the table as it stands in the page."""
    text = PAGE.read_text()
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip("\n")


def rewrite_page() -> None:
    """Put the table into the page."""
    text = PAGE.read_text()
    PAGE.write_text(f"{text[: text.index(BEGIN) + len(BEGIN)]}\n{make_table()}\n{text[text.index(END) :]}")


def make_table() -> str:
    """Return the table: a line for each type that the language writes or that computes."""
    checked, messages, runs = checked_words(), golden_types(""), run_types()
    lines = ["| type | language | computes | gradients checked | golden |", "|---|---|---|---|---|"]
    kinds = language_types()
    for kind in sorted(kinds | LAYERS.keys() - INTERNAL):
        layer = LAYERS.get(kind)
        if layer is None:
            gradient = ""
        elif not layer.takes_gradient:
            gradient = "none flows"
        else:
            gradient = "yes" if kind in checked else "no"
        golden = ", ".join([*["message"] * (kind in messages), *["numbers"] * (kind in runs)])
        columns = [f"`{kind}`", "yes" if kind in kinds else "raw", "yes" if layer else "no", gradient, golden]
        lines.append(f"| {' | '.join(columns)} |".replace("|  |", "| |").replace("|  |", "| |"))
    lines += ["", "| inside of mixed | kind | gradients checked |", "|---|---|---|"]
    for title, registry in (("projection", PROJECTIONS), ("operator", OPERATORS)):
        lines += [f"| `{kind}` | {title} | {'yes' if kind in checked else 'no'} |" for kind in sorted(registry)]
    return "\n".join(lines)


def language_types() -> set[str]:
    """Return the layer types that the functions of the config language write into the message."""
    found = set(PICKED)
    for path in LANGUAGE.glob("*.py"):
        tree = ast.parse(path.read_text())
        places = {"LayerBuilder": 1}  # function -> which of its arguments is the type
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                names = [argument.arg for argument in node.args.args]
                if "kind" in names:
                    places[node.name] = names.index("kind")
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in places:
                given = [argument for at, argument in enumerate(node.args) if at == places[node.func.id]]
                given += [keyword.value for keyword in node.keywords if keyword.arg == "kind"]
                found.update(word for one in given for word in words_in(one))
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "kind" for t in node.targets):
                found.update(words_in(node.value))
    return found & {*LAYERS, *golden_types(""), *UNTESTED}


def checked_words() -> set[str]:
    """Return the words of the tests that check gradients, and of what these use: layer types are among them."""
    found: set[str] = set()
    for path in TESTS.glob("test_trainer_*.py"):
        known = definitions(path)
        waiting = [name for name, node in known.items() if name.startswith("test_") and checks_gradients(node)]
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in known and name not in seen:
                seen.add(name)
                found.update(words_in(known[name]))
                names = [node.id for node in ast.walk(known[name]) if isinstance(node, ast.Name)]
                found.update(GROUP if "recurrent_group" in names else ())
                waiting += names
    return found


def checks_gradients(test: ast.AST) -> bool:
    """Return whether a test compares gradients: its name says so, or it calls the function that does."""
    calls = {node.func.id for node in ast.walk(test) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return "check_gradients" in calls or (isinstance(test, ast.FunctionDef) and "gradients" in test.name)


def definitions(path: Path) -> dict[str, ast.AST]:
    """Return the functions and tables of a module by name, and those that it imports from modules beside this one."""
    found: dict[str, ast.AST] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found.update({target.id: node for target in node.targets if isinstance(target, ast.Name)})
        elif isinstance(node, ast.ImportFrom) and (ROOT / "tests" / f"{node.module}.py").is_file():
            found.update(definitions(ROOT / "tests" / f"{node.module}.py"))
    return found


def words_in(tree: ast.AST) -> Iterator[str]:
    """Yield the string constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def golden_types(prefix: str) -> set[str]:
    """Return the layer types in the golden messages whose file name begins so."""
    pattern = re.compile(r'^\s*layers \{\s+name: "[^"]*"\s+type: "([^"]*)"', re.M)
    files = [path for tail in ("txt", "protostr") for path in (GOLDEN / "config").rglob(f"{prefix}*.{tail}")]
    return {kind for path in files for kind in pattern.findall(path.read_text())}


def run_types() -> set[str]:
    """Return the layer types of the networks whose recorded runs are done again."""
    return {kind for case in (GOLDEN / "runs").glob("*/case.json") for kind in golden_types(case.parent.name)}


if __name__ == "__main__":
    rewrite_page()
