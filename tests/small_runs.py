"""Extracts of small recorded runs of the legacy program; there is a run for each layer, cost or optimiser.

.venv/bin/python tests/small_runs.py ../shared/golden/layers

stores the extracts of complete recorded cases: the configuration, the commands, messages of the logs, the output of
predictions and generation, and a few values of each parameter file. Cases of several processes are left out.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from golden_runs import KINDS, STRICT, check_numbers, messages, read_parameter, shape

KEPT = Path(__file__).parent / "golden" / "layers"
VALUES = 24  # number of values stored of each parameter file, evenly spread
# kinds of lines that are compared; the widths of statistics change with their last digit
LINES = ("Batch", "Pass", "Test", "load", "order")
TYPE = re.compile(r'^layers \{\s+name: "[^"]*"\s+type: "([^"]*)"', re.M)
COLUMNS = {"params": "parameters", "log": "messages", "other": "results"}


def read_cases() -> dict[str, dict[str, Any]]:
    """Return name of the case -> extract."""
    cases: dict[str, dict[str, Any]] = json.loads((KEPT / "cases.json").read_text())
    return cases


def lay_out(folder: Path) -> None:
    """Copy all configurations and the data to the places where the commands expect them."""
    for path in [*(KEPT / "configs").iterdir(), *(KEPT / "data").iterdir()]:
        shutil.copyfile(path, folder / path.name)


def check(case: dict[str, Any], folder: Path, logs: dict[str, str]) -> None:
    """Compare a run with the extract, except the parts in which the original has a defect."""
    shows = {COLUMNS.get(one, one) for one in case["shows"]}
    assert digest_of(folder / "init" / "pass-00000", case["first"][1:]) == case["first"][0]
    if "parameters" not in shows:
        for path, wanted in case["parameters"].items():
            np.testing.assert_allclose(sample(folder / path), wanted, **case["tolerance"], err_msg=path)
    if "messages" not in shows:
        for log, wanted in case["messages"].items():
            kinds = [kind for kind in LINES if f"{log} {kind} lines" not in shows]
            check_lines(chosen(logs[log], kinds), chosen(wanted, kinds))
    for name, wanted in case["results"].items():
        if not {"results", name} & shows:
            check_lines((folder / name).read_text().splitlines(), wanted)


def check_lines(found: list[str], wanted: list[str]) -> None:
    for line, golden in zip(found, wanted, strict=True):
        assert shape(line) == shape(golden)
        check_numbers(line, golden, {**STRICT, "error_atol": 0.001})


def chosen(lines: str | list[str], kinds: Sequence[str] = LINES) -> list[str]:
    """Return kind -> the messages of a log that are compared."""
    found = messages(lines, "") if isinstance(lines, str) else lines
    return [line for kind in kinds for line in found if re.match(KINDS[kind], line)]


def sample(path: Path) -> list[float]:
    """Return a few values of a parameter file."""
    values = read_parameter(path)
    return [float(f"{value:.9g}") for value in values[:: values.size // VALUES | 1]]


def digest_of(folder: Path, names: list[str]) -> str:
    """Return a digest of these files."""
    digest = hashlib.sha256()
    for name in names:
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()


def all_parameters(folder: Path) -> list[str]:
    """Return the names of all parameter files, including those whose parameters the configuration names."""
    others = re.compile(r"(?:done|path\.txt|.*\.(?:py|conf|json))$")
    return sorted(path.name for path in folder.iterdir() if not others.match(path.name))


def keep(source: Path) -> dict[str, Any]:
    """Return the extract of a recorded case."""
    facts = json.loads((source / "case.json").read_text())
    first, names = source / "init" / "pass-00000", all_parameters(source / "init" / "pass-00000")
    folders = [one["dir"] for one in facts["kept"] if not one.get("exact")]
    return {
        "about": facts["about"],
        "types": sorted(set(TYPE.findall((source / "model_config.txt").read_text()))),
        "steps": [[step["log"], step.get("copy", {}), *step["args"]] for step in facts["steps"]],
        "shows": facts.get("defect", {}).get("shows", []),
        "tolerance": {key: facts["tolerance"]["params"][key] for key in ("atol", "rtol")},
        "first": [digest_of(first, names), *names],
        "parameters": {
            f"{one}/{name}": sample(source / one / name) for one in folders for name in all_parameters(source / one)
        },
        "messages": {name: chosen((source / name).read_text()) for name in facts["logs"]},
        "results": {name: (source / name).read_text().splitlines() for name in facts.get("results", ())},
    }


def keep_all(root: Path) -> None:
    """Store the extract of every recorded case with one process."""
    lines = []
    for source in sorted(path.parent for path in root.glob("*/case.json")):
        facts = json.loads((source / "case.json").read_text())
        if "steps" not in facts:
            continue
        for name in facts["configs"]:
            shutil.copyfile(root / "configs" / name, KEPT / "configs" / name)
        lines.append(f"{json.dumps(source.name)}: {json.dumps(keep(source))}")
    (KEPT / "cases.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    keep_all(Path(sys.argv[1]))
