"""`paddle_cluster.elastic.launch.run`: a function on the workers; Horovod's list K, if it needs no other system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import elastic_functions
import numpy as np
import pytest

from paddle_base.runtime.errors import UsageError
from paddle_cluster.elastic import launch
from paddle_cluster.elastic.membership.results import JobFailedError

TWO_NAMES = "localhost:2,127.0.0.1:2"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", "60")


def test_k_r1_interactive_happy_run_elastic() -> None:
    numbers = {"num_proc": 2, "min_num_proc": 2, "max_num_proc": 2}
    assert launch.run(elastic_functions.place, hosts=TWO_NAMES, use_gloo=True, **numbers) == [(0, 2), (1, 2)]


def test_k_stateless_function_gives_results_by_rank_and_output_with_prefixes_and_files(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    values = np.arange(3.0)
    more = {"num_proc": 2, "min_num_proc": 2, "hosts": "localhost:2", "output_filename": str(tmp_path)}
    found = launch.run(elastic_functions.add, (values,), {"more": 0.5}, **more)
    assert [one["rank"] for one in found] == [0, 1]
    for one in found:
        np.testing.assert_array_equal(one["sum"], values + 0.5)
    output, errors = capfd.readouterr()
    for rank in (0, 1):
        assert f"[{rank}]<stdout>:adds {rank}\n" in output
        assert f"[{rank}]<stderr>:warns {rank}\n" in errors
        assert (tmp_path / f"rank.{rank}/stdout").read_text() == f"adds {rank}\n"
        assert (tmp_path / f"rank.{rank}/stderr").read_text() == f"warns {rank}\n"


@pytest.mark.parametrize("kills", [[], [2, 4, 6]], ids=["happy", "three failures"])
def test_k_fault_tolerant_run_has_the_same_results(tmp_path: Path, kills: list[int]) -> None:
    hosts = "localhost:1,127.0.0.1:1,127.0.0.2:1"  # the last one fails twice, and is blacklisted
    more = {"num_proc": 3, "min_num_proc": 1, "hosts": hosts, "failures_per_host": 2}
    found = launch.run(elastic_functions.train, (str(tmp_path), 8, kills), **more)
    assert len(list(tmp_path.glob("killed-*"))) == len(kills)
    assert found[0] == {"weight": 8.0, "batch": 8}
    assert all(one == found[0] for one in found)


def test_k_fault_tolerant_run_fails_with_one_failure_too_many(tmp_path: Path) -> None:
    hosts = "localhost:1,127.0.0.1:1,127.0.0.2:1"
    with pytest.raises(JobFailedError, match="as often as --reset-limit=1 allows"):
        launch.run(
            elastic_functions.train,
            (str(tmp_path), 8, [2, 4, 6]),
            num_proc=3,
            min_num_proc=1,
            hosts=hosts,
            reset_limit=1,
        )
    assert len(list(tmp_path.glob("killed-*"))) == 2


@pytest.mark.parametrize("func", [lambda: 0, len, elastic_functions.Path(".").exists])
def test_a_function_without_a_name_of_its_own_is_refused_for_another_python(func) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match="a function is sent by its name"):
        launch.run(func, num_proc=1, executable=sys.executable)


def test_a_function_goes_by_its_name_to_another_python() -> None:
    values = np.arange(3.0)
    (found,) = launch.run(elastic_functions.add, (values,), num_proc=1, executable=sys.executable)
    np.testing.assert_array_equal(found["sum"], values)


def test_arguments_that_mean_nothing_here_are_refused() -> None:
    with pytest.raises(UsageError, match="use_mpi"):
        launch.run(elastic_functions.place, num_proc=1, use_mpi=True)
    with pytest.raises(UsageError, match="is a PosixPath"):
        launch.run(elastic_functions.add, (Path("x"),), num_proc=1, executable=sys.executable)
    with pytest.raises(UsageError, match="got str, which is no function"):
        launch.run("train", num_proc=1)  # type: ignore[arg-type]


def run_script(directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    (directory / "job.py").write_text(text)
    return subprocess.run(
        [sys.executable, "job.py"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


SCRIPT = """
from paddle_cluster.elastic import launch

def double(number):
    return 2 * number

{guard}
print(launch.run(double, (21,), num_proc=2, hosts="localhost:2"{more}))
"""
NAMED = ", executable=__import__('sys').executable"


@pytest.mark.parametrize("more", ["", NAMED], ids=["forked", "by its name"])
def test_the_function_may_be_in_the_script_itself(tmp_path: Path, more: str) -> None:
    text = SCRIPT.format(guard='if __name__ == "__main__":', more=more).replace("\nprint", "\n    print")
    ended = run_script(tmp_path, text)
    assert (ended.returncode, ended.stdout) == (0, "[42, 42]\n"), ended.stderr


def test_a_script_that_calls_run_when_it_is_imported_is_told_so(tmp_path: Path) -> None:
    ended = run_script(tmp_path, SCRIPT.format(guard="", more=NAMED))
    assert ended.returncode == 1
    assert 'call run() below `if __name__ == "__main__":`' in ended.stderr
