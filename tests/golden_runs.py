"""Recorded runs of the legacy program: the part of each that is kept here, and how a run of ours is held against it.

.venv/bin/python tests/golden_runs.py ../shared/golden/runs CASE...

takes that part from whole recorded runs: recipe, logs and results as they are, of each parameter file a few values,
its length, and what tells about all of its values.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

KEPT = Path(__file__).parent / "golden" / "runs"
VALUES = 64  # kept of each parameter file, evenly spread
FACTS = ("about", "configs", "files", "steps", "pservers", "trainers", "kept", "logs", "results", "merged", "tolerance")
HEADER = struct.Struct("<iIQ")  # version 0, bytes of a value, number of values
MESSAGE = re.compile(r"^\.*(?:[IWEF]\d{4} |\[\w+ )[^\]]+\] (.*)$", re.M)
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)(?![\w.])")
KINDS = {
    "Batch": " Batch=",
    "Pass": " Pass=",
    "Test": " Test samples=",
    "stats": r"\S+ +avg_abs_val=",
    "save": "Saving parameters",
    "load": "Loading parameters",
    "order": "The (?:input|output) order is",
    "mode": "trainer mode|trainer: in",
}
STRICT = {"atol": 1e-5, "rtol": 1e-4}


def lay_out(facts: dict[str, Any], files: dict[str, str], folder: Path) -> Path:
    """Put the configs of a case and its data where its commands expect them, and return the folder."""
    for target, source in [*files.items(), *((name, f"configs/{name}") for name in facts["configs"])]:
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data(source))
    return folder


def data(name: str) -> bytes:
    """Return a file of configs/ or data/; train_384.txt is the head of train.txt, train_shard1.txt its even lines."""
    part = re.search(r"_(shard)?(\d+)(?=\.\w+$)", name)
    if part is None:
        return (KEPT / name).read_bytes()
    lines = (KEPT / (name[: part.start()] + name[part.end() :])).read_bytes().splitlines(keepends=True)
    return b"".join(lines[int(part[2]) :: 2] if part[1] else lines[: int(part[2])])


def read_parameter(path: Path) -> np.ndarray:
    """Return the float32 values of a parameter file whose header is as the legacy wrote it."""
    return read_values(path.read_bytes())


def read_values(content: bytes) -> np.ndarray:
    """Return the float32 values of what a parameter file holds."""
    assert HEADER.unpack_from(content) == (0, 4, (len(content) - HEADER.size) // 4)
    return np.frombuffer(content, "<f4", offset=HEADER.size)


def parameter_files(folder: Path) -> list[str]:
    """Return the names of the parameter files of a pass directory."""
    return sorted(path.name for path in folder.glob("_*"))


def sample(path: Path, *, exact: bool) -> dict[str, Any]:
    """Return what is kept of a parameter file: its digest if its bits count, else the mean size of its values."""
    values = read_parameter(path)
    whole = {"sha256": digest(path)} if exact else {"mean": mean_size(values), "rms": root_mean_square(values)}
    some = [float(f"{value:.9g}") for value in values[:: stride(values.size)]]
    return {"count": values.size, **whole, "values": some}


def stride(count: int) -> int:
    """Return the distance of the values that are kept: odd, so that all columns of a matrix have their turn."""
    return count // VALUES | 1


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def mean_size(values: np.ndarray) -> float:
    return float(np.mean(np.abs(values), dtype=np.float64))


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values.astype(np.float64) ** 2)))


def check_parameter(path: Path, golden: dict[str, Any], tolerance: dict[str, float]) -> None:
    """Hold a parameter file against what is kept of the legacy's, bit for bit or within the tolerance."""
    values = read_parameter(path)
    assert values.size == golden["count"], path
    some, wanted = values[:: stride(values.size)], np.array(golden["values"], np.float32)
    if "sha256" in golden:
        np.testing.assert_array_equal(some, wanted, err_msg=str(path))
        assert digest(path) == golden["sha256"], path
        return
    difference = np.abs(some - wanted.astype(np.float64))
    far = np.count_nonzero(~(difference <= tolerance["atol"] + tolerance["rtol"] * np.abs(wanted)))
    assert far <= np.ceil(tolerance["share"] * wanted.size), f"{path}: {far} of {wanted.size} values are off"
    assert difference.max() <= tolerance["cap"], f"{path}: a value is off by {difference.max()}"
    np.testing.assert_allclose(
        [mean_size(values), root_mean_square(values)],
        [golden["mean"], golden["rms"]],
        STRICT["rtol"],
        STRICT["atol"],
        err_msg=str(path),
    )


def check_log(ours: str, theirs: str, tolerances: dict[str, dict[str, float]]) -> None:
    """Hold the lines that tools read against the legacy's: the same text, numbers spelt alike and within tolerance."""
    for kind, pattern in KINDS.items():
        pairs = zip(messages(ours, pattern), messages(theirs, pattern), strict=True)
        for line, golden in pairs:
            assert shape(line) == shape(golden)
            check_numbers(line, golden, tolerances.get(kind, STRICT))


def messages(log: str, pattern: str) -> list[str]:
    """Return the messages of a log that begin so."""
    return [line for line in MESSAGE.findall(log) if re.match(pattern, line)]


def shape(line: str) -> str:
    """Return a line without its numbers, and with one blank for each gap."""
    return re.sub(" +", " ", NUMBER.sub("#", line))


def check_numbers(line: str, golden: str, tolerance: dict[str, float]) -> None:
    """Hold the numbers of a line against those of the legacy's; an error rate may move by a sample."""
    for found, wanted in zip(NUMBER.finditer(line), NUMBER.findall(golden), strict=True):
        if found[0] == wanted:
            continue
        assert f"{float(found[0]):.6g}" == found[0], f"{found[0]} in {line!r}"
        is_rate = re.search(r"error\w*=$", line[: found.start()]) and "error_atol" in tolerance
        atol, rtol = (tolerance["error_atol"], 0.0) if is_rate else (tolerance["atol"], tolerance["rtol"])
        assert abs(float(found[0]) - float(wanted)) <= atol + rtol * abs(float(wanted)), f"{line!r}, not {golden!r}"


def split_merged(content: bytes) -> list[bytes]:
    """Return the parameter files that follow the configuration in a merged model."""
    (length,) = struct.unpack_from("<q", content)
    files, rest = [], content[8 + length :]
    while rest:
        end = HEADER.size + 4 * HEADER.unpack_from(rest)[2]
        files.append(rest[:end])
        rest = rest[end:]
    return files


def keep(case: Path) -> None:
    """Take over the part of a recorded run that is kept here."""
    facts, target = json.loads((case / "case.json").read_text()), KEPT / case.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    short = json.dumps({key: facts[key] for key in FACTS if key in facts}, indent=1)
    (target / "case.json").write_text(short + "\n")
    for name in [*facts["logs"], *facts.get("results", ())]:
        (target / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(case / name, target / name)
    for name in facts.get("merged", ()):
        (target / f"{name}.gz").write_bytes(gzip.compress((case / name).read_bytes(), 9, mtime=0))
    lines = []
    for kept in facts["kept"]:
        for name in parameter_files(case / kept["dir"]):
            path = f"{kept['dir']}/{name}"
            lines.append(f"{json.dumps(path)}: {json.dumps(sample(case / path, exact='exact' in kept))}")
    (target / "parameters.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    for name in sys.argv[2:]:
        keep(Path(sys.argv[1]) / name)
