"""The secret that a driver makes for its workers: readable while they run, and open nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddle_base.runtime.environment import SECRET_FILE, HandedSecret, read_environment
from paddle_base.runtime.errors import ConfigError


def count_open() -> int:
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        try:
            found += "paddle-secret" in str(path.readlink())
        except FileNotFoundError:  # the descriptor of the list itself
            continue
    return found


def test_the_file_is_open_inside_the_block_only() -> None:
    """It was open until the garbage collector ran, although the job had ended."""
    handed = HandedSecret("a-secret-of-the-test")
    assert count_open() == 0 and handed.variables == {}
    with handed:
        variables = dict(handed.variables)
        assert read_environment(variables).secret == "a-secret-of-the-test"
        assert count_open() == 1
    assert count_open() == 0 and handed.variables == {}
    with pytest.raises(ConfigError, match=f"{SECRET_FILE} names"):
        read_environment(variables)


def test_it_is_closed_when_the_job_fails() -> None:
    with pytest.raises(RuntimeError), HandedSecret("a-secret-of-the-test"):
        raise RuntimeError("the job could not begin")
    assert count_open() == 0


def test_a_forked_process_does_not_keep_the_file() -> None:
    """Workers that another job forks meanwhile would inherit it, whatever its flag for a new program."""
    with HandedSecret("one-secret-of-the-test"), HandedSecret("a-secret-of-the-test"):
        child = os.fork()
        if not child:
            os._exit(count_open())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert count_open() == 2


def test_a_forked_process_that_leaves_the_block_closes_no_other_file() -> None:
    with HandedSecret("a-secret-of-the-test") as handed:
        child = os.fork()
        if not child:
            other = os.open("/dev/null", os.O_RDONLY)  # gets the number of the closed file
            handed.__exit__()
            os._exit(0 if os.fstat(other) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert count_open() == 0
