"""Misspelt variables of a pod."""

import os

import pytest
from docpages.options import PROGRAMS, data_job_rows, start_sh_rows

from paddle_base.runtime.environment import find_misspelt
from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.network.redaction import Secrets
from paddle_cluster.launcher.programs.process import Stop
from paddle_cluster.launcher.roles.__main__ import run_role
from paddle_cluster.launcher.roles.plan import KNOWN_TO_ROLES, ROLES
from paddle_cluster.launcher.settings import KNOWN, warn_of_misspelt


def test_a_misspelt_variable_is_named_with_the_variable_that_it_resembles(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_misspelt(["PATH", "NUM_PASES", "CONF_PADDLE_NICS", "REJOIN_TIMOUT", "TRIANER_COUNT", "NUM_PASSES"])
    lines = [line.partition("start_paddle: ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "WARNING: CONF_PADDLE_NICS is set, but is no variable of the launcher: did you mean CONF_PADDLE_NIC?",
        "WARNING: NUM_PASES is set, but is no variable of the launcher: did you mean NUM_PASSES?",
        "WARNING: REJOIN_TIMOUT is set, but is no variable of the launcher: did you mean REJOIN_TIMEOUT?",
        "WARNING: TRIANER_COUNT is set, but is no variable of the launcher: did you mean TRAINER_COUNT?",
    ]


def test_no_variable_of_the_project_and_of_this_machine_looks_misspelt() -> None:
    documented = {*start_sh_rows(), *PROGRAMS, *data_job_rows()}
    services = ["KUBERNETES_PORT_443_TCP_ADDR", "PADDLE_MASTER_SERVICE_HOST", "PADDLE_CLUSTER_JOB_PORT", "POD_IPS"]
    assert find_misspelt([*documented, *services, *os.environ], KNOWN) == {}


@pytest.mark.parametrize("role", ROLES)
def test_every_role_names_a_misspelt_variable(
    role: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHECKPOINT_INTERVALL", "60s")
    monkeypatch.setenv("AT_END", "now")  # the role ends before its program begins
    with pytest.raises(ConfigError):
        run_role([role], Stop(), Secrets())
    line = f"WARNING: CHECKPOINT_INTERVALL is set, but is no variable of the role {role}: did you mean "
    assert capsys.readouterr().out.count(f"{line}CHECKPOINT_INTERVAL?\n") == 1


def test_the_flag_of_a_trainer_in_a_variable_does_not_look_misspelt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDLE_INIT_TRAINER_UID", "a")  # PADDLE_INIT_TRAINER_ID is a variable, too
    monkeypatch.setenv("AT_END", "now")
    with pytest.raises(ConfigError):
        run_role(["trainer"], Stop(), Secrets())
    assert "did you mean" not in capsys.readouterr().out


def test_no_variable_of_the_project_looks_misspelt_to_a_role() -> None:
    documented = {*start_sh_rows(), *PROGRAMS, *data_job_rows()}
    services = ["ETCD_SERVICE_HOST", "ETCD_PORT_2379_TCP_ADDR", "MASTER_SERVICE_PORT"]
    assert find_misspelt([*documented, *services, *os.environ], KNOWN_TO_ROLES) == {}


def test_every_variable_of_start_sh_is_known_to_roles() -> None:
    assert {name for name in start_sh_rows() if name != "PADDLE_INIT_X"} <= KNOWN_TO_ROLES


def test_every_variable_of_a_job_in_start_sh_is_known() -> None:
    roles = ("roles: ", "pserver: ", "trainer: ", "driver: ", "master, driver: ")
    of_jobs = {
        name for name, (_, meaning) in start_sh_rows().items() if not meaning.startswith(roles) and name != "OUTPUT"
    }
    assert of_jobs <= KNOWN
