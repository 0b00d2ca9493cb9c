"""Measures the test error of a saved model with the command that a user would type."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from chaos.tasks.plan import ElasticTrial

ERROR = re.compile(r" samples=\d+ AvgCost=\S+ Eval: classification_error_evaluator=(\S+)")
TEST_S = 120.0


def measure_error(work: Path, model: Path, trial: ElasticTrial) -> float | None:
    """Return the fraction of test samples that a model classifies wrongly; None if it cannot be tested.

    Args: work: directory with config, provider and data.  model: the directory of a saved pass.
    """
    command = [Path(sys.executable).with_name("paddle"), "train", "--job=test", "--config=tasks_config.py"]
    flags = [f"--config_args=mode={trial.mode},data={trial.data}", f"--init_model_path={model}"]
    done = subprocess.run(
        [*command, *flags], cwd=work, capture_output=True, text=True, timeout=TEST_S, check=False, env=dict(os.environ)
    )
    (model.parent / "test.log").write_text(done.stdout + done.stderr)
    found = ERROR.findall(done.stdout + done.stderr)
    return float(found[-1]) if found and done.returncode == 0 else None
