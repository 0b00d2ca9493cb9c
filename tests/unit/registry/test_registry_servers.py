"""Which parameter servers a job has, as its registry says."""

from pathlib import Path

import pytest
from each import each

from paddle_base.registry import servers as module
from paddle_base.registry.choice import name_job, open_registry
from paddle_base.registry.directory import DirectoryRegistry
from paddle_base.registry.servers import (
    ServerRecord,
    claim_index,
    describe_missing,
    find_servers,
    read_desired,
    read_record,
    write_desired,
)
from paddle_base.runtime.errors import DamagedError, UsageError


@pytest.fixture
def registry(tmp_path: Path) -> DirectoryRegistry:
    return DirectoryRegistry(tmp_path)


def note(line: str) -> None:
    raise AssertionError(line)


def test_servers_take_the_smallest_free_index_and_are_found_when_they_serve(registry: DirectoryRegistry) -> None:
    assert find_servers(registry) == []
    assert write_desired(registry, 3) == 3
    assert write_desired(registry, 2) == 3
    first, at_first = claim_index(registry, 3, "10.0.0.1", note)
    second, at_second = claim_index(registry, 3, "10.0.0.2", note)
    assert (at_first, at_second) == (ServerRecord(0, 1, "10.0.0.1"), ServerRecord(1, 1, "10.0.0.2"))
    assert find_servers(registry) == [None, None, None]
    serving = ServerRecord(1, 1, "10.0.0.2", (7164, 7165), (7166,))
    second.update(serving.value)
    assert find_servers(registry) == [None, serving, None]
    assert serving.attempt == "ps1.1"
    first.release()
    third, at_third = claim_index(registry, 3, "10.0.0.3", note)
    assert (at_third.index, at_third.incarnation, at_third.attempt) == (0, 2, "ps0.2")
    third.release()


def test_a_server_that_finds_no_index_names_what_it_waits_for(
    registry: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [claim_index(registry, 2, "10.0.0.1", note)[0] for _ in range(2)]
    held[1].update(ServerRecord(1, 1, "10.0.0.1", (7164,)).value)
    registry.put("ps_desired", "2")
    lines: list[str] = []

    def wait(prefix: str, known: object, timeout: float) -> dict[str, object]:
        held[0].release()
        return {}

    monkeypatch.setattr(registry, "wait", wait)
    assert claim_index(registry, 2, "10.0.0.2", lines.append)[1] == ServerRecord(0, 2, "10.0.0.2")
    assert lines == ["waiting until one of 2 indices of servers is free: index 1 is held by 10.0.0.1:7164"]


def test_an_index_that_is_asked_for_is_waited_for(registry: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    held = claim_index(registry, 3, "10.0.0.1", note, 2)[0]
    lines: list[str] = []
    monkeypatch.setattr(registry, "wait", lambda *_: held.release())
    assert claim_index(registry, 3, "10.0.0.2", lines.append, 2)[1].index == 2
    assert lines == ["waiting until index 2 is free: every holder is a server that is being started"]


@pytest.mark.parametrize("value", ["", "0", "-1", "x", "1.5", "²", str(module.MOST_SERVERS + 1), "9" * 100, " 2"])
def test_a_number_of_servers_that_is_none_is_damage(registry: DirectoryRegistry, value: str) -> None:
    with pytest.raises(DamagedError, match="no number of servers"):
        read_desired(value)
    registry.put("ps_desired", value)
    with pytest.raises(DamagedError, match="no number of servers"):
        find_servers(registry)


@each(
    ("value", "what"),
    [
        ("", "not JSON"),
        ('{"host":"a b","ports":[],"sparse_ports":[]}', "ps/0.host is"),
        ('{"host":"a\\n","ports":[],"sparse_ports":[]}', "ps/0.host is"),
        ('{"host":"a","ports":[0],"sparse_ports":[]}', "ps/0.ports"),
        ('{"host":"a","ports":[1]}', "ps/0 has no sparse_ports"),
    ],
)
def test_a_record_that_is_none_is_damage(value: str, what: str) -> None:
    with pytest.raises(DamagedError, match=what):
        read_record(0, 1, value)


def test_the_largest_record_is_read_as_it_was_written() -> None:
    record = ServerRecord(3, 1 << 62, "a" * 253, tuple(range(60_000, 60_000 + module.MOST_PORTS)), ())
    assert read_record(3, 1 << 62, record.value) == record


def test_missing_servers_are_named() -> None:
    record = ServerRecord(0, 1, "a", (1,))
    assert describe_missing([record, record]) == ""
    assert describe_missing([record, None]) == "parameter server 1 of 2"
    assert describe_missing([None, record, None]) == "parameter servers 0, 2 of 3"
    assert describe_missing([]) == "the parameter servers: none was ever started for this job"


def test_the_name_of_the_job() -> None:
    assert [name_job("a", "b"), name_job("", "b"), name_job("", "")] == ["a", "b", "job"]
    for name in ("../a", "a/b", ".a", "a b", "x" * 201):
        with pytest.raises(UsageError, match="--job_name is"):
            name_job(name, "", "job_name")


def test_the_registry_of_a_directory_is_below_the_job(tmp_path: Path) -> None:
    open_registry([], tmp_path, "mine").put("job/end", "")
    assert [one.relative_to(tmp_path).as_posix() for one in tmp_path.rglob("job*")] == [
        "mine/registry/job.end=000000000000"
    ]
