"""Misspelt variables of a pod."""

import os

import pytest
from docpages.options import PROGRAMS, data_job_rows, start_sh_rows

from paddle_cluster.launcher.settings import warn_of_misspelt
from paddle_cluster.launcher.variables import KNOWN, find_misspelt


def test_a_misspelt_variable_is_named_with_the_variable_that_it_resembles(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_misspelt(["PATH", "NUM_PASES", "CONF_PADDLE_NICS", "REJOIN_TIMOUT", "NUM_PASSES"])
    lines = [line.partition("start_paddle: ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "WARNING: CONF_PADDLE_NICS is set, but is no variable of the launcher: did you mean CONF_PADDLE_NIC?",
        "WARNING: NUM_PASES is set, but is no variable of the launcher: did you mean NUM_PASSES?",
        "WARNING: REJOIN_TIMOUT is set, but is no variable of the launcher: did you mean REJOIN_TIMEOUT?",
    ]


def test_no_variable_of_the_project_and_of_this_machine_looks_misspelt() -> None:
    documented = {*start_sh_rows(), *PROGRAMS, *data_job_rows()}
    services = ["KUBERNETES_PORT_443_TCP_ADDR", "PADDLE_MASTER_SERVICE_HOST", "PADDLE_CLUSTER_JOB_PORT", "POD_IPS"]
    assert find_misspelt([*documented, *services, *os.environ]) == {}


def test_every_variable_of_a_job_in_start_sh_is_known() -> None:
    roles = ("roles: ", "pserver: ", "trainer: ", "driver: ", "master, driver: ")
    of_jobs = {
        name for name, (_, meaning) in start_sh_rows().items() if not meaning.startswith(roles) and name != "OUTPUT"
    }
    assert of_jobs <= KNOWN
