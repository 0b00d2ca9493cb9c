"""Makes the table of docs/export.md from what can be exported, and from what the tests have measured.

.venv/bin/python tests/export_table.py

measures again: it exports every network of the tests, and keeps the largest difference of each layer type in
tests/golden/export.json. `make docs` writes the table from this file.
"""

import contextlib
import importlib
import json
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import layer_support
from export_cases import CASES
from export_golden import GoldenNetwork, list_configs
from exporting import compare, compare_exported
from small_runs import lay_out

from trainer.config.v1.layer_types import LAYER_TYPES
from trainer.export.onnx.families.mixed import PROJECTIONS as EXPORTED_PROJECTIONS
from trainer.export.onnx.registry import why_refused
from trainer.export.predictions import COSTS
from trainer.layers.mixed.mixed import OPERATORS, PROJECTIONS

KEPT = Path(__file__).parent / "golden" / "export.json"
SEQUENCES = Path(__file__).parent / "unit" / "trainer" / "export"  # the folder of the tests of sequences
SHOWN = 2  # cases that a row names
PICTURED = 7  # samples of a batch of `CASES`
# types of layers that a recurrent group makes of its inputs, memories and results
OF_GROUPS = {"agent", "scatter_agent", "sequence_agent", "sequence_gather_agent", "sequence_scatter_agent"}


def measure():
    """Return, for each layer type (and projection:TYPE, operator:TYPE), its cases and its largest difference."""
    found = defaultdict(lambda: {"cases": [], "difference": 0.0})
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        lay_out(Path(folder))
        for name in list_configs():
            network = GoldenNetwork(name)
            if network.outputs():
                _note(found, name, network.model, network.compare())
        for name, case in CASES.items():
            model = case.parse(Path(folder))
            table = case.fill(model)
            _note(found, name, model, compare(model, table, case.batch(PICTURED), case.slots))
        _measure_sequences(found, Path(folder))
    return {kind: found[kind] for kind in sorted(found)}


def _measure_sequences(found, folder):
    """Add the networks of test_trainer_export_sequences.py."""
    sys.path.insert(0, str(SEQUENCES))
    tests = importlib.import_module("test_trainer_export_sequences")
    networks = {**tests.NETWORKS, "picked sub-sequences": (tests.NESTED_PICKED, {"x": tests.dense(4, 2)})}
    for name, (script, types) in networks.items():
        model = tests.parse(folder, script)
        proto, table = tests.export(model, types)
        is_nested = any(one.seq_type == 2 for one in types.values())
        batch = tests.make_batch(types, tests.FILLED[2] if is_nested else tests.PLAIN[0])
        _note(found, name, model, compare_exported(proto, model, table, batch, types))


def _note(found, name, model, differences):
    """Add the differences of a network. A type inside a group has the largest of all outputs."""
    largest = max(differences.values())
    for layer in model.layers:
        if not describe(layer.type).startswith("yes"):
            continue
        kinds = [layer.type]
        kinds += [f"projection:{one.proj_conf.type}" for one in layer.inputs if one.HasField("proj_conf")]
        kinds += [f"operator:{one.type}" for one in layer.operator_confs]
        for kind in kinds:
            row = found[kind]
            row["cases"] = list(dict.fromkeys([*row["cases"], name]))[:SHOWN]
            row["difference"] = max(row["difference"], differences.get(layer.name, largest))


def make_table():
    """Return the table: a line for each layer type that computes, and for each projection and operator."""
    measured = json.loads(KEPT.read_text())
    lines = ["| type | in a file of ONNX | compared in | largest difference |", "|---|---|---|---|"]
    for kind in sorted(LAYER_TYPES):
        lines.append(_row(kind, kind, describe(kind), measured))
    for title, registry in (("projection", PROJECTIONS), ("operator", OPERATORS)):
        for kind in sorted(registry):
            is_there = title == "operator" or kind in EXPORTED_PROJECTIONS
            lines.append(_row(f"{title}:{kind}", f"{kind}` ({title})", "yes" if is_there else "no", measured))
    wanted, exported = count()
    return "\n".join(
        [
            f"{exported} of the {wanted} layer types of v0.10 that exist at inference are exported: "
            f"{100 * exported // wanted} %.",
            "",
            *lines,
        ]
    )


def describe(kind):
    """Return what becomes of a layer type."""
    if kind in COSTS:
        return "its prediction, in its place"
    if kind == "data":
        return "yes, an input"
    if kind in OF_GROUPS:
        return "yes, in its group"
    reason = why_refused(kind)
    return f"no: {reason}" if reason else "yes"


def count():
    """Return the number of layer types of v0.10 that exist at inference, and how many of them are exported."""
    kinds = [kind for kind in LAYER_TYPES if kind in layer_support.REGISTERED]
    kinds = [kind for kind in kinds if kind not in COSTS]
    return len(kinds), sum(describe(kind).startswith("yes") for kind in kinds)


def _row(key, name, state, measured):
    row = measured.get(key)
    cases = ", ".join(row["cases"]) if row else ""
    difference = f"{row['difference']:.0e}" if row else ""
    name = name if name.endswith(")") else f"{name}`"
    return f"| `{name} | {state} | {cases} | {difference} |".replace("|  |", "| |").replace("|  |", "| |")


if __name__ == "__main__":
    os.environ.setdefault("GLOG_minloglevel", "2")
    KEPT.write_text(json.dumps(measure(), indent=1) + "\n")
    sys.stdout.write(make_table() + "\n")
