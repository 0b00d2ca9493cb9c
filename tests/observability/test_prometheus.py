"""A real Prometheus scrapes a real job, and the questions of the board have answers.

The job's provider keeps the fourth pass waiting until the tests have looked: meanwhile every counter stands still.
"""

import contextlib
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus import Prometheus
from three_pods import JOB, PODS, ROOT, prepare

from paddle_cluster.localcluster import Cluster, load_job
from pserver.server.server_metrics import METRICS as OF_PSERVER
from trainer.telemetry.trainer_metrics import METRICS as OF_TRAINER

BOARD = ROOT / "k8s" / "grafana" / "paddle.json"
PASSES = 3  # before the provider waits
HEALTH, PSERVER, TRAINER = 9164, 9165, 9166  # ports of k8s/job.yaml
DEADLINE_S = 240


def wait_in_pass(config: Path, number: int, go: Path) -> None:
    """Make the example's provider wait in a pass until there is a file; it is asked anew in every pass."""
    provider = config / "digits_provider.py"
    text = provider.read_text()
    changed = text.replace(", cache=CacheType.CACHE_PASS_IN_MEM", "").replace(
        "    with open(",
        "    import os, time\n"
        "    passes.append(file_name) if 'train' in file_name else None\n"
        f"    while len(passes) > {number} and not os.path.exists({str(go)!r}):\n"
        "        time.sleep(0.02)\n"
        "    with open(",
    )
    assert changed.count("time.sleep") == 1 and "cache" not in changed
    provider.write_text(changed.replace("@provider", "passes = []\n\n\n@provider"))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A job of three pods that waits, and a Prometheus that has scraped it."""
    volume = tmp_path_factory.mktemp("volume")
    folder, go = prepare(volume), volume / "go"
    wait_in_pass(folder / "digits", PASSES, go)
    pods = tmp_path_factory.mktemp("pods")
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(
            Cluster(
                load_job(ROOT / "k8s" / "job.yaml"),
                volumes={"mfs": volume},
                entrypoint=ROOT / "start.sh",
                env={"NUM_PASSES": str(PASSES + 1), "CONF_PADDLE_LOG_JSON": "1", "PADDLE_PEER_TIMEOUT": "120"},
                logs=pods,
            )
        )
        for pod in range(PODS):
            cluster.wait_for_output(rf"Pass={PASSES - 1} Batch=", DEADLINE_S, str(pod))
        ips = {pod.index: pod.ip for pod in cluster.pods()}
        targets = [f"{ip}:{port}" for ip in ips.values() for port in (PSERVER, TRAINER)]
        labels = {"job_name": JOB}
        prometheus = stack.enter_context(Prometheus(tmp_path_factory.mktemp("x") / "prometheus", targets, labels))
        prometheus.wait_for(lambda: prometheus.value("sum(up)") == len(targets), "all targets")
        # in the fourth pass everybody stands still; a rate needs two looks
        prometheus.wait_for(lambda: prometheus.value("min(paddle_trainer_pass)") == PASSES, "the pass that waits")
        prometheus.wait_for(lambda: prometheus.value("min(count_over_time(up[1h]))") > 3, "some scrapes")
        yield SimpleNamespace(
            prometheus=prometheus, ips=ips, output=folder / "output", folder=folder, go=go, cluster=cluster
        )


def lines_of(job: SimpleNamespace, trainer: int) -> int:
    return len((job.folder / str(trainer) / "data" / "train.txt").read_text().splitlines())


@pytest.mark.parametrize("trainer", range(PODS))
def test_each_trainer_has_trained_its_shard_in_every_pass(job, trainer):
    value, of = job.prometheus.value, f'{{trainer="{trainer}"}}'
    assert value(f"paddle_trainer_samples_total{of}") == PASSES * lines_of(job, trainer)
    assert value(f"paddle_trainer_batches_total{of}") == PASSES * -(-lines_of(job, trainer) // 32)
    assert value(f"paddle_trainer_passes_total{of}") == PASSES
    assert value(f"paddle_trainer_wanted_passes{of}") == PASSES + 1
    assert value(f"paddle_trainer_batch{of}") == 0
    assert value(f'paddle_trainer_ready{{trainer="{trainer}"}}') == 1
    series = next(iter(job.prometheus.query(f"paddle_trainer_samples_total{of}")))
    assert dict(series)["instance"] == f"{job.ips[trainer]}:{TRAINER}" and dict(series)["job_name"] == JOB


def test_the_build_says_job_and_attempt(job):
    record = json.loads((job.output / "job.json").read_text())
    found = job.prometheus.query("paddle_build_info")
    assert len(found) == 2 * PODS
    attempts = {(dict(one)["paddle_job"], dict(one)["attempt"]) for one in found}
    assert attempts == {(JOB, record["attempts"][-1]["name"])}


def test_the_pods_are_live_and_ready_while_the_data_keeps_them_waiting(job):
    for ip in job.ips.values():
        for path in ("/healthz", "/readyz"):
            with urllib.request.urlopen(f"http://{ip}:{HEALTH}{path}", timeout=30) as answer:
                assert answer.read() == b"ok\n"


def test_a_pod_whose_trainer_is_frozen_is_not_ready_and_lives(job):
    """SIGSTOP; it is dead only after PADDLE_STUCK_TIMEOUT. Its peers wait in the same way, and stay ready."""
    job.cluster.kill("1", "paddle train", 19)

    def status(index: int, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://{job.ips[index]}:{HEALTH}{path}", timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    try:
        job.prometheus.wait_for(lambda: status(1, "/readyz") == 503, "the frozen pod to be unready")
        assert status(1, "/healthz") == status(0, "/healthz") == status(0, "/readyz") == 200
    finally:
        job.cluster.kill("1", "paddle train", 18)
    job.prometheus.wait_for(lambda: status(1, "/readyz") == 200, "the pod to be ready again")


# ----- The board


def expressions() -> Iterator[tuple[str, str]]:
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("panel", "expression"), list(expressions()))
def test_prometheus_has_an_answer_to_every_expression_of_the_board(job, panel, expression):
    found = job.prometheus.query(expression.replace("$job_name", ".*").replace("$__rate_interval", "1h"))
    if "asynchronous" in panel:  # this job is not; the names are checked below
        assert not found
    else:
        assert found, expression


def test_the_boards_metrics_are_ours_and_its_places_do_not_overlap():
    known = {one.name for one in (*OF_PSERVER, *OF_TRAINER)}
    used = {name for _, text in expressions() for name in re.findall(r"\b(?:paddle|process)_\w+(?=\{)", text)}
    assert {name for name in used if name.startswith("paddle_")} <= known
    assert {name for name in known - used if "ready" not in name} <= LEFT_OUT
    board = json.loads(BOARD.read_text())
    cells = [
        (x, y)
        for panel in board["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


LEFT_OUT = {
    "paddle_pserver_wanted_trainers",
    "paddle_pserver_connections",
    "paddle_pserver_passes_total",
    "paddle_trainer_passes_total",
    "paddle_trainer_batches_total",
}


def test_the_pages_scrape_configuration_is_one(tmp_path):
    (block,) = re.findall(
        r"^```yaml\n(scrape_configs:.*?)^```", (ROOT / "docs" / "metrics.md").read_text(), re.M | re.S
    )
    assert block.count("kubernetes_sd_configs: [{role: pod}]") == 1
    found = block.replace("kubernetes_sd_configs: [{role: pod}]", "static_configs: [{targets: [127.0.0.1:9165]}]")
    (tmp_path / "prometheus.yml").write_text(found)
    done = subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pages_expressions_have_answers(job):
    page = (ROOT / "docs" / "metrics.md").read_text()
    expressions = re.findall(r"`((?:sum|max|avg|rate)\b[^`]*)`", page[page.index("These expressions") :])
    assert len(expressions) >= 6
    for expression in expressions:
        assert job.prometheus.query(expression.replace("[1m]", "[1h]")), expression


def test_the_job_ends_well_for_all_that(job):
    job.go.touch()
    result = job.cluster.wait(deadline=DEADLINE_S)
    assert result.outcome.is_complete
    for node in range(PODS):
        for name, role in (("train.jsonl", "trainer"), ("server.jsonl", "pserver")):
            lines = [json.loads(line) for line in (job.output / f"node_{node}" / name).read_text().splitlines()]
            assert {line["role"] for line in lines} == {role} and {line["attempt"] for line in lines} == {
                json.loads((job.output / "job.json").read_text())["attempts"][-1]["name"]
            }
