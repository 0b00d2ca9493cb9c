"""The shards of absent trainers: every file is trained by exactly one of those that are present."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from builders import pod_environment
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.runtime.errors import MissingInputError
from paddle_cluster.launcher.attempts import AttemptHistory, JobRecord
from paddle_cluster.launcher.errors import IndivisibleError
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.shards.division import Piece, Portion, ShardLists, assign_bases, divide, find_pieces
from paddle_cluster.launcher.staging import plan_portions, stage_shard

BASES = {
    "the second of three is absent": (3, [0, 2], [0, 2]),
    "the first is": (3, [1, 2], [1, 2]),
    "one is left": (3, [2], [2]),
    "a pod that had a pserver alone takes the shard that is left over": (2, [0, 3], [0, 1]),
    "two of them": (2, [2, 3], [0, 1]),
    "and where its like is there": (3, [1, 4, 5], [1, 0, 2]),
}


@pytest.mark.parametrize(("shards", "indexes", "bases"), BASES.values(), ids=BASES)
def test_every_trainer_has_a_shard_of_its_own(shards: int, indexes: list[int], bases: list[int]) -> None:
    assert assign_bases(shards, indexes) == bases


def shard(**files: int) -> ShardLists:
    """A shard with training files of these sizes, one test file, and a list of labels."""
    sizes = {f"data/{name}": size for name, size in files.items()} | {"data/t": 7, "data/labels.list": 4}
    lists = {"train.list": [*(f"data/{name}" for name in files), ""], "test.list": ["data/t"], "labels.list": ["cat"]}
    return ShardLists(sizes, lists)


DEALT = {
    "one file goes to one trainer, the last one": ([0, 2], {1: shard(a=10)}, [[], ["a"]]),
    "two equal files go to two": ([0, 2], {1: shard(a=10, b=10)}, [["b"], ["a"]]),
    "the largest first, each to the one with the fewest bytes": (
        [0, 2],
        {1: shard(a=1, b=5, c=2, d=3)},
        [["c", "d"], ["a", "b"]],
    ),
    "of two shards": ([2], {0: shard(a=1), 1: shard(a=1)}, [["a", "a"]]),
    "empty files count": ([0, 1, 2], {3: shard(a=0, b=0, c=0)}, [["c"], ["b"], ["a"]]),
}


@pytest.mark.parametrize(("bases", "absent", "expected"), DEALT.values(), ids=DEALT)
def test_files_are_dealt_to_the_trainers_that_are_there(
    bases: list[int], absent: dict[int, ShardLists], expected: list[list[str]]
) -> None:
    portions = divide(bases, absent)
    assert not isinstance(portions, int)
    assert [portion.base for portion in portions] == bases
    found = [[piece.file for piece in portion.pieces if not piece.is_test] for portion in portions]
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))
    assert [len(names) for names in found] == [len(names) for names in expected]


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 6), st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=9), min_size=1, max_size=4))
def test_nothing_is_lost_and_nothing_trained_twice(trainers: int, absent: list[list[int]]) -> None:
    shards = {
        trainers + number: shard(**{f"f{k}": size for k, size in enumerate(sizes)})
        for number, sizes in enumerate(absent)
    }
    portions = divide(range(trainers), shards)
    assert not isinstance(portions, int)
    given_away = sorted(piece for portion in portions for piece in portion.pieces)
    assert given_away == sorted(piece for number, one in shards.items() for piece in find_pieces(number, one))
    loads = [sum(max(piece.size, 1) for piece in one.pieces if not piece.is_test) for one in portions]
    assert max(loads) - min(loads) <= max([1, *(size for sizes in absent for size in sizes)])


INDIVISIBLE = {
    "no list": ShardLists({"data/train.txt": 3}, {}),
    "a list of labels alone": ShardLists({"data/train.txt": 3}, {"labels.list": ["cat", "dog"]}),
    "a list for tests alone": ShardLists({"data/t": 3}, {"test.list": ["data/t"]}),
    "a list that names something else": ShardLists({"data/t": 3}, {"train.list": ["data/t", "seed 17"]}),
}


@pytest.mark.parametrize("lists", INDIVISIBLE.values(), ids=INDIVISIBLE)
def test_a_shard_whose_files_no_list_names_cannot_be_divided(lists: ShardLists) -> None:
    assert divide([0], {1: lists}) == 1


def test_a_path_from_the_root_stays_as_it_is() -> None:
    lists = ShardLists({}, {"train.list": ["/home/jobpath/all/part-7"]})
    assert [piece.staged for piece in find_pieces(4, lists)] == ["/home/jobpath/all/part-7"]
    assert Piece(4, "train.list", "data/sub/a", 1).staged == "data/absent_4/sub/a"


# ----- Files


@pytest.fixture
def config(tmp_path: Path) -> LauncherConfig:
    """Three shards as the data job makes them, in two files each; the test set is one file with three names."""
    config = LauncherConfig.from_env(
        pod_environment(JOB_PATH=str(tmp_path), CONF_PADDLE_GRADIENT_MIN="1", JOB_COMPLETION_INDEX="0")
    )
    for number in range(3):
        data = config.job_dir / str(number) / "data"
        data.mkdir(parents=True)
        for part in "ab":
            (data / f"{part}.txt").write_text(f"{part} of {number}\n")
        (data / "train.list").write_text("data/a.txt\ndata/b.txt\n")
        (data / "labels.list").write_text("cat\ndog\n")
        (data / "test.list").write_text("data/test.txt\n")
        if number:
            (data / "test.txt").hardlink_to(config.job_dir / "0" / "data" / "test.txt")
        else:
            (data / "test.txt").write_text("test\n")
        (data / "train.list").chmod(0o444)
    return config


def record_of(*indexes: int, absent: tuple[int, ...]) -> JobRecord:
    """The record of an attempt of the pods with these indexes."""
    return JobRecord(
        "job", 9, False, 2, ["a"] * len(indexes), 0,
        gradient_num=len(indexes), pserver_num=len(indexes), job_trainers=3, job_pservers=3,
        pods=[{"ip": f"10.0.0.{index}", "place": "", "uid": "a", "index": index} for index in indexes],
        absent=[{"index": index, "place": f"pod-{index}", "since": 1.8e9} for index in absent],
    )  # fmt: skip


def staged_files(target: Path, list_name: str = "train.list") -> list[str]:
    """What the provider reads by a list, as it is seen from the work directory."""
    entries = (target / list_name).read_text().splitlines()
    return [(target.parent / entry).read_text().strip() for entry in entries]


def test_the_files_of_an_absent_trainer_are_read_by_one_of_the_others(config: LauncherConfig, tmp_path: Path) -> None:
    record, read = record_of(0, 2, absent=(1,)), []
    for trainer_id in range(2):
        target = tmp_path / f"work-{trainer_id}" / "data"
        said = stage_shard(config, trainer_id, target, AttemptHistory(), record)
        assert "1 files of absent trainers' shards (1)" in said
        read.append(staged_files(target))
        assert staged_files(target, "test.list") == ["test"]  # whole in every shard: tested once
        assert (target / "labels.list").read_text() == "cat\ndog\n"
    assert sorted(entry for entries in read for entry in entries) == sorted(
        f"{part} of {number}" for number in range(3) for part in "ab"
    )
    assert [entries[:2] for entries in read] == [["a of 0", "b of 0"], ["a of 2", "b of 2"]]


def test_what_was_staged_for_an_attempt_without_some_goes_when_all_are_back(
    config: LauncherConfig, tmp_path: Path
) -> None:
    """And the own shard, which may be large, is not copied again."""
    target, history = tmp_path / "work" / "data", AttemptHistory()
    stage_shard(config, 0, target, history)
    before = sorted(path.relative_to(target) for path in target.rglob("*"))
    said = stage_shard(config, 0, target, history, record_of(0, absent=(1, 2)))
    assert said == f"shard 0 is still in ./{target}, and 4 files of absent trainers' shards (1, 2)"
    assert len(staged_files(target)) == 6
    again = stage_shard(config, 0, target, history, record_of(0, absent=(1, 2)))
    assert again == f"shard 0 is still in ./{target}"
    stage_shard(config, 0, target, history, record_of(0, 2, absent=(1,)))
    assert sorted(staged_files(target))[:2] in (["a of 0", "a of 1"], ["a of 0", "b of 0"])
    assert len(staged_files(target)) == 3
    assert stage_shard(config, 0, target, history) == f"shard 0 is still in ./{target}"
    assert sorted(path.relative_to(target) for path in target.rglob("*")) == before
    assert staged_files(target) == ["a of 0", "b of 0"]


def test_test_sets_of_their_own_are_all_tested(config: LauncherConfig, tmp_path: Path) -> None:
    """TEST_DATA=split: each trainer tests its own part."""
    for number in range(3):
        path = config.job_dir / str(number) / "data" / "test.txt"
        path.unlink()
        path.write_text(f"test of {number}\n")
    target = tmp_path / "work" / "data"
    stage_shard(config, 0, target, AttemptHistory(), record_of(2, absent=(0, 1)))
    assert sorted(staged_files(target, "test.list")) == [f"test of {number}" for number in range(3)]


def test_a_pod_whose_trainer_this_attempt_does_without_stages_nothing(config: LauncherConfig, tmp_path: Path) -> None:
    record = dataclasses.replace(record_of(0, 2, 3, absent=(1,)), gradient_num=2, pserver_num=3)
    said = stage_shard(config, 2, tmp_path / "data", AttemptHistory(), record)
    assert said == "no trainer in this pod: the number of trainers in this attempt is 2"
    assert not (tmp_path / "data").exists()


def test_a_pod_that_had_a_pserver_alone_trains_the_shard_that_is_left_over(
    config: LauncherConfig, tmp_path: Path
) -> None:
    record = dataclasses.replace(record_of(1, 2, 4, absent=(0, 3)), gradient_num=3, pserver_num=3)
    target = tmp_path / "work" / "data"
    stage_shard(config, 2, target, AttemptHistory(), record)
    assert staged_files(target) == ["a of 0", "b of 0"]


def test_an_absent_trainers_shard_that_is_not_there_is_missing_input(config: LauncherConfig, tmp_path: Path) -> None:
    (config.job_dir / "1").rename(config.job_dir / "gone")
    with pytest.raises(IndivisibleError, match=r"shard 1, .*/1/data, cannot be divided"):
        plan_portions(config, [0, 2])
    (config.job_dir / "1" / "data").mkdir(parents=True)
    with pytest.raises(IndivisibleError):
        plan_portions(config, [0, 2])


def test_a_failed_copy_leaves_nothing_that_would_be_taken_for_a_shard(config: LauncherConfig, tmp_path: Path) -> None:
    target, history = tmp_path / "work" / "data", AttemptHistory()
    record = record_of(0, absent=(1, 2))
    (config.job_dir / "2" / "data" / "b.txt").unlink()
    (config.job_dir / "2" / "data" / "b.txt").symlink_to("nowhere")
    (config.job_dir / "2" / "data" / "train.list").unlink()
    (config.job_dir / "2" / "data" / "train.list").write_text("data/a.txt\n")
    with pytest.raises(MissingInputError, match=r"b\.txt"):
        stage_shard(config, 0, target, history, record)
    assert (
        history.staged and history.staged.portion is None and not [path for path in target.rglob("*") if path.is_file()]
    )


def test_a_list_that_the_own_shard_lacks_names_each_file_once(config: LauncherConfig, tmp_path: Path) -> None:
    """After a copy that failed, the list was still there, and the next one added the same files to it."""
    target, history = tmp_path / "work" / "data", AttemptHistory()
    (config.job_dir / "1" / "data" / "more.list").write_text("data/a.txt\n")
    record = record_of(0, absent=(1, 2))
    stage_shard(config, 0, target, history, record)
    before = (target / "more.list").read_text()
    history.staged = None
    stage_shard(config, 0, target, history, record)
    assert (target / "more.list").read_text() == before == "data/absent_1/a.txt\n"


def test_portions_are_equal_by_what_they_hold() -> None:
    assert Portion(1, (Piece(2, "train.list", "data/a", 1),)) == Portion(1, (Piece(2, "train.list", "data/a", 1),))
