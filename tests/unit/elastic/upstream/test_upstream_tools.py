"""Threads, commands, deadlines and values of `horovod.runner`, as its test/single/test_run.py checks them.

The names of modules are Horovod's (see conftest.py).
"""

from __future__ import annotations

import io
import os
import pickle
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from horovod.runner.common.util import codec, env, host_hash, safe_shell_exec, secret, tiny_shell_exec
from horovod.runner.common.util.timeout import Timeout, TimeoutException
from horovod.runner.http.http_client import put_data_into_kvstore, read_data_from_kvstore
from horovod.runner.http.http_server import KVStoreServer
from horovod.runner.util.cache import Cache, use_cache
from horovod.runner.util.streams import Pipe
from horovod.runner.util.threads import execute_function_multithreaded, in_thread, on_event

from paddle_base.runtime.errors import DataError, UsageError

LIMIT_S = 60.0


# ---- threads


def test_a_function_is_called_with_each_list_of_arguments() -> None:
    assert execute_function_multithreaded(lambda a, b: a + b, [[1, 2], [3, 4], [5, 6]]) == {0: 3, 1: 7, 2: 11}
    assert execute_function_multithreaded(lambda: 1, []) == {}
    called = threading.Semaphore(0)
    assert execute_function_multithreaded(called.release, [[], []], block_until_all_done=False) is None
    assert called.acquire(timeout=LIMIT_S)
    assert called.acquire(timeout=LIMIT_S)


def test_at_most_so_many_calls_run_at_once() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def call(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1

    execute_function_multithreaded(call, [[one] for one in range(20)], max_concurrent_executions=1)
    assert most == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_calls_that_fail_are_counted() -> None:
    with pytest.raises(RuntimeError, match="1 of 2 calls of reciprocal have failed"):

        def reciprocal(one: int) -> float:
            return 1 / one

        execute_function_multithreaded(reciprocal, [[0], [1]])


def test_a_thread_gets_arguments_and_may_fail_silently() -> None:
    called = mock.Mock(side_effect=ValueError)
    in_thread(called, ("a", 1), silent=True, daemon=False, name="name").join(LIMIT_S)
    called.assert_called_once_with("a", 1)
    for args in ("a", ["a"]):
        with pytest.raises(ValueError, match="args must be a tuple"):
            in_thread(called, args)  # type: ignore[arg-type]


def test_a_function_is_called_on_an_event_unless_it_is_stopped() -> None:
    event, stop, called = threading.Event(), threading.Event(), mock.Mock()
    waiting = on_event(event, called, ("a",), stop, check_stop_interval_s=0.01)
    event.set()
    waiting.join(LIMIT_S)
    called.assert_called_once_with("a")
    waiting = on_event(threading.Event(), called, stop=stop, check_stop_interval_s=0.01, daemon=False)
    stop.set()
    waiting.join(LIMIT_S)
    on_event(event, mock.Mock(side_effect=ValueError), silent=True).join(LIMIT_S)
    called.assert_called_once()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"event": None}, "needs an event"),
        ({"args": "a"}, "args must be a tuple"),
        ({"daemon": False}, "needs a stop event"),
    ],
)
def test_an_event_thread_is_refused_that_cannot_work(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        on_event(**{"event": threading.Event(), "func": mock.Mock(), **options})


def test_a_pipe_gives_what_is_written_and_then_none() -> None:
    pipe = Pipe()
    pipe.write("abcdef")
    assert [pipe.read(2), pipe.read(2), pipe.read()] == ["ab", "cd", "ef"]
    pipe.write(b"last")
    pipe.flush()
    pipe.close()
    assert [pipe.read(), pipe.read()] == [b"last", None]
    with pytest.raises(RuntimeError, match="closed"):
        pipe.write("x")


# ---- commands


def run(command: str, **options: Any) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return safe_shell_exec.execute(command, stdout=out, stderr=err, **options), out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("echo hello", (0, "hello\n", "")),
        ("echo hello >&2", (0, "", "hello\n")),
        ("printf 'a\\nb'; printf 'c\\nd' >&2", (0, "a\nb", "c\nd")),
        ("exit 3", (3, "", "")),
        ("kill -9 $$", (137, "", "")),
    ],
)
def test_a_command_has_its_output_and_exit_code(command: str, wanted: tuple[int, str, str]) -> None:
    assert run(command) == wanted


def test_a_command_has_the_given_variables_and_a_prefix() -> None:
    assert run("echo $ONE $HOME", env={"ONE": "1"}) == (0, "1\n", "")
    assert run("echo a; echo b; echo c >&2", index=7) == (0, "[7]<stdout>:a\n[7]<stdout>:b\n", "[7]<stderr>:c\n")
    _, out, _ = run("echo a", index=0, prefix_output_with_timestamp=True)
    assert out.endswith("[0]<stdout>:a\n")
    assert str(time.localtime().tm_year) in out


def test_the_whole_output_of_a_short_command(capsys: pytest.CaptureFixture[str]) -> None:
    output, code = tiny_shell_exec.execute("echo $A; echo b >&2; exit 4", env={"A": "a"}) or ("", 0)
    assert (sorted(output.split()), code) == (["a", "b"], 4)
    with mock.patch("paddle_cluster.elastic.runner.common.safe_shell_exec.execute", side_effect=OSError("no memory")):
        assert tiny_shell_exec.execute("true") is None
    assert "true could not be started: no memory" in capsys.readouterr().err


def test_a_command_ends_with_an_event() -> None:
    event = threading.Event()

    class Ready(io.StringIO):
        def write(self, text: str, /) -> int:
            event.set()
            return super().write(text)

    began = time.monotonic()
    code = safe_shell_exec.execute("echo ready; exec sleep 100", stdout=Ready(), events=[threading.Event(), event])
    assert code == 143
    assert time.monotonic() - began < LIMIT_S


def test_lines_end_with_line_feeds_and_carriage_returns_and_are_utf8() -> None:
    text = "1%\r100%\rdone\nräksmörgås " + "\N{SNOWMAN}" * 30_000 + "\n\nend"
    source, pipe = os.pipe()
    found = io.StringIO()
    reading = in_thread(
        safe_shell_exec.prefix_connection, (os.fdopen(source, "rb", buffering=0), found, "stdout", 3, False)
    )
    with os.fdopen(pipe, "wb") as file:
        file.write(text.encode())
    reading.join(LIMIT_S)
    start = "[3]<stdout>:"
    assert found.getvalue() == (
        f"{start}1%\r{start}100%\r{start}done\n{start}räksmörgås {chr(0x2603) * 30_000}\n{start}\n{start}end"
    )


# ---- values


def test_the_environment_names_rank_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOROVOD", "OMPI_COMM_WORLD", "PMI"):
        monkeypatch.delenv(f"{name}_RANK", raising=False)
        monkeypatch.delenv(f"{name}_SIZE", raising=False)
    assert env.get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("PMI_RANK", "3")
    with pytest.raises(RuntimeError, match="only one of PMI_RANK and PMI_SIZE is set"):
        env.get_env_rank_and_size()
    monkeypatch.setenv("PMI_SIZE", "5")
    assert env.get_env_rank_and_size() == (3, 5)
    monkeypatch.setenv("HOROVOD_RANK", "0")
    monkeypatch.setenv("HOROVOD_SIZE", "2")
    assert env.get_env_rank_and_size() == (0, 2)


def test_workers_inherit_no_secret_key_and_no_shell_function() -> None:
    for name in ("BASH_FUNC_x%%", "OLDPWD", "CUDA_VISIBLE_DEVICES", secret.HOROVOD_SECRET_KEY):
        assert not env.is_exportable(name)
    assert env.is_exportable("PATH")
    assert env.LOG_LEVEL_STR == ["FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE"]


def test_a_hash_of_the_host_depends_on_the_salt() -> None:
    plain = host_hash.host_hash()
    assert plain == host_hash.host_hash(salt="") == host_hash.host_hash(None)
    assert len({plain, host_hash.host_hash("a"), host_hash.host_hash(salt=1)}) == 3
    with mock.patch("socket.gethostname", return_value="host.example.com"):
        assert host_hash.host_hash().startswith("host-")


def test_a_digest_proves_the_key() -> None:
    key = secret.make_secret_key()
    digest = secret.compute_digest(key, b"message")
    assert (len(key), len(digest)) == (secret.SECRET_LENGTH, secret.DIGEST_LENGTH)
    assert secret.check_digest(key, b"message", digest)
    assert not secret.check_digest(key, b"another", digest)
    assert not secret.check_digest(secret.make_secret_key(), b"message", digest)


def test_a_deadline_names_the_step() -> None:
    left = Timeout(LIMIT_S, "Timed out waiting for {activity}. Look.")
    left.check_time_out_for("nothing")
    assert 0 < left.remaining() <= LIMIT_S
    over = Timeout(-1, "Timed out waiting for {activity}. Look.")
    assert (over.remaining(), over.timed_out()) == (0, True)
    with pytest.raises(TimeoutException, match=r"^Timed out waiting for hosts\. Look\. Timeout after -1 seconds\.$"):
        over.check_time_out_for("hosts")


def test_values_are_base64_without_pickle() -> None:
    for value in (None, 1, "text", b"bytes", [1, (2.5, {"a": None})]):
        assert codec.loads_base64(codec.dumps_base64(value)) == value
        assert codec.loads_base64(codec.dumps_base64(value, to_ascii=False)) == value
    assert isinstance(codec.dumps_base64(1), str)
    array: Any = codec.loads_base64(codec.dumps_base64(np.arange(3)))
    assert array.tolist() == [0, 1, 2]
    with pytest.raises(UsageError, match="cannot be sent to another process"):
        codec.dumps_base64(lambda: 1)
    for bad in (codec.base64.b64encode(pickle.dumps(1)), "%", b"", "AAAA"):
        with pytest.raises(DataError):
            codec.loads_base64(bad)


def test_a_cache_keeps_results_for_equal_parameters(tmp_path: Path) -> None:
    called = mock.Mock(side_effect=lambda hosts, port=None: True if hosts else None, __name__="check")
    check = use_cache()(called)
    for _ in range(2):
        cache = Cache(str(tmp_path / "folder"), 60, "hash")
        assert check(["a", "b"], port=1, fn_cache=cache) is True
        assert check([], fn_cache=cache) is None
    assert called.call_count == 3  # None is not kept
    assert check(["a", "b"], port=2, fn_cache=cache) is True
    assert check(["a", "b"], port=2, fn_cache=None) is True
    assert called.call_count == 5
    assert Cache(str(tmp_path / "folder"), 60, "another").get("key") is None
    cache.put("key", [1])
    assert Cache(str(tmp_path / "folder"), 60, "hash").get("key") == [1]
    assert Cache(str(tmp_path / "folder"), -1, "hash").get("key") is None


@pytest.mark.parametrize("content", [b"", b"noise", pickle.dumps({"parameters": "hash"}), b"AAAA", b"\xff" * 100])
def test_a_damaged_cache_is_begun_again(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cache.bin").write_bytes(content)
    cache = Cache(str(tmp_path), 60, "hash")
    assert cache.get("key") is None
    cache.put("key", 5)
    assert Cache(str(tmp_path), 60, "hash").get("key") == 5


def test_a_store_keeps_data_and_no_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_SECRET", "s" * 32)
    server = KVStoreServer(verbose=2, secret="s" * 32)
    port = server.start_server()
    put_data_into_kvstore("127.0.0.1", port, "scope", "key", {"a": [1, 2]})
    assert read_data_from_kvstore("127.0.0.1", str(port), "scope", "key") == {"a": [1, 2]}
    with pytest.raises(RuntimeError, match="has no value scope/absent"):
        read_data_from_kvstore("127.0.0.1", port, "scope", "absent")
    with pytest.raises(UsageError, match="cannot be sent"):
        put_data_into_kvstore("127.0.0.1", port, "runfunc", "func", lambda: 1)
    monkeypatch.setenv("PADDLE_SECRET", "t" * 32)
    with pytest.raises(RuntimeError, match="the same PADDLE_SECRET"):
        read_data_from_kvstore("127.0.0.1", port, "scope", "key")
    server.shutdown_server()
    monkeypatch.setattr("paddle_cluster.elastic.runner.http_client.ASK_S", 0.0)
    with pytest.raises(RuntimeError, match="cannot be stored"):
        put_data_into_kvstore("127.0.0.1", port, "scope", "key", 1)
