"""Flags, environment, names of interfaces and log lines of `paddle pserver`."""

import os
import re
import subprocess
import sys

import pytest
from each import each

from paddle_base.runtime import errors, glog
from paddle_base.runtime.environment import read_environment
from paddle_base.runtime.errors import ConfigError, PaddleError, UsageError
from paddle_base.runtime.network import interfaces
from paddle_base.runtime.network.addresses import list_hosts, list_services
from pserver import __main__ as command
from pserver import flags

TUTORIAL = [
    "--port=7164",
    "--ports_num=2",
    "--ports_num_for_sparse=2",
    "--nics=eth0",
    "--comment=paddle_process_by_paddle",
    "--num_gradient_servers=3",
]


def test_the_tutorials_command_line_is_understood_without_a_warning():
    line = flags.parse(TUTORIAL)
    assert line.ignored == [] and line.text("nics") == "eth0"
    assert [line.number(name) for name in ("port", "ports_num", "ports_num_for_sparse", "num_gradient_servers")] == [
        7164,
        2,
        2,
        3,
    ]


@each(
    "argv, part",
    [
        (["--num_gradient_server=1"], "did you mean --num_gradient_servers?"),
        (["--port=0"], "--port is 0; without a store it must be in [1, 65535]"),
        (["--port=65536"], "--port is 65536; it must be in [0, 65535]"),
        (["--num_gradient_servers=None"], "--num_gradient_servers is 'None'; it must be a whole number"),
        (["--num_gradient_servers=0"], "it must be in [1, 1048576]"),
        (["--ports_num=-1"], "it must be in [1, 65535]"),
        (["--port=65535", "--ports_num=2"], "need port 65536"),
        (["--rdma_tcp=rdma"], "--rdma_tcp is 'rdma'; it must be one of tcp"),
        (["--probe", "--pservers=,"], "--pservers is ','; it must be hosts separated by commas"),
        (["--probe", "--pservers=a:0"], "'0' of a is no port"),
        (["--async_lagged_ratio_min=-1"], "it must be at least 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_line_is_a_usage_error_that_names_the_flag(argv, part):
    with pytest.raises(UsageError, match=re.escape(part)):
        flags.parse(argv)


def test_legacy_flags_without_a_meaning_are_accepted_and_named_once():
    line = flags.parse(
        [
            "--pserver_num_threads=4",
            "--small_messages",
            "--seed=1",
            "--seed=2",
            "--trainer_count=2",
            "--thread_local_rand_use_global_seed=true",
            "--log_barrier_abstract=0",
            "--use_gpu=0",
        ]
    )
    assert line.ignored == [
        "small_messages",
        "seed",
        "trainer_count",
        "thread_local_rand_use_global_seed",
        "use_gpu",
    ]


def test_every_flag_is_in_the_help(capsys):
    assert command.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"--{name}=" in text for name in flags.FLAGS) and "PADDLE_PEER_TIMEOUT" in text


@pytest.mark.parametrize(
    "argv, environ, status",
    [(["--prot=1"], {}, 64), (["--nics=no_such_nic0"], {}, 78), (["--nics=lo"], {"PADDLE_PEER_TIMEOUT": "soon"}, 78)],
)
def test_errors_are_one_fatal_line_and_an_exit_code(capsys, monkeypatch, argv, environ, status):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert command.main(argv) == status
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.match(r"F\d{4} ", last)


def test_our_own_bug_shows_a_traceback_and_ends_with_70(capsys, monkeypatch):
    monkeypatch.setattr(command, "_serve", lambda *_: 1 / 0)
    assert command.main([]) == 70
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_environment_defaults_to_stand_alone_and_never_shows_its_secret():
    assert (read_environment({}).job, read_environment({}).peer_timeout) == ("", 10.0)
    job = read_environment(
        {"PADDLE_JOB_NAME": "j", "PADDLE_ATTEMPT": "1", "PADDLE_SECRET": "hush", "PADDLE_PEER_TIMEOUT": "2.5"}
    )
    assert (job.job, job.attempt, job.secret, job.peer_timeout) == ("j", "1", "hush", 2.5)
    assert "hush" not in repr(job)


def test_the_secret_comes_from_a_file_unless_it_is_given(tmp_path):
    file = tmp_path / "secret"
    with pytest.raises(ConfigError, match=r"kubectl create secret generic paddle-secret .*PADDLE_WITHOUT_SECRET=1"):
        read_environment({"PADDLE_SECRET_FILE": str(file)})
    assert read_environment({"PADDLE_SECRET_FILE": str(file), "PADDLE_WITHOUT_SECRET": "1"}).secret == ""
    with pytest.raises(ConfigError, match="PADDLE_WITHOUT_SECRET is 'yes'"):
        read_environment({"PADDLE_WITHOUT_SECRET": "yes"})
    file.write_text("hush\n")
    assert read_environment({"PADDLE_SECRET_FILE": str(file)}).secret == "hush"
    assert read_environment({"PADDLE_SECRET_FILE": str(file), "PADDLE_SECRET": "other"}).secret == "other"


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"\xff\xfe", b"x" * 5000, None], ids=["empty", "blank", "bytes", "long", "directory"]
)
def test_a_secret_that_cannot_be_one_is_refused_and_not_shown(tmp_path, content):
    file = tmp_path / "secret"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"PADDLE_SECRET_FILE names {file}") as error:
        read_environment({"PADDLE_SECRET_FILE": str(file)})
    assert "xxx" not in str(error.value)


def test_a_secret_in_a_pipe_is_refused_at_once(tmp_path):
    """The program waited for ever for a writer of the pipe."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"PADDLE_SECRET_FILE names .*, which cannot be read: Is no regular file"):
        read_environment({"PADDLE_SECRET_FILE": str(tmp_path / "pipe")})


@pytest.mark.parametrize("name", ["PADDLE_JOB_NAME", "PADDLE_ATTEMPT", "PADDLE_SECRET"])
def test_a_variable_that_is_not_utf_8_is_refused_and_not_shown(name):
    """The first message to a peer raised UnicodeEncodeError."""
    with pytest.raises(ConfigError, match=f"^{name} is not UTF-8 text") as error:
        read_environment({name: os.fsdecode(b"hush\xff")})
    assert "hush" not in str(error.value)


@each("text", ["x", "0", "-1", "nan", "inf", "1e9"])
def test_an_impossible_peer_timeout_is_a_config_error(text):
    with pytest.raises(ConfigError, match="PADDLE_PEER_TIMEOUT"):
        read_environment({"PADDLE_PEER_TIMEOUT": text})


def test_nics_are_names_labels_or_addresses():
    assert interfaces.resolve_nics("") == ["0.0.0.0"]
    assert interfaces.resolve_nics("lo, 127.0.0.3") == ["127.0.0.1", "127.0.0.3"]
    assert interfaces.list_nics()["lo"] == "127.0.0.1"
    with pytest.raises(ConfigError, match=r"'no_such_nic0'.*the existing names:.*lo \(127\.0\.0\.1\)"):
        interfaces.resolve_nics("lo,no_such_nic0")


def test_services_are_numbered_host_by_host():
    hosts = list_hosts("a, b:9000,a:7170", 7164, 3)
    assert hosts == [("a", 7164), ("b", 9000), ("a", 7170)]
    assert list_services(hosts, 0, 2) == [("a", 7164), ("a", 7165), ("b", 9000), ("b", 9001), ("a", 7170), ("a", 7171)]
    assert list_services(hosts, 2, 1) == [("a", 7166), ("b", 9002), ("a", 7172)]


@each(
    ("text", "part"),
    [
        ("a,,b", "it must be hosts separated by commas"),
        ("", "it must be hosts separated by commas"),
        ("a b", "it must be hosts separated by commas"),
        ("::1", "each as name or IPv4 address"),
        ("a..b", "each as name or IPv4 address"),
        (f"{'x' * 64}.svc", "each as name or IPv4 address"),
        (f"a:{'9' * 5000}", "of a is no port"),
        (":7164", "each as name or IPv4 address"),
        ("a:", "'' of a is no port"),
        ("a:x", "'x' of a is no port; it must be in [1, 65535]"),
        ("a:65536", "'65536' of a is no port"),
        ("a:65535", "a would need the ports 65535 to 65536; the last port is 65535"),
        ("a,b,a", "a:7164 and a:7164, with 2 ports each, are not two servers"),
        ("a,a:7165", "a:7164 and a:7165, with 2 ports each, are not two servers"),
    ],
)
def test_wrong_hosts_are_named(text, part):
    with pytest.raises(UsageError, match=re.escape(part)):
        list_hosts(text, 7164, 2)


def test_a_log_line_looks_like_glog():
    line = glog.format_line("I", " Batch=1", "TrainerInternal.cpp:165", 1795172419.169946, 50)
    assert re.fullmatch(r"I\d{4} \d\d:\d\d:19\.1699\d\d    50 TrainerInternal\.cpp:165\]  Batch=1\n", line)


def test_a_log_line_shows_what_is_not_printable_and_obeys_none_of_it():
    line = glog.format_line("I", "é 中 two\nlines\t\x1b[2J\r\0\x9b\u202e\ud800", "a.cpp:1", 0.0, 50)
    assert line.endswith("] é 中 two\nlines\t\\x1b[2J\\r\\x00\\x9b\\u202e\\ud800\n")
    line.encode()


def test_what_a_peer_said_is_one_short_line():
    assert glog.clean("no such file: 'é'") == "no such file: 'é'"
    assert glog.clean("a\nI1120 10:00:00.000000     1 forged.cpp:1] all is well\x1b[A") == (
        "a\\nI1120 10:00:00.000000     1 forged.cpp:1] all is well\\x1b[A"
    )
    assert glog.clean("x" * 10_000) == "x" * 500 + "... (9500 characters more)"
    assert glog.clean({"a": ["\n"]}) == "{'a': ['\\n']}"


def test_our_own_lines_carry_the_callers_place(capsys):
    for write, letter in ((glog.info, "I"), (glog.warning, "W"), (glog.error, "E"), (glog.fatal, "F")):
        write("hello")
        line = capsys.readouterr().err
        assert line.startswith(letter) and re.search(r"test_pserver_command\.py:\d+\] hello\n$", line)


def test_a_log_that_cannot_be_written_does_not_end_the_program(monkeypatch):
    class Full:
        def write(self, text):
            raise OSError(28, "No space left on device")

    for stderr in (Full(), None):
        monkeypatch.setattr(sys, "stderr", stderr)
        glog.info("hello")


def test_exit_codes_are_those_of_the_table():
    codes = {
        kind.__name__: kind.exit_code
        for kind in PaddleError.__subclasses__()
        if kind.__module__ == "paddle_base.runtime.errors"
    }
    assert codes == {
        "NothingFoundError": 1,
        "UsageError": 64,
        "DataError": 65,
        "MissingInputError": 66,
        "PeerUnreachableError": 69,
        "BugError": 70,
        "VolumeError": 74,
        "LostPeerError": 75,
        "PortInUseError": 75,
        "DirectoryInUseError": 75,
        "SetAsideError": 75,
        "LeaseLostError": 75,
        "ApiForbiddenError": 77,
        "ConfigError": 78,
        "StoppedError": 143,
    }
    assert all(str(code) in (errors.__doc__ or "") for code in codes.values())


@pytest.mark.parametrize("module", ["pserver.client.probe", "pserver.server.event_loop", "pserver.__main__"])
def test_neither_the_probe_nor_a_starting_server_imports_what_takes_long(module):
    code = f"import sys, {module}; sys.exit(bool({{'numpy', 'asyncio'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


# ----- Task jobs


def test_a_server_with_a_store_takes_the_flags_of_2017():
    given = (
        "-etcd-endpoint=http://a:1,http://b:2 -etcd-ttl=5 -num-pservers=2 -index -1 -dial-timeout=5s -log-level=info"
    )
    line = flags.parse([*given.split(), "-checkpoint-path=/c", "-checkpoint-interval=10m"])
    assert line.is_task_job and line.endpoints == ["http://a:1", "http://b:2"] and line.store_dir is None
    assert (line.seconds("etcd_ttl"), line.seconds("checkpoint_interval")) == (5.0, 600.0)
    assert [line.number(name) for name in ("num_pservers", "index", "port")] == [2, -1, 0]
    assert line.ignored == ["dial_timeout", "log_level"] and line.text("checkpoint_path") == "/c"


def test_a_server_with_a_store_has_any_port_or_the_one_that_is_given():
    assert flags.parse(["--store_dir=/s"]).number("port") == 0
    assert flags.parse(["--store_dir=/s", "--port=7164"]).number("port") == 7164
    assert flags.parse(["--store_dir=/s"]).store_dir.as_posix() == "/s"
    assert flags.parse(["--store_dir=/s", "--num_gradient_servers=3"]).ignored == ["num_gradient_servers"]
    assert not flags.parse([]).is_task_job


@pytest.mark.parametrize(
    "argv, part",
    [
        (["--index=1", "--num_pservers=2"], "--num_pservers, --index need a store: also give the --store_dir"),
        (["--store_dir=/s", "--etcd_endpoints=http://a:1"], "are both given"),
        (["--store_dir=/s", "--etcd_ttl=0.5"], "--etcd_ttl is '0.5'; it must be at least 1s"),
        (["--store_dir=/s", "--checkpoint_interval=0"], "--checkpoint_interval is '0'"),
        (["--store_dir=/s", "--checkpoint_interval=soon"], "must be a time such as 16s"),
        (["--store_dir=/s", "--nics=lo,eth0"], "listens on one address or on all"),
        (["--store_dir=/s", "--ports_num=5000"], "the limit of 4096"),
        (["--store_dir=/s", "--num_pservers=0"], "must be in"),
        (["--store_dir=/s", "--index=-2"], "must be in"),
    ],
)
def test_flags_of_elastic_jobs_that_are_wrong_are_refused(argv, part):
    with pytest.raises(UsageError) as caught:
        flags.parse(argv)
    assert part in str(caught.value)
