"""The environment of a pod: fault S23 of the tutorial's launcher."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from builders import pod_environment

import start_paddle
from paddle_base.runtime.errors import ConfigError
from paddle_cluster.launcher.settings import VARIABLES, LauncherConfig, say_defaults, warn_without_secret

REQUIRED = [variable.name for variable in VARIABLES if variable.default is None]

MALFORMED = {
    "JOB_NAME": "Paddle_Job", "JOB_PATH": "jobpath", "JOB_NAMESPACE": "a b", "CONF_PADDLE_NIC": "eth 0",
    "CONF_PADDLE_PORT": "70000", "CONF_PADDLE_PORTS_NUM": "0", "CONF_PADDLE_PORTS_NUM_SPARSE": "-1",
    "CONF_PADDLE_GRADIENT_NUM": "three", "CONF_PADDLE_PSERVER_NUM": "-1",
    "CONF_PADDLE_PSERVER_APART": "yes", "CONF_PADDLE_POD_SERVICE": "paddle.pods",
    "RESTARTS": "-1", "REJOIN_TIMEOUT": "1 h",
    "KUBERNETES_SERVICE_PORT_HTTPS": "https", "POD_IP": "me",
    "START_TIMEOUT": "soon", "STOP_TIMEOUT": "0", "RESUME": "yes", "ENTRY": " ", "MASTER_PORT": "0",
}  # fmt: skip


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not set"):
        LauncherConfig.from_env(pod_environment(**{name: None}))


@pytest.mark.parametrize("name", [*REQUIRED, *(name for name in MALFORMED if name.startswith("CONF_PADDLE_"))])
def test_S23_the_text_None_is_not_a_value(name: str) -> None:
    """The original passed str(None) on, and the programs complained of an illegal value 'None' for some flag."""
    with pytest.raises(ConfigError, match=f"{name} is 'None'"):
        LauncherConfig.from_env(pod_environment(**{name: "None"}))


@pytest.mark.parametrize(("name", "text"), MALFORMED.items(), ids=MALFORMED.keys())
def test_a_malformed_variable_is_named_with_its_value(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is '{text}', expected"):
        LauncherConfig.from_env(pod_environment(**{name: text}))


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ConfigError) as error:
        LauncherConfig.from_env({"CONF_PADDLE_PORT": "x", "POD_IP": "10.0.0.1", "SERVICE_ACCOUNT_DIR": "/nonexistent"})
    assert str(error.value).count("\n") == len(REQUIRED) + 2  # the port; the namespace without an account


def test_ports_past_the_last_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="the last port is above 65535"):
        LauncherConfig.from_env(pod_environment(CONF_PADDLE_PORT="65533"))


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({}, "CONF_PADDLE_PSERVER_NUM"),
        ({"CONF_PADDLE_GRADIENT_NUM": None, "CONF_PADDLE_PSERVER_NUM": "2"}, "CONF_PADDLE_GRADIENT_NUM"),
        ({"CONF_PADDLE_GRADIENT_NUM": None}, "CONF_PADDLE_GRADIENT_NUM and CONF_PADDLE_PSERVER_NUM"),
    ],
)
def test_pservers_apart_need_both_numbers(changed: dict[str, str | None], missing: str) -> None:
    with pytest.raises(ConfigError, match=f"CONF_PADDLE_PSERVER_APART is 1, but {missing} is not set"):
        LauncherConfig.from_env(pod_environment(CONF_PADDLE_PSERVER_APART="1", **changed))


def test_the_namespace_defaults_to_the_service_accounts(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("team-a\n")
    config = LauncherConfig.from_env(pod_environment(JOB_NAMESPACE=None, SERVICE_ACCOUNT_DIR=str(tmp_path)))
    assert config.job_namespace == "team-a"


def test_the_secret_is_not_in_the_configs_text() -> None:
    assert "hidden" not in repr(LauncherConfig.from_env(pod_environment(PADDLE_SECRET="hidden")))


@pytest.mark.parametrize("secret", [{}, {"PADDLE_SECRET_FILE": "absent"}, {"PADDLE_SECRET": ""}], ids=str)
def test_without_a_secret_there_is_one_warning(
    secret: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "PADDLE_SECRET_FILE" in secret:
        secret |= {"PADDLE_SECRET_FILE": str(tmp_path / "absent"), "PADDLE_WITHOUT_SECRET": "1"}
    warn_without_secret(LauncherConfig.from_env(pod_environment(**secret)))
    said = capsys.readouterr().out
    assert said.count("\n") == said.count("WARNING") == 1 and "anyone who reaches ports 7164 to 7167" in said
    assert secret.get("PADDLE_SECRET_FILE", "") in said


def test_a_pod_without_the_secret_it_names_ends(tmp_path: Path) -> None:
    """Everyone who reached a port could take part."""
    secret = {"PADDLE_SECRET_FILE": str(tmp_path / "absent")}
    with pytest.raises(ConfigError, match=r"absent, which does not exist.* run kubectl create secret generic"):
        warn_without_secret(LauncherConfig.from_env(pod_environment(**secret)))


def test_with_a_secret_there_is_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "secret"
    file.write_text("hidden\n")
    for secret in ({"PADDLE_SECRET": "hidden"}, {"PADDLE_SECRET_FILE": str(file)}):
        warn_without_secret(LauncherConfig.from_env(pod_environment(**secret)))
    assert capsys.readouterr().out == ""


def test_importing_touches_neither_environment_nor_network() -> None:
    """The original read the environment at import, so that nothing in it could be tested."""
    code = (
        "import os, socket, requests; os.environ.clear(); "
        "socket.getaddrinfo = socket.gethostbyname = socket.create_connection = None; import start_paddle"
    )
    root = Path(start_paddle.__file__).parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, timeout=60, check=False).returncode == 0


def test_the_launcher_imports_the_base_and_the_standard_library_only() -> None:
    """It starts our programs and never imports them; of ours it has what all programs share."""
    script = Path(start_paddle.__file__)
    nodes = [
        node
        for path in (script, *script.parent.glob("paddle_cluster/launcher/**/*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
    ]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    assert {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) == {
        "paddle_base",
        "paddle_cluster",
    }


def test_help_documents_every_variable(capsys: pytest.CaptureFixture[str]) -> None:
    assert start_paddle.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(variable.name in shown for variable in VARIABLES)


def test_a_bug_of_ours_is_70_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own status for it is 1, which is in no table."""
    monkeypatch.setattr(start_paddle.Stop, "of_process", start_paddle.Stop)
    monkeypatch.setattr(start_paddle, "launch", lambda cmd_args, stop, secrets: cmd_args["no list"])
    assert start_paddle.main([]) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("digits", ["9" * 5000, "0" * 5000], ids=["nines", "zeros"])
def test_a_number_that_is_too_long_for_python_is_described_as_any_other(digits: str) -> None:
    """The message contained Python's text about the limit of digits."""
    port = next(one for one in VARIABLES if one.name == "CONF_PADDLE_PORT")
    with pytest.raises(ValueError, match="expected a whole number from 1 to 65535"):
        port.check(digits)


def test_the_defaults_of_the_tutorials_shorter_manifests_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    say_defaults({"CONF_PADDLE_PORT": "7164", "CONF_PADDLE_NIC": ""})
    taken = "CONF_PADDLE_NIC=eth0 CONF_PADDLE_PORTS_NUM=2 CONF_PADDLE_PORTS_NUM_SPARSE=2"
    assert capsys.readouterr().out.endswith(f"not set in the pod's env, so by default: {taken}\n")
    say_defaults(pod_environment())
    assert capsys.readouterr().out == ""
