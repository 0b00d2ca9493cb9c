"""Flags and command lines: faults S7, S22, S25, S27, S28 of the tutorial's launcher."""

import pytest
from builders import pod, pod_environment, podlist

import start_paddle
from paddle_base.runtime.errors import ConfigError, UsageError
from paddle_cluster.launcher.command_lines import (
    ProgramCommand,
    build_probe_command,
    build_pserver_command,
    build_trainer_command,
    print_plan,
    wanted_passes,
    whole_number,
)
from paddle_cluster.launcher.settings import LauncherConfig
from trainer.flags import FLAGS

IDS = start_paddle.getIdMap(podlist(pod("10.0.0.2"), pod("10.0.0.1"), pod("10.0.0.3")))
CONFIG = LauncherConfig.from_env(pod_environment())

REFINED = {
    "an equals sign": (["--log_period=50"], ["log_period", "50"]),
    "two arguments": (["--log_period", "50"], ["log_period", "50"]),
    "a second equals sign": (["--config_args=a=1,b=2"], ["config_args", "a=1,b=2"]),
    "S22: a flag without value does not shift the pairs behind it": (
        ["--use_gpu", "--num_passes=3"],
        ["use_gpu", "true", "num_passes", "3"],
    ),
    "S22: a value with blanks stays whole": (["--comment=two words"], ["comment", "two words"]),
    "a negated flag is false": (["--nolocal", "--seed=2"], ["local", "false", "seed", "2"]),
    "a negative number is a value": (["--test_pass", "-1"], ["test_pass", "-1"]),
    "an empty value": (["--save_dir="], ["save_dir", ""]),
    "one dash": (["-seed=2"], ["seed", "2"]),
    "nothing": ([], []),
}


@pytest.mark.parametrize(("arguments", "refined"), REFINED.values(), ids=REFINED.keys())
def test_arguments_become_pairs(arguments: list[str], refined: list[str]) -> None:
    """The original replaced the first '=' by a blank, split at all blanks and paired what came out."""
    assert start_paddle.refine_unknown_args(arguments) == refined


@pytest.mark.parametrize("arguments", [["train"], ["--num_passes=3", "3"], ["--=3"], ["--9=3"]], ids=str)
def test_what_is_no_flag_is_refused(arguments: list[str]) -> None:
    with pytest.raises(UsageError, match="Unknown commandline argument: "):
        start_paddle.refine_unknown_args(arguments)


def test_the_trainer_command_line_is_the_tutorials() -> None:
    passed = {"dot_period": "10", "ports_num": "2", "config": "trainer_config.py", "local": "0"}
    assert build_trainer_command(CONFIG, IDS, 1, passed).argv == [
        "paddle", "train", "--nics=eth0", "--port=7164", "--ports_num=2", "--ports_num_for_sparse=2",
        "--comment=paddle_process_by_paddle", "--pservers=10.0.0.1,10.0.0.2,10.0.0.3",
        "--dot_period=10", "--config=trainer_config.py", "--local=0",
        "--num_gradient_servers=3", "--trainer_id=1", "--save_dir=/home/jobpath/paddle-cluster-job/output",
    ]  # fmt: skip


def test_the_pserver_command_line_is_the_tutorials() -> None:
    assert build_pserver_command(CONFIG, 0, {"config": "x.py"}).argv == [
        "paddle", "pserver", "--port=7164", "--ports_num=2", "--ports_num_for_sparse=2", "--nics=eth0",
        "--comment=paddle_process_by_paddle", "--num_gradient_servers=3",
    ]  # fmt: skip


def test_S7_the_pservers_are_in_id_order_not_in_ip_order() -> None:
    """The original joined dict keys: the service index is the routing key, so order is part of the protocol."""
    ids = start_paddle.getIdMap(podlist(pod("10.0.0.9").indexed(0), pod("10.0.0.1").indexed(1)))
    assert "--pservers=10.0.0.9,10.0.0.1" in build_trainer_command(CONFIG, ids, 0, {}).argv


NAMED = {"CONF_PADDLE_POD_SERVICE": "paddle-pods", "JOB_COMPLETION_INDEX": "0"}


def test_the_pservers_are_named_by_their_index_where_there_is_a_service_of_the_pods() -> None:
    """The order is by id as without names; the name of a pod is that of its completion index."""
    config = LauncherConfig.from_env(pod_environment(**NAMED))
    ids = start_paddle.getIdMap(podlist(*(pod(f"10.0.0.{9 - index}").indexed(index) for index in (2, 0, 1))))
    names = ",".join(f"paddle-cluster-job-{index}.paddle-pods" for index in range(3))
    trainer = build_trainer_command(config, ids, 1, {})
    assert f"--pservers={names}" in trainer.argv
    assert f"--pservers={names}" in build_probe_command(build_pserver_command(config, 0, {}), trainer).argv


def test_the_plan_shows_address_and_name(capsys: pytest.CaptureFixture[str]) -> None:
    config = LauncherConfig.from_env(pod_environment(**NAMED))
    print_plan(config, start_paddle.getIdMap(podlist(pod("10.0.0.1").indexed(0), pod("10.0.0.2").indexed(1))), {})
    assert capsys.readouterr().out.splitlines()[:2] == [
        "trainer 0: 10.0.0.1 = paddle-cluster-job-0.paddle-pods (this pod)",
        "trainer 1: 10.0.0.2 = paddle-cluster-job-1.paddle-pods",
    ]


def test_names_need_an_indexed_job() -> None:
    with pytest.raises(ConfigError, match=r"CONF_PADDLE_POD_SERVICE is paddle-pods.*completionMode: Indexed"):
        LauncherConfig.from_env(pod_environment(CONF_PADDLE_POD_SERVICE="paddle-pods"))


def test_only_the_first_pods_run_a_pserver_where_fewer_are_wanted() -> None:
    config = LauncherConfig.from_env(pod_environment(CONF_PADDLE_PSERVER_NUM="2"))
    trainer = build_trainer_command(config, IDS, 2, {})
    assert "--pservers=10.0.0.1,10.0.0.2" in trainer.argv and "--num_gradient_servers=3" in trainer.argv
    assert "--pservers=10.0.0.1,10.0.0.2" in build_probe_command(build_pserver_command(config, 0, {}), trainer).argv
    assert [config.layout.runs_pserver(number) for number in range(3)] == [True, True, False]


def test_every_pod_runs_a_pserver_by_default() -> None:
    assert all(CONFIG.layout.runs_pserver(number) for number in range(3))


def test_S25_the_trainer_is_told_the_number_of_trainers() -> None:
    """The original told only the pserver; local SGD and elastic averaging aborted with the default of 1."""
    assert "--num_gradient_servers=3" in build_trainer_command(CONFIG, IDS, 0, {}).argv


def test_S27_config_and_passes_can_be_chosen() -> None:
    """The original's start.sh had both hard-coded; here a passed flag is the one that counts, and comes once."""
    argv = build_trainer_command(
        CONFIG, IDS, 0, {"config": "mine.py", "num_passes": "3", "save_dir": "/elsewhere"}
    ).argv
    assert {"--config=mine.py", "--num_passes=3", "--save_dir=/elsewhere"} <= set(argv)
    assert len([argument for argument in argv if argument.startswith("--save_dir=")]) == 1


def test_without_a_flag_the_launcher_expects_as_many_passes_as_a_trainer_trains() -> None:
    assert wanted_passes({}) == FLAGS["num_passes"].default


def test_S28_a_passed_port_reaches_trainer_pserver_and_probe() -> None:
    """The original had one fixed port range; and a port passed to the trainer alone would meet no server."""
    passed = {"port": "8000", "ports_num": "1"}
    trainer, pserver = build_trainer_command(CONFIG, IDS, 0, passed), build_pserver_command(CONFIG, 0, passed)
    probe = build_probe_command(pserver, trainer)
    for command in (trainer, pserver, probe):
        assert "--port=8000" in command.argv and "--ports_num=1" in command.argv
    assert probe.argv[:3] == ["paddle", "pserver", "--probe"]
    assert "--pservers=10.0.0.1,10.0.0.2,10.0.0.3" in probe.argv


@pytest.mark.parametrize("text", ["0", "-1", "ten", "1.5", "true"])
def test_an_impossible_number_of_passes_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--num_passes={text}"):
        whole_number({"num_passes": text}, "num_passes", 100, 1)


def test_programs_get_the_two_ports_behind_the_pods_own_and_json_logs_beside_their_logs() -> None:
    config = LauncherConfig.from_env(pod_environment(CONF_PADDLE_METRICS_PORT="9164", CONF_PADDLE_LOG_JSON="1"))
    node = "/home/jobpath/paddle-cluster-job/output/node_1"
    pserver, trainer = build_pserver_command(config, 1, {}), build_trainer_command(config, IDS, 1, {})
    assert pserver.argv[-2:] == ["--metrics_port=9165", f"--log_json={node}/server.jsonl"]
    assert trainer.argv[-2:] == ["--metrics_port=9166", f"--log_json={node}/train.jsonl"]


def test_a_passed_metrics_port_is_the_trainers_alone() -> None:
    config = LauncherConfig.from_env(pod_environment(CONF_PADDLE_METRICS_PORT="9164"))
    passed = {"metrics_port": "1234"}
    assert "--metrics_port=9165" in build_pserver_command(config, 0, passed).argv
    assert "--metrics_port=1234" in build_trainer_command(config, IDS, 0, passed).argv
    assert not [flag for flag in build_trainer_command(config, IDS, 0, passed).argv if "9166" in flag]


@pytest.mark.parametrize("port", ["7162", "7164", "7167"])
def test_the_ports_of_the_pods_health_are_not_the_pservers(port: str) -> None:
    with pytest.raises(ConfigError, match="the pserver has ports 7164 to 7167"):
        LauncherConfig.from_env(pod_environment(CONF_PADDLE_METRICS_PORT=port))


@pytest.mark.parametrize("port", ["0", "7161", "7168"])
def test_other_ports_are_free_for_the_pods_health(port: str) -> None:
    assert LauncherConfig.from_env(pod_environment(CONF_PADDLE_METRICS_PORT=port)).metrics_port == int(port)


def test_a_flag_of_five_thousand_digits_is_no_whole_number_and_no_port():
    with pytest.raises(UsageError, match="expected a whole number of at least 1"):
        whole_number({"num_passes": "9" * 5000}, "num_passes", 100, 1)
    assert ProgramCommand("train", {"metrics_port": "9" * 5000}).metrics_port == 0
