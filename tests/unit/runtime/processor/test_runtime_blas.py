"""Threads of numpy's products: --trainer_count=2 beside OMP_NUM_THREADS=2 took four on two processors (issue E 25)."""

import os
import subprocess
import sys

import pytest
from each import each

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.processor import blas
from paddle_base.runtime.processor.blas import NAMES, OWN, limit_threads


def limited(environ, users, cores, monkeypatch):
    monkeypatch.setattr(blas, "count_cores", lambda: cores)
    line = limit_threads(environ, users, f"--trainer_count={users}")
    return [int(environ[name]) for name in NAMES], line


@each(
    ("asked", "users", "cores", "threads"),
    [
        ({}, 1, 8, [1, 1, 1]),
        ({}, 2, 2, [1, 1, 1]),
        ({"OMP_NUM_THREADS": "2"}, 2, 2, [1, 1, 1]),
        ({"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}, 2, 2, [1, 1, 1]),
        ({"OPENBLAS_NUM_THREADS": "2"}, 1, 2, [2, 1, 1]),
        ({"OPENBLAS_NUM_THREADS": "64"}, 2, 8, [4, 1, 1]),
        ({"OPENBLAS_NUM_THREADS": "64"}, 3, 8, [2, 1, 1]),
        ({"OPENBLAS_NUM_THREADS": "2"}, 16, 8, [1, 1, 1]),
        ({"OMP_NUM_THREADS": "4,2"}, 1, 3, [1, 3, 1]),
        ({"OPENBLAS_NUM_THREADS": "2"}, 1, 1.5, [1, 1, 1]),
        ({"OPENBLAS_NUM_THREADS": "4"}, 1, 2.5, [2, 1, 1]),
        ({"OPENBLAS_NUM_THREADS": "0", "OMP_NUM_THREADS": "many", "MKL_NUM_THREADS": "-2"}, 1, 4, [1, 1, 1]),
        ({"OPENBLAS_NUM_THREADS": "9" * 5000, "OMP_NUM_THREADS": "0" * 5000}, 1, 4, [1, 1, 1]),
    ],
)
def test_products_get_one_thread_or_what_is_asked_up_to_the_processors_of_each_user(
    asked, users, cores, threads, monkeypatch
):
    assert limited(dict(asked), users, cores, monkeypatch)[0] == threads


def test_one_line_says_what_was_cut_and_what_would_say_otherwise(monkeypatch):
    _, line = limited({"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "3"}, 2, 2, monkeypatch)
    assert line == (
        "each matrix product gets 1 thread in spite of OPENBLAS_NUM_THREADS=2 and OMP_NUM_THREADS=3, because of "
        "--trainer_count=2 and 2 processors; set PADDLE_BLAS_THREADS to use another number"
    )
    assert limited({"OPENBLAS_NUM_THREADS": "1"}, 2, 2, monkeypatch)[1] == ""


def test_the_own_variable_decides_alone(monkeypatch):
    threads, line = limited({OWN: "3", "OPENBLAS_NUM_THREADS": "7"}, 2, 2, monkeypatch)
    assert threads == [3, 3, 3]
    assert line == "PADDLE_BLAS_THREADS=3: each matrix product gets 3 threads, with --trainer_count=2 and 2 processors"


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "99999", "1,2"])
def test_the_own_variable_must_be_a_number(text):
    with pytest.raises(ConfigError, match=f"PADDLE_BLAS_THREADS is '{text}'; it must be a number of threads"):
        limit_threads({OWN: text}, 1, "")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@each(
    ("files", "own", "quotas"),
    [
        ({}, "", []),
        ({"cpu.max": "max 100000\n"}, "0::/\n", []),
        ({"cpu.max": "150000 100000\n"}, "0::/\n", [1.5]),
        ({"a/cpu.max": "max 100000", "a/b/cpu.max": "200000 100000"}, "0::/a/b\n", [2.0]),
        ({"a/cpu.max": "100000 100000", "a/b/cpu.max": "200000 100000"}, "0::/a/b\n", [1.0, 2.0]),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "4:cpu,cpuacct:/\n", []),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, "", [0.5]),
        (
            {"cpu,cpuacct/pod/cpu.cfs_quota_us": "300000", "cpu,cpuacct/pod/cpu.cfs_period_us": "100000"},
            "4:cpu,cpuacct:/pod\n3:memory:/other\n",
            [3.0],
        ),
        ({"cpu.max": "nonsense"}, "0::/../..\nnonsense\n", []),
    ],
)
def test_the_quota_of_a_cgroup_counts(files, own, quotas, tmp_path):
    for name, text in files.items():
        write(tmp_path / "cgroup" / name, text)
    (tmp_path / "own").write_text(own)
    assert sorted(set(blas._quotas(tmp_path / "cgroup", tmp_path / "own"))) == quotas


def test_the_processors_are_those_of_the_affinity(monkeypatch):
    monkeypatch.setattr(blas, "_quotas", lambda *_: [])
    assert blas.count_cores() == len(os.sched_getaffinity(0))
    monkeypatch.setattr(blas, "_quotas", lambda *_: [0.5, 99.0])
    assert blas.count_cores() == 0.5


def test_the_module_imports_no_numpy():
    code = "import paddle_base.runtime.processor.blas, trainer.__main__, sys; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("own", ["9" * 5000, "0" * 5000, "١"], ids=["nines", "zeros", "arabic"])
def test_a_number_that_no_library_reads_is_refused(own):
    """Python reads no number of more than 4300 digits, and reads digits of all scripts."""
    with pytest.raises(ConfigError, match=f"{OWN} is .*; it must be a number of threads from 1 to 1024"):
        limit_threads({OWN: own}, 1, "--trainer_count=1")


def test_products_of_a_numpy_that_is_there_get_the_number_of_threads():
    """A program imports numpy before paddle.v2: a convolution over words took eight times as long on two processors."""
    program = (
        "import ctypes, os, re, numpy\n"
        "from paddle_base.runtime.processor import blas\n"
        "blas.limit_loaded(dict.fromkeys(blas.NAMES, '1'))\n"
        "lines = [one for one in open('/proc/self/maps') if 'openblas' in one]\n"
        "library = ctypes.CDLL(lines[0].split()[-1])\n"
        "names = [one.replace('_set_', '_get_') for one in blas.SETTERS]\n"
        "print([getattr(library, name)() for name in names if hasattr(library, name)])\n"
    )
    environ = os.environ | dict.fromkeys(NAMES, "2")
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[1]"
