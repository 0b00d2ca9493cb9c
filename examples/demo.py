"""`make demo` runs the digits job with three pods on this machine, from the data job to the test error.

localcluster runs the unchanged manifests for a cluster, k8s/data-job.yaml and k8s/job.yaml.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VOLUME = ROOT / "demo" / "jobpath"
OUTPUT = VOLUME / "paddle-cluster-job" / "output"
HIGHEST_ERROR = 0.06


def run_job(manifest: str, *options: str) -> int:
    """Run a Job with the demo's volume and return the exit status.

    A Ctrl-C also reaches localcluster, which then stops the pods; this function waits until localcluster has ended.
    """
    logs = ["--logs", str(ROOT / "demo" / "logs")]
    command = [
        sys.executable,
        "-m",
        "paddle",
        "localcluster",
        "run",
        f"k8s/{manifest}",
        "--volume",
        f"mfs={VOLUME}",
        *logs,
        *options,
    ]
    print("$", "paddle localcluster run", *command[5:], flush=True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # localcluster inherits it
    with subprocess.Popen(command, cwd=ROOT) as job:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return job.wait()


def read_test_errors(log: Path) -> list[float]:
    """Return the test error after each pass, which a train.log contains."""
    pattern = r"Test samples=.* classification_error_evaluator=(\S+)"
    return [float(error) for error in re.findall(pattern, log.read_text(encoding="utf-8"))]


def main() -> int:
    """Run both Jobs, print the results, and return 0 if all pods succeeded and the error is low enough."""
    shutil.rmtree(ROOT / "demo", ignore_errors=True)
    status = run_job("data-job.yaml") or run_job("job.yaml", "--timeout", "170")
    if status == -signal.SIGINT:
        print("demo: interrupted", flush=True)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    if status:
        print(f"demo: the Job failed with status {status}; its logs: {OUTPUT}, {ROOT / 'demo' / 'logs'}")
        return status
    errors = read_test_errors(OUTPUT / "node_0" / "train.log")
    print(f"demo: test error after each pass: {', '.join(f'{100 * error:.2f} %' for error in errors)}")
    print(f"demo: final test error {100 * errors[-1]:.2f} %, trained by three pods")
    print("demo: the report of the job, which any browser shows:", OUTPUT / "report.html")
    print("demo: the logs and the parameters of every pass are in", OUTPUT)
    for path in sorted([*OUTPUT.glob("node_*/*.log"), *OUTPUT.glob("pass-*/done")]):
        print("   ", path.relative_to(OUTPUT))
    if errors[-1] >= HIGHEST_ERROR:
        print(f"demo: the error should be below {100 * HIGHEST_ERROR:g} %", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a Ctrl-C before the first Job starts prints no traceback
    sys.exit(main())
