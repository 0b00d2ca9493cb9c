"""A pod for start.sh, with a stand-in for the launcher that records what it was started with."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

START_SH = Path(__file__).parents[3] / "start.sh"
RECORDER = """
import json, os, sys
names = ("HOME", "TMPDIR", "JOB_NAMESPACE", "WORK_DIR", "TRAIN_CONFIG_DIR", "TRAINER_PACKAGE")
env = {name: value for name, value in os.environ.items() if name in names or name.startswith("CONF_PADDLE_")}
print("RECORD " + json.dumps({"argv": sys.argv[1:], "cwd": os.getcwd(), "pid": os.getpid(), "env": env}))
"""


class Pod:
    """A directory with the two scripts, a volume, a work directory and a service account."""

    def __init__(self, root: Path):
        self.root = root
        self.volume, self.work, self.account = root / "volume", root / "work", root / "account"
        self.config = self.volume / "job/digits"
        for directory in (root / "bin", self.work, self.account, self.config):
            directory.mkdir(parents=True)
        shutil.copy(START_SH, root / "bin")
        (root / "bin/start_paddle.py").write_text(RECORDER)
        (self.account / "namespace").write_text("science\n")
        (self.config / "trainer_config.py").write_text("settings()\n")
        self.env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(root),
            "JOB_PATH": str(self.volume),
            "JOB_NAME": "job",
            "TRAIN_CONFIG_DIR": "digits",
            "CONF_PADDLE_NIC": "lo",
            "CONF_PADDLE_PORT": "7164",
            "CONF_PADDLE_PORTS_NUM": "2",
            "CONF_PADDLE_PORTS_NUM_SPARSE": "3",
            "CONF_PADDLE_GRADIENT_NUM": "3",
            "WORK_DIR": str(self.work),
            "SERVICE_ACCOUNT_DIR": str(self.account),
        }

    def start(self, *arguments: str, **env: str | None) -> subprocess.CompletedProcess[str]:
        merged = {name: value for name, value in {**self.env, **env}.items() if value is not None}
        command = [str(self.root / "bin/start.sh"), *arguments]
        return subprocess.run(command, env=merged, capture_output=True, text=True, timeout=30, cwd="/")

    def record(self, *arguments: str, **env: str | None) -> dict:
        """Start, which must succeed, and return what the launcher was started with."""
        done = self.start(*arguments, **env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.split("RECORD ")[1])
