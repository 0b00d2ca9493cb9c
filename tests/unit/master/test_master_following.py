"""What a trainer says that finds no master."""

from pathlib import Path

from paddle_cluster.master.following import FollowedLeader, describe_absence
from paddle_cluster.master.store.directory import DirectoryStore


def test_the_jobs_of_a_store_are_named_to_a_trainer_of_another_name() -> None:
    text = describe_absence("digit", "--store_dir=store", ["digits", "words"])
    assert text == (
        "job 'digit' has no master in --store_dir=store, where the jobs are 'digits', 'words': give the name of the "
        "job with --job_name, or start paddle master --job=digit there"
    )
    assert "no job has a master in --store_dir=store" in describe_absence("digits", "--store_dir=store", [])
    assert "the master of job 'digits' has left" in describe_absence("digits", "--store_dir=store", ["digits"])


def test_a_trainer_looks_around_in_a_directory(tmp_path: Path) -> None:
    leader = FollowedLeader()
    leader.look_around("digit", DirectoryStore(tmp_path / "store" / "digit"))
    assert (
        leader.trouble == f"no job has a master in --store_dir={tmp_path}/store; start paddle master --job=digit there"
    )
    leadership = DirectoryStore(tmp_path / "store" / "digits").campaign(lambda: False, lambda _: None)
    assert leadership is not None
    leadership.resign()
    (tmp_path / "store" / "a-file").touch()
    other = FollowedLeader()
    other.look_around("digit", DirectoryStore(tmp_path / "store" / "digit"))
    assert "where the jobs are 'digits': give the name" in other.trouble
