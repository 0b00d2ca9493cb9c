"""The steps of the README with the files that a user gets; only image and volume are edited."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kubernetes_cluster import REPOSITORY, Cluster, Overlay, copy_volume, give, namespace_with_volume

NUMBER_OF_NODES = re.compile(r"parallelism: \d+|completions: \d+|(?:GRADIENT_NUM|SPLIT_COUNT)\n +value: \S+")
JOB = "paddle-cluster-job"
TEST_ERROR = re.compile(r"Test samples=\d+ .*classification_error_evaluator=(\S+)")


class Pod(NamedTuple):
    """A finished pod."""

    index: int
    ip: str
    node: str
    phase: str
    log: str


class Walk(NamedTuple):
    """A completed training Job."""

    pods: list[Pod]
    tree: Path

    @property
    def output(self) -> Path:
        return self.tree / "output"


@pytest.fixture(scope="module")
def walk(cluster: Cluster, digits: Path, overlay: Overlay, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    volume = tmp_path_factory.mktemp("walk") / "volume"
    copy_volume(digits, volume)
    give(volume)
    with namespace_with_volume(cluster, "walk", volume) as space:
        space.kubectl("create", "-f", REPOSITORY / "k8s/rbac.yaml", "-f", REPOSITORY / "k8s/pvc.yaml")
        space.kubectl("create", "-k", overlay("walk"), "-l", "app.kubernetes.io/component=training")
        space.wait_for_success(JOB)
        pods = []
        for pod in space.pods(JOB):
            index = int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])
            log = space.kubectl("logs", pod["metadata"]["name"])
            pods.append(Pod(index, pod["status"]["podIP"], pod["spec"]["nodeName"], pod["status"]["phase"], log))
        yield Walk(sorted(pods), volume / JOB)


def test_one_edit_changes_the_number_of_nodes(cluster: Cluster, tmp_path: Path) -> None:
    """Make the edit of docs/number-of-nodes.md."""
    shutil.copytree(REPOSITORY / "k8s", tmp_path / "k8s")
    file = tmp_path / "k8s/kustomization.yaml"
    file.write_text(file.read_text().replace("count=3", "count=5"))
    rendered = cluster.kubectl("kustomize", tmp_path / "k8s")
    numbers = [re.sub(r"\D", "", found) for found in NUMBER_OF_NODES.findall(rendered)]
    # the data job itself stays one pod, so 1 occurs twice
    assert sorted(numbers) == ["1", "1", "5", "5", "5", "5"]
    assert "kind: ConfigMap" not in rendered
    cluster.kubectl("create", "--dry-run=server", "--namespace", "kube-public", "-f", "-", stdin=rendered)


def test_quick_start_is_chosen_by_one_line(cluster: Cluster, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "k8s", tmp_path / "k8s")
    file = tmp_path / "k8s/kustomization.yaml"
    file.write_text(file.read_text().replace("#  - components/quick_start", "  - components/quick_start"))
    rendered = cluster.kubectl("kustomize", tmp_path / "k8s")
    assert re.search(r"TRAIN_CONFIG_DIR\n +value: quick_start", rendered)
    assert re.search(r"DATA_SOURCE\n +value: quick_start", rendered)


def test_three_pods_ran_on_three_nodes_and_succeeded(walk: Walk) -> None:
    assert [pod.phase for pod in walk.pods] == ["Succeeded"] * 3
    assert len({pod.node for pod in walk.pods}) == 3


def test_the_volume_has_the_tutorials_tree(walk: Walk) -> None:
    assert {"0", "1", "2", "digits", "output"} <= {path.name for path in walk.tree.iterdir()}
    shards = [(walk.tree / str(shard) / "data/train.list").is_file() for shard in range(3)]
    assert shards == [True] * 3
    assert {"node_0", "node_1", "node_2"} <= {path.name for path in walk.output.iterdir()}


def test_ids_are_the_completion_indexes_and_servers_are_listed_in_id_order(walk: Walk) -> None:
    servers = ",".join(pod.ip for pod in walk.pods)
    for pod in walk.pods:
        log = (walk.output / f"node_{pod.index}/train.log").read_text()
        assert f"--trainer_id={pod.index} " in log
        assert f"--pservers={servers} " in log
        assert f"--num_gradient_servers={len(walk.pods)}" in log


def test_the_logs_of_the_pods_are_the_files_on_the_volume(walk: Walk) -> None:
    for pod in walk.pods:
        directory = walk.output / f"node_{pod.index}"
        assert (directory / "server.log").stat().st_size > 0
        assert set((directory / "train.log").read_text().splitlines()) <= set(pod.log.splitlines())
        assert not (directory / "error.json").exists()


def test_every_pass_was_saved_whole(walk: Walk) -> None:
    passes = sorted(walk.output.glob("pass-*"))
    assert [path.name for path in passes] == [f"pass-{k:05d}" for k in range(10)]
    parameters = [{file.name for file in path.iterdir() if file.name.startswith("_")} for path in passes]
    assert parameters[0] and all(names == parameters[0] for names in parameters)
    assert all((path / "done").is_file() for path in passes)


def test_the_model_has_learned_the_digits(walk: Walk) -> None:
    for pod in walk.pods:
        errors = [float(error) for error in TEST_ERROR.findall(pod.log)]
        assert len(errors) == 10
        assert errors[-1] < 0.06
