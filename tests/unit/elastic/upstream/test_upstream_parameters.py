"""The parameters of Horovod's command line and of its `--config-file`, as its test/single/test_run.py checks them.

The names of modules are Horovod's (see conftest.py).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from each import each
from horovod.runner import _HorovodArgs, run
from horovod.runner.common.util import config_parser
from horovod.runner.common.util.settings import Settings
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.launch import _run, is_gloo_used, make_settings, parse_args, run_controller

from paddle_base.runtime.errors import ConfigError, MissingInputError, UsageError
from paddle_cluster.elastic.constants import MOST_S
from paddle_cluster.elastic.discovery import FixedHosts
from paddle_cluster.elastic.process.placement import read_settings

CONFIG = """
controller: gloo
params: {fusion_threshold_mb: 32, cycle_time_ms: 10, cache_capacity: 2048, hierarchical_allreduce: true,
         hierarchical_allgather: true, torus_allreduce: false}
autotune: {enabled: true, log_file: log.csv, warmup_samples: 5, steps_per_sample: 20, bayes_opt_max_samples: 50,
           gaussian_process_noise: 0.9}
timeline: {filename: timeline.json, mark_cycles: true}
stall_check: {enabled: false, warning_time_seconds: 120, shutdown_time_seconds: 240}
library_options: {mpi_threads_disable: true, num_nccl_streams: 2, thread_affinity: 1, gloo_timeout_seconds: 50}
logging: {level: INFO, with_timestamp: false}
"""


def variables_of(flags: str) -> dict[str, str]:
    return dict(config_parser.set_env_from_args({}, parse_args(["-np", "2", *flags.split()])))


@each(
    ("flags", "variables"),
    [
        ("", {}),
        ("--fusion-threshold-mb x --autotune --no-hierarchical-allgather --timeline-filename t.json --tcp", {}),
        ("--no-stall-check", {"HOROVOD_STALL_CHECK_DISABLE": "1"}),
        (
            "--stall-check --stall-check-warning-time-seconds 10 --stall-check-shutdown-time-seconds 20",
            {
                "HOROVOD_STALL_CHECK_DISABLE": "0",
                "HOROVOD_STALL_CHECK_TIME_SECONDS": "10",
                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "20",
            },
        ),
        ("--num-nccl-streams 2 --gloo-timeout-seconds 60", {"HOROVOD_GLOO_TIMEOUT_SECONDS": "60"}),
        ("--log-level INFO --log-without-timestamp", {"HOROVOD_LOG_LEVEL": "INFO", "HOROVOD_LOG_HIDE_TIME": "1"}),
        ("--log-with-timestamp", {"HOROVOD_LOG_HIDE_TIME": "0"}),
    ],
)
def test_flags_become_the_variables_of_workers(flags: str, variables: dict[str, str]) -> None:
    assert variables_of(flags) == variables


def test_the_command_line_of_this_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["horovodrun", "-np", "2", "--gloo-timeout-seconds", "20"])
    assert parse_args().gloo_timeout_seconds == 20


def test_a_file_sets_what_the_command_line_leaves_open(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    args = parse_args(["-np", "2", "--config-file", str(path)])
    assert (args.use_gloo, args.no_stall_check) == (True, True)
    assert (args.stall_check_warning_time_seconds, args.stall_check_shutdown_time_seconds) == (120, 240)
    assert (args.gloo_timeout_seconds, args.log_level, args.log_with_timestamp) == (50, "INFO", False)
    assert {one.name for one in config_parser.WITHOUT_EFFECT} <= config_parser.list_given(args)
    args = parse_args(["-np", "2", *["--stall-check", "--gloo-timeout-seconds", "2.5"], "--config-file", str(path)])
    assert (args.no_stall_check, args.gloo_timeout_seconds) == (False, 2.5)
    settings = make_settings(args)
    assert settings.gloo_timeout_seconds == 2.5
    assert settings.variables["HOROVOD_STALL_CHECK_TIME_SECONDS"] == "120"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", "is not YAML"),
        ("- a", "is a list; write sections"),
        ("params: 5", "params is 5; it has to be a section"),
        ("stall_check: {warning_time_seconds: x}", r"warning_time_seconds is x; it has to be a whole number"),
        ("stall_check: {warning_time_seconds: true}", "it has to be a whole number"),
        ("library_options: {gloo_timeout_seconds: -1}", "--gloo-timeout-seconds is -1"),
        ("library_options: {gloo_timeout_seconds: .nan}", "--gloo-timeout-seconds is nan"),
        ("stall_check: {enabled: 1}", "it has to be true or false"),
        ("logging: {level: LOUD}", "--log-level is LOUD"),
        ("controller: ib", "controller is ib; it has to be gloo or mpi"),
        ("params: !!python/object/apply:os.system [id]", "is not YAML"),
        ("a: " + "b" * 70_000, "more than 65536 bytes"),
        ("[" * 60_000, "more than 20 levels in line 1"),
        ("!!int ''", "is not YAML"),
        ("!!bool x", "is not YAML"),
        ("!!timestamp x", "is not YAML"),
        ("0001-01-01 00:00:00 +23:00", "is a datetime; write sections"),
        ("1:" * 600 + "0.5", "is not YAML"),
        ("a: &a 1\nb: *a", "has an alias"),
        (f"library_options: {{gloo_timeout_seconds: 0x{'f' * 9000}}}", "--gloo-timeout-seconds is .*; it has to be"),
        (f"logging: {{level: 0x{'f' * 9000}}}", "it has to be a text"),
        (f"controller: 0x{'f' * 9000}", "it has to be gloo or mpi"),
        (f"params: 0x{'f' * 9000}", "it has to be a section"),
    ],
)
def test_a_file_that_is_wrong_is_a_usage_and_a_value_error(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(config_parser.ParameterError, match=why) as caught:
        parse_args(["-np", "2", "--config-file", str(path)])
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, UsageError)


@each(
    "flags",
    [
        "--stall-check-warning-time-seconds -1",
        "--gloo-timeout-seconds -1",
    ],
)
def test_a_flag_out_of_its_bounds_is_a_value_error(flags: str) -> None:
    with pytest.raises(ValueError, match=flags.split()[0]):
        parse_args(["-np", "2", *flags.split()])


def test_a_file_that_is_absent_or_empty_and_a_python_without_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingInputError, match="--config-file"):
        parse_args(["--config-file", str(tmp_path / "absent")])
    (tmp_path / "empty").write_text("")
    assert config_parser.list_given(parse_args(["--config-file", str(tmp_path / "empty")])) == set()
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match="needs PyYAML"):
        parse_args(["--config-file", str(tmp_path / "empty")])


def test_a_file_of_aliases_of_aliases_is_refused_before_it_grows(tmp_path: Path) -> None:
    """Ten aliases of ten aliases have filled the memory: in an error message, and when keys were merged."""
    path = tmp_path / "config.yaml"
    names = "abcdefghij"
    for first, later in (("[1]", "[{}]"), ("{{x: 1}}", "{{<<: [{}]}}")):
        lines = [f"a: &a {first.format()}"]
        for one, before in zip(names[1:], names, strict=False):
            lines.append(f"{one}: &{one} {later.format(', '.join([f'*{before}'] * 10))}")
        path.write_text("\n".join([*lines, "params: *j"]))
        with pytest.raises(config_parser.ParameterError, match="has an alias"):
            parse_args(["-np", "2", "--config-file", str(path)])


def test_a_config_file_that_is_a_pipe_or_a_directory_is_refused_at_once(tmp_path: Path) -> None:
    """The open of a pipe without a writer has never returned."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for name in ("pipe", "directory"):
        with pytest.raises(MissingInputError, match="cannot be read"):
            parse_args(["--config-file", str(tmp_path / name)])
    with pytest.raises(MissingInputError, match="cannot be read"):
        parse_args(["--config-file", "/dev/zero"])


def test_thousands_of_unknown_keys_become_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of 64 KB has written 650 KB of warnings, and a key of many digits a traceback."""
    path = tmp_path / "config.yaml"
    path.write_text("\n".join([f"? 0x{'f' * 9000}\n: 1", *(f"k{number}: 1" for number in range(5000))]))
    parse_args(["--config-file", str(path)])
    (line,) = capsys.readouterr().err.splitlines()
    assert "k3" in line
    assert "4991 more" in line
    assert len(line) < 2000


def test_what_is_no_parameter_is_named_in_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("params: {fusion: 1}\nother: 2\n")
    parse_args(["--config-file", str(path)])
    text = capsys.readouterr().err
    assert "other, params.fusion are no parameters" in text


def test_workers_without_a_stall_check_wait(capsys: pytest.CaptureFixture[str]) -> None:
    patience = read_settings(variables_of("--no-stall-check")).patience
    assert (patience.stall, patience.end) == (MOST_S, MOST_S)
    patience = read_settings(variables_of("--stall-check --stall-check-warning-time-seconds 10")).patience
    assert patience.stall == 10


def test_a_run_names_the_parameters_without_effect(capsys: pytest.CaptureFixture[str]) -> None:
    args = parse_args(["-np", "1", "--cycle-time-ms", "1", "--gloo-timeout-seconds", "9", "true"])
    with mock.patch("paddle_cluster.elastic.launch.run_job") as job:
        assert _run(args) is None
    assert "HOROVOD_CYCLE_TIME" not in job.call_args.args[0].variables
    text = capsys.readouterr().err
    assert "without effect" in text
    assert "--cycle-time-ms" in text
    assert "gloo-timeout" not in text


def test_a_value_without_effect_is_not_interpreted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job with Horovod's file ended with 64 because of a value that no worker reads."""
    path = tmp_path / "config.yaml"
    path.write_text(f"params: {{cache_capacity: 0x{'f' * 9000}, cycle_time_ms: [1]}}\nautotune: {{enabled: 7}}\n")
    args = parse_args(["-np", "1", "--thread-affinity", "1,2", "--config-file", str(path), "true"])
    with mock.patch("paddle_cluster.elastic.launch.run_job") as job:
        _run(args)
    assert [name for name in job.call_args.args[0].variables if name.startswith("HOROVOD_")] == []
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("--cycle-time-ms, --cache-capacity, --thread-affinity, --autotune")


@each("flags", ["--mpi", "--jsrun", "--mpi-args=-x", "-p 22", "-i key", "--binding-args=-x"])
def test_mpi_and_ssh_are_refused_with_the_reason(flags: str) -> None:
    with pytest.raises(UsageError, match="is not supported: the"):
        _run(parse_args(["-np", "1", *flags.split(), "true"]))


@each(
    ("chosen", "built", "called"),
    [
        ((None, None, None), (True, False), "gloo"),
        ((None, None, None), (True, True), "mpi"),
        ((True, False, False), (True, True), "gloo"),
        ((False, True, False), (True, True), "mpi"),
        ((False, False, True), (False, True), "js"),
        ((False, True, False), (True, False), "MPI support has not been built"),
        ((False, False, True), (True, False), "MPI support has not been built"),
        ((True, False, False), (False, True), "Gloo support has not been built"),
        ((False, False, False), (False, False), "Gloo support has not been built"),
    ],
)
def test_the_controller_is_the_chosen_one_or_what_there_is(chosen: Any, built: Any, called: str) -> None:
    runs = {name: mock.Mock() for name in ("gloo", "mpi", "js")}
    gloo, mpi, js = chosen
    with (
        mock.patch("horovod.runner.launch.gloo_built", return_value=built[0]),
        mock.patch("horovod.runner.launch.mpi_built", return_value=built[1]),
    ):
        if called not in runs:
            with pytest.raises(ValueError, match=called):
                run_controller(gloo, runs["gloo"], mpi, runs["mpi"], js, runs["js"], 2)
            return
        run_controller(gloo, runs["gloo"], mpi, runs["mpi"], js, runs["js"], 2)
        assert is_gloo_used(gloo, mpi, js) == (called == "gloo")
    assert [name for name, one in runs.items() if one.called] == [called]


def test_settings_have_horovods_attributes() -> None:
    settings = Settings(num_proc=2, hosts="a:2", verbose=2, key=b"k", nics={"b", "a"}, ssh_port=22, run_func_mode=False)
    assert (settings.hosts, settings.elastic, settings.join_nics(), settings.key) == ("a:2", False, "a,b", b"k")
    settings.output_filename = "out"
    elastic = ElasticSettings(FixedHosts({}), 1, None, None, None, key=b"k", start_timeout=3, extra_mpi_args=None)
    assert (elastic.elastic, elastic.join_nics(), elastic.key) == (True, "", b"k")


def test_a_program_sets_the_attributes_of_a_command_line_itself() -> None:
    args = _HorovodArgs()
    assert (args.num_proc, args.hosts, args.nics, args.use_mpi, args.ssh_port) == (1, None, None, False, None)
    args.num_proc, args.hosts, args.verbose, args.command = 2, "localhost:2", None, ["true"]
    with mock.patch("horovod.runner.launch.run_job") as job:
        _run(args)
    settings = job.call_args.args[0]
    assert (settings.num_proc, settings.elastic, settings.verbose) == (2, False, 0)


@each(
    "options",
    [
        {"hosts": "localhost:1", "hostfile": "hosts"},
        {"use_mpi": True},
        {"ssh_port": 22},
        {"hosts": "no number"},
        {"num_proc": 0},
        {"num_proc": 2, "min_num_proc": 3},
    ],
)
def test_arguments_that_run_cannot_take_are_value_errors(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as caught:
        run(print, **options)
    assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("options", "called"),
    [
        ({"num_proc": 2}, "_run_static"),
        ({"num_proc": 2, "hosts": "localhost:2", "min_num_proc": 1}, "_run_elastic"),
        ({"num_proc": 2, "host_discovery_script": "x"}, "_run_elastic"),
    ],
)
def test_a_job_is_elastic_if_its_hosts_or_workers_may_change(options: dict[str, Any], called: str) -> None:
    with mock.patch(f"horovod.runner.launch.{called}", return_value=[5]) as started:
        assert run(print, **options) == [5]
    assert started.call_args.args[0].num_proc == 2
