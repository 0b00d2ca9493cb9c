"""Makes the table of docs/layers.md from the code, its tests and the golden files; as a script it writes the table.

.venv/bin/python tests/layer_support.py
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from small_runs import read_cases

from trainer.config.v1.layer_types import LAYER_TYPES, RULES
from trainer.config.v1.layers import BY_FUNCTION, LayerType
from trainer.layers import LAYERS
from trainer.layers.mixed.mixed import OPERATORS, PROJECTIONS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "layers.md"
BEGIN, END = "<!-- table: tests/layer_support.py -->", "<!-- end of table -->"
LANGUAGE = ROOT / "trainer" / "config" / "language"
TESTS = ROOT / "tests" / "unit" / "trainer"
GOLDEN = ROOT / "tests" / "golden"

# types of layers that functions of the config language write themselves; the last three are older names of agents
GROUP = {"recurrent_layer_group", "scatter_agent", "gather_agent", "agent"}
GROUP |= {"sequence_agent", "sequence_gather_agent", "sequence_scatter_agent"}
# types that the config language chooses when it builds a layer, which `language_types` does not find
PICKED = {"cudnn_batch_norm", "cudnn_conv", "cudnn_convt", "exconv", "exconvt"}
# arguments of the same functions that are not types of layers: projections, norms, submodels
NO_LAYERS = {"cmrnorm-projection", "context", "cross-channel-norm", "dot_mul", "generator", "identity"}
NO_LAYERS |= {"identity_offset", "slice", "table", "trans_fc", "cost"}
# names of Layer() and LayerType for which the message has another type
OTHER_NAMES = {
    "conv_3d": "conv3d",
    "beam_search": "recurrent_layer_group",
    "memory": "agent",
    "seqfirstins": "seqlastins",
}
# REGISTER_LAYER and REGISTER_LAYER_CREATE_FUNC in paddle/gserver/layers of v0.10
_REGISTERED = """
    addto agent auc-validation average batch_norm bilinear_interp blockexpand clip concat concat2 conv_shift convex_comb
    cos cos_vm crf crf_decoding crop ctc cudnn_batch_norm cudnn_conv cudnn_convt data data_norm detection_output eos_id
    exconv exconvt expand fc featmap_expand gated_recurrent gather_agent get_output gru_step hsigmoid huber
    interpolation kmax_seq_score lambda_cost lstm_step lstmemory max maxid maxout mdlstmemory mixed
    multi-class-cross-entropy multi_binary_label_cross_entropy multi_class_cross_entropy_with_selfnorm multibox_loss
    multiplex nce norm out_prod pad pnpair-validation pool power prelu print priorbox rank-cost recurrent
    recurrent_layer_group resize rotate row_conv sampling_id scaling scatter_agent selective_fc seq_slice seqconcat
    seqlastins seqreshape sequence_agent sequence_gather_agent sequence_scatter_agent slope_intercept smooth_l1
    soft_binary_class_cross_entropy spp square_error sub_nested_seq subseq sum_cost sum_to_one_norm tensor trans
    warp_ctc
"""
REGISTERED = frozenset(_REGISTERED.split())
CPU = "computed as `{}` is, on the CPU"
# limits of a type
LIMITS = {
    "selective_fc": "each row selects as many columns",
    "cudnn_batch_norm": CPU.format("batch_norm"),
    "mkldnn_batch_norm": CPU.format("batch_norm"),
    "cudnn_conv": CPU.format("exconv"),
    "mkldnn_conv": CPU.format("exconv"),
    "cudnn_convt": CPU.format("exconvt"),
}


def all_types() -> set[str]:
    """Return every layer type that the language or Layer() knows, that v0.10 registered, or that computes here."""
    named = {value for name, value in vars(LayerType).items() if name.isupper() and isinstance(value, str)}
    known = {*language_types(), *BY_FUNCTION, *named, *REGISTERED, *LAYER_TYPES}
    return {OTHER_NAMES.get(kind, kind) for kind in known - NO_LAYERS}


def page_table() -> str:
    """Return the table that the page has now."""
    text = PAGE.read_text()
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip("\n")


def rewrite_page() -> None:
    """Put the table into the page."""
    text = PAGE.read_text()
    PAGE.write_text(f"{text[: text.index(BEGIN) + len(BEGIN)]}\n{make_table()}\n{text[text.index(END) :]}")


def make_table() -> str:
    """Return the table: a line for each of `all_types`."""
    checked, messages, runs = checked_words(), golden_types(""), run_types()
    lines = [
        "| type | language | computes | gradients checked | golden | what it does not do |",
        "|---|---|---|---|---|---|",
    ]
    kinds, raw = language_types(), {*RULES, *BY_FUNCTION}
    for kind in sorted(all_types()):
        layer = LAYERS.get(kind)
        if layer is None:
            gradient = ""
        elif not layer.takes_gradient:
            gradient = "none flows"
        else:
            gradient = "yes" if kind in checked else "no"
        golden = ", ".join([*["message"] * (kind in messages), *["numbers"] * (kind in runs)])
        language = "yes" if kind in kinds else "raw" if kind in raw else "no"
        columns = [f"`{kind}`", language, "yes" if layer else "**no**", gradient, golden, LIMITS.get(kind, "")]
        lines.append(f"| {' | '.join(columns)} |".replace("|  |", "| |").replace("|  |", "| |"))
    lines += ["", "| inside of mixed | kind | gradients checked |", "|---|---|---|"]
    for title, registry in (("projection", PROJECTIONS), ("operator", OPERATORS)):
        lines += [f"| `{kind}` | {title} | {'yes' if kind in checked else 'no'} |" for kind in sorted(registry)]
    return "\n".join(lines)


@functools.cache
def language_types() -> frozenset[str]:
    """Return the layer types that the functions of the config language write into the message."""
    found = set(PICKED)
    for path in [*LANGUAGE.glob("layers/*.py"), *LANGUAGE.glob("maps/*.py")]:
        tree = ast.parse(path.read_text())
        places = {"LayerBuilder": 1}  # function -> position of the argument that is the type
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
    return frozenset(found - NO_LAYERS)


@functools.cache
def checked_words() -> frozenset[str]:
    """Return all strings in tests that check gradients and in functions that these use; some are layer types."""
    found: set[str] = set()
    for path in TESTS.rglob("test_trainer_*.py"):
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
    return frozenset(found)


def checks_gradients(test: ast.AST) -> bool:
    """Return whether a test compares gradients: its name says so, or it calls the function that does."""
    calls = {node.func.id for node in ast.walk(test) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return "check_gradients" in calls or (isinstance(test, ast.FunctionDef) and "gradients" in test.name)


@functools.cache
def definitions(path: Path) -> dict[str, ast.AST]:
    """Return name -> definition for functions and tables of a module and of the modules beside it that it imports."""
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


@functools.cache
def golden_types(prefix: str) -> frozenset[str]:
    """Return the layer types in the golden messages whose file name begins with a prefix."""
    pattern = re.compile(r'^\s*layers \{\s+name: "[^"]*"\s+type: "([^"]*)"', re.M)
    files = [path for tail in ("txt", "protostr") for path in (GOLDEN / "config").rglob(f"{prefix}*.{tail}")]
    return frozenset(kind for path in files for kind in pattern.findall(path.read_text()))


@functools.cache
def run_types() -> set[str]:
    """Return the layer types of the networks for which there are recorded runs."""
    small = {kind for case in read_cases().values() for kind in case["types"]}
    return small.union(*(golden_types(case.parent.name) for case in (GOLDEN / "runs").glob("*/case.json")))


if __name__ == "__main__":
    rewrite_page()
