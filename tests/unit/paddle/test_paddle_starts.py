"""What a program imports before it knows what it has to do: nothing that takes long, and that it may not need.

The processors of a machine import for all programs of its pods at the same time, so each module counts three times in
the start of three pods (bench/launch.py).
"""

import subprocess
import sys
from pathlib import Path

from each import each

ROOT = Path(__file__).parents[3]
# 10 ms of the processor and more, with what only they import
HEAVY = (
    "asyncio", "cramjam", "etcd3gw", "google.protobuf", "multiprocessing", "numpy", "PIL", "prometheus_client",
    "requests", "torch", "urllib3", "yaml", "zmq",
)  # fmt: skip
WEB = ("email", "http.client", "ssl")
STARTS = {
    "start_paddle": HEAVY,
    "paddle.fork_server": (*HEAVY, *WEB),
    "paddle_cluster.launcher.cluster.kubernetes": HEAVY,
    "paddle_cluster.launcher.shards.tree": (*HEAVY, *WEB, "logging", "subprocess"),
    "pserver.__main__": (*HEAVY, *WEB, "logging"),
    "pserver.client.probe": (*HEAVY, *WEB, "logging"),
    "trainer.__main__": (*HEAVY, *WEB, "logging"),
}


def find_imported(module: str, heavy: tuple[str, ...]) -> str:
    """The heavy modules that an import of a module brings in a process of its own."""
    code = f"import sys, {module}; print(*(one for one in {heavy} if one in sys.modules))"
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()


@each(("module", "heavy"), STARTS.items(), ids=STARTS)
def test_no_program_imports_what_it_may_not_need(module: str, heavy: tuple[str, ...]) -> None:
    assert find_imported(module, heavy) == ""


def test_a_trainer_imports_the_modules_of_its_own_layers_alone() -> None:
    """All of them are 30 modules, most of which a config never names."""
    code = "import sys, trainer.training.assembly; print(*(one for one in sys.modules if 'trainer.layers.' in one))"
    command = [sys.executable, "-P", "-c", code]
    environ = {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert "trainer.layers.image.pooling" not in done.stdout and "trainer.layers.base" in done.stdout
