"""`kubectl delete pod` with a grace period and by force: the pod is replaced, and no other pod is."""

import pytest
from long_job import StartJob

BY_FORCE = ("--force", "--grace-period=0")


@pytest.mark.parametrize(
    ("index", "options"),
    [pytest.param(0, (), marks=pytest.mark.short), (1, ()), (0, BY_FORCE), (1, BY_FORCE)],
    ids=["trainer-0", "another", "trainer-0-by-force", "another-by-force"],
)
def test_a_deleted_pod_is_replaced_and_the_bits_are_the_same(
    long_job: StartJob, index: int, options: tuple[str, ...]
) -> None:
    job = long_job(f"delete-{index}-{'force' if options else 'politely'}")
    job.wait_for_batch(0, 50)
    job.space.kubectl("delete", "pod", job.pod(index)["metadata"]["name"], "--wait=false", *options)
    job.wait("replacement", lambda: len(job.pods_of(index)) == 2)
    job.check_end(lost=(index,))
    assert job.failed() == 1
