"""Against outputs of the legacy program: initial values bit for bit, the rest within float32's noise."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).parents[3]
KEPT = REPOSITORY / "tests" / "golden" / "runs"
SHARED = REPOSITORY.parent / "shared" / "golden" / "run_cases.py"
SEEDS = ["--seed=1", "--thread_local_rand_use_global_seed=true"]
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+\.?\d*(?:e[-+]?\d+)?(?![\w.])")


def read(path):
    return np.frombuffer(path.read_bytes(), "<f4", offset=16)


def lay_out(folder):
    shutil.copytree(KEPT / "configs", folder)
    shutil.copytree(KEPT / "data", folder / "data")
    return folder


def messages(path, pattern):
    found = re.findall(r"^\.*(?:[IWEF]\d{4} |\[\w+ )[^\]]+\] (.*)$", Path(path).read_text(), re.M)
    return [line for line in found if re.match(pattern, line)]


@pytest.mark.parametrize("optimizer", ["Sgd", "Adam", "AdaGrad", "RMSProp"])
def test_initial_values_equal_the_legacys_bit_for_bit(tmp_path, paddle, optimizer):
    job = lay_out(tmp_path / "job")
    status, log = paddle.train(
        job,
        "--config=lr.py",
        f"--config_args=in_order=1,optimizer={optimizer},learning_rate=0",
        "--save_dir=./init",
        "--use_gpu=false",
        "--num_passes=1",
        "--log_period=1000",
        *SEEDS,
    )
    assert status == 0, log
    for name in ("___fc_layer_0__.w0", "___fc_layer_0__.wbias"):
        golden = KEPT / f"trace_lr_{optimizer}" / "init" / "pass-00000" / name
        assert (job / "init" / "pass-00000" / name).read_bytes() == golden.read_bytes()


@pytest.mark.parametrize("optimizer", ["Sgd", "Adam", "AdaGrad", "RMSProp"])
def test_sixteen_batches_give_the_legacys_parameters_and_log(tmp_path, paddle, optimizer):
    job, golden = lay_out(tmp_path / "job"), KEPT / f"trace_lr_{optimizer}"
    status, log = paddle.train(
        job,
        "--config=lr.py",
        f"--config_args=in_order=1,optimizer={optimizer}",
        "--save_dir=./output",
        "--use_gpu=false",
        "--num_passes=1",
        "--log_period=1",
        "--saving_period_by_batches=1",
        "--show_parameter_stats_period=1",
        *SEEDS,
    )
    assert status == 0, log
    for directory in ("pass-00000-001", "pass-00000"):
        for name in ("___fc_layer_0__.w0", "___fc_layer_0__.wbias"):
            np.testing.assert_allclose(
                read(job / "output" / directory / name),
                read(golden / "output" / directory / name),
                rtol=1e-4,
                atol=1e-5,
            )
    for pattern in (
        " Batch=",
        " Pass=",
        r"\S+ +avg_abs_val=",
        "Saving parameters",
        "The input order is",
        "trainer mode",
    ):
        ours, theirs = messages(job / "log", pattern), messages(golden / "train.log", pattern)
        assert [re.sub(" +", " ", NUMBER.sub("#", line)) for line in ours] == [
            re.sub(" +", " ", NUMBER.sub("#", line)) for line in theirs
        ]
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(
                [float(x) for x in NUMBER.findall(a)], [float(x) for x in NUMBER.findall(b)], rtol=1e-3, atol=1e-5
            )


@pytest.mark.skipif(not SHARED.exists(), reason="the golden runs (../shared/golden) are not beside this repository")
@pytest.mark.parametrize(
    "case",
    [
        "trace_lr_Sgd",
        "trace_lr_Momentum",
        "trace_lr_Adam",
        "trace_lr_AdaGrad",
        "trace_lr_RMSProp",
        "qs_lr_local",
        "qs_lr_dist_2ps",
    ],
)
def test_the_golden_case_passes(case, tmp_path):
    command = tmp_path / "paddle"
    command.write_text(f"#!{sys.executable}\nimport sys\nfrom paddle.command import main\nsys.exit(main())\n")
    command.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-B", str(SHARED), str(command), "--case", case],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    if "skipped: needs a network namespace" in done.stdout:
        pytest.skip("this machine allows no network namespace")
    assert done.returncode == 0, done.stdout + done.stderr
