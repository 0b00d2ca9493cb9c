"""Who was ended for memory, and what the limit was: the kernel's accounts in the container, a lost pod's status."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders import pod, podlist

from paddle_cluster.launcher.attempts import AttemptHistory
from paddle_cluster.launcher.cluster.pods import parse_pods
from paddle_cluster.launcher.programs.memory import MemoryAccount, explain_kill
from paddle_cluster.launcher.programs.process import Program

V2 = {"memory.max": "314572800\n", "memory.peak": "314572800\n", "memory.events": "low 0\nmax 9\noom 1\noom_kill 1\n"}
V1 = {
    "memory/memory.limit_in_bytes": "314572800\n",
    "memory/memory.max_usage_in_bytes": "314568704\n",
    "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
}
UNLIMITED_V1 = {**V1, "memory/memory.limit_in_bytes": "9223372036854771712\n"}
OLD_V2 = {name: text for name, text in V2.items() if name != "memory.peak"}  # before Linux 5.19


def make_cgroup(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (V2, MemoryAccount(300 << 20, 300 << 20, 1)),
        ({**V2, "memory.max": "max\n"}, MemoryAccount(None, 300 << 20, 1)),
        (OLD_V2, MemoryAccount(300 << 20, None, 1)),
        (V1, MemoryAccount(300 << 20, (300 << 20) - 4096, 2)),
        (UNLIMITED_V1, MemoryAccount(None, (300 << 20) - 4096, 2)),
        # the root of version 2, and a machine without cgroups, tell nothing
        ({"memory.stat": "anon 1\n"}, None),
        ({}, None),
    ],
    ids=["v2", "v2 without limit", "v2 without peak", "v1", "v1 without limit", "root of v2", "none"],
)
def test_the_kernels_accounts_are_read(tmp_path: Path, files: dict[str, str], expected: MemoryAccount | None) -> None:
    assert MemoryAccount.read(make_cgroup(tmp_path, files)) == expected


BEFORE = MemoryAccount(300 << 20, 100 << 20, 1)
KILLS = {
    "at the limit": (
        BEFORE,
        MemoryAccount(300 << 20, 300 << 20, 2),
        " by the kernel, out of memory: this container's limit is 300Mi, and the peak of all its processes was 300Mi",
    ),
    "the peak is not told": (BEFORE, MemoryAccount(300 << 20, None, 2), "this container's limit is 300Mi: raise"),
    "without a limit": (BEFORE, MemoryAccount(None, 5 << 30, 2), "has no memory limit, and the peak of all its"),
    "by somebody else": (
        BEFORE,
        BEFORE,
        " (memory did not run out: the kernel has counted no new out-of-memory kill in this container)",
    ),
    "nobody knows": (None, None, " (out of memory?)"),
}


@pytest.mark.parametrize(("before", "after", "said"), KILLS.values(), ids=KILLS.keys())
def test_a_kill_is_explained_by_what_has_risen(
    before: MemoryAccount | None, after: MemoryAccount | None, said: str
) -> None:
    assert said in explain_kill(before, after)


def test_the_end_of_a_killed_program_carries_the_explanation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = iter([BEFORE, MemoryAccount(300 << 20, 300 << 20, 2)])
    monkeypatch.setattr(MemoryAccount, "read", lambda *_: next(accounts))
    sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
    program = Program("trainer", sleeper, {}, tmp_path / "train.log", copied=False)
    program.process.send_signal(signal.SIGKILL)
    program.process.wait()
    assert program.describe_end().startswith(
        "trainer was killed by SIGKILL by the kernel, out of memory: this container's"
    )
    program.close()


def test_another_signal_has_nothing_to_do_with_memory(tmp_path: Path) -> None:
    program = Program("trainer", ["/bin/sh", "-c", "kill -11 $$"], {}, tmp_path / "log", copied=False)
    program.process.wait(subprocess.TimeoutExpired("", 10).timeout)
    assert "memory" not in program.describe_end()
    program.close()


LIMITED = {"containers": [{"name": "sidecar"}, {"name": "trainer", "resources": {"limits": {"memory": "300Mi"}}}]}
ENDED = {
    "with its limit": (
        LIMITED,
        "OOMKilled",
        "OOMKilled (exit code 137): the container needed more memory than its limit, 300Mi: raise",
    ),
    "without a limit": (
        {"containers": [{"name": "trainer"}]},
        "OOMKilled",
        "the container has no memory limit, so its node ran out of memory",
    ),
    "not for memory": (LIMITED, "Error", "Failed, Error (exit code 137)"),
}


@pytest.mark.parametrize(("spec", "reason", "said"), ENDED.values(), ids=ENDED.keys())
def test_a_pod_that_ended_for_memory_is_named_with_its_limit(spec: dict, reason: str, said: str) -> None:
    """Cgroup version 2: the kubelet makes the kernel kill the whole container, so that nobody in it can say why."""
    lost = pod("10.0.0.3").phase("Failed")
    terminated = {"exitCode": 137, "reason": reason}
    lost = {
        **lost,
        "spec": {**lost.get("spec", {}), **spec},
        "status": {**lost["status"], "containerStatuses": [{"name": "trainer", "state": {"terminated": terminated}}]},
    }
    assert said in str(parse_pods(podlist(lost))[0])


def test_a_lost_pod_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    memory, pods = AttemptHistory(), parse_pods(podlist(pod("10.0.0.1"), pod("10.0.0.3").phase("Failed")))
    memory.name_lost(pods)
    memory.name_lost(pods)
    assert capsys.readouterr().out.count("this Job has lost paddle-cluster-job-10-0-0-3: Failed") == 1
