"""The job of `make demo`: three pods train the digits; and the proof that the three trained together.

The provider keeps the order of its file here, so that one process can train the union of the pods' batches. The demo
itself, whose provider shuffles, is run by test_docs_commands.py.
"""

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
from three_pods import PODS, ROOT, ends, errors_in_tests, prepare, run_job

PASSES = 10
BATCH = 32


def parameter(path):
    """Read a saved parameter: 16 bytes of header, then float32."""
    content = path.read_bytes()
    version, size, count = struct.unpack_from("<iIQ", content)
    assert (version, size, len(content)) == (0, 4, 16 + 4 * count)
    return np.frombuffer(content, "<f4", offset=16)


def in_file_order(config):
    """Make the example's provider keep the order of its file, so that a union of batches can be written down."""
    provider = config / "digits_provider.py"
    text = provider.read_text()
    ordered = text.replace("cache=CacheType", "should_shuffle=False, cache=CacheType")
    assert ordered != text
    provider.write_text(ordered)


def union(shards):
    """Interleave the shards by batches: batch k of the result is batch k of shard 0, then of 1, then of 2."""
    batches = range(0, max(map(len, shards)), BATCH)
    return [line for start in batches for shard in shards for line in shard[start : start + BATCH]]


def train_alone(job, folder):
    """Train on all three shards in one process, with a batch three times as large, and return its output directory."""
    shutil.copytree(job / "digits", folder)
    shutil.copytree(job / "0" / "data", folder / "data")
    shards = [(job / str(i) / "data" / "train.txt").read_text().splitlines(keepends=True) for i in range(PODS)]
    (folder / "data" / "train.txt").write_text("".join(union(shards)))
    command = [
        Path(sys.executable).with_name("paddle"), "train", "--config=trainer_config.py", "--local=1",
        f"--config_args=batch_size={PODS * BATCH}", f"--num_passes={PASSES}", "--save_dir=output",
    ]  # fmt: skip
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr[-3000:]
    return folder / "output"


def check_trainers(job):
    """Every trainer ends with the same model, with under 6 percent test error on the whole test set."""
    logs = [errors_in_tests(job / "output" / f"node_{node}" / "train.log") for node in range(PODS)]
    assert [samples for samples, _ in logs[0]] == [359] * PASSES
    assert logs[0][-1][1] < 0.06
    assert logs[0] == logs[1] == logs[2]
    assert len({(job / "output" / f"node_{node}" / "server.log").stat().st_ino for node in range(PODS)}) == PODS


def check_passes(job):
    """Every pass is saved, with its marker."""
    for number in range(PASSES):
        saved = job / "output" / f"pass-{number:05d}"
        parameters = {path.name for path in saved.iterdir() if path.name.startswith("_")}
        assert parameters == {f"___fc_layer_{layer}__.{part}" for layer in (0, 1) for part in ("w0", "wbias")}
        assert (saved / "done").exists()


def check_equal(job, alone):
    """The three pods have saved the same parameters as one process on the union of their batches."""
    for number in range(PASSES):
        for saved in sorted((alone / f"pass-{number:05d}").glob("_*")):
            together = parameter(job / "output" / saved.parent.name / saved.name)
            single = parameter(saved)
            near_zero = 1e-6 * float(np.abs(single).max())
            name = f"{saved.parent.name}/{saved.name}"
            np.testing.assert_allclose(together, single, rtol=1e-5, atol=near_zero, err_msg=name)


def test_three_pods_train_the_digits_as_one_process_does_on_the_union_of_their_batches(tmp_path):
    job = prepare(tmp_path)
    in_file_order(job / "digits")
    result = run_job(tmp_path, deadline=100)
    assert ends(result) == [0] * PODS
    assert result.outcome.is_complete
    check_trainers(job)
    check_passes(job)
    check_equal(job, train_alone(job, tmp_path / "alone"))


def test_the_union_of_batches_puts_the_trainers_side_by_side():
    shards = [[f"{name}{i}" for i in range(BATCH + more)] for name, more in (("a", 2), ("b", 1), ("c", 0))]
    lines = union(shards)
    assert lines[BATCH - 1 : BATCH + 1] == [f"a{BATCH - 1}", "b0"]
    assert lines[3 * BATCH :] == [f"a{BATCH}", f"a{BATCH + 1}", f"b{BATCH}"]
    assert ROOT.joinpath("examples", "digits", "trainer_config.py").read_text().count(f"int, {BATCH})") == 1
