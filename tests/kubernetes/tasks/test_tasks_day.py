"""The day of the blog: a service takes room by day and frees it at night; the training job shrinks and grows again."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from autoscale.account import edited
from day_record import DayRecord
from kubernetes_cluster import Cluster, Image, Namespace
from tasks_run import ElasticRun, Start

pytestmark = pytest.mark.elastic
LEAST, MOST = 1, 6


@pytest.fixture
def autoscaler(cluster: Cluster, image: Image, tmp_path: Path) -> Iterator[None]:
    """Create k8s/tasks/autoscaler as a user does."""
    directory = edited(tmp_path, cluster_wide=True)
    file = directory / "kustomization.yaml"
    file.write_text(file.read_text().replace("newName: REPO/paddle", f"newName: {image.reference.rpartition(':')[0]}"))
    cluster.kubectl("delete", "--ignore-not-found", "--timeout=120s", "-k", directory)
    cluster.kubectl("create", "--validate=strict", "-k", directory)
    try:
        where = ("-n", "paddle-autoscaler", "deployment/paddle-autoscaler")
        cluster.kubectl("wait", *where, "--for=condition=Available", "--timeout=120s")
        yield
    finally:
        print(cluster.kubectl("-n", "paddle-autoscaler", "logs", "deployment/paddle-autoscaler", check=False)[-6000:])
        cluster.kubectl("delete", "--ignore-not-found", "--timeout=120s", "-k", directory)


@contextlib.contextmanager
def recorded(run: ElasticRun, name: str) -> Iterator[DayRecord]:
    """Record the day during the block; E2E_RECORDS names the directory for the record."""

    # the thread of the record uses its own HTTP session
    own = ElasticRun(Namespace(Cluster(), run.space.name, run.space.volume), run.work, run.watch, run.passes)

    def look() -> tuple[int, int, int, int, float]:
        running, all_of_them = len(own.running("trainer")), len(own.pods("trainer"))
        wanted = own.space.job("paddle-trainer")["spec"]["parallelism"]
        return running, all_of_them - running, len(own.running("service")), wanted, round(own.share(), 4)

    with DayRecord(look) as day:
        yield day
    directory = os.environ.get("E2E_RECORDS")
    if directory:
        day.write(Path(directory) / f"{name}.json")


def test_a_service_takes_the_room_and_gives_it_back(start: Start) -> None:
    """Without an autoscaler, the scheduler removes trainers to make room for the service, and no task is lost."""
    run = start("elastic-day", trainers=5, passes=30)
    with recorded(run, "day") as day:
        run.wait("5 trainers", lambda: len(run.running("trainer")) == 5)
        run.wait_for_share(0.1)
        day.mark("day: 3 pods of the service")
        run.serve(3)
        assert 1 <= len(run.running("trainer")) < 5
        run.wait_for_share(run.share() + 0.1)
        day.mark("night: none")
        run.serve(0)
        run.wait("5 trainers again", lambda: len(run.running("trainer")) == 5)
        run.check()
    assert not run.space.job("paddle-trainer")["status"].get("failed")


def test_the_autoscaler_shrinks_training_by_day_and_grows_it_at_night(start: Start, autoscaler: None) -> None:
    run = start("elastic-autoscaled", trainers=2, passes=60)
    bounds = [f"paddle/trainers-min={LEAST}", f"paddle/trainers-max={MOST}"]
    run.space.kubectl("annotate", "job", "paddle-trainer", "--overwrite", *bounds)

    def wanted() -> int:
        return int(run.space.job("paddle-trainer")["spec"]["parallelism"])

    with recorded(run, "autoscaled") as day:
        run.wait(f"{MOST} trainers", lambda: len(run.running("trainer")) == wanted() == MOST)
        day.mark("day: 3 pods of the service")
        run.serve(3)
        run.wait("parallelism that fits", lambda: wanted() == len(run.running("trainer")) < MOST)
        run.wait_for_share(run.share() + 0.1)
        day.mark("night: none")
        run.serve(0)
        run.wait(f"{MOST} trainers again", lambda: len(run.running("trainer")) == wanted() == MOST)
        run.check()
    assert not run.space.job("paddle-trainer")["status"].get("failed")
