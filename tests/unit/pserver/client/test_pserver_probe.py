"""How a trainer waits for the pservers where a launcher has started it; the probe itself is in tests/integration."""

import json
import os
import socket

import pytest

from pserver.client import probe
from runtime.environment import JobEnvironment
from runtime.errors import ConfigError, PeerUnreachableError, UsageError

FLAGS = {"pservers": "127.0.0.1", "port": "1", "ports_num": "1", "ports_num_for_sparse": "0", "timeout": "0.1"}


def test_a_trainer_that_no_launcher_has_started_asks_nobody():
    environ = {"HOME": "/", "PADDLE_READY_FD": "7"}
    probe.await_pservers(environ)
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize(
    "awaited, ready",
    [
        ("{", "3"),
        ("[" * 60_000, "3"),
        ("7", "3"),
        ("{}", "3"),
        (json.dumps(FLAGS | {"port": None}), "3"),
        (json.dumps(FLAGS | {"timeout": "soon"}), "3"),
        (json.dumps(FLAGS), ""),
    ],
    ids=["no JSON", "deep", "no object", "empty", "no port", "no timeout", "no descriptor"],
)
def test_variables_that_the_launcher_has_not_set_are_named(awaited, ready):
    with pytest.raises(ConfigError, match="PADDLE_AWAIT cannot be read"):
        probe.await_pservers({"PADDLE_AWAIT": awaited, "PADDLE_READY_FD": ready})


def test_hosts_that_are_none_are_named():
    with pytest.raises(UsageError, match="--pservers is ','"):
        probe.await_pservers({"PADDLE_AWAIT": json.dumps(FLAGS | {"pservers": ","}), "PADDLE_READY_FD": "3"})


def test_the_launcher_hears_when_all_have_answered_and_not_before(monkeypatch):
    """No child of the trainer asks again: the variables are gone."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    asked = []

    def run(services, job, timeout):
        asked.append((services, job.attempt, timeout))
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
        return 0

    monkeypatch.setattr(probe, "run", run)
    flags = FLAGS | {"pservers": "10.0.0.1,10.0.0.2:9", "port": "7164", "ports_num_for_sparse": "1"}
    environ = {"PADDLE_AWAIT": json.dumps(flags), "PADDLE_READY_FD": str(writer), "PADDLE_ATTEMPT": "2.x"}
    probe.await_pservers(environ)
    services = [("10.0.0.1", 7164), ("10.0.0.1", 7165), ("10.0.0.2", 9), ("10.0.0.2", 10)]
    assert asked == [(services, "2.x", 0.1)] and environ == {"PADDLE_ATTEMPT": "2.x"}
    assert os.read(reader, 2) == b"x" and os.read(reader, 1) == b""
    os.close(reader)


def test_a_server_that_does_not_answer_is_an_error_and_the_launcher_hears_nothing():
    reader, writer = os.pipe()
    with pytest.raises(PeerUnreachableError, match="the lines above name them"):
        probe.await_pservers({"PADDLE_AWAIT": json.dumps(FLAGS), "PADDLE_READY_FD": str(writer)})
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_descriptor_that_is_not_the_launchers_is_named(monkeypatch):
    monkeypatch.setattr(probe, "run", lambda services, job, timeout: 0)
    with pytest.raises(ConfigError, match="PADDLE_READY_FD=-1 cannot be written"):
        probe.await_pservers({"PADDLE_AWAIT": json.dumps(FLAGS), "PADDLE_READY_FD": "-1"})


def test_servers_that_are_late_are_named_again_and_again(monkeypatch, capfd):
    """A trainer waits for minutes; what it waits for was said every ten seconds when launchers began the probe anew."""
    monkeypatch.setattr(probe, "REPORT_PERIOD", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        services = [("127.0.0.1", 1)] * (probe.NAMED + 1) + [listener.getsockname()[:2]]
        with pytest.raises(PeerUnreachableError, match=r"7 of 7 pservers are not ready after 0\.35 s"):
            probe.probe(services, JobEnvironment(), 0.35)
    said = capfd.readouterr().err
    assert 2 <= said.count("7 of 7 pservers are not ready after 0.") <= 3
    assert "pserver 127.0.0.1:1 does not answer (Connection refused)" in said and "and 2 more" in said
