"""The command line of `paddle master`: the names of 2017, Go's times, one store."""

from pathlib import Path

import pytest

from paddle_base.runtime.errors import UsageError
from paddle_base.runtime.network.interfaces import find_address
from paddle_cluster.master import flags
from paddle_cluster.master.tasks.state import TaskSettings


def test_the_names_of_2017_are_taken() -> None:
    given = "-port=9 -ttl=60s -endpoints=http://a:1,http://b:2 -task-timout-dur=20m -chunk-per-task=10 -log-level=info"
    line = flags.parse([*given.split(), "-task-timout-max=5"])
    assert (line.number("port"), line.seconds("ttl"), line.endpoints) == (9, 60.0, ["http://a:1", "http://b:2"])
    assert (line.seconds("task_timeout_dur"), line.number("task_timeout_max")) == (1200.0, 5)
    assert (line.number("chunk_per_task"), line.ignored, line.path("store_dir")) == (10, ["log_level"], None)


@pytest.mark.parametrize("arguments", [[], ["--store_dir=a", "--etcd_endpoints=http://a:1"], ["--etcd_endpoints=,"]])
def test_one_store_is_needed(arguments: list[str]) -> None:
    with pytest.raises(UsageError, match="one store"):
        flags.parse(arguments)
    assert flags.parse(["--store_dir=a"]).path("store_dir") == Path("a")


def test_a_lease_of_less_than_a_second_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--member_ttl is '0.5'; it must be at least 1s"):
        flags.parse(["--store_dir=a", "--member_ttl=0.5"])


def test_copies_of_tasks_and_tasks_by_rank_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        flags.parse(["--store_dir=a", "--speculate", "--deterministic_tasks=3"])
    assert flags.parse(["--store_dir=a", "--deterministic_tasks=3"]).number("deterministic_tasks") == 3


def test_a_setting_of_the_rules_is_one_field_which_is_also_its_flag() -> None:
    """The name, the type and the default of each setting stood in four classes and tables: issue M."""
    assert flags.parse(["--store_dir=a"]).fill(TaskSettings) == TaskSettings()
    given = "--task_timeout_dur=1h --task_timeout_max=0 --chunk_per_task=7 --member_ttl=10s --speculate --num_passes=2"
    tasks = flags.parse(["--store_dir=a", *given.split()]).fill(TaskSettings)
    assert tasks == TaskSettings(
        time_most=3600.0, failures_max=0, files_per_task=7, member_ttl=10.0, speculate=True, num_passes=2
    )
    assert (tasks.silence, tasks.member_lease) == (5.0, 5.0)
    with pytest.raises(UsageError, match=r"--task_timeout_min is 'soon'; it must be a time such as 16s"):
        flags.parse(["--store_dir=a", "--task_timeout_min=soon"])


def test_the_address_that_trainers_are_told() -> None:
    assert find_address({"lo": "127.0.0.1", "eth0": "10.0.0.2"}) == "10.0.0.2"
    assert find_address({"lo": "127.0.0.1"}) == "127.0.0.1"


def test_help_names_every_flag() -> None:
    text = flags.format_help()
    assert all(f"--{name}=" in text for name in flags.FLAGS)
