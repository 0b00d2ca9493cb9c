"""What Horovod's own tests name, replace or hand over, besides the lists: signatures, private names and return values.

The names of modules are Horovod's (see conftest.py).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import threading
from pathlib import Path
from unittest import mock

import pytest
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.runner.elastic.discovery import DiscoveredHosts, FixedHosts, HostDiscoveryScript, HostState
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.registration import WorkerStateRegistry
from horovod.runner.elastic.rendezvous import GET_RANK_AND_SIZE, PUT_WORKER_ADDRESSES
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.elastic.worker import (
    HostUpdateResult,
    WorkerNotificationClient,
    WorkerNotificationManager,
    WorkerNotificationService,
)
from horovod.runner.http.http_server import KVStoreHandler, KVStoreHTTPServer
from horovod.runner.launch import parse_args, run_commandline

from paddle import elastic as hvd
from paddle_base.runtime.errors import ConfigError, UsageError
from paddle_cluster.elastic.launching.flags import make_arguments
from paddle_cluster.elastic.membership.host_watch import TimeoutException

LIMIT_S = 60.0
ROOT = Path(__file__).resolve().parents[4]


def test_the_thread_that_looks_for_hosts_can_be_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    inner, is_wrapped = ElasticDriver._discover_hosts, threading.Event()

    def discover(driver: ElasticDriver) -> None:
        is_wrapped.set()
        inner(driver)

    monkeypatch.setattr(ElasticDriver, "_discover_hosts", discover)
    driver = ElasticDriver(mock.Mock(), FixedHosts({"a": 2}), min_num_proc=2, max_num_proc=2, timeout=LIMIT_S)
    driver.wait_for_available_slots(min_num_proc=2)
    driver.stop()
    assert is_wrapped.is_set()


def test_the_run_of_a_discovery_script_can_be_replaced() -> None:
    with mock.patch.object(HostDiscoveryScript, "_execute_discovery_script", return_value="\na:2\n\nb\n"):
        assert HostDiscoveryScript("absent", 3).find_available_hosts_and_slots() == {"a": 2, "b": 3}


def test_a_report_returns_after_the_driver_has_stopped() -> None:
    """Results that come while the driver stops would miss the last notice (found by D9 in its upstream form)."""
    driver, hosts, order = mock.Mock(), mock.Mock(), []
    driver.finished.return_value = hosts.is_blacklisted.return_value = False
    registry = WorkerStateRegistry(driver, hosts, reset_limit=None, verbose=False)
    registry.reset(1)

    def stop(error_message: str | None = None) -> None:
        driver.finished.return_value = True
        registry.wake()
        order.append("stopped")

    driver.stop.side_effect = stop
    registry.record_success("a", 0)
    order.append("returned")
    assert order == ["stopped", "returned"]


def test_a_service_has_addresses_by_interface_and_takes_a_key_of_bytes() -> None:
    manager, listener, key = WorkerNotificationManager(), mock.Mock(), os.urandom(32)
    manager.register_listener(listener)
    service = WorkerNotificationService(key, "lo", manager)
    ((host, port),) = service.addresses()["lo"]
    assert host == "127.0.0.1"
    assert WorkerNotificationClient(service.addresses(), key, 2).notify_hosts_updated(7, HostUpdateResult.mixed)
    assert not WorkerNotificationClient([(host, port)], os.urandom(32), 2).notify_hosts_updated(8, 0)
    service.shutdown()
    listener.on_hosts_updated.assert_called_once_with(7, HostUpdateResult.removed | HostUpdateResult.added)


def test_names_of_requests() -> None:
    assert (GET_RANK_AND_SIZE, PUT_WORKER_ADDRESSES) == ("rank_and_size", "worker_addresses")


def test_settings_begin_in_horovods_order() -> None:
    settings = ElasticSettings(FixedHosts({}), 2, 4, 60, 3, (1, 9), num_proc=3, verbose=2)
    assert (settings.min_num_proc, settings.max_num_proc, settings.elastic_timeout) == (2, 4, 60)
    assert (settings.reset_limit, settings.cooldown_range, settings.num_proc, settings.elastic) == (3, (1, 9), 3, True)


def test_arguments_that_are_not_given_are_none_and_interfaces_are_a_set() -> None:
    args = parse_args(["-np", "2", "--network-interfaces", "b,a", "--network-interface", "c", "--gloo", "python"])
    assert args.nics == {"a", "b", "c"}
    assert args.use_gloo
    args = parse_args(["-np", "2", "python"])
    for name in ("hosts", "hostfile", "nics", "output_filename", "start_timeout", "gloo_timeout_seconds", "log_level"):
        assert getattr(args, name) is None, name


def test_an_older_argument_of_run_counts_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="np is deprecated, use num_proc instead"):
        assert make_arguments({"num_proc": 1, "np": 2}) == ["-np", "2"]
    with pytest.warns(DeprecationWarning, match="network_interface is deprecated"):
        assert make_arguments({"network_interface": "a,b"}) == ["--network-interfaces", "a,b"]
    assert make_arguments({"network_interfaces": ["a", "b"]}) == ["--network-interfaces", "a,b"]


def test_run_fn_calls_a_reset_without_arguments_and_the_manager_of_its_module() -> None:
    train = mock.Mock(side_effect=[HorovodInternalError(), HostsUpdatedInterrupt(False), 5], __name__="train")
    state, reset = mock.Mock(), mock.Mock()
    with mock.patch("horovod.common.elastic.notification_manager") as manager:
        assert run_fn(train, reset)(state, 1, two=2) == 5
    assert (state.sync.call_count, state.restore.call_count, state.on_reset.call_count) == (3, 1, 2)
    assert reset.call_args_list == [mock.call()] * 2
    train.assert_called_with(state, 1, two=2)
    manager.remove_listener.assert_called_once_with(state)


def test_a_failed_collective_is_a_runtime_error_and_a_state_takes_any_broadcast() -> None:
    assert issubclass(HorovodInternalError, RuntimeError)
    state = ObjectState(bcast_object=lambda one: one, get_rank=lambda: 0, step=1)
    state.on_hosts_updated(1, HostUpdateResult.added)
    with pytest.raises(HostsUpdatedInterrupt):
        state.commit()
    state.check_host_updates()


def test_a_change_of_hosts_is_a_runtime_error_and_a_timeout_has_its_message() -> None:
    assert issubclass(HostsUpdatedInterrupt, RuntimeError)
    error = TimeoutException("too late")
    assert (error.message, str(error)) == ("too late", "too late")


def test_a_script_may_ask_for_libraries_that_are_absent() -> None:
    """Horovod's examples ask `hvd.nccl_built()`; there was no such name."""
    for name in ("mpi", "nccl", "ddl", "ccl", "cuda", "rocm"):
        assert not getattr(hvd, f"{name}_built")(), name
    assert hvd.gloo_built(verbose=True)
    assert (hvd.gloo_enabled(), hvd.mpi_enabled()) == (True, False)
    with pytest.raises(ConfigError, match="init"):
        hvd.mpi_threads_supported()


def test_the_modules_that_the_page_gives_for_horovods_have_its_names() -> None:
    page = (ROOT / "docs" / "horovod.md").read_text()
    here = dict(re.findall(r"^\| `([\w.]+)`.* \| `([\w.]+)`(?:, \.\.\.)? \|$", page, re.MULTILINE))
    names = {
        "horovod": "run",
        "horovod.common.elastic": "ObjectState State run_fn",
        "horovod.common.exceptions": "HorovodInternalError HostsUpdatedInterrupt",
        "horovod.common.process_sets": "ProcessSet add_process_set global_process_set remove_process_set",
        "horovod.common.util": "gloo_built mpi_built nccl_built",
        "horovod.runner.common.util.hosts": "HostInfo get_host_assignments parse_hosts",
        "horovod.runner.common.util.settings": "ElasticSettings",
        "horovod.runner.elastic.driver": "ElasticDriver",
        "horovod.runner.http.http_server": "KVStoreServer RendezvousServer",
        "horovod.runner.launch": "parse_args run_commandline",
        "horovod.torch": "allreduce broadcast_parameters elastic init rank size",
        "horovod.torch.elastic": "ElasticSampler ObjectState State TorchState run",
        "horovod.torch.elastic.sampler": "ElasticSampler",
        "horovod.torch.elastic.state": "StateHandler TorchState get_handler_registry set_handler_registry",
        "horovod.torch.mpi_ops": "allreduce allreduce_async_ poll synchronize",
    }
    assert sorted(here) == sorted(names)
    for module, expected in names.items():
        if ".torch" in here[module] and importlib.util.find_spec("torch") is None:
            continue
        assert set(expected.split()) <= set(dir(importlib.import_module(here[module]))), module


def test_hosts_are_filtered_by_their_states() -> None:
    states = {"a": HostState(), "b": HostState()}
    states["a"].blacklist()
    hosts = DiscoveredHosts({"a": 1, "b": 2}, ["a", "b"]).update(states)
    assert (hosts.host_assignment_order, hosts.count_available_slots()) == (["b"], 2)


def test_a_server_takes_its_verbosity_third() -> None:
    with KVStoreHTTPServer(("127.0.0.1", 0), KVStoreHandler, 2) as server:
        assert (server.verbose, server.secret) == (2, "")


def test_the_command_line_of_a_program_runs_as_a_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Horovod's integration tests call the function of `horovodrun`, and continue after it; it ended their process."""
    output = ["--network-interfaces", "lo", "--output-filename", str(tmp_path)]
    command = ["sh", "-c", "echo $HOROVOD_GLOO_IFACE $NCCL_SOCKET_IFNAME"]
    monkeypatch.setattr("sys.argv", ["horovodrun", "-np", "1", *output, *command])
    run_commandline()
    assert (tmp_path / "rank.0" / "stdout").read_text() == "lo lo\n"
    for words, error in (("false", RuntimeError), ("--mpi true", ValueError), ("", UsageError)):
        monkeypatch.setattr("sys.argv", ["horovodrun", "-np", "1", *words.split()])
        with pytest.raises(error):
            run_commandline()
