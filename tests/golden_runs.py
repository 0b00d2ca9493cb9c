"""Compares runs of this project with extracts of recorded runs of the legacy program.

.venv/bin/python tests/golden_runs.py ../shared/golden/runs CASE...

stores the extracts of complete recorded runs. Recipe, logs and results are stored unchanged. Of each parameter file it
stores a few values, the length, and a digest or the mean size of all values.
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
VALUES = 64  # number of values stored of each parameter file, evenly spread
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
    """Copy the configs and the data of a case to the places where its commands expect them; return the folder."""
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
    """Return the float32 values of a parameter file; check that its header is that of the legacy program."""
    return read_values(path.read_bytes())


def read_values(content: bytes) -> np.ndarray:
    """Return the float32 values in the bytes of a parameter file."""
    assert HEADER.unpack_from(content) == (0, 4, (len(content) - HEADER.size) // 4)
    return np.frombuffer(content, "<f4", offset=HEADER.size)


def parameter_files(folder: Path) -> list[str]:
    """Return the names of the parameter files of a pass directory."""
    return sorted(path.name for path in folder.glob("_*"))


def sample(path: Path, *, exact: bool) -> dict[str, Any]:
    """Return the extract of a parameter file; it has a digest if bits are compared, else the mean size of values."""
    values = read_parameter(path)
    whole = {"sha256": digest(path)} if exact else {"mean": mean_size(values), "rms": root_mean_square(values)}
    some = [float(f"{value:.9g}") for value in values[:: stride(values.size)]]
    return {"count": values.size, **whole, "values": some}


def stride(count: int) -> int:
    """Return the distance between stored values; it is odd, so that they come from all columns of a matrix."""
    return count // VALUES | 1


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def mean_size(values: np.ndarray) -> float:
    return float(np.mean(np.abs(values), dtype=np.float64))


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values.astype(np.float64) ** 2)))


def check_parameter(path: Path, golden: dict[str, Any], tolerance: dict[str, float]) -> None:
    """Compare a parameter file with the extract of the legacy's, bit for bit or within the tolerance."""
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
    """Compare the log lines that tools read with the legacy's: equal text and format, values within the tolerance."""
    for kind, pattern in KINDS.items():
        pairs = zip(messages(ours, pattern), messages(theirs, pattern), strict=True)
        for line, golden in pairs:
            assert shape(line) == shape(golden)
            check_numbers(line, golden, tolerances.get(kind, STRICT))


def messages(log: str, pattern: str) -> list[str]:
    """Return the messages of a log that begin with a text."""
    return [line for line in MESSAGE.findall(log) if re.match(pattern, line)]


def shape(line: str) -> str:
    """Return a line without its numbers, and with single blanks."""
    return re.sub(" +", " ", NUMBER.sub("#", line))


def check_numbers(line: str, golden: str, tolerance: dict[str, float]) -> None:
    """Compare the numbers of a line with those of the legacy's; an error rate may differ by one sample."""
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
    """Store the extract of a recorded run."""
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
